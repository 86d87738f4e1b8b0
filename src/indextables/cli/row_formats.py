"""How rows are written: aligned text, JSON, JSON lines, CSV and Parquet, each a chunk of rows at a time.

Values that a text format has no type for are text: dates and times as ISO 8601, decimals exactly, bytes as Base64, and
in CSV lists, structs and maps as JSON.
"""

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from datetime import time as clock_time
from enum import Enum
from itertools import chain
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables._results import moment_texts, plain_rows
from indextables.cli.output import Column, text_of_table

# A Parquet row group holds at least so many rows, or so many bytes of them.
_GROUP_ROWS: Final = 100_000
_GROUP_BYTES: Final = 64 << 20

_NULL: Final = "-"

WriteRows = Callable[[pa.Schema, Iterable[pa.Table], BinaryIO], None]
"""Writes chunks of rows to a stream, and flushes it after each of them."""


class RowFormat(Enum):
    """The formats of rows that `--format` offers."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def write_json_array(_: pa.Schema, chunks: Iterable[pa.Table], stream: BinaryIO) -> None:
    """Write an array of objects, one per line."""
    separator = "["
    for rows in chunks:
        for line in _json_texts(rows):
            stream.write(_utf8(f"{separator}{line}"))
            separator = ",\n"
        stream.flush()
    stream.write(b"[]\n" if separator == "[" else b"]\n")
    stream.flush()


def write_jsonl(_: pa.Schema, chunks: Iterable[pa.Table], stream: BinaryIO) -> None:
    """Write one object per line."""
    for rows in chunks:
        stream.writelines(_utf8(f"{line}\n") for line in _json_texts(rows))
        stream.flush()


def write_csv(schema: pa.Schema, chunks: Iterable[pa.Table], stream: BinaryIO) -> None:
    """Write a header and a line per row. Null is an empty field, the empty string a quoted one."""
    from pyarrow import csv  # only this format needs it

    has_header = True
    for rows in chain([schema.empty_table()], chunks):
        text = pa.BufferOutputStream()
        csv.write_csv(_flat(rows), text, csv.WriteOptions(include_header=has_header))
        stream.write(text.getvalue())
        stream.flush()
        has_header = False


def write_parquet(schema: pa.Schema, chunks: Iterable[pa.Table], stream: BinaryIO) -> None:
    """Write a Parquet file, with row groups of a bounded size."""
    from pyarrow import parquet  # only this format needs it

    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        group: list[pa.Table] = []
        for rows in chunks:
            group.append(rows)
            if sum(map(len, group)) >= _GROUP_ROWS or sum(part.nbytes for part in group) >= _GROUP_BYTES:
                writer.write_table(pa.concat_tables(group))
                group.clear()
        if group:
            writer.write_table(pa.concat_tables(group))


def write_text(schema: pa.Schema, chunks: Iterable[pa.Table], stream: BinaryIO) -> None:
    """Write aligned columns. The first chunk decides the widths, which longer values exceed."""
    widths: list[int] = []
    for rows in chunks:
        text, widths = text_of_table(text_columns(schema), text_cells(rows), widths)
        stream.write(_utf8(text))
        stream.flush()


WRITERS: Final[dict[RowFormat, WriteRows]] = {
    RowFormat.TABLE: write_text,
    RowFormat.JSONL: write_jsonl,
    RowFormat.CSV: write_csv,
    RowFormat.PARQUET: write_parquet,
}


def text_columns(schema: pa.Schema) -> list[Column]:
    """Return the columns of a table of text; numbers are justified right."""
    return [Column(field.name, "right" if _is_number(field.type) else "left") for field in schema]


def text_cells(rows: pa.Table) -> list[tuple[str, ...]]:
    """Return the rows as text for people; null is a dash."""
    columns = [value_texts(column).to_pylist() for column in rows.columns]
    return list(zip(*columns, strict=True))


def value_texts(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return values as text for people; null is a dash."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = moment_texts(column)
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(map(cell_text, column.to_pylist(maps_as_pydicts="lossy")), pa.string())
    else:
        texts = column.cast(pa.string())  # the shortest text of a float
    return pc.fill_null(texts, _NULL)


def cell_text(value: Any) -> str:
    """Return a value as text for people; null is a dash."""
    match value:
        case None:
            return _NULL
        case bool():
            return str(value).lower()
        case dict():
            return ", ".join(f"{key}={cell_text(item)}" for key, item in value.items()) or "-"
        case list():
            return ", ".join(map(cell_text, value)) or "-"
        case bytes():
            return _as_json(value)
        case _:
            return str(value)


def _is_number(kind: pa.DataType) -> bool:
    is_types = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_type(kind) for is_type in is_types)


def _json_texts(rows: pa.Table) -> Iterator[str]:
    return map(_json_text, plain_rows(rows))


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_as_json, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), ensure_ascii=False, default=_as_json)


def _without_nan(value: Any) -> Any:
    """Replace the numbers that JSON does not have by their names, as Spark does."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: _without_nan(item) for key, item in value.items()}
        case list():
            return [_without_nan(item) for item in value]
        case _:
            return value


def _as_json(value: object) -> str:
    if isinstance(value, (date, clock_time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def _flat(rows: pa.Table) -> pa.Table:
    """Replace the columns of types that CSV does not have by text."""
    for index, field in enumerate(rows.schema):
        texts = _csv_texts(rows.column(index))
        if texts is not None:
            rows = rows.set_column(index, field.name, texts)
    return rows


def _csv_texts(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return moment_texts(column)
    if pa.types.is_nested(kind):
        to_text: Callable[[Any], str] = _json_text
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        to_text = _as_json
    else:
        return None
    values = column.to_pylist(maps_as_pydicts="lossy")
    return pa.chunked_array(
        [pa.array([None if each is None else to_text(each) for each in values], pa.string())]
    )


def _utf8(text: str) -> bytes:
    # A lone surrogate, from a file name that is not UTF-8, becomes an escape.
    return text.encode("utf-8", "backslashreplace")
