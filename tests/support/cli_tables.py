"""Tables for the CLI tests, and the types of their fixtures."""

import subprocess
from collections.abc import Callable

import pyarrow as pa
from typer.testing import Result

from indextables import AddAction

SCHEMA = pa.schema(
    [
        pa.field("date", pa.string()),
        pa.field("latency_ms", pa.int64()),
        pa.field("message", pa.string(), nullable=False),
    ]
)

Invoke = Callable[..., Result]
RunProcess = Callable[..., "subprocess.CompletedProcess[str]"]


def add(day: str, name: str, size: int = 1_258_291, rows: int | None = 1000) -> AddAction:
    return AddAction(
        path=f"date={day}/{name}.split",
        partition_values={"date": day},
        size=size,
        modification_time=1_700_000_000_000,
        data_change=True,
        num_records=rows,
    )
