"""Builds one split on local disk: rows, index, and the bundle of both.

Rows are written to the bundle file, a Parquet file. The index is built beside it, or in memory if it is small. In the
end the metadata is cut off, and follows again after the index.
"""

import contextlib
import hashlib
import mmap
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from indextables.errors import SplitWriteError
from indextables.pruning import ColumnStatistics, StatisticsOptions, column_statistics, merge_statistics
from indextables.schema import TableShape
from indextables.split.bundle import IndexMember, SplitInfo, encode_tail
from indextables.split.cold_data import ColdData
from indextables.split.doc_mapping import DocMapping, FieldKind
from indextables.split.index_builder import IndexBuilder
from indextables.split.index_chunks import pack
from indextables.split.pages import find_pages
from indextables.split.parquet_footer import detach_metadata, uncompressed_bytes, without_statistics
from indextables.split.rows_file import MAX_GROUP_BYTES, ROWS_PER_GROUP, RowsFile
from indextables.split.slim_index import RowsOutOfOrderError

# Rows are added in chunks of at most these bounds, to amortize the cost per column.
CHUNK_ROWS: Final = 32 * 1024
CHUNK_BYTES: Final = 16 * 1024**2

# A split of several row groups knows its size early enough to keep to its target.
_MIN_GROUP_BYTES: Final = 256 * 1024
_GROUPS_PER_SPLIT: Final = 4


# Tantivy flushes every file of an index to disk, which takes longer than indexing a few rows. So the index of a split
# with fewer bytes of rows is built in a file system in memory, if that has room for many times its rows.
_SMALL_BYTES: Final = 8 * 1024**2
_ROOM_FACTOR: Final = 16
# Tantivy makes its hash tables as large as the heap allows, and walks through them when it writes a segment. An index
# of few rows does not fill a heap of this many times their size.
_HEAP_FACTOR: Final = 16

_INDEX_FOLDER: Final = "index"


