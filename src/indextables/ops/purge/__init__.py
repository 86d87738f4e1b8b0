"""PURGE: delete the files that no retained version refers to, and garbage-collect the log."""

from indextables.ops.purge.garbage import GarbageResult, collect_garbage
from indextables.ops.purge.operation import purge, purge_on_write
from indextables.ops.purge.report import PurgeRequest, PurgeResult, Retention

__all__ = [
    "GarbageResult",
    "PurgeRequest",
    "PurgeResult",
    "Retention",
    "collect_garbage",
    "purge",
    "purge_on_write",
]
