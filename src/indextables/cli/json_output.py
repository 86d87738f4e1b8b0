"""JSON output for programs: UTF-8 on stdout in any locale."""

import base64
import json
import sys
from collections.abc import Iterable
from datetime import date
from datetime import time as clock_time
from itertools import chain

import pyarrow as pa

from indextables._results import plain_rows


def print_json(document: object) -> None:
    """Print one document, indented."""
    _write([json.dumps(document, ensure_ascii=False, indent=2), "\n"])


def print_json_rows(table: pa.Table) -> None:
    """Print the rows of an Arrow table as an array of objects, one per line, without holding all text."""
    lines = (json.dumps(row, ensure_ascii=False, default=_as_json) for row in plain_rows(table))
    first = next(lines, "")
    _write(chain(["[", first], (f",\n{line}" for line in lines), ["]\n"]))


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
