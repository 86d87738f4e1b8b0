"""Builds one split on local disk: rows, index, and the bundle of both.

Rows are written to the bundle file, a Parquet file. The index is built beside it. In the end the metadata is cut off,
and follows again after the index.
"""

import contextlib
import hashlib
import mmap
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

# Rows are added in chunks of at most these bounds, to amortize the cost per column.
CHUNK_ROWS: Final = 32 * 1024
CHUNK_BYTES: Final = 16 * 1024**2

# A split of several row groups knows its size early enough to keep to its target.
_MIN_GROUP_BYTES: Final = 256 * 1024
_GROUPS_PER_SPLIT: Final = 4


class SplitShape(msgspec.Struct, frozen=True):
    """What all splits of one writer share."""

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

    `memory_bytes` is the size in memory of all its rows, `buffered_bytes` that of the rows not yet on disk.
    """

    def __init__(
        self, directory: Path, shape: SplitShape, partition_values: Mapping[str, str | None]
    ) -> None:
        self.num_records = 0
        self.memory_bytes = 0
        self.buffered_bytes = 0
        self._directory = directory
        self._shape = shape
        self._partition_values = dict(partition_values)
        self._buffer: list[pa.Table] = []
        self._buffered_rows = 0
        self._statistics: ColumnStatistics | None = None
        self._rows: RowsFile | None = None
        self._index: IndexBuilder | None = None

    @property
    def rows_bytes(self) -> int:
        """The size of the rows on disk."""
        return 0 if self._rows is None else self._rows.bytes_written

    @property
    def has_file(self) -> bool:
        """Whether the split has an open file."""
        return self._rows is not None

    def start_index(self) -> None:
        """Index rows as they are appended; without this call, `finish` indexes them. Call it before `append`."""
        self._index = self._new_index()

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
        if self._index is not None:
            for batch in rows.combine_chunks().to_batches(max_chunksize=CHUNK_ROWS):
                self._index.add(batch)

    def finish(self, created_time_ms: int) -> BuiltSplit:
        """Complete the bundle. Raises InvalidValueError and SplitWriteError."""
        self.flush()
        rows = self._open_rows(self._shape.table.data_schema.empty_table())
        with _writing(self._directory):
            rows.close()
        if self._index is None:
            self._index = self._new_index()
            for batch in rows.batches():
                self._index.add(batch)
        index_files = self._index.finish()
        with _writing(self._directory):
            # Bounds leave NaN out, and readers that take NaN for the largest number would lose rows.
            metadata = without_statistics(detach_metadata(self._bundle_path), rows.chunks_with_nan)
            pages = find_pages(self._bundle_path, metadata)
            cold_index = ColdData.of(self._index_path).encode()
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

    @property
    def _bundle_path(self) -> Path:
        return self._directory / "bundle"

    @property
    def _index_path(self) -> Path:
        return self._directory / "index"

    def _new_index(self) -> IndexBuilder:
        with _writing(self._directory):
            self._index_path.mkdir(parents=True)
        return IndexBuilder(self._index_path, self._shape.mapping, self._shape.heap_bytes)

    def _open_rows(self, first_rows: pa.Table) -> RowsFile:
        if self._rows is None:
            with _writing(self._directory):
                self._directory.mkdir(parents=True, exist_ok=True)
                # The schema of the first rows becomes that of the file.
                first_rows = self._with_field_ids(first_rows)
                self._rows = RowsFile(self._bundle_path, first_rows, self._shape.text_columns)
        return self._rows

    def _with_field_ids(self, rows: pa.Table) -> pa.Table:
        schema = self._shape.table.schema_with_ids
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
            self._statistics = merge_statistics(self._statistics, found, self._shape.table.data_schema)


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
