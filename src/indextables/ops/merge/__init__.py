"""MERGE SPLITS: planning, the work on each group, the commit, and merge-on-write."""

from indextables.ops.merge.jobs import JOB_COLUMNS, merge_jobs, merge_on_write, wait_for_merges
from indextables.ops.merge.operation import (
    GivenUpGroup,
    MergeRequest,
    MergeResult,
    merge_splits,
    plan_merge,
)
from indextables.ops.merge.task import BadSource

__all__ = [
    "JOB_COLUMNS",
    "BadSource",
    "GivenUpGroup",
    "MergeRequest",
    "MergeResult",
    "merge_jobs",
    "merge_on_write",
    "merge_splits",
    "plan_merge",
    "wait_for_merges",
]
