"""What programs see: JSON in UTF-8 on stdout, whatever the locale is, and nothing beside it."""

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
    """One document, indented."""
    _write([json.dumps(document, ensure_ascii=False, indent=2), "\n"])


def print_json_rows(table: pa.Table) -> None:
    """The rows of an Arrow table as an array of objects, one a line; never all of them in memory as text."""
    lines = (json.dumps(row, ensure_ascii=False, default=_as_json) for row in json_rows(table))
    first = next(lines, "")
    _write(chain(["[", first], (f",\n{line}" for line in lines), ["]\n"]))


def json_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows: maps are objects, moments are ISO 8601, and other values are for `_as_json`."""
    moments = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    for name in moments:
        # Not by way of datetime, which cannot hold every moment that a log may claim.
        milliseconds = table[name].cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, milliseconds)
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            for name in moments:
                row[name] = None if row[name] is None else iso(row[name])
            yield row


def _as_json(value: object) -> str:
    """Values that JSON has no type for: dates and moments as ISO 8601, decimals exactly, bytes in Base64."""
    if isinstance(value, (date, clock_time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def _write(texts: Iterable[str]) -> None:
    sys.stdout.flush()
    binary = sys.stdout.buffer
    for text in texts:
        # A lone surrogate, from a file name that is not UTF-8, becomes the escape that JSON has for it.
        binary.write(text.encode("utf-8", "backslashreplace"))
    binary.flush()
