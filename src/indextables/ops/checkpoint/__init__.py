"""CHECKPOINT and COMPACT: the table's state in one place, and the cleanup of the log that it makes possible."""

from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import CheckpointResult, compact, write_checkpoint

__all__ = ["CheckpointResult", "clean_up", "compact", "write_checkpoint"]
