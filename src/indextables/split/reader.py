"""Opens splits, ours and those written on the JVM, and reads the rows of ours.

A scan prunes row groups by their statistics; `take` reads single rows by number. The reader fetches only the byte
ranges that it needs, and verifies their checksums.
"""

import hashlib
import mmap
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indextables._arrow import arrow_from_numpy
from indextables._caching import LruCache, lazy_property, shared_cache
from indextables.errors import IndexTablesError, SplitCorruptedError, StorageError, UnsupportedSplitError
from indextables.predicates import BoundPredicate, columns_of
from indextables.pruning.evaluate import evaluate
from indextables.pruning.ranges import ColumnRange, partition_range, unknown_range
from indextables.pruning.values import order_keys
from indextables.schema import TableShape
from indextables.split.bundle import (
    ROWS_MEMBER,
    Bundle,
    Member,
    SplitInfo,
    coalesce,
    decode_info,
    find_member,
    is_ours,
    prefetched,
    read_bundle,
    read_range,
)
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_files import fetch_index
from indextables.split.split import RowNumbers, Split, TableColumns, matching, needed_columns
from indextables.storage import ObjectStore

# Row groups decoded per call: enough to amortize the call, few enough for the CPU caches.
_GROUPS_AT_A_TIME: Final = 32
# Few, because other splits are decoded at the same time, and each thread needs memory.
_MAX_DECODING_THREADS: Final = 4


# How much `OwnSplit.verify` reads at once.
_CHUNK_BYTES: Final = 8 * 1024**2

# Decoded row groups are kept because the next search often takes neighbouring rows. A search that takes rows of more
# groups than this reads them once, and is faster if it reuses the same memory.
_MAX_GROUPS_KEPT: Final = 16
_DECODED_BYTES: Final = 128 * 1024**2
_DECODED: LruCache[Hashable, pa.Table] = shared_cache(
    "split.reader.row_groups", "decoded row groups", max_bytes=_DECODED_BYTES
)


def open_split(
    store: ObjectStore,
    key: str,
    size: int | None = None,
    footer_start: int | None = None,
    footer_end: int | None = None,
    *,
    shape: TableShape | None = None,
    partition_values: Mapping[str, str | None] | None = None,
) -> Split:
    """Open a split, with one range request if the log has the footer's offsets, and two more otherwise.

    `shape` and `partition_values` come from the log; rows are returned in that schema. Without a shape, one of our
    splits is read as it was written, including its partition values.

    Raises ObjectNotFoundError and other storage errors, SplitCorruptedError for a file that is damaged, truncated or
    not a split, and UnsupportedSplitError for a newer format or a JVM split without a schema.
    """
    bundle = read_bundle(store, key, size, footer_start, footer_end)
    place = f"{store.url}: {key}"
    info = decode_info(bundle, place) if is_ours(bundle) else None
    if shape is not None:
        table = TableColumns(shape.checked(), dict(partition_values or {}))
    elif info is not None:
        shape = TableShape(info.schema, info.partition_columns, info.field_ids)
        table = TableColumns(shape, info.partition_values)
    else:
        raise UnsupportedSplitError(
            f"{place}: this split was written on the JVM; open it with the table's schema"
        )
    if info is not None:
        return OwnSplit(store, key, bundle, table, info)
    # Imported here because it imports the index builder: it indexes the rows of a JVM split again.
    from indextables.split.jvm import JvmSplit

    return JvmSplit(store, key, bundle, table)


