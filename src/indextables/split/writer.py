"""Writes rows as splits: Arrow data in, uploaded split files out.

The life of a writer: `write` distributes rows by partition to splits under construction on local disk; a split that
reaches its target size is completed and uploaded; `commit` completes the rest and returns what a commit to the log
needs. Until the log refers to them, uploaded splits are orphans: `abort`, and every failure, deletes them. A writer
that is killed leaves orphans at most, never a partial file.
"""

import contextlib
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from indextables.config import Settings
from indextables.errors import InvalidSchemaError, InvalidValueError, SplitWriteError, StorageError
from indextables.pruning import StatisticsOptions, column_statistics, format_value
from indextables.schema import TableShape, canonical_schema, find_column
from indextables.schema.conversion import LossyConversionError, convert, converts
from indextables.schema.stored_names import renamed
from indextables.split.builder import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    BuiltSplit,
    SplitBuilder,
    SplitShape,
    memory_mapped,
)
from indextables.split.doc_mapping import DocMapping
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.index_cache import GuardedDirectory, new_guarded_directory, sweep_abandoned
from indextables.split.rows_file import bounded_slices, check_storable
from indextables.split.split import SplitFile
from indextables.storage import ObjectStore, partition_path

# The next writer in the same directory removes the scratch directories of killed writers.
_SCRATCH_PREFIX: Final = "indextables-writer-"
# A file system in memory, on Linux.
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # its scratch directories are private

# The expected index size per byte of rows in memory, until the first split of the writer gives the real ratio.
_INITIAL_INDEX_RATIO: Final = 0.65
# The index of a smaller split is mostly overhead, so its ratio is ignored.
_MIN_RATIO_BYTES: Final = 1024**2
# Rows are grouped by partition in slices of this size: the text gathered from a slice must fit 32-bit offsets.
_SLICE_ROWS: Final = 1024**2
_SLICE_BYTES: Final = 256 * 1024**2


class WriterOptions(msgspec.Struct, frozen=True):
    """The target size of splits and the limits of a writer.

    `heap_bytes` is the memory for building indexes. `buffer_bytes` bounds the buffered rows of all partitions, and
    `max_open_files` the splits under construction that have a file. `scratch` is a local directory; the default is the
    system's temporary directory, and a file system in memory for small indexes. `merged_from` are the paths of the
    source splits of a merge. `name_prefix` starts the name of every split.
    """

    target_bytes: int = 1024**3
    heap_bytes: int = 256_000_000
    buffer_bytes: int = 64 * 1024**2
    max_open_files: int = 128
    scratch: Path | None = None
    split_tags: tuple[str, ...] = ()
    merged_from: tuple[str, ...] = ()
    name_prefix: str = "part-"


