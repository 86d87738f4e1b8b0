"""JSON output for programs: UTF-8 on stdout in any locale."""

import base64
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import date
from datetime import time as clock_time
from itertools import chain
from typing import Any

import pyarrow as pa

from indextables.cli.formatting import iso

_ROWS_AT_ONCE = 10_000


def print_json(document: object) -> None:
    """Print one document, indented."""
    _write([json.dumps(document, ensure_ascii=False, indent=2), "\n"])


def print_json_rows(table: pa.Table) -> None:
    """Print the rows of an Arrow table as an array of objects, one per line, without holding all text."""
    lines = (json.dumps(row, ensure_ascii=False, default=_as_json) for row in json_rows(table))
    first = next(lines, "")
    _write(chain(["[", first], (f",\n{line}" for line in lines), ["]\n"]))


def json_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows with maps as objects and timestamps as ISO 8601; `_as_json` encodes other values."""
    timestamps = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    for name in timestamps:
        # Avoid datetime, which cannot represent every timestamp that a log may have.
        milliseconds = table[name].cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, milliseconds)
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            for name in timestamps:
                row[name] = None if row[name] is None else iso(row[name])
            yield row


def _as_json(value: object) -> str:
    """Encode values without a JSON type: dates and times as ISO 8601, decimals exactly, bytes as Base64."""
    if isinstance(value, (date, clock_time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def _write(texts: Iterable[str]) -> None:
    sys.stdout.flush()
    binary = sys.stdout.buffer
    for text in texts:
        # A lone surrogate, from a file name that is not UTF-8, becomes a JSON escape.
        binary.write(text.encode("utf-8", "backslashreplace"))
    binary.flush()