class OwnSplit(Split):
    """A split that `SplitWriter` wrote; `info` is the description in its footer."""

    def __init__(
        self, store: ObjectStore, key: str, bundle: Bundle, table: TableColumns, info: SplitInfo
    ) -> None:
        super().__init__(store, key, bundle, table)
        self.info = info
        self._rows = RowsReader(store, key, bundle, info, table)

    @property
    def footer_bytes(self) -> int:
        """The size of the split's footer and of the Parquet metadata."""
        return super().footer_bytes + self.info.rows_footer_bytes

    @property
    def num_records(self) -> int:
        return self.info.num_records

    @property
    def mapping(self) -> DocMapping:
        return self.info.mapping

    def verify(self) -> None:
        if self.info.checksums.keys() != self._bundle.members.keys():
            raise SplitCorruptedError(
                f"{self._place}: the footer's checksums do not cover the files of the split"
            )
        for name, member in self._bundle.members.items():
            digest = hashlib.sha256()
            for start in range(member.start, member.end, _CHUNK_BYTES):
                end = min(start + _CHUNK_BYTES, member.end)
                digest.update(read_range(self._store, self._key, start, end))
            if digest.hexdigest() != self.info.checksums[name]:
                raise SplitCorruptedError(
                    f"{self._place}: the checksum of {name} is wrong; the file is damaged"
                )
        if self._rows.metadata.num_rows != self.info.num_records:
            raise SplitCorruptedError(
                f"{self._place}: the split has {self._rows.metadata.num_rows} rows, and its footer says "
                f"{self.info.num_records}"
            )

    def _scan(self, names: list[str], bound: BoundPredicate | None) -> Iterator[pa.RecordBatch]:
        return self._rows.scan(names, bound)

    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table:
        return self._rows.take(row_numbers, names)

    def _index_parts(self) -> list[str | bytes]:
        return ["own", *self._identity()]

    def _fill(self, directory: Path) -> None:
        fetch_index(self._store, self._key, self._bundle, self.info, directory)


