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


class RowsEncoding(msgspec.Struct, frozen=True):
    """The leaves that have a dictionary or statistics, and the encodings of others that have no dictionary."""

    dictionary: list[str]
    statistics: list[str]
    others: dict[str, str]


def choose_encoding(first_rows: pa.Table, texts: Collection[str]) -> RowsEncoding:
    """The encoding of rows that begin like these; `texts` are the columns that are searched by their words.

    Values that hardly repeat are smaller, and faster to read, without a dictionary. The least and the greatest of
    some texts exclude next to nothing, but would be most of the metadata.
    """
    leaves = _leaves(first_rows.schema)
    unique = [field for field in first_rows.schema if _is_unique(first_rows.column(field.name))]
    unique_names = {field.name for field in unique}
    return RowsEncoding(
        dictionary=[leaf for leaf in leaves if leaf not in unique_names],
        statistics=[leaf for leaf in leaves if leaf not in texts],
        # A name with a dot in it may also be that of a member of a struct, of another type.
        others={
            field.name: _DELTA for field in unique if _is_counted(field) and leaves.count(field.name) == 1
        },
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """The columns of the Parquet file, as it calls them."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [parquet.column(number).path for number in range(len(parquet))]


def _is_unique(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type):
        return False
    return len(pc.unique(column)) * _MIN_REPETITION > len(column)


def _is_counted(field: pa.Field) -> bool:
    tests = (pa.types.is_integer, pa.types.is_date32, pa.types.is_timestamp)
    return any(is_type(field.type) for is_type in tests)
