"""Sorting by columns: the keys, the best rows of one split by a fast field, and cursors into an order.

Rows are compared by order keys (`pruning.values`): integers or bytes that sort as the values do in Spark, where NaN is
above every number. Null comes last in both directions. Rows with equal keys are in the order of splits and rows.
"""

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tantivy import FieldType, Order, Searcher

from indextables._structs import decodable
from indextables.errors import InvalidOptionError, SearchFailedError
from indextables.pruning.values import NAN_KEY, order_keys
from indextables.schema import find_column
from indextables.search.hits import row_numbers
from indextables.search.index_query import IndexField, IndexQuery, TermSpan, all_queries, all_rows, any_query
from indextables.search.typed_query import is_narrow
from indextables.split.doc_mapping import MAX_TOKEN_BYTES, FieldKind, FieldMapping
from indextables.split.index_files import translating
from indextables.split.needs import Needs, column_needs

# 128-bit keys of decimals have their sign bit flipped.
_DECIMAL_ZERO: Final = 1 << 127
_DECIMAL_BYTES: Final = 16

_SORTED_KINDS: Final = frozenset(
    {
        FieldKind.STRING,
        FieldKind.I64,
        FieldKind.F64,
        FieldKind.BOOL,
        FieldKind.DATE,
        FieldKind.TIMESTAMP,
        FieldKind.TIMESTAMP_NTZ,
        FieldKind.DECIMAL,
        FieldKind.BIG_DECIMAL,
    }
)

_RANGED: Final = (FieldType.Integer, FieldType.Float)

# The value of an order key: an integer, or bytes.
Key: TypeAlias = int | bytes | None


class SortKey(msgspec.Struct, frozen=True):
    """A column to sort by."""

    column: str
    descending: bool = False


class SortedRows(msgspec.Struct, frozen=True, eq=False):
    """Rows of one split in order: their numbers, and an array of order keys for each column that sorts them."""

    rows: NDArray[np.int64]
    keys: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.rows)


@decodable
class Cursor(msgspec.Struct, frozen=True):
    """The place of a row in an order: of a version of a table, its keys, its split and its number there."""

    version: int
    sort: tuple[SortKey, ...]
    keys: tuple[int | str | None, ...]
    path: str
    row: int

    def to_text(self) -> str:
        """Encode the cursor."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "Cursor":
        """Decode a cursor. Raises InvalidOptionError."""
        try:
            return msgspec.json.decode(text, type=Cursor)
        except (msgspec.DecodeError, TypeError) as error:
            raise InvalidOptionError(
                "search_after is not the cursor of a page; pass the page before, which search returned"
            ) from error

    def key(self, number: int) -> Key:
        """Return one of the keys."""
        key = self.keys[number]
        return bytes.fromhex(key) if isinstance(key, str) else key


def parse_sort(sort: str | Sequence[str], schema: pa.Schema) -> tuple[SortKey, ...]:
    """Read "ts", "-ts" or "ts:desc", or several of them. Raises InvalidOptionError for columns without an order."""
    texts = [sort] if isinstance(sort, str) else list(sort)
    keys = tuple(_parse_key(text, schema) for text in texts)
    if len({key.column for key in keys}) < len(keys):
        raise InvalidOptionError(f"a column is sorted by twice in {', '.join(texts)}; name it once")
    return keys


def _parse_key(text: str, schema: pa.Schema) -> SortKey:
    name, _, direction = text.rpartition(":")
    if direction.lower() not in ("asc", "desc") or find_column(schema, text) is not None:
        name, direction = text, "asc"
    if name.startswith("-") and find_column(schema, name) is None:
        name, direction = name[1:], "desc"
    column = find_column(schema, name)
    if column is None:
        near = get_close_matches(name, schema.names, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(schema.names)}"
        raise InvalidOptionError(
            f"there is no column {name!r} to sort by: {remedy} (write ts, or -ts for the latest first)"
        )
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        raise InvalidOptionError(f"column {column.name!r} has the type {column.type}, which has no order")
    return SortKey(column.name, direction.lower() == "desc")


def keys_of(rows: pa.Table, sort: Sequence[SortKey]) -> tuple[pa.Array, ...]:
    """Return the order keys of rows."""
    columns = [rows[key.column].combine_chunks() for key in sort]
    return tuple(each if pa.types.is_binary(each.type) else order_keys(each) for each in columns)


def in_order(
    sort: Sequence[SortKey], keys: Sequence[pa.Array], *ties: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the positions of rows in the order of their keys, and then of `ties`."""
    columns = {f"k{number}": each for number, each in enumerate((*keys, *map(pa.array, ties)))}
    directions = [
        *("descending" if key.descending else "ascending" for key in sort),
        *["ascending"] * len(ties),
    ]
    # By default, Arrow puts nulls last in both directions.
    order = pc.sort_indices(pa.table(columns), sort_keys=list(zip(columns, directions, strict=True)))
    found: NDArray[np.int64] = order.to_numpy().astype(np.int64)
    return found


