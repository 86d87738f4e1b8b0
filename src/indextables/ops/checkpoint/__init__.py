"""CHECKPOINT and COMPACT: the table's state in one place, and the cleanup of the log that it makes possible."""

from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import CheckpointResult, compact, write_checkpoint
from indextables.ops.checkpoint.with_cleanup import checkpoint_with_cleanup, compact_with_cleanup

__all__ = [
    "CheckpointResult",
    "checkpoint_with_cleanup",
    "clean_up",
    "compact",
    "compact_with_cleanup",
    "write_checkpoint",
]
