"""Reads the rows of a split: a scan reads row groups, or pages where few of them may match; `take` reads pages.

Only the byte ranges that are needed are fetched. The checksum of every page is verified.
"""

import mmap
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indextables._arrow import arrow_from_numpy
from indextables._caching import LruCache, lazy_property, shared_cache
from indextables.errors import IndexTablesError, SplitCorruptedError, StorageError
from indextables.predicates import BoundPredicate
from indextables.split.bundle import Bundle
from indextables.split.byte_ranges import prefetched, read_range, read_ranges
from indextables.split.deleted_rows import DeletedRows
from indextables.split.pages import PageReader, PageTable
from indextables.split.rows_pruning import PlaceStatistics, PrunedColumns, group_statistics, page_statistics
from indextables.split.split import (
    NumberedRows,
    RowNumbers,
    TableColumns,
    matching,
    needed_columns,
    numbered,
    rows_of_ranges,
)
from indextables.storage import ObjectStore, coalesce

_Numbers = npt.NDArray[np.int64]

# Few, because other splits are decoded at the same time, and each thread holds a row group in memory.
_MAX_DECODING_THREADS: Final = 4
# The columns of a smaller row group are decoded one after the other.
_MIN_THREADED_BYTES: Final = 1024**2
# A row group is read by page if at most this share of its pages may match.
_FEW_PAGES: Final = 0.5
# How many pages are fetched and decoded together.
_PAGES_AT_A_TIME: Final = 128
# How many bytes of row groups are fetched and decoded together.
_WINDOW_BYTES: Final = 16 * 1024**2

# Decoded pages are kept because the next search often takes neighbouring rows. More pages than this are kept only if
# they are not larger in the split, where most are compressed: all of them are in memory at once.
_MAX_PAGES_KEPT: Final = 64
_MAX_STORED_BYTES_KEPT: Final = 32 * 1024**2
_DECODED_BYTES: Final = 128 * 1024**2
_DECODED: LruCache[Hashable, pa.Table] = shared_cache(
    "split.rows_reader.pages", "decoded pages", max_bytes=_DECODED_BYTES
)

# Readers of pages hold the metadata of their splits, decoded, which takes several times as much memory. Of a table with
# many splits, a search reads rows of few.
_BYTES_PER_METADATA_BYTE: Final = 7
_PAGE_READERS: LruCache[Hashable, PageReader] = shared_cache(
    "split.rows_reader.page_readers", "readers of pages, with decoded metadata", max_bytes=64 * 1024**2
)


