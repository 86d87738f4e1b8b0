"""PURGE: delete the files that no retained version refers to, and garbage-collect the log."""

from indextables.ops.purge.garbage import GarbageReport, collect_garbage
from indextables.ops.purge.operation import purge, purge_on_write
from indextables.ops.purge.report import PurgeReport

__all__ = ["GarbageReport", "PurgeReport", "collect_garbage", "purge", "purge_on_write"]
