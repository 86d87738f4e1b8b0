"""Rows of a split as the table's schema has them: columns added since are null, partition columns constant."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables._arrow import arrow_from_numpy
from indextables._caching import lazy_property
from indextables.errors import InvalidSchemaError, InvalidValueError, SplitCorruptedError
from indextables.predicates import BoundPredicate, columns_of, to_arrow_filter
from indextables.pruning import parse_values
from indextables.schema import find_column
from indextables.split.bundle import Bundle
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_cache import IndexCache, cache_key
from indextables.split.index_files import open_index
from indextables.storage import ObjectStore


class TableColumns(msgspec.Struct, frozen=True):
    """The table's schema, and the values of its partition columns in one split, as the log has them."""

    schema: pa.Schema
    partition_columns: tuple[str, ...] = ()
    partition_values: Mapping[str, str | None] | None = None

    def names(self, columns: Sequence[str] | None) -> list[str]:
        """The columns as the schema spells them; all of them for None. Raises InvalidSchemaError."""
        if columns is None:
            return list(self.schema.names)
        fields = [(name, find_column(self.schema, name)) for name in columns]
        for name, field in fields:
            if field is None:
                raise InvalidSchemaError(
                    f"column {name!r} does not exist; the columns are {', '.join(self.schema.names)}"
                )
        return [field.name for _, field in fields if field is not None]

    def stored(self, names: Sequence[str]) -> list[str]:
        """Those of the columns that are no partition columns."""
        return [name for name in names if name not in self.partition_texts()]

    def partition_texts(self) -> dict[str, str | None]:
        """The text of every partition column; a value that the log does not have is null."""
        values = {name.lower(): value for name, value in (self.partition_values or {}).items()}
        return {name: values.get(name.lower()) for name in self.partition_columns}

    def assemble(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """A table of these columns, in the table's types, from rows of the split."""
        texts = self.partition_texts()
        arrays = []
        for name in names:
            field = self.schema.field(name)
            if name in texts:
                arrays.append(pa.repeat(_value(texts[name], field), rows.num_rows))
            else:
                arrays.append(_column(rows, field))
        schema = pa.schema([self.schema.field(name) for name in names])
        # A selection of no columns keeps the number of rows.
        return pa.Table.from_arrays(arrays, schema=schema) if names else rows.select([])


def matching(rows: pa.Table, bound: BoundPredicate | None) -> pa.Table:
    """The rows for which a bound predicate is true."""
    return rows if bound is None else rows.filter(to_arrow_filter(bound))


def needed_columns(names: Sequence[str], bound: BoundPredicate | None) -> list[str]:
    """The columns that are wanted, and those that the predicate speaks of."""
    return list(dict.fromkeys([*names, *(sorted(columns_of(bound)) if bound is not None else ())]))


def _value(text: str | None, field: pa.Field) -> pa.Scalar:
    parsed = parse_values(pa.array([text], pa.string()), field.type)
    if not parsed.understood[0].as_py():
        raise InvalidValueError(
            f"partition column {field.name!r} has the value {text!r}, which is no {field.type}; the log is wrong"
        )
    return parsed.values[0]


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    stored = find_column(rows.schema, field.name)
    if stored is None:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    column = rows.column(stored.name)
    if stored.type.equals(field.type):
        return column
    try:
        return pc.cast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidSchemaError(
            f"column {field.name!r} is {stored.type} in the split and {field.type} in the table: {error}"
        ) from error


# What is known of a split when it has been uploaded.


class SplitFile(msgspec.Struct, frozen=True):
    """An uploaded split: everything that an add action says about it. The path is relative to the table."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time_ms: int
    num_records: int
    min_values: dict[str, str]
    max_values: dict[str, str]
    footer_start_offset: int
    footer_end_offset: int
    uncompressed_size_bytes: int
    doc_mapping_ref: str
    doc_mapping_json: str
    split_tags: tuple[str, ...] = ()


# The face of a split: what can be asked of it, whoever wrote it.


_ONE_ROW = pa.table({"row": arrow_from_numpy(np.zeros(1, np.int64))})

RowNumbers: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


class Split(ABC):
    """An open split: its footer is read, its rows and its index are when they are asked for.

    Rows are numbered from 0 in the order of a scan; the index knows these numbers. Everything that reads
    raises storage errors, and SplitCorruptedError for a file that is damaged.
    """

    def __init__(self, store: ObjectStore, key: str, bundle: Bundle, table: TableColumns) -> None:
        self._store = store
        self._key = key
        self._bundle = bundle
        self._table = table
        self._place = f"{store.url}: {key}"

    @property
    def path(self) -> str:
        """The split's key, relative to the table's root."""
        return self._key

    @property
    def schema(self) -> pa.Schema:
        """The table's schema, which rows are returned in."""
        return self._table.schema

    @property
    def partition_row(self) -> pa.Table:
        """The partition values, typed: a table of one row."""
        return self._table.assemble(_ONE_ROW, self._table.partition_columns)

    @property
    def footer_bytes(self) -> int:
        """The size of what stays in memory while the split is open, as it is in the file."""
        return len(self._bundle.manifest) + len(self._bundle.hot_cache)

    @property
    @abstractmethod
    def num_records(self) -> int:
        """How many rows there are."""

    @property
    @abstractmethod
    def mapping(self) -> DocMapping:
        """How the columns are indexed in what `index` returns."""

    @property
    def unreadable_columns(self) -> tuple[str, ...]:
        """The columns that the split's own index knows, and whose values cannot be read back from it."""
        return ()

    def scan(
        self, columns: Sequence[str] | None = None, predicate: BoundPredicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows for which the predicate is true, in order, with these columns (None: all).

        The predicate is bound to the table's schema. Raises InvalidSchemaError for columns that it does not have.
        """
        return self._scan(self._table.names(columns), predicate)

    def take(self, row_numbers: RowNumbers, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these numbers, in the order given and as often as given, with these columns."""
        return self._take(row_numbers, self._table.names(columns))

    def index(self, cache: IndexCache) -> tantivy.Index:
        """The index, opened from the cache, where it is put first if it is not there.

        The index stays usable when its entry is evicted. Raises IndexCacheError, too.
        """
        try:
            return cache.opened(self._cache_key, self._fill, self._open)
        except SplitCorruptedError:
            # What was right when it came may have been damaged in the cache.
            cache.discard(self._cache_key)
            return cache.opened(self._cache_key, self._fill, self._open)

    @abstractmethod
    def verify(self) -> None:
        """Read everything, and raise SplitCorruptedError if anything is not as it was written."""

    @abstractmethod
    def _scan(self, names: list[str], bound: BoundPredicate | None) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table: ...

    @abstractmethod
    def _index_parts(self) -> list[str | bytes]:
        """What the content of the index depends on."""

    @abstractmethod
    def _fill(self, directory: Path) -> None:
        """Put the index into an empty directory."""

    @lazy_property
    def _cache_key(self) -> str:
        return cache_key(self._index_parts())

    def _open(self, directory: Path) -> tantivy.Index:
        return open_index(directory, self.mapping, self._place)

    def _identity(self) -> list[str | bytes]:
        """This very file, in this very version."""
        bundle = self._bundle
        return [self._store.url, self._key, str(bundle.size), bundle.manifest, bundle.hot_cache]