class RowsReader:
    """The rows of one split. Checksums protect the metadata and every page."""

    def __init__(
        self, store: ObjectStore, key: str, bundle: Bundle, info: SplitInfo, table: TableColumns
    ) -> None:
        self._place = f"{store.url}: {key}"
        self._member = find_member(bundle, ROWS_MEMBER, self._place)
        self._store = store
        self._key = key
        self._info = info
        self._table = table
        self._token = object()

    def scan(self, names: Sequence[str], bound: BoundPredicate | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows for which a bound predicate is true, in order, with these columns."""
        needed = needed_columns(names, bound)
        groups: Sequence[int] = range(self.metadata.num_row_groups)
        if bound is not None:
            groups = _matching_row_groups(
                self.metadata,
                bound,
                self._table.shape.schema,
                self._plain_leaves(),
                self._table.partition_texts(),
            )
        for _, rows in self._read(groups, self._columns_of(needed)):
            found = matching(self._table.assemble(rows, needed), bound)
            if found.num_rows:
                yield from found.select(list(names)).to_batches()

    def take(self, row_numbers: Sequence[int] | npt.NDArray[np.int64], names: Sequence[str]) -> pa.Table:
        """Return the rows with these numbers, in the given order. Only their row groups are read."""
        numbers = np.asarray(row_numbers, np.int64)
        self._check_numbers(numbers)
        stored = self._columns_of(names)
        if not stored:
            # The table knows the values of partition columns and of columns added later; only the row count is needed.
            return self._table.assemble(pa.table({"": numbers}), names)
        if not len(numbers):
            return self._table.assemble(self._schema.empty_table(), names)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        groups, starts = np.unique(
            np.searchsorted(self._group_ends, ascending, side="right"), return_index=True
        )
        of_group = dict(zip(groups.tolist(), np.split(ascending, starts[1:]), strict=True))
        first_rows = self._group_ends - self._group_sizes
        taken = {
            group: rows.take(arrow_from_numpy(of_group[group] - first_rows[group]))
            for group, rows in self._groups(list(of_group), stored)
        }
        found = pa.concat_tables([taken[group] for group in of_group])
        if not np.array_equal(ascending, numbers):
            found = found.take(arrow_from_numpy(np.argsort(order, kind="stable")))
        return self._table.assemble(found, names)

    @lazy_property
    def metadata(self) -> pq.FileMetaData:
        """The Parquet metadata, read with one request. Raises SplitCorruptedError."""
        size = self._member.size
        start = size - self._info.rows_footer_bytes
        if start < 0:
            raise SplitCorruptedError(f"{self._place}: the footer of the rows is larger than the rows")
        offset = self._member.start
        footer = read_range(self._store, self._key, offset + start, offset + size)
        if hashlib.sha256(footer).hexdigest() != self._info.rows_footer_checksum:
            raise SplitCorruptedError(f"{self._place}: the checksum of the rows' footer is wrong")
        try:
            # Arrow reads the metadata from the footer alone.
            return pq.read_metadata(pa.BufferReader(footer))
        except (OSError, pa.ArrowException) as error:
            raise self._read_error(error) from error

    def _groups(self, groups: Sequence[int], names: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield row groups one by one, with these stored columns: cached ones first, then the others."""
        kept = {group: _DECODED.get((self._token, group, *names)) for group in groups}
        yield from ((group, rows) for group, rows in kept.items() if rows is not None)
        missing = [group for group, rows in kept.items() if rows is None]
        for (group,), rows in self._read(missing, names, at_a_time=1) if missing else ():
            if len(missing) <= _MAX_GROUPS_KEPT:
                _DECODED.put((self._token, group, *names), rows, size_bytes=rows.nbytes)
            yield group, rows

    def _read(
        self, groups: Sequence[int], columns: Sequence[str], *, at_a_time: int = _GROUPS_AT_A_TIME
    ) -> Iterator[tuple[Sequence[int], pa.Table]]:
        """Yield row groups, some at a time, with these columns of the file."""
        # Offsets in the split and in its Parquet file agree only if the rows come first.
        local = self._store.open_local(self._key) if not self._member.start else None
        if local is None:
            yield from self._read_windows(groups, columns, at_a_time)
            return
        with local:
            if at_a_time == 1 or len(groups) <= at_a_time:
                yield from self._decode(self._parquet(local), groups, columns, at_a_time)
            else:
                yield from self._decode_in_parallel(local, groups, columns, at_a_time)

    def _decode_in_parallel(
        self, local: pa.NativeFile, groups: Sequence[int], columns: Sequence[str], at_a_time: int
    ) -> Iterator[tuple[Sequence[int], pa.Table]]:
        """Decode row groups in parallel rather than columns, because one column is often most of the work."""

        def decode(some: Sequence[int]) -> pa.Table:
            return self._decode_some(self._parquet(local), some, columns, use_threads=False)

        portions = [groups[start : start + at_a_time] for start in range(0, len(groups), at_a_time)]
        yield from prefetched(decode, portions, depth=min(pa.cpu_count(), _MAX_DECODING_THREADS))

    def _read_windows(
        self, groups: Sequence[int], columns: Sequence[str], at_a_time: int
    ) -> Iterator[tuple[Sequence[int], pa.Table]]:
        """Read from a remote store, and fetch the next row groups while these are decoded."""
        leaves = [leaf for name in columns for leaf in self._leaves[name]]
        windows = _plan_windows(self.metadata, groups, leaves)
        file = _SparseFile(self._store, self._key, self._member)
        parquet = self._parquet(file.reader())
        for window, _ in prefetched(lambda each: file.fetch(each.ranges), windows, depth=1):
            yield from self._decode(parquet, window.groups, columns, at_a_time)
            file.forget(window.ranges)

    def _parquet(self, source: pa.NativeFile) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(source, metadata=self.metadata, page_checksum_verification=True)
        except (OSError, pa.ArrowException) as error:
            raise self._read_error(error) from error

    def _decode(
        self, parquet: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str], at_a_time: int
    ) -> Iterator[tuple[Sequence[int], pa.Table]]:
        for start in range(0, len(groups), at_a_time):
            some = groups[start : start + at_a_time]
            yield some, self._decode_some(parquet, some, columns, use_threads=at_a_time > 1)

    def _decode_some(
        self, parquet: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str], *, use_threads: bool
    ) -> pa.Table:
        try:
            rows = parquet.read_row_groups(list(groups), columns=list(columns), use_threads=use_threads)
        except (OSError, pa.ArrowException) as error:
            raise self._read_error(error) from error
        # A column name with a dot also selects members of a struct.
        return rows.select(list(columns))

    @lazy_property
    def _schema(self) -> pa.Schema:
        try:
            return self.metadata.schema.to_arrow_schema()
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
        if start != self.metadata.num_columns:
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

    @lazy_property
    def _group_sizes(self) -> npt.NDArray[np.int64]:
        groups = range(self.metadata.num_row_groups)
        return np.array([self.metadata.row_group(group).num_rows for group in groups], np.int64)

    @lazy_property
    def _group_ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self._group_sizes)

    def _check_numbers(self, numbers: npt.NDArray[np.int64]) -> None:
        count = self.metadata.num_rows
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


def _leaf_count(data_type: pa.DataType) -> int:
    if not data_type.num_fields:
        return 1
    return sum(_leaf_count(data_type.field(position).type) for position in range(data_type.num_fields))


# Pruning: the row groups that a predicate rules out by the statistics in the Parquet metadata.