class SplitWriter:
    """Writes rows into new splits of one table. Not thread-safe.

    The settings decide how columns are indexed, unless the caller passes a `mapping` of the same columns. As a context
    manager, the writer aborts unless `commit` was called. The constructor raises InvalidSchemaError and
    InvalidOptionError for columns that cannot be stored or indexed, before anything is written.
    """

    def __init__(
        self,
        store: ObjectStore,
        shape: TableShape,
        settings: Settings,
        options: WriterOptions | None = None,
        *,
        mapping: DocMapping | None = None,
    ) -> None:
        self._store = store
        self._options = options or WriterOptions()
        table = replace(shape, schema=canonical_schema(shape.schema)).checked()
        statistics = StatisticsOptions.from_settings(settings)
        # Rejects unknown columns now instead of at the first rows.
        column_statistics(table.schema.empty_table(), statistics, table.partition_columns)
        self._mapping = mapping or mapping_from_settings(table, settings)
        self._shape = SplitShape(
            table,
            self._mapping.stored(),
            _stored_statistics(statistics, table),
            # With partitions, one index grows with its rows while another one is completed.
            self._options.heap_bytes // 2 if table.is_partitioned else self._options.heap_bytes,
            self._options.target_bytes,
            self._options.split_tags,
            self._options.merged_from,
        )
        check_storable(self._shape.table.data_schema)
        self._builders: dict[tuple[str | None, ...], SplitBuilder] = {}
        self._indexing_builder: SplitBuilder | None = None
        self._uploaded: list[str] = []
        self._finished: list[SplitFile] = []
        self._index_ratio = _INITIAL_INDEX_RATIO
        self._is_open = True
        self._scratch = self._new_scratch()
        self._memory = self._new_memory()

    @property
    def mapping(self) -> DocMapping:
        return self._mapping

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Add rows; columns are matched by name.

        Raises InvalidSchemaError and InvalidValueError for rows that do not fit the table, SplitWriteError, and storage
        errors. Any failure aborts the writer.
        """
        self._require_open()
        with self._aborting_on_failure():
            table = self._shape.table
            rows = renamed(conform(data, table.schema), table.stored.schema)
            for piece in bounded_slices(rows, _SLICE_ROWS, _SLICE_BYTES):
                for partition in rows_by_partition(piece, self._shape.table.partition_columns):
                    for chunk in bounded_slices(partition.rows, CHUNK_ROWS, CHUNK_BYTES):
                        self._append(partition.values, chunk)

    def commit(self) -> tuple[SplitFile, ...]:
        """Complete and upload the remaining splits, and return all of them; none if no rows were written.

        Raises what `write` raises. The splits belong to the table once a commit to the log adds them.
        """
        self._require_open()
        with self._aborting_on_failure():
            while self._builders:
                self._finish(next(iter(self._builders)))
        self._close()
        return tuple(self._finished)

    def abort(self) -> None:
        """Delete everything that was written and uploaded. Does nothing after `commit` or `abort`.

        Raises storage errors; splits that could not be deleted are orphans, which PURGE removes.
        """
        if not self._is_open:
            return
        self._close()
        if self._uploaded:
            self._store.delete_many(self._uploaded)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.abort()
        else:
            self._abort_quietly()

    def _append(self, values: tuple[str | None, ...], rows: pa.Table) -> None:
        builder = self._builders.get(values)
        if builder is None:
            builder = self._new_builder(values)
        builder.append(rows)
        if builder.rows_bytes + builder.memory_bytes * self._index_ratio >= self._options.target_bytes:
            self._finish(values)
        while self._buffered_bytes() > self._options.buffer_bytes:
            max(self._builders.values(), key=lambda each: each.buffered_bytes).flush()
        if sum(each.has_file for each in self._builders.values()) > self._options.max_open_files:
            self._finish(max(self._builders, key=lambda each: self._builders[each].rows_bytes))

    def _new_builder(self, values: tuple[str | None, ...]) -> SplitBuilder:
        builder = SplitBuilder(
            self._scratch.path / uuid.uuid4().hex,
            self._shape,
            self._partition_values(values),
            None if self._memory is None else self._memory.path,
        )
        self._builders[values] = builder
        # One index at a time grows with its rows. `finish` indexes the rows of the other splits.
        if self._indexing_builder is None:
            self._indexing_builder = builder
            builder.start_index()
        return builder

    def _finish(self, values: tuple[str | None, ...]) -> None:
        builder = self._builders[values]
        built = builder.finish(self._store.clock.now_ms())
        if builder.memory_bytes >= _MIN_RATIO_BYTES:
            self._index_ratio = (built.size - built.rows_bytes) / builder.memory_bytes
        self._finished.append(self._upload(built, values))
        builder.discard()
        del self._builders[values]
        if self._indexing_builder is builder:
            self._indexing_builder = None

    def _upload(self, built: BuiltSplit, values: tuple[str | None, ...]) -> SplitFile:
        partition_values = self._partition_values(values)
        folder = partition_path(partition_values.items())
        name = f"{self._options.name_prefix}{uuid.uuid4()}.split"
        key = f"{folder}/{name}" if folder else name
        # Recorded before the upload: after a failure, it is unknown whether the object exists.
        self._uploaded.append(key)
        # Stores accept any buffer; a memory map avoids a copy of the split in memory.
        self._store.put(key, cast("bytes", memory_mapped(built.path)))
        return SplitFile(
            path=key,
            partition_values=partition_values,
            size=built.size,
            modification_time_ms=built.info.created_time_ms,
            num_records=built.info.num_records,
            min_values=built.info.statistics.min_values,
            max_values=built.info.statistics.max_values,
            footer_start_offset=built.footer_start,
            footer_end_offset=built.size,
            uncompressed_size_bytes=built.info.uncompressed_size_bytes,
            doc_mapping_ref=self._shape.mapping.hash,
            doc_mapping_json=self._shape.mapping.to_json(),
            split_tags=self._shape.split_tags,
        )

    def _partition_values(self, values: tuple[str | None, ...]) -> dict[str, str | None]:
        return dict(zip(self._shape.table.partition_columns, values, strict=True))

    def _buffered_bytes(self) -> int:
        return sum(builder.buffered_bytes for builder in self._builders.values())

    def _require_open(self) -> None:
        if not self._is_open:
            raise SplitWriteError(
                f"{self._store.url}: this writer was committed or aborted; create a new one"
            )

    def _new_scratch(self) -> GuardedDirectory:
        parent = self._options.scratch or Path(tempfile.gettempdir())
        try:
            sweep_abandoned(parent, _SCRATCH_PREFIX)
            return new_guarded_directory(parent, _SCRATCH_PREFIX)
        except OSError as error:
            raise SplitWriteError(f"cannot create a local directory to build splits in: {error}") from error

    def _new_memory(self) -> GuardedDirectory | None:
        """Create a directory in memory, unless the caller wants everything in its scratch directory."""
        if self._options.scratch is not None:
            return None
        with contextlib.suppress(OSError):
            sweep_abandoned(_MEMORY, _SCRATCH_PREFIX)
            return new_guarded_directory(_MEMORY, _SCRATCH_PREFIX)
        return None

    @contextlib.contextmanager
    def _aborting_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._abort_quietly()
            raise

    def _abort_quietly(self) -> None:
        # The caller gets the original error; splits that cannot be deleted now are orphans for PURGE.
        with contextlib.suppress(StorageError):
            self.abort()

    def _close(self) -> None:
        self._is_open = False
        for builder in self._builders.values():
            builder.discard()
        self._builders.clear()
        self._indexing_builder = None
        self._scratch.close()
        if self._memory is not None:
            self._memory.close()


def _stored_statistics(statistics: StatisticsOptions, table: TableShape) -> StatisticsOptions:
    """Return the options for rows with stored names and without the partition columns."""
    partitions = {name.lower() for name in table.partition_columns}
    stored = {name.lower(): stored for name, stored in table.stored_names.items()}
    lowered = (name.lower() for name in statistics.named_columns)
    return replace(
        statistics, named_columns=tuple(stored[name] for name in lowered if name not in partitions)
    )


# Input rows in the table's schema: columns are matched by name, put in its order and converted to its types.


def conform(data: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return the rows in the table's schema.

    Columns are matched by name, ignoring case; a missing nullable column is null. Raises InvalidSchemaError for columns
    that the table does not have, for missing required columns and for types that do not convert to the table's, and
    InvalidValueError for values that would lose something and for nulls in required columns.
    """
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    if table.schema.equals(schema):
        columns = table.columns
    else:
        _check_columns(table.schema, schema)
        columns = [_column(table, field) for field in schema]
    for column, field in zip(columns, schema, strict=True):
        if column.null_count and not field.nullable:
            raise InvalidValueError(
                f"column {field.name!r} has nulls, and the table's schema does not allow them"
            )
    return pa.Table.from_arrays(columns, schema=schema)


