"""Writes the rows of a split as a Parquet file: large row groups for scans, small pages for reading a few rows.

The pages of all columns start at the same rows, and the page index says where they are.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables._caching import shared_memo
from indextables.errors import InvalidSchemaError

ROWS_PER_GROUP: Final = 128 * 1024
ROWS_PER_PAGE: Final = 1024
# Text offsets in a row group have 32 bits, and a reader holds a whole row group in memory.
MAX_GROUP_BYTES: Final = 64 * 1024**2

# Pages are cut by rows alone: a cut by size would not be at the same row in all columns.
_MAX_PAGE_BYTES: Final = 1024**3
# To read one row of a column chunk, its whole dictionary is read.
_MAX_DICTIONARY_BYTES: Final = 32 * 1024
# So many rows decide the encoding: a page.
_SAMPLE_ROWS: Final = ROWS_PER_PAGE
_BATCH_ROWS: Final = 32 * 1024


class RowsFile:
    """A Parquet file under construction.

    The caller appends `first_rows` first; they decide the encoding. `text_columns` are the tokenized columns.
    `chunks_with_nan` are the row groups and columns that contain NaN.
    """

    def __init__(self, path: Path, first_rows: pa.Table, text_columns: Collection[str]) -> None:
        self._path = path
        encoding = choose_encoding(first_rows.slice(0, _SAMPLE_ROWS), text_columns)
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = encoding.writer(self._sink, first_rows.schema)
        self._num_groups = 0
        self.chunks_with_nan: set[tuple[int, str]] = set()

    def append(self, rows: pa.Table) -> None:
        """Write rows, in new row groups."""
        for group in row_groups(rows):
            self._writer.write_table(group, row_group_size=max(group.num_rows, 1))
            self.chunks_with_nan |= {(self._num_groups, name) for name in _columns_with_nan(group)}
            self._num_groups += 1

    @property
    def bytes_written(self) -> int:
        return int(self._sink.tell())

    def close(self) -> None:
        """Complete the file, or abandon it; the caller may remove it afterwards."""
        try:
            self._writer.close()
        finally:
            self._sink.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows back, in order, after `close`."""
        with pq.ParquetFile(self._path) as file:
            yield from file.iter_batches(batch_size=_BATCH_ROWS)


def _columns_with_nan(rows: pa.Table) -> list[str]:
    floats = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
    return [name for name in floats if pc.any(pc.is_nan(rows.column(name))).as_py()]


