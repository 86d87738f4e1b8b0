"""A table that needs a merge: many small splits in some partitions."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import WrongResultError
from benchmarks.rows import SCHEMA, TEXT_COLUMN
from indextables import AddAction, IndexTable
from indextables.log.actions import parse_action
from indextables.ops.merge import MergeResult
from indextables.ops.runner import Runner

_PARTITION_COLUMN = "part"
_SCHEMA = SCHEMA.append(pa.field(_PARTITION_COLUMN, pa.int32()))


def build_table(path: Path, rows: pa.Table, partitions: int, splits: int) -> None:
    """Build a table with these rows and this number of splits, equally many in each partition."""
    table = IndexTable.create(str(path), _SCHEMA, partition_by=[_PARTITION_COLUMN], text=[TEXT_COLUMN])
    appends = splits // partitions
    bounds = [rows.num_rows * number // appends for number in range(appends + 1)]
    for start, end in pairwise(bounds):
        part = pa.array(np.arange(end - start, dtype=np.int32) % partitions)
        table.append(rows.slice(start, end - start).append_column(_SCHEMA.field(_PARTITION_COLUMN), part))
    if table.num_files != splits:
        raise WrongResultError(f"{table.num_files} splits were written instead of {splits}")


def multiply(path: Path, copies: int) -> None:
    """Add copies of all splits of a table, which takes less time than writing them, until there are so many of each."""
    table = IndexTable(str(path))
    adds = []
    for entry in table.files().to_pylist():
        source = path / entry["path"]
        for number in range(1, copies):
            copy = source.with_stem(f"{source.stem}-{number}")
            os.link(source, copy)
            adds.append(_add(entry | {"path": copy.relative_to(path).as_posix()}))
    table.commit(adds=adds)


def _add(entry: dict[str, Any]) -> AddAction:
    """The add action of a file entry."""
    known = {
        name: value for name, value in entry.items() if value is not None and not name.startswith("addedAt")
    }
    maps = {
        name: dict(known[name]) for name in ("partitionValues", "minValues", "maxValues") if name in known
    }
    return parse_action({**known, **maps}, AddAction)


def merge(path: Path, runner: Runner | None = None) -> MergeResult:
    """Merge the splits of each partition into one, on threads of this process or on a runner."""
    return IndexTable(str(path)).merge_splits(runner=runner)
