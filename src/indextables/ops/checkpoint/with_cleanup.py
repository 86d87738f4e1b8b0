"""CHECKPOINT and COMPACT as users run them: the checkpoint, and then the cleanup of what it covers.

The checkpoints that a commit writes are cleaned up after by `ops.after_commit`. TRUNCATE, PURGE and others write a
checkpoint as one of their steps, and clean up by their own rules.
"""

from indextables.config.registry import CLEANUP_FAILURE_POLICY
from indextables.errors import (
    CleanupFailedError,
    ConcurrentMaintenanceError,
    LogCorruptedError,
    StorageError,
)
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import CheckpointResult, compact, write_checkpoint
from indextables.ops.runner import Runner
from indextables.table import Snapshot


def checkpoint_with_cleanup(snapshot: Snapshot, runner: Runner | None = None) -> CheckpointResult:
    """Write a checkpoint and clean up. Raises CleanupFailedError if that fails and the settings make it an error."""
    return _cleaned_up(snapshot, write_checkpoint(snapshot, runner))


def compact_with_cleanup(snapshot: Snapshot, runner: Runner | None = None) -> CheckpointResult:
    """Compact and clean up. Raises CleanupFailedError if that fails and the settings make it an error."""
    return _cleaned_up(snapshot, compact(snapshot, runner))


def _cleaned_up(snapshot: Snapshot, result: CheckpointResult) -> CheckpointResult:
    context, version = snapshot.context, result.version
    try:
        clean_up(context, version)
    except (StorageError, LogCorruptedError, ConcurrentMaintenanceError) as error:
        raise CleanupFailedError(
            f"{context.url}: the checkpoint of version {version} is written and stands, but the cleanup of the log "
            f"after it failed: {error}; remove the cause: the next checkpoint cleans up. With "
            f"{CLEANUP_FAILURE_POLICY.key}=continue this is a warning",
            version,
        ) from error
    return result
