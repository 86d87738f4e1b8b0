"""Searching in the order of columns: the best rows of each split by its index, or by the sort columns of its hits.

Splits whose statistics prove that none of their rows reaches the page are not opened. Only the rows of the page are
read with all their columns.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidOptionError
from indextables.ops.read import SplitRef, open_again, projected_schema
from indextables.ops.runner import parallel_map
from indextables.ops.search import (
    TOTAL_HITS,
    Page,
    SearchRequest,
    all_hits,
    checked_refs,
    compile_for,
    count,
    narrow,
    rows_matching,
    take_rows,
)
from indextables.pruning import map_values
from indextables.pruning.files import MAX_VALUES, MIN_VALUES, PARTITION_VALUES
from indextables.pruning.ranges import ColumnRange, partition_range, statistics_range
from indextables.search.compile import CompiledQuery
from indextables.search.index_query import IndexField, IndexQuery
from indextables.search.sorting import (
    Cursor,
    FieldOrder,
    SortedRows,
    SortKey,
    follows,
    in_order,
    keys_of,
    parse_sort,
)
from indextables.split.index_cache import index_cache
from indextables.split.split import Split
from indextables.table import Snapshot

# The cursor behind the last row of a page, in the metadata of the schema of an answer.
NEXT_PAGE: Final = b"indextables.search_after"

# The factor by which the number of rows grows each time that too few of them come after the cursor.
_WIDENING: Final = 8


class SortedPage(msgspec.Struct, frozen=True):
    """A page in the order of columns; it starts after a cursor, if there is one."""

    sort: tuple[SortKey, ...]
    page: Page
    after: Cursor | None = None

    @classmethod
    def of(
        cls, snapshot: Snapshot, sort: str | Sequence[str], page: Page, after: pa.Table | str | None = None
    ) -> "SortedPage":
        """Read the columns to sort by, and the cursor or the page before. Raises InvalidOptionError."""
        keys = parse_sort(sort, snapshot.schema)
        if isinstance(after, pa.Table):
            cursor = (after.schema.metadata or {}).get(NEXT_PAGE)
            if cursor is None:
                raise InvalidOptionError(
                    "search_after is not a page of a sorted search, or an empty one, after which nothing follows"
                )
            after = cursor.decode()
        return cls(keys, page, None if after is None else Cursor.from_text(after))


class _Found(NamedTuple):
    """The best rows of many splits."""

    splits: NDArray[np.int64]
    rows: SortedRows


def search_sorted(
    snapshot: Snapshot, request: SearchRequest, columns: Sequence[str] | None, wanted: SortedPage
) -> pa.Table:
    """The rows of a page, with a cursor for the next one in the metadata of the schema, under NEXT_PAGE.

    Raises InvalidOptionError for a cursor of another version or order, and what `search` raises.
    """
    wanted.page.check()
    _check_cursor(snapshot, wanted)
    schema = projected_schema(snapshot.schema, columns)
    entries, narrowed = narrow(snapshot, request)
    refs = checked_refs(snapshot, entries, narrowed)
    found = _best(snapshot, refs, entries, narrowed, wanted)
    start = wanted.page.offset
    splits, rows = found.splits[start:], found.rows.rows[start:]
    metadata = {}
    if len(rows):
        keys = tuple(_encoded(each[len(each) - 1].as_py()) for each in found.rows.keys)
        last = Cursor(snapshot.version, wanted.sort, keys, refs[splits[-1]].path, int(rows[-1]))
        metadata[NEXT_PAGE] = last.to_text()
    if wanted.page.with_total:
        metadata[TOTAL_HITS] = str(count(snapshot, request))
    return take_rows(snapshot, refs, splits, rows, schema).replace_schema_metadata(metadata or None)


def _check_cursor(snapshot: Snapshot, wanted: SortedPage) -> None:
    cursor = wanted.after
    if cursor is None:
        return
    if cursor.sort != wanted.sort:
        raise InvalidOptionError("search_after belongs to another order; use the same sort for all pages")
    if cursor.version != snapshot.version:
        raise InvalidOptionError(
            f"search_after is of version {cursor.version}, and this is version {snapshot.version}; open the table with "
            f"version={cursor.version} to read its next page"
        )


def _best(
    snapshot: Snapshot,
    refs: Sequence[SplitRef],
    entries: pa.Table,
    request: SearchRequest,
    wanted: SortedPage,
) -> _Found:
    """The first rows of all splits, in order. Splits are searched from the most promising to the least."""
    if len(refs) == 1:
        only = _in_split(snapshot, request, wanted, open_again(snapshot, refs[0]))
        if len(only) > wanted.page.end:
            only = _chosen(only, np.arange(wanted.page.end))
        return _Found(np.zeros(len(only), np.int64), only)
    parallelism = snapshot.context.settings[READ_PARALLELISM]
    found = _Found(np.empty(0, np.int64), SortedRows(np.empty(0, np.int64), ()))
    left, bounds = _by_promise(snapshot, refs, entries, wanted.sort[0])
    while len(left):
        now, left = left[:parallelism], left[parallelism:]
        parts = parallel_map(
            lambda number: _in_split(snapshot, request, wanted, open_again(snapshot, refs[number])),
            now.tolist(),
            parallelism,
        )
        found = _merged(wanted, [found, *(map(_Found, _constants(now, parts), parts))])
        left = left[_may_reach(wanted, found, bounds, left)]
    return found


def _constants(numbers: NDArray[np.int64], parts: Sequence[SortedRows]) -> list[NDArray[np.int64]]:
    return [np.full(len(part), number, np.int64) for number, part in zip(numbers, parts, strict=True)]


def _merged(wanted: SortedPage, parts: Sequence[_Found]) -> _Found:
    parts = [part for part in parts if len(part.splits)] or parts[-1:]
    keys = [pa.concat_arrays(arrays) for arrays in zip(*(part.rows.keys for part in parts), strict=True)]
    splits = np.concatenate([part.splits for part in parts])
    rows = np.concatenate([part.rows.rows for part in parts])
    best = in_order(wanted.sort, keys, splits, rows)[: wanted.page.end]
    chosen = pa.array(best)
    return _Found(splits[best], SortedRows(rows[best], tuple(each.take(chosen) for each in keys)))


def _by_promise(
    snapshot: Snapshot, refs: Sequence[SplitRef], entries: pa.Table, key: SortKey
) -> tuple[NDArray[np.int64], pa.Array | None]:
    """The numbers of the splits, those that may have the first rows first, and the key that no row comes before."""
    if len(refs) < 2:
        return np.arange(len(refs)), None
    column = _range_of(snapshot, entries, key.column)
    # NaN is above all, and some writers leave it out of their maxima; bytes have no statistics.
    if pa.types.is_binary(column.data_type) or (key.descending and pa.types.is_floating(column.data_type)):
        return np.arange(len(refs)), None
    numbers = {path: number for number, path in enumerate(entries["path"].to_pylist())}
    back = pa.array([numbers[ref.path] for ref in refs])
    bounds = (column.upper if key.descending else column.lower).take(back)
    order = in_order([key], [bounds])
    # A split without statistics may have any rows, so it comes first.
    return np.roll(order, bounds.null_count), bounds


def _range_of(snapshot: Snapshot, entries: pa.Table, name: str) -> ColumnRange:
    data_type, partitions = snapshot.shape.type_of(name), snapshot.shape.partition_keys
    if name in partitions:
        texts = map_values(entries[PARTITION_VALUES].combine_chunks(), partitions[name])
        return partition_range(texts, data_type)
    stored = snapshot.shape.stored_names[name]
    minima, maxima = (map_values(entries[each].combine_chunks(), stored) for each in (MIN_VALUES, MAX_VALUES))
    return statistics_range(minima, maxima, data_type)


def _may_reach(
    wanted: SortedPage, found: _Found, bounds: pa.Array | None, left: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which splits may have rows that come before the last one that was found."""
    if bounds is None or len(found.splits) < wanted.page.end:
        return np.ones(len(left), np.bool_)
    last = found.rows.keys[0][len(found.splits) - 1]
    if not last.is_valid:
        return np.ones(len(left), np.bool_)
    beyond = (pc.less if wanted.sort[0].descending else pc.greater)(bounds.take(pa.array(left)), last)
    mask: NDArray[np.bool_] = ~beyond.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _in_split(snapshot: Snapshot, request: SearchRequest, wanted: SortedPage, split: Split) -> SortedRows:
    """The first rows of a split after the cursor."""
    compiled = compile_for(snapshot, request, split)
    order = _field_order(snapshot, compiled, wanted.sort[0])
    if order is None:
        rows = all_hits(snapshot, split, compiled.query)
        if compiled.rest is not None:
            rows = rows_matching(split, rows, compiled.rest)
        return _first(wanted, split, rows)
    query = compiled.query
    narrowed = None if wanted.after is None else order.after(wanted.after.key(0))
    if narrowed is not None:
        query = query.filtered(narrowed)
    limit = wanted.page.end
    while True:
        found = _first_by_field(snapshot, split, order, query, wanted, limit)
        if found is not None:
            return found
        limit *= _WIDENING