class SplitShape(msgspec.Struct, frozen=True):
    """What all splits of one writer share. `mapping` and `statistics` have stored names, like the rows."""

    table: TableShape
    mapping: DocMapping
    statistics: StatisticsOptions
    heap_bytes: int
    target_bytes: int
    split_tags: tuple[str, ...] = ()
    merged_from: tuple[str, ...] = ()

    @property
    def group_bytes(self) -> int:
        """The size in memory of a row group."""
        return min(max(self.target_bytes // _GROUPS_PER_SPLIT, _MIN_GROUP_BYTES), MAX_GROUP_BYTES)

    @property
    def text_columns(self) -> frozenset[str]:
        """The tokenized columns."""
        return frozenset(field.name for field in self.mapping if field.kind is FieldKind.TEXT)


class BuiltSplit(msgspec.Struct, frozen=True):
    """A complete bundle on local disk."""

    path: Path
    info: SplitInfo
    size: int
    footer_start: int
    rows_bytes: int


class SplitBuilder:
    """One split under construction, in its own directory, which `discard` removes.

    `memory_directory` is a directory of a file system in memory, if there is one. `memory_bytes` is the size in memory
    of all rows, `buffered_bytes` that of the rows not yet on disk.
    """

    def __init__(
        self,
        directory: Path,
        shape: SplitShape,
        partition_values: Mapping[str, str | None],
        memory_directory: Path | None = None,
    ) -> None:
        self.num_records = 0
        self.memory_bytes = 0
        self.buffered_bytes = 0
        self._directory = directory
        self._memory_directory = None if memory_directory is None else memory_directory / directory.name
        self._shape = shape
        self._partition_values = dict(partition_values)
        self._buffer: list[pa.Table] = []
        self._buffered_rows = 0
        self._statistics: ColumnStatistics | None = None
        self._rows: RowsFile | None = None
        self._index: IndexBuilder | None = None
        self._is_indexed_early = False
        self._is_sorted = False

    @property
    def rows_bytes(self) -> int:
        """The size of the rows on disk."""
        return 0 if self._rows is None else self._rows.bytes_written

    @property
    def has_file(self) -> bool:
        """Whether the split has an open file."""
        return self._rows is not None

    def start_index(self) -> None:
        """Index rows as they are flushed; without this call, `finish` indexes them. Call it before `append`."""
        self._is_indexed_early = True

    def append(self, rows: pa.Table) -> None:
        """Add rows. Raises InvalidValueError and SplitWriteError."""
        self._buffer.append(rows)
        self._buffered_rows += rows.num_rows
        self.memory_bytes += rows.nbytes
        self.buffered_bytes += rows.nbytes
        self.num_records += rows.num_rows
        if self._buffered_rows >= ROWS_PER_GROUP or self.buffered_bytes >= self._shape.group_bytes:
            self.flush(self._buffered_rows - self._buffered_rows % ROWS_PER_GROUP or self._buffered_rows)

    def flush(self, row_count: int | None = None) -> None:
        """Write the first `row_count` buffered rows to disk; all of them by default."""
        if not self._buffered_rows:
            return
        buffered = pa.concat_tables(self._buffer)
        rows = buffered if row_count is None else buffered.slice(0, row_count)
        rest = buffered.slice(rows.num_rows)
        self._buffer, self._buffered_rows, self.buffered_bytes = [rest], rest.num_rows, rest.nbytes
        self._add_statistics(rows)
        self._write_rows(rows)
        if self._is_indexed_early:
            self._index = self._index or self._new_index(self._directory)
            try:
                _add_all(self._index, rows)
            except RowsOutOfOrderError:
                self._start_over_sorted()

    def finish(self, created_time_ms: int) -> BuiltSplit:
        """Complete the bundle. Raises InvalidValueError and SplitWriteError."""
        small_rows = self._small_rows()
        self._is_indexed_early &= small_rows is None
        self.flush()
        rows = self._open_rows(self._shape.table.stored.data_schema.empty_table())
        with _writing(self._directory):
            rows.close()
        index_files = None if small_rows is None else self._indexed_in_memory(small_rows)
        if index_files is None:
            index_files = self._indexed_on_disk(rows)
        with _writing(self._directory):
            # Bounds leave NaN out, and readers that take NaN for the largest number would lose rows.
            metadata = without_statistics(detach_metadata(self._bundle_path), rows.chunks_with_nan)
            pages = find_pages(self._bundle_path, metadata)
            cold_index = ColdData.of(index_files[0].parent).encode()
            with self._bundle_path.open("r+b") as bundle:
                rows_bytes = bundle.seek(0, 2)
                packed = pack(index_files, bundle)
                footer_start = bundle.tell()
                bundle.seek(0)
                info = SplitInfo(
                    schema=self._shape.table.schema,
                    partition_columns=self._shape.table.partition_columns,
                    partition_values=self._partition_values,
                    mapping=self._shape.mapping,
                    num_records=self.num_records,
                    statistics=self._statistics or ColumnStatistics(),
                    uncompressed_size_bytes=uncompressed_bytes(metadata),
                    created_time_ms=created_time_ms,
                    split_tags=self._shape.split_tags,
                    body_checksum=hashlib.file_digest(bundle, "sha256").hexdigest(),
                    merged_from=self._shape.merged_from,
                    field_ids=self._shape.table.field_ids,
                    stored_schema=self._shape.table.stored_schema,
                )
                members = {name: IndexMember(*place) for name, place in packed.places.items()}
                tail = encode_tail(footer_start, info, members, packed.chunks, pages, cold_index, metadata)
                bundle.seek(footer_start)
                bundle.write(tail)
        return BuiltSplit(self._bundle_path, info, footer_start + len(tail), footer_start, rows_bytes)

    def discard(self) -> None:
        """Remove the split from local disk, complete or not."""
        if self._rows is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._rows.close()
        if self._index is not None:
            self._index.abort()
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._memory_directory is not None:
            shutil.rmtree(self._memory_directory, ignore_errors=True)

    @property
    def _bundle_path(self) -> Path:
        return self._directory / "bundle"

    def _new_index(self, parent: Path, most_heap_bytes: int | None = None) -> IndexBuilder:
        directory = parent / _INDEX_FOLDER
        with _writing(parent):
            # A discarded index may have left its folder: Tantivy's thread that watches it created its lock again.
            directory.mkdir(parents=True, exist_ok=True)
        heap_bytes = min(self._shape.heap_bytes, most_heap_bytes or self._shape.heap_bytes)
        return IndexBuilder(directory, self._shape.mapping, heap_bytes, is_sorted=self._is_sorted)

    def _indexed_on_disk(self, rows: RowsFile) -> list[Path]:
        """Complete the index, which is built now unless `flush` did, and return the files."""
        try:
            if self._index is None:
                self._index = self._new_index(self._directory)
                for batch in rows.batches():
                    self._index.add(batch)
            return self._index.finish()
        except RowsOutOfOrderError:
            self._start_over_sorted()
            return self._indexed_on_disk(rows)

    def _start_over_sorted(self) -> None:
        """Discard the index. `finish` builds it again, sorted, which takes longer but keeps the order of rows."""
        self._discard_index(self._directory / _INDEX_FOLDER)
        self._is_indexed_early, self._is_sorted = False, True

    def _discard_index(self, directory: Path) -> None:
        if self._index is not None:
            self._index.abort()
        self._index = None
        shutil.rmtree(directory, ignore_errors=True)

    def _small_rows(self) -> pa.Table | None:
        """Return all rows, if they are few enough to be indexed in memory."""
        is_small = 0 < self.memory_bytes <= _SMALL_BYTES
        if self._memory_directory is None or self._rows is not None or not is_small:
            return None
        return pa.concat_tables(self._buffer)

    def _indexed_in_memory(self, rows: pa.Table) -> list[Path] | None:
        """Index all rows in memory, and return the files; None if there is no room."""
        directory = self._memory_directory
        if directory is None or _free_bytes(directory.parent) < rows.nbytes * _ROOM_FACTOR:
            return None
        try:
            self._index = self._new_index(directory, rows.nbytes * _HEAP_FACTOR)
            _add_all(self._index, rows)
            return self._index.finish()
        except SplitWriteError:
            # Other processes have taken the room. There is more of it on disk.
            self._discard_index(directory)
            return None

    def _open_rows(self, first_rows: pa.Table) -> RowsFile:
        if self._rows is None:
            with _writing(self._directory):
                self._directory.mkdir(parents=True, exist_ok=True)
                # The schema of the first rows becomes that of the file.
                first_rows = self._with_field_ids(first_rows)
                self._rows = RowsFile(self._bundle_path, first_rows, self._shape.text_columns)
        return self._rows

    def _with_field_ids(self, rows: pa.Table) -> pa.Table:
        schema = self._shape.table.stored.schema_with_ids
        fields = [schema.field(name) for name in rows.column_names]
        return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields))

    def _write_rows(self, rows: pa.Table) -> None:
        file = self._open_rows(rows)
        with _writing(self._directory):
            file.append(rows)

    def _add_statistics(self, rows: pa.Table) -> None:
        found = column_statistics(rows, self._shape.statistics, self._shape.table.partition_columns)
        if self._statistics is None:
            self._statistics = found
        else:
            self._statistics = merge_statistics(self._statistics, found, self._shape.table.stored.data_schema)


def _add_all(index: IndexBuilder, rows: pa.Table) -> None:
    for batch in rows.combine_chunks().to_batches(max_chunksize=CHUNK_ROWS):
        index.add(batch)


def _free_bytes(directory: Path) -> int:
    try:
        space = os.statvfs(directory)
    except OSError:
        return 0
    return space.f_bavail * space.f_frsize


def memory_mapped(path: Path) -> memoryview:
    """Map a file into memory. The bytes stay valid after the file is deleted."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SplitWriteError(f"cannot write a split in {directory}: {error}") from error