class RowsReader:
    """The rows of one split, in the table's schema."""

    def __init__(self, store: ObjectStore, key: str, bundle: Bundle, table: TableColumns) -> None:
        self._place = f"{store.url}: {key}"
        self._store = store
        self._key = key
        self._bundle = bundle
        self._metadata = bundle.metadata
        self._table = table
        self._token = object()

    def scan(
        self, names: Sequence[str], bound: BoundPredicate | None, deleted: DeletedRows | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows for which a bound predicate is true, in order, with these columns and without deleted rows."""
        needed = needed_columns(names, bound)
        columns = self._columns_of(needed)
        if bound is None and deleted is None:
            found_rows = self._read_groups(range(self._metadata.num_row_groups), columns)
        else:
            found_rows = self._read_matching(bound, columns, deleted)
        for rows in found_rows:
            found = matching(self._assembled(rows, needed), bound)
            if found.num_rows:
                yield from found.select(list(names)).to_batches()

    def scan_numbered(
        self, names: Sequence[str], bound: BoundPredicate | None, deleted: DeletedRows | None
    ) -> Iterator[NumberedRows]:
        """Yield what `scan` yields, with the numbers of the rows."""
        needed = needed_columns(names, bound)
        columns = self._columns_of(needed)
        first_rows = self._pages.first_rows
        for tables, pages in self._reads(self._found_pages(bound), columns):
            numbers = rows_of_ranges(first_rows[pages], first_rows[pages + 1])
            done = 0
            for rows in tables:
                of_rows = numbers[done : done + rows.num_rows]
                done += rows.num_rows
                found = numbered(self._assembled(rows, needed), of_rows, bound, deleted)
                if len(found.numbers):
                    yield NumberedRows(found.numbers, found.rows.select(list(names)))

    def take(self, row_numbers: RowNumbers, names: Sequence[str]) -> pa.Table:
        """Return the rows with these numbers, in the given order. Only their pages are read."""
        numbers = np.asarray(row_numbers, np.int64)
        self._check_numbers(numbers)
        columns = self._columns_of(names)
        if not columns:
            # The table knows the values of partition columns and of columns added later; only the row count is needed.
            return self._assembled(pa.table({"": numbers}), names)
        if not len(numbers):
            return self._assembled(self._schema.empty_table(), names)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        found = pa.concat_tables(self._taken(ascending, columns)).combine_chunks()
        if not np.array_equal(ascending, numbers):
            found = found.take(arrow_from_numpy(np.argsort(order, kind="stable")))
        return self._assembled(found, names)

    def _assembled(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        return self._table.assemble(rows, names, self._names_in_file)

    # --- reading row groups and pages ---

    def _read_matching(
        self, bound: BoundPredicate | None, columns: Sequence[str], deleted: DeletedRows | None
    ) -> Iterator[pa.Table]:
        """Yield rows among which are all that match and are not deleted, in order."""
        found: Iterable[tuple[int, _Numbers]] = self._found_pages(bound)
        if deleted is not None:
            found = self._pages_left(found, deleted)
        for tables, pages in self._reads(found, columns):
            yield from self._rows_left(tables, pages, deleted)

    def _reads(
        self, found: Iterable[tuple[int, _Numbers]], columns: Sequence[str]
    ) -> Iterator[tuple[Iterator[pa.Table], _Numbers]]:
        """Yield the rows of pages, as tables to be read in turn, and the pages. Row groups are read as a whole if most
        of their pages are wanted.
        """
        whole: list[int] = []
        for group, pages in found:
            if len(pages) > _FEW_PAGES * self._num_pages(group):
                whole.append(group)
                continue
            yield self._read_groups(whole, columns), self._pages_of_all(whole)
            whole = []
            yield self._read_pages(pages, columns), pages
        yield self._read_groups(whole, columns), self._pages_of_all(whole)

    def _found_pages(self, bound: BoundPredicate | None) -> list[tuple[int, _Numbers]]:
        """Return the row groups and pages that may have matching rows."""
        if bound is None:
            return [(group, self._pages_of(group)) for group in range(self._metadata.num_row_groups)]
        return self._matching_pages(bound)

    def _pages_left(
        self, found: Iterable[tuple[int, _Numbers]], deleted: DeletedRows
    ) -> Iterator[tuple[int, _Numbers]]:
        """Yield row groups with those of their pages that have a row that is not deleted."""
        first_rows = self._pages.first_rows
        has_rows = deleted.counts(first_rows) < np.diff(first_rows)
        for group, pages in found:
            if len(left := pages[has_rows[pages]]):
                yield group, left

    def _rows_left(
        self, tables: Iterator[pa.Table], pages: _Numbers, deleted: DeletedRows | None
    ) -> Iterator[pa.Table]:
        """Yield tables, which have the rows of these pages one after the other, without their deleted rows."""
        if deleted is None:
            yield from tables
            return
        # The places of the deleted rows among the rows that are read.
        table_of_pages = self._pages
        first_rows = table_of_pages.first_rows
        starts = np.cumsum(first_rows[pages + 1] - first_rows[pages])
        page_of = table_of_pages.pages_of(deleted.rows)
        at = np.searchsorted(pages, page_of)
        is_read = np.isin(page_of, pages)
        places = deleted.rows[is_read] - first_rows[page_of[is_read] + 1] + starts[at[is_read]]
        done = 0
        for rows in tables:
            low, high = np.searchsorted(places, [done, done + rows.num_rows])
            yield _without(rows, places[low:high] - done) if high > low else rows
            done += rows.num_rows

    def _matching_pages(self, bound: BoundPredicate) -> list[tuple[int, _Numbers]]:
        """Return the row groups that may have matching rows, with the pages that may have them."""
        pruned = PrunedColumns(self._table.shape.schema, self._plain_leaves(), self._table.partition_texts())
        leaves = pruned.leaves_of(bound)
        count = self._metadata.num_row_groups
        groups = pruned.matching(
            bound, {leaf: group_statistics(self._metadata, leaf) for leaf in leaves}, count
        ).tolist()
        if not leaves or not groups:
            return [(group, self._pages_of(group)) for group in groups]
        statistics = self._page_statistics(groups, leaves)
        pages = np.concatenate([self._pages_of(group) for group in groups])
        found = pages[pruned.matching(bound, statistics, len(pages))]
        of_group = self._pages.groups_of(found)
        return [(group, found[of_group == group]) for group in sorted(set(of_group.tolist()))]

    def _page_statistics(self, groups: Sequence[int], leaves: Sequence[int]) -> dict[int, PlaceStatistics]:
        """Read the statistics of the pages of these row groups, by leaf, in one round trip."""
        recorded = self._pages.statistics
        wanted = [(leaf, group) for leaf in leaves for group in groups if recorded[leaf, group, 1]]
        ranges = [(int(recorded[place][0]), int(recorded[place][1])) for place in wanted]
        read = dict(zip(wanted, read_ranges(self._store, self._key, ranges), strict=True))
        found: dict[int, PlaceStatistics] = {}
        for leaf in leaves:
            parts = []
            for group in groups:
                data = read.get((leaf, group))
                if data is not None and zlib.crc32(data) != int(recorded[leaf, group, 2]):
                    raise SplitCorruptedError(f"{self._place}: the checksum of a column index is wrong")
                parts.append(self._statistics_of_group(data, leaf, group))
            found[leaf] = PlaceStatistics.concat(parts)
        return found

    def _statistics_of_group(self, column_index: bytes | None, leaf: int, group: int) -> PlaceStatistics:
        count = self._num_pages(group)
        if column_index is None:
            return PlaceStatistics.unknown(count)
        try:
            return page_statistics(column_index, self._metadata.schema.column(leaf).physical_type, count)
        except ValueError as error:
            raise self._read_error(error) from error

    def _taken(self, ascending: _Numbers, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows with these numbers, in order, some at a time."""
        table = self._pages
        pages, firsts = np.unique(table.pages_of(ascending), return_index=True)
        if len(pages) <= _MAX_PAGES_KEPT or int(table.sizes[:, pages].sum()) <= _MAX_STORED_BYTES_KEPT:
            of_page = np.split(ascending, firsts[1:])
            for page, numbers, rows in zip(pages, of_page, self._kept_pages(pages, columns), strict=True):
                yield _picked(rows, numbers - table.first_rows[page])
            return
        # The place of each row among the rows of all these pages.
        lengths = table.first_rows[pages + 1] - table.first_rows[pages]
        skipped = table.first_rows[pages] - (np.cumsum(lengths) - lengths)
        places = ascending - np.repeat(skipped, np.diff([*firsts, len(ascending)]))
        start = 0
        for rows in self._read_pages(pages, columns):
            end = start + rows.num_rows
            low, high = np.searchsorted(places, [start, end])
            yield _picked(rows, places[low:high] - start)
            start = end

    def _read_pages(self, pages: _Numbers, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of pages, some pages at a time, and fetch the next ones ahead."""
        portions = [
            pages[start : start + _PAGES_AT_A_TIME] for start in range(0, len(pages), _PAGES_AT_A_TIME)
        ]
        for _, rows in prefetched(lambda each: self._page_reader.read(each, columns), portions, depth=2):
            yield rows

    def _kept_pages(self, pages: _Numbers, columns: Sequence[str]) -> list[pa.Table]:
        """Return the rows of each page, from the cache or from the split."""
        keys = [(self._token, page, *columns) for page in pages.tolist()]
        kept = [_DECODED.get(key) for key in keys]
        missing = [position for position, rows in enumerate(kept) if rows is None]
        # In portions, because the pages that are decoded together stay in memory together.
        portions = [
            missing[first : first + _PAGES_AT_A_TIME] for first in range(0, len(missing), _PAGES_AT_A_TIME)
        ]
        for portion, read in zip(portions, self._read_pages(pages[missing], columns), strict=True):
            bytes_per_row = read.nbytes / max(read.num_rows, 1)
            start = 0
            for position in portion:
                first, end = self._pages.first_rows[pages[position] : pages[position] + 2].tolist()
                rows = read.slice(start, end - first)
                start += end - first
                kept[position] = rows
                _DECODED.put(keys[position], rows, size_bytes=round(rows.num_rows * bytes_per_row))
        return [rows for rows in kept if rows is not None]

    def _read_groups(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield whole row groups."""
        if not groups:
            return
        local = self._store.open_local(self._key)
        if local is None:
            yield from self._read_remote_groups(groups, columns)
            return
        with local:
            # In parallel by row group rather than by column, because one column is often most of the work. Threads cost
            # more than they save in a small group, also those that read ahead.
            is_large = self._is_large(groups[0])
            use_threads = len(groups) == 1 and is_large

            def decode(group: int) -> pa.Table:
                parquet = self._parquet(local, reads_ahead=is_large)
                return self._decode(parquet, [group], columns, use_threads=use_threads)

            for _, rows in prefetched(decode, groups, depth=min(pa.cpu_count(), _MAX_DECODING_THREADS)):
                yield rows

    def _is_large(self, group: int) -> bool:
        return bool(self._metadata.row_group(group).total_byte_size >= _MIN_THREADED_BYTES)

    def _read_remote_groups(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Fetch the next row groups while these are decoded."""
        leaves = [leaf for name in columns for leaf in self._leaves[name]]
        windows = _plan_windows(self._metadata, groups, leaves)
        file = _SparseFile(self._store, self._key, self._bundle.size)
        parquet = self._parquet(file.reader(), reads_ahead=True)
        for window, _ in prefetched(lambda each: file.fetch(each.ranges), windows, depth=1):
            yield self._decode(parquet, window.groups, columns, use_threads=True)
            file.forget(window.ranges)

    def _parquet(self, source: pa.NativeFile, *, reads_ahead: bool) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(
                source, metadata=self._metadata, pre_buffer=reads_ahead, page_checksum_verification=True
            )
        except (OSError, pa.ArrowException) as error:
            raise self._read_error(error) from error

    def _decode(
        self, parquet: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str], *, use_threads: bool
    ) -> pa.Table:
        try:
            rows = parquet.read_row_groups(list(groups), columns=list(columns), use_threads=use_threads)
        except (OSError, pa.ArrowException) as error:
            raise self._read_error(error) from error
        # A column name with a dot also selects members of a struct.
        return rows.select(list(columns))

    # --- columns and numbers ---

    @property
    def _page_reader(self) -> PageReader:
        reader = _PAGE_READERS.get(self._token)
        if reader is None:
            reader = PageReader(self._store, self._key, self._bundle.parquet_metadata(), self._pages)
            _PAGE_READERS.put(self._token, reader, _BYTES_PER_METADATA_BYTE * len(self._bundle.tail))
        return reader

    @lazy_property
    def _pages(self) -> PageTable:
        return self._bundle.pages(self._place)

    def _pages_of(self, group: int) -> _Numbers:
        first_pages = self._pages.first_pages
        return np.arange(first_pages[group], first_pages[group + 1])

    def _pages_of_all(self, groups: Sequence[int]) -> _Numbers:
        return np.concatenate([np.empty(0, np.int64), *map(self._pages_of, groups)])

    def _num_pages(self, group: int) -> int:
        first_pages = self._pages.first_pages
        return int(first_pages[group + 1] - first_pages[group])

    @lazy_property
    def _schema(self) -> pa.Schema:
        try:
            return self._metadata.schema.to_arrow_schema()
        except (OSError, pa.ArrowException) as error:
            raise self._read_error(error) from error

    @lazy_property
    def _leaves(self) -> dict[str, range]:
        """The Parquet leaves of each column."""
        leaves: dict[str, range] = {}
        start = 0
        for field in self._schema:
            end = start + _leaf_count(field.type)
            leaves[field.name] = range(start, end)
            start = end
        if start != self._metadata.num_columns:
            raise SplitCorruptedError(f"{self._place}: the schema of the rows does not match their columns")
        return leaves

    def _plain_leaves(self) -> dict[str, int]:
        """Return the leaf of each column that is stored as a plain value of the table's type."""
        plain: dict[str, int] = {}
        for name, in_file in self._names_in_file.items():
            data_type = self._table.shape.type_of(name)
            if self._schema.field(in_file).type.equals(data_type) and not pa.types.is_nested(data_type):
                plain[name] = self._leaves[in_file].start
        return plain

    def _columns_of(self, names: Sequence[str]) -> list[str]:
        """Return the names in the file of those columns that it has: no partition columns, and none added later."""
        return [self._names_in_file[name] for name in names if name in self._names_in_file]

    @lazy_property
    def _names_in_file(self) -> dict[str, str]:
        return self._table.names_in_file(self._schema, self._table.shape.schema.names)

    def _check_numbers(self, numbers: _Numbers) -> None:
        count = self._metadata.num_rows
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
            raise SplitCorruptedError(
                f"{self._place}: row {int(numbers.max())} is out of range: the split has {count} rows; its "
                f"index does not match its rows"
            )

    def _read_error(self, error: Exception) -> IndexTablesError:
        what = f"{self._place}: the rows cannot be read: {error}"
        # An error number comes from the operating system: the disk failed, and the file may be intact.
        is_of_system = isinstance(error, OSError) and error.errno is not None
        return StorageError(what) if is_of_system else SplitCorruptedError(what)


def _picked(rows: pa.Table, ascending: _Numbers) -> pa.Table:
    """Return the rows at these places. By batch, because taking from a chunked column would copy all of it first."""
    parts = []
    start = 0
    for batch in rows.to_batches():
        end = start + batch.num_rows
        low, high = np.searchsorted(ascending, [start, end])
        if high - low == 1:
            parts.append(batch.slice(int(ascending[low]) - start, 1))
        elif high > low:
            parts.append(batch.take(arrow_from_numpy(ascending[low:high] - start)))
        start = end
    return pa.Table.from_batches(parts, schema=rows.schema)


def _without(rows: pa.Table, places: _Numbers) -> pa.Table:
    """Return the rows that are not at these places."""
    if not rows.num_columns:
        return pa.table({"": pa.nulls(rows.num_rows - len(places))})  # only their number matters
    mask = np.ones(rows.num_rows, np.bool_)
    mask[places] = False
    is_left = arrow_from_numpy(mask)
    # By column: for a whole table, Arrow turns the mask into row numbers, and taking these is slower.
    return pa.Table.from_arrays([column.filter(is_left) for column in rows.columns], schema=rows.schema)


def _leaf_count(data_type: pa.DataType) -> int:
    if not data_type.num_fields:
        return 1
    return sum(_leaf_count(data_type.field(position).type) for position in range(data_type.num_fields))


# Fetching: the byte ranges of some row groups, in few requests.


class _Window(msgspec.Struct, frozen=True):
    """Row groups that are fetched and decoded together, and their byte ranges."""

    groups: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]


def _plan_windows(metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[int]) -> list[_Window]:
    """Plan the windows for these leaves of these row groups, in order."""
    windows: list[_Window] = []
    members: list[int] = []
    ranges: list[tuple[int, int]] = []
    fetched = 0
    for group in groups:
        of_group = _chunk_ranges(metadata.row_group(group), columns)
        size = sum(end - start for start, end in of_group)
        if members and fetched + size > _WINDOW_BYTES:
            windows.append(_Window(tuple(members), tuple(coalesce(ranges))))
            members, ranges, fetched = [], [], 0
        members.append(group)
        ranges += of_group
        fetched += size
    if members:
        windows.append(_Window(tuple(members), tuple(coalesce(ranges))))
    return windows


class _SparseFile:
    """A split with only some of its ranges in memory.

    It has the split's length and offsets. Ranges that have not been fetched read as zeros and take no memory.
    """

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        # The operating system allocates a page when it is first written.
        self._memory = mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges from the store. Another thread may call this."""
        for start, end in ranges:
            self._memory[start:end] = read_range(self._store, self._key, start, end)

    def forget(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Release the memory of ranges, except for pages that they share with other ranges."""
        for start, end in ranges:
            first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
            length = end // mmap.PAGESIZE * mmap.PAGESIZE - first
            if length > 0:
                self._memory.madvise(mmap.MADV_DONTNEED, first, length)

    def reader(self) -> pa.BufferReader:
        return pa.BufferReader(pa.py_buffer(self._memory))


def _chunk_ranges(group: pq.RowGroupMetaData, columns: Sequence[int]) -> list[tuple[int, int]]:
    ranges = []
    for column in columns:
        chunk = group.column(column)
        starts = [chunk.data_page_offset]
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            starts.append(chunk.dictionary_page_offset)
        start = min(starts)
        ranges.append((start, start + chunk.total_compressed_size))
    return ranges