# The order keys of decimals are 128-bit two's complement with the sign bit flipped.
_KEY_BYTES: Final = 16
_SIGN_BIT: Final = 1 << 127


def _matching_row_groups(
    metadata: pq.FileMetaData,
    bound: BoundPredicate,
    schema: pa.Schema,
    leaves: Mapping[str, int],
    partition_values: Mapping[str, str | None],
) -> list[int]:
    """Return the row groups that may contain rows for which a bound predicate is true.

    `leaves` maps plain columns to Parquet leaves. Any other column, unless it is a partition column, is unknown.
    """
    count = metadata.num_row_groups
    ranges: dict[str, ColumnRange] = {}
    for name in columns_of(bound):
        data_type = schema.field(name).type
        if name in partition_values:
            texts = pa.array([partition_values[name]] * count, pa.string())
            ranges[name] = partition_range(texts, data_type)
        elif name in leaves:
            ranges[name] = _statistics_range(metadata, leaves[name], data_type)
        else:
            ranges[name] = unknown_range(data_type, count)
    keep = evaluate(bound, ranges, count).may_be_true
    return [int(group) for group in np.flatnonzero(keep)]


def _statistics_range(metadata: pq.FileMetaData, leaf: int, data_type: pa.DataType) -> ColumnRange:
    count = metadata.num_row_groups
    minima: list[Any] = [None] * count
    maxima: list[Any] = [None] * count
    may_be_null = np.ones(count, np.bool_)
    may_be_value = np.ones(count, np.bool_)
    for group in range(count):
        chunk = metadata.row_group(group).column(leaf)
        statistics = chunk.statistics
        if statistics is None:
            continue
        if statistics.has_null_count:
            may_be_null[group] = statistics.null_count > 0
            may_be_value[group] = statistics.null_count < chunk.num_values
        if statistics.has_min_max:
            minima[group], maxima[group] = statistics.min_raw, statistics.max_raw
    unknown = unknown_range(data_type, count)
    lower, upper = _keys(minima, data_type), _keys(maxima, data_type)
    return ColumnRange(
        data_type,
        unknown.lower if lower is None else lower,
        unknown.upper if upper is None else upper,
        may_be_null,
        may_be_value,
        # Parquet statistics exclude NaN.
        bool(pa.types.is_floating(data_type)),
    )


def _keys(raw: list[Any], data_type: pa.DataType) -> pa.Array | None:
    """Return the order keys of physical values; None for types without usable statistics."""
    try:
        if pa.types.is_decimal128(data_type):
            return _decimal_keys(raw)
        if pa.types.is_string(data_type):
            return pa.array(raw, pa.binary())
        if pa.types.is_floating(data_type):
            return order_keys(pa.array(raw, pa.float64()))
        if _is_counted(data_type):
            return pa.array([None if value is None else int(value) for value in raw], pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return None


def _is_counted(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_signed_integer, pa.types.is_boolean, pa.types.is_date32, pa.types.is_timestamp)
    return any(test(data_type) for test in tests)


def _decimal_keys(raw: list[Any]) -> pa.Array:
    numbers = [
        int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value for value in raw
    ]
    keys = [
        None if number is None else (number + _SIGN_BIT).to_bytes(_KEY_BYTES, "big") for number in numbers
    ]
    return pa.array(keys, pa.binary())


# Fetching: the byte ranges of some row groups, in few requests.

# How many bytes are fetched and decoded together.
_WINDOW_BYTES: Final = 16 * 1024**2


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
            windows.append(_Window(tuple(members), coalesce(ranges)))
            members, ranges, fetched = [], [], 0
        members.append(group)
        ranges += of_group
        fetched += size
    if members:
        windows.append(_Window(tuple(members), coalesce(ranges)))
    return windows


class _SparseFile:
    """A member of a split with only some of its ranges in memory.

    It has the member's length and offsets. Ranges that have not been fetched read as zeros and take no memory.
    """

    def __init__(self, store: ObjectStore, key: str, member: Member) -> None:
        self._store = store
        self._key = key
        self._member = member
        # The operating system allocates a page when it is first written.
        self._memory = mmap.mmap(-1, max(member.size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges of the member from the store. Another thread may call this."""
        offset = self._member.start
        for start, end in ranges:
            self._memory[start:end] = read_range(self._store, self._key, offset + start, offset + end)

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