def _field_order(snapshot: Snapshot, compiled: CompiledQuery, key: SortKey) -> FieldOrder | None:
    mapping = compiled.scope.mapping
    field = mapping.find(key.column)
    if compiled.rest is not None or field is None:
        return None
    if not FieldOrder.is_possible(field, snapshot.schema.field(key.column)):
        return None
    return FieldOrder(IndexField(mapping.tantivy_schema(), field), key.descending)


def _first_by_field(
    snapshot: Snapshot, split: Split, order: FieldOrder, query: IndexQuery, wanted: SortedPage, limit: int
) -> SortedRows | None:
    """The first rows, if the `limit` best ones by the first key are enough; None if not."""
    rows, terms = split.search_index(
        index_cache(snapshot.context.settings),
        query.needs_of_all_rows() | order.needs,
        lambda searcher: order.best(searcher, query, limit),
    )
    is_all = len(rows) < limit
    if len(wanted.sort) == 1:
        found = SortedRows(rows, (order.keys(terms),))
        if wanted.after is not None:
            found = _after(wanted.after, split, found)
        return found if is_all or len(found) >= wanted.page.end else None
    if not is_all:
        # Other keys decide between the rows that share the last term.
        levels = order.keys(terms).dictionary_encode(null_encoding="encode").indices.to_numpy()
        better = rows[levels != levels[-1]]
        equal = query.filtered(order.equal(terms[-1]))
        rows = np.concatenate([better, all_hits(snapshot, split, equal)])
    found = _first(wanted, split, np.sort(rows))
    return found if is_all or len(found) >= wanted.page.end else None


def _first(wanted: SortedPage, split: Split, rows: NDArray[np.int64]) -> SortedRows:
    """The first of some rows, by their sort columns."""
    values = split.take(rows, [key.column for key in wanted.sort])
    found = SortedRows(rows, keys_of(values, wanted.sort))
    if wanted.after is not None:
        found = _after(wanted.after, split, found)
    return _chosen(found, in_order(wanted.sort, found.keys)[: wanted.page.end])


def _after(cursor: Cursor, split: Split, found: SortedRows) -> SortedRows:
    return _chosen(found, np.flatnonzero(follows(cursor, found.keys, split.path, found.rows)))


def _chosen(found: SortedRows, positions: NDArray[np.int64]) -> SortedRows:
    chosen = pa.array(positions)
    return SortedRows(found.rows[positions], tuple(each.take(chosen) for each in found.keys))


def _encoded(key: int | bytes | None) -> int | str | None:
    return key.hex() if isinstance(key, bytes) else key