def row_groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Slice rows into row groups."""
    return bounded_slices(rows, ROWS_PER_GROUP, MAX_GROUP_BYTES)


def bounded_slices(rows: pa.Table, max_rows: int, max_bytes: int) -> Iterator[pa.Table]:
    """Slice a table by rows and by bytes; only a slice of a single row exceeds `max_bytes`."""
    for start in range(0, rows.num_rows, max_rows):
        yield from _halved(rows.slice(start, max_rows), max_bytes)


def _halved(rows: pa.Table, max_bytes: int) -> Iterator[pa.Table]:
    if rows.num_rows <= 1 or rows.nbytes <= max_bytes:
        yield rows
        return
    middle = rows.num_rows // 2
    yield from _halved(rows.slice(0, middle), max_bytes)
    yield from _halved(rows.slice(middle), max_bytes)


def check_storable(schema: pa.Schema) -> None:
    """Raise InvalidSchemaError, with the column, for types that Parquet cannot store."""
    for field in schema:
        _check_type(field.type, field.name)


def _check_type(data_type: pa.DataType, column: str) -> None:
    if pa.types.is_struct(data_type) and not data_type.num_fields:
        raise InvalidSchemaError(
            f"column {column!r} is a struct without fields, which cannot be stored; give it one or leave it out"
        )
    for position in range(data_type.num_fields):
        member = data_type.field(position)
        _check_type(member.type, f"{column}.{member.name}")


# Encoding: chosen for each column from the first rows.

# A dictionary pays off if each value occurs this often on average.
_MIN_REPETITION: Final = 2
_DELTA: Final = "DELTA_BINARY_PACKED"

_COMPRESSED: Final = "zstd"
_UNCOMPRESSED: Final = "none"
# Compression pays off if it saves a tenth of the size, and a bit per value.
_MIN_SAVED_SHARE: Final = 0.1
_MIN_SAVED_BYTES: Final = 1 / 8


class RowsEncoding(msgspec.Struct, frozen=True):
    """Which leaves have a dictionary or statistics, the encoding of the others, and the compression of each."""

    dictionary: list[str]
    statistics: list[str]
    others: dict[str, str]
    compression: dict[str, str]

    def writer(self, sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            sink,
            schema,
            compression=self.compression,
            write_page_checksum=True,
            write_page_index=True,
            max_rows_per_page=ROWS_PER_PAGE,
            data_page_size=_MAX_PAGE_BYTES,
            dictionary_pagesize_limit=_MAX_DICTIONARY_BYTES,
            # Every type of a table is one of Parquet's, and metadata that only Arrow reads would double the footer.
            store_schema=False,
            use_dictionary=self.dictionary,
            write_statistics=self.statistics,
            column_encoding=self.others,
        )


def choose_encoding(first_rows: pa.Table, text_columns: Collection[str]) -> RowsEncoding:
    """Choose the encoding of a file that starts with these rows.

    Values that hardly repeat are smaller and faster to read without a dictionary. Tokenized columns get no statistics:
    their minima and maxima prune almost nothing, and would be most of the metadata. Floats inside of other values get
    none, because bounds leave NaN out, and readers that take NaN for the largest number would lose rows.
    """
    leaves = _leaves(first_rows.schema)
    paths = [leaf.path for leaf in leaves]
    unique = [field for field in first_rows.schema if _is_unique(first_rows.column(field.name))]
    unique_names = {field.name for field in unique}
    encoding = RowsEncoding(
        # Arrow starts a page when a dictionary is full: of a repeated leaf, in the middle of the other columns' pages.
        dictionary=[
            leaf.path for leaf in leaves if leaf.path not in unique_names and not leaf.max_repetition_level
        ],
        statistics=[
            leaf.path for leaf in leaves if leaf.path not in text_columns and not _is_nested_float(leaf)
        ],
        # A name with a dot may also be the path of a struct member, of another type.
        others={
            field.name: _DELTA
            for field in unique
            if _is_delta_encoded(field) and paths.count(field.name) == 1
        },
        compression=dict.fromkeys(paths, _COMPRESSED),
    )
    incompressible = _incompressible_leaves(first_rows, encoding)
    return msgspec.structs.replace(
        encoding, compression=encoding.compression | dict.fromkeys(incompressible, _UNCOMPRESSED)
    )


@shared_memo("split.rows_file.leaves", "Parquet leaves by schema", max_entries=64)
def _leaves(schema: pa.Schema) -> list[pq.ColumnSchema]:
    """Return the leaf columns of the Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [parquet.column(number) for number in range(len(parquet))]


def _is_nested_float(leaf: pq.ColumnSchema) -> bool:
    """Whether a leaf may hold NaN that `chunks_with_nan` does not tell."""
    return leaf.path != leaf.name and leaf.physical_type in ("FLOAT", "DOUBLE")


def _incompressible_leaves(rows: pa.Table, encoding: RowsEncoding) -> list[str]:
    """Return the leaves whose encoding leaves nothing to compress; decompression would double the time to read them.

    Text without a dictionary is always compressed, because later rows may differ.
    """
    # Compressing text takes most of the time of a trial.
    rows = rows.select([field.name for field in rows.schema if not _is_plain_text(field, encoding)])
    if not rows.num_rows or not rows.num_columns:
        return []
    sink = pa.BufferOutputStream()
    with encoding.writer(sink, rows.schema) as writer:
        writer.write_table(rows)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return [
        chunk.path_in_schema
        for chunk in chunks
        if (chunk.has_dictionary_page or chunk.physical_type != "BYTE_ARRAY") and not _is_compressible(chunk)
    ]


def _is_plain_text(field: pa.Field, encoding: RowsEncoding) -> bool:
    is_text = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    return is_text and field.name not in encoding.dictionary


def _is_compressible(chunk: pq.ColumnChunkMetaData) -> bool:
    saved = chunk.total_uncompressed_size - chunk.total_compressed_size
    least = max(_MIN_SAVED_SHARE * chunk.total_uncompressed_size, _MIN_SAVED_BYTES * chunk.num_values)
    return bool(saved >= least)


def _is_unique(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type):
        return False
    return len(pc.unique(column)) * _MIN_REPETITION > len(column)


def _is_delta_encoded(field: pa.Field) -> bool:
    tests = (pa.types.is_integer, pa.types.is_date32, pa.types.is_timestamp)
    return any(is_type(field.type) for is_type in tests)
