"""MERGE SPLITS: planning, the work on each group, the commit, and merge-on-write."""

from indextables.ops.merge.jobs import merge_jobs, merge_on_write, wait_for_merges
from indextables.ops.merge.operation import (
    GivenUpGroup,
    MergeReport,
    MergeRequest,
    MergeResult,
    merge_splits,
    plan_merge,
)
from indextables.ops.merge.task import BadSource

__all__ = [
    "BadSource",
    "GivenUpGroup",
    "MergeReport",
    "MergeRequest",
    "MergeResult",
    "merge_jobs",
    "merge_on_write",
    "merge_splits",
    "plan_merge",
    "wait_for_merges",
]
