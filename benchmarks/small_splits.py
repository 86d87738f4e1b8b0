"""A table that needs a merge: many small splits in some partitions."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import WrongResultError
from benchmarks.rows import SCHEMA, TEXT_COLUMN
from indextables import IndexTable
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


def merge(path: Path, runner: Runner | None = None) -> MergeResult:
    """Merge the splits of each partition into one, on threads of this process or on a runner."""
    return IndexTable(str(path)).merge_splits(runner=runner)
