"""Rows for tests of whole tables, and their files on disk."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from indextables import IndexTable

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("body", pa.string())])

# Smaller than any row group: a writer starts a new split each time that it has flushed rows to disk.
SMALL_SPLITS = {"spark.indextables.write.targetSplitSize": "1K"}


def rows(*ids: int, day: str | None = "2024-01-01") -> pa.Table:
    """Rows of SCHEMA with these ids."""
    return pa.table(
        {"id": list(ids), "day": [day] * len(ids), "body": [f"row {number}" for number in ids]}, schema=SCHEMA
    )


def ids(table: IndexTable, **arguments: Any) -> list[int]:
    """The ids of all rows, or of those that a predicate selects."""
    return sorted(table.to_arrow(columns=["id"], **arguments)["id"].to_pylist())


def split_files(path: Path) -> list[str]:
    """All split files in a folder, whether or not the log refers to them."""
    return sorted(found.relative_to(path).as_posix() for found in path.rglob("*.split"))


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equality with NaN equal to itself, and -0.0 unequal to 0.0."""
    return left.schema.equals(right.schema) and repr(left.to_pylist()) == repr(right.to_pylist())


def counted(table: pa.Table | Iterable[dict[str, Any]]) -> list[str]:
    """The rows with their counts, for comparisons without order."""
    return sorted(map(repr, table.to_pylist() if isinstance(table, pa.Table) else table))
