"""FSCK: check a table without changing it."""

from indextables.ops.fsck.operation import fsck
from indextables.ops.fsck.report import FsckResult

__all__ = ["FsckResult", "fsck"]
