"""How the columns of the rows are encoded in Parquet: decided by a look at the first rows."""

from collections.abc import Collection
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# A dictionary pays if its values are used this often on the average.
_MIN_REPETITION: Final = 2
_DELTA: Final = "DELTA_BINARY_PACKED"

_COMPRESSED: Final = "zstd"
_UNCOMPRESSED: Final = "none"
# Compression pays if it saves a tenth, and a bit of every value.
_MIN_SAVED_SHARE: Final = 0.1
_MIN_SAVED_BYTES: Final = 1 / 8


class RowsEncoding(msgspec.Struct, frozen=True):
    """The leaves that have a dictionary or statistics, the encodings of others, and how each is compressed."""

    dictionary: list[str]
    statistics: list[str]
    others: dict[str, str]
    compression: dict[str, str]

    def writer(self, sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
        """A writer of rows that are encoded like this."""
        return pq.ParquetWriter(
            sink,
            schema,
            compression=self.compression,
            write_page_checksum=True,
            use_dictionary=self.dictionary,
            write_statistics=self.statistics,
            column_encoding=self.others,
        )


def choose_encoding(first_rows: pa.Table, texts: Collection[str]) -> RowsEncoding:
    """The encoding of rows that begin like these; `texts` are the columns that are searched by their words.

    Values that hardly repeat are smaller, and faster to read, without a dictionary. The least and the greatest of
    some texts exclude next to nothing, but would be most of the metadata.
    """
    leaves = _leaves(first_rows.schema)
    unique = [field for field in first_rows.schema if _is_unique(first_rows.column(field.name))]
    unique_names = {field.name for field in unique}
    encoding = RowsEncoding(
        dictionary=[leaf for leaf in leaves if leaf not in unique_names],
        statistics=[leaf for leaf in leaves if leaf not in texts],
        # A name with a dot in it may also be that of a member of a struct, of another type.
        others={
            field.name: _DELTA for field in unique if _is_counted(field) and leaves.count(field.name) == 1
        },
        compression=dict.fromkeys(leaves, _COMPRESSED),
    )
    incompressible = _incompressible_leaves(first_rows, encoding)
    return msgspec.structs.replace(
        encoding, compression=encoding.compression | dict.fromkeys(incompressible, _UNCOMPRESSED)
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """The columns of the Parquet file, as it calls them."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [parquet.column(number).path for number in range(len(parquet))]


def _incompressible_leaves(rows: pa.Table, encoding: RowsEncoding) -> list[str]:
    """Leaves that are encoded so well that compression gains nothing, and takes half of the time of reading them.

    Texts without a dictionary are none of them, because the next ones may be quite different.
    """
    if not rows.num_rows:
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


def _is_compressible(chunk: pq.ColumnChunkMetaData) -> bool:
    saved = chunk.total_uncompressed_size - chunk.total_compressed_size
    least = max(_MIN_SAVED_SHARE * chunk.total_uncompressed_size, _MIN_SAVED_BYTES * chunk.num_values)
    return bool(saved >= least)


def _is_unique(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type):
        return False
    return len(pc.unique(column)) * _MIN_REPETITION > len(column)


def _is_counted(field: pa.Field) -> bool:
    tests = (pa.types.is_integer, pa.types.is_date32, pa.types.is_timestamp)
    return any(is_type(field.type) for is_type in tests)