def follows(
    cursor: Cursor, keys: Sequence[pa.Array], path: str, rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which rows of a split come after the cursor."""
    after = np.zeros(len(rows), np.bool_)
    level = np.ones(len(rows), np.bool_)
    for number, (key, values) in enumerate(zip(cursor.sort, keys, strict=True)):
        bound = cursor.key(number)
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        if bound is None:
            level &= is_null
            continue
        compare = pc.less if key.descending else pc.greater
        beyond = compare(values, pa.scalar(bound, values.type)).fill_null(True)
        after |= level & beyond.to_numpy(zero_copy_only=False)
        level &= (
            pc.equal(values, pa.scalar(bound, values.type)).fill_null(False).to_numpy(zero_copy_only=False)
        )
    if path == cursor.path:
        return after | (level & (rows > cursor.row))
    return after | level if path > cursor.path else after


# Rows by a fast field, which holds the terms of the values.


class FieldOrder(msgspec.Struct, frozen=True):
    """The order of a split's rows by a fast field."""

    index: IndexField
    descending: bool

    @staticmethod
    def is_possible(field: FieldMapping, column: pa.Field) -> bool:
        """Whether a field of the index sorts like the column of the table, which may have a wider type by now."""
        if not field.fast or field.kind not in _SORTED_KINDS or is_narrow(field, column):
            return False
        # Longer texts are not in the index.
        return field.kind is not FieldKind.STRING or field.max_token_bytes >= MAX_TOKEN_BYTES

    @property
    def needs(self) -> Needs:
        """What a search in this order reads of the index, besides the needs of the query."""
        needs = column_needs(self.index.mapping.index_name)
        return needs | self.index.term(math.nan).needs if self._may_have_nan else needs

    @property
    def _may_have_nan(self) -> bool:
        return self.index.mapping.kind is FieldKind.F64

    def best(self, searcher: Searcher, query: IndexQuery, limit: int) -> tuple[NDArray[np.int64], list[Any]]:
        """Return the first rows in this order, and their terms; None for null. Raises SearchFailedError."""
        with translating("the index cannot be searched", SearchFailedError):
            limit = min(limit, searcher.num_docs)
            if limit <= 0:
                return np.empty(0, np.int64), []
            found = self._best(searcher, query, limit)
            return row_numbers(searcher, found), [term for term, _ in found]

    def _best(self, searcher: Searcher, query: IndexQuery, limit: int) -> list[Any]:
        if not self._may_have_nan:
            return self._ordered(searcher, query, limit)
        # Tantivy's order is undefined where there is NaN, which is above all other values here.
        nan = self.index.term(math.nan)
        highest = self._ordered(searcher, all_queries([query, nan]), limit)
        others = self._ordered(searcher, query.without(nan), limit)
        if self.descending:
            return (highest + others)[:limit]
        values = [hit for hit in others if hit[0] is not None]
        return (values + highest + others[len(values) :])[:limit]

    def _ordered(self, searcher: Searcher, query: IndexQuery, limit: int) -> list[Any]:
        hits: list[Any] = searcher.search(
            query.query,
            limit,
            count=False,
            order_by_field=self.index.mapping.index_name,
            order=Order.Desc if self.descending else Order.Asc,
        ).hits
        return hits

    def equal(self, term: Any) -> IndexQuery:
        """Return the query for the rows with a term; None is null."""
        return all_rows().without(self.index.exists()) if term is None else self.index.term(term)

    def after(self, key: Key) -> IndexQuery | None:
        """Return the query for the rows whose key is not before this one; None if the index has no such query."""
        if key is None:
            return self.equal(None)
        if self.index.mapping.field_type not in _RANGED or key == NAN_KEY:
            return None
        term = self._term(key)
        span = TermSpan(None, term) if self.descending else TermSpan(term, None)
        ranges = [self.index.range(span), self.equal(None)]
        if self.index.mapping.kind is FieldKind.F64 and not self.descending:
            ranges.append(self.index.term(math.nan))  # above all others
        return any_query(ranges)

    def keys(self, terms: Sequence[Any]) -> pa.Array:
        """Return the order keys of terms."""
        match self.index.mapping.kind:
            case FieldKind.F64:
                return order_keys(pa.array(terms, pa.float64()))
            case FieldKind.STRING:
                return pa.array(terms, pa.string()).cast(pa.binary())
            case FieldKind.BIG_DECIMAL:
                return pa.array(
                    [None if each is None else bytes.fromhex(each) for each in terms], pa.binary()
                )
            case FieldKind.DECIMAL:
                return pa.array([None if each is None else _decimal_key(each) for each in terms], pa.binary())
        return pa.array([None if each is None else int(each) for each in terms], pa.int64())

    def _term(self, key: int | bytes) -> Any:
        match self.index.mapping.kind, key:
            case FieldKind.F64, int():
                bits = np.int64(key if key >= 0 else key ^ ((1 << 63) - 1))
                return float(bits.view(np.float64))
            case FieldKind.BOOL, int():
                return bool(key)
            case FieldKind.STRING, bytes():
                return key.decode()
            case FieldKind.BIG_DECIMAL, bytes():
                return key.hex()
            case FieldKind.DECIMAL, bytes():
                return int.from_bytes(key, "big") - _DECIMAL_ZERO
        return key


def _decimal_key(unscaled: int) -> bytes:
    return (unscaled + _DECIMAL_ZERO).to_bytes(_DECIMAL_BYTES, "big")