def _check_columns(given: pa.Schema, schema: pa.Schema) -> None:
    extra = [name for name in given.names if find_column(schema, name) is None]
    if extra:
        raise InvalidSchemaError(
            f"column {extra[0]!r} is not in the table, whose columns are {', '.join(schema.names)}; drop it"
        )
    if len({name.lower() for name in given.names}) != len(given.names):
        raise InvalidSchemaError(
            f"the data has columns with the same name, ignoring case: {', '.join(given.names)}"
        )


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    given = find_column(table.schema, field.name)
    if given is None:
        if not field.nullable:
            raise InvalidSchemaError(f"column {field.name!r} is missing, and the table requires it")
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(given.name)
    if given.type.equals(field.type):
        return column
    if not converts(given.type, field.type):
        raise InvalidSchemaError(
            f"column {field.name!r} has the type {given.type}, and the table has {field.type}; cast it"
        )
    try:
        return convert(column, field.type)
    except LossyConversionError as error:
        raise InvalidValueError(
            f"column {field.name!r} cannot be cast from {given.type} to {field.type}: {error}"
        ) from error


# Rows grouped by partition.


class PartitionRows(msgspec.Struct, frozen=True):
    """The rows of one partition, in input order and without the partition columns."""

    values: tuple[str | None, ...]
    rows: pa.Table


def rows_by_partition(table: pa.Table, partition_columns: Sequence[str]) -> Iterator[PartitionRows]:
    """Yield the rows of a table, partition by partition.

    Raises InvalidValueError for a partition value that cannot be recorded as text.
    """
    if not table.num_rows:
        return
    data = table.drop_columns(list(partition_columns))
    if not partition_columns:
        yield PartitionRows((), data)
        return
    groups = np.zeros(table.num_rows, np.int64)
    for name in partition_columns:
        encoded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        if len(encoded.dictionary) == 1:
            continue
        codes = encoded.indices.to_numpy()
        # Renumbered after each column, so many columns with many values do not overflow.
        groups = np.unique(groups * (len(encoded.dictionary) + 1) + codes, return_inverse=True)[1]
    if not groups.any():
        yield PartitionRows(tuple(_partition_text(table, name, 0) for name in partition_columns), data)
        return
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        places = order[start:end]
        values = tuple(_partition_text(table, name, int(places[0])) for name in partition_columns)
        is_contiguous = places[-1] - places[0] == len(places) - 1
        rows = data.slice(places[0], len(places)) if is_contiguous else data.take(pa.array(places))
        yield PartitionRows(values, rows)


def _partition_text(table: pa.Table, name: str, row: int) -> str | None:
    value = table.column(name)[row]
    if not value.is_valid:
        return None
    text = format_value(value)
    if text is None:
        raise InvalidValueError(
            f"partition column {name!r} has a {value.type} that cannot be written as text and read back, such as "
            f"a year beyond 9999; clean the data, or partition by another column"
        )
    return text
