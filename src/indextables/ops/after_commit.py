"""Housekeeping after a commit: checkpoint, cleanup, purge and merge, if they are due.

Housekeeping never fails the commit, which stands. If `cleanup.failurePolicy` is `fail`, a failed cleanup raises an
error that says so. This module decides cheaply whether anything is due. The packages that do the work are called
through `ops`, which imports them on first use: most commits need none of them.
"""

import atexit
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from indextables import ops
from indextables.config.registry import (
    CHECKPOINT_ASYNC,
    CHECKPOINT_ENABLED,
    CHECKPOINT_INTERVAL,
    CLEANUP_FAILURE_POLICY,
    MERGE_ON_WRITE_ENABLED,
    PUBLISH_DELTA_ENABLED,
    PURGE_ON_WRITE_ENABLED,
    PURGE_ON_WRITE_TRIGGER_AFTER_MERGE,
    PURGE_ON_WRITE_TRIGGER_AFTER_WRITES,
    STATE_COMPACTION_AFTER_MERGE,
)
from indextables.errors import (
    CleanupFailedError,
    ConcurrentMaintenanceError,
    IndexTablesError,
    LogCorruptedError,
    StorageError,
)
from indextables.log.segment import list_log, read_hint
from indextables.state.compaction import Trigger
from indextables.table import Snapshot
from indextables.table.load import reload_from_newest_base, reload_if_tail_is_long
from indextables.table.whole_base import file_problem

logger = logging.getLogger(__name__)


def after_commit(snapshot: Snapshot) -> Snapshot:
    """Publish the version, write a checkpoint every N versions, here or in the background, clean up, and purge.

    Returns the same version, loaded from the new checkpoint if there is one.
    """
    _publish(snapshot)
    snapshot = _checkpoint(snapshot, _checkpoint_if_due)
    # All writers see the same version numbers: only the writer whose version is due purges.
    settings = snapshot.context.settings
    interval = settings[PURGE_ON_WRITE_TRIGGER_AFTER_WRITES]
    if settings[PURGE_ON_WRITE_ENABLED] and interval and snapshot.version % interval == 0:
        ops.purge.purge_on_write(snapshot)
    return snapshot


def after_write(snapshot: Snapshot) -> Snapshot:
    """`after_commit`, and merge-on-write if it is enabled, for commits that add rows."""
    snapshot = after_commit(snapshot)
    if snapshot.context.settings[MERGE_ON_WRITE_ENABLED]:
        ops.merge.merge_on_write(snapshot)
    return snapshot


def after_merge(snapshot: Snapshot) -> Snapshot:
    """Compact the state after splits were merged, if the settings say so, and purge; see `after_commit`."""
    settings = snapshot.context.settings
    _publish(snapshot)
    snapshot = _checkpoint(
        snapshot, _compact if settings[STATE_COMPACTION_AFTER_MERGE] else _checkpoint_if_due
    )
    if settings[PURGE_ON_WRITE_ENABLED] and settings[PURGE_ON_WRITE_TRIGGER_AFTER_MERGE]:
        ops.purge.purge_on_write(snapshot)
    return snapshot


def wait_for_background() -> None:
    """Wait until all background checkpoints that have been started are done."""
    done: Future[None] = _background(os.getpid()).submit(lambda: None)
    done.result()


def _publish(snapshot: Snapshot) -> None:
    if snapshot.context.settings[PUBLISH_DELTA_ENABLED]:
        ops.publish.publish_after_commit(snapshot)


def _checkpoint(snapshot: Snapshot, write: Callable[[Snapshot], Snapshot]) -> Snapshot:
    """Write a checkpoint, here or in the background. Returns the snapshot loaded from it, or as it is."""
    settings = snapshot.context.settings
    if not settings[CHECKPOINT_ENABLED]:
        return snapshot
    if not settings[CHECKPOINT_ASYNC]:
        return _without_failing(snapshot, write)
    try:
        _background(os.getpid()).submit(_without_failing, snapshot, write)
    except RuntimeError:  # the interpreter is shutting down
        return _without_failing(snapshot, write)
    return snapshot


def _checkpoint_if_due(snapshot: Snapshot) -> Snapshot:
    since, interval = _versions_since_checkpoint(snapshot), snapshot.context.settings[CHECKPOINT_INTERVAL]
    # All writers see the same version numbers: only the writer whose version is due writes a checkpoint. If that writer
    # died, or its commit does no housekeeping, any writer steps in once two intervals have passed.
    is_due = since > 0 and (since % interval == 0 or since > 2 * interval)
    if not is_due:
        return reload_if_tail_is_long(snapshot)
    report = ops.checkpoint.write_checkpoint(snapshot, check=file_problem)
    _clean_up(snapshot, report.version)
    return _reloaded(snapshot)


def _compact(snapshot: Snapshot) -> Snapshot:
    report = ops.checkpoint.compact(snapshot, trigger=Trigger.AFTER_MERGE, check=file_problem)
    _clean_up(snapshot, report.version)
    return _reloaded(snapshot)


def _reloaded(snapshot: Snapshot) -> Snapshot:
    """The snapshot, loaded from its new checkpoint; as it is if the log no longer holds it or cannot be read."""
    try:
        return reload_from_newest_base(snapshot)
    except IndexTablesError as error:
        logger.debug("%s: version %d stays as it was read: %s", snapshot.context.url, snapshot.version, error)
        return snapshot


def _clean_up(snapshot: Snapshot, checkpoint_version: int) -> None:
    """Clean up what a checkpoint covers. Raises CleanupFailedError if that fails and the settings make it an error."""
    try:
        ops.checkpoint.clean_up(snapshot.context, checkpoint_version)
    except (StorageError, LogCorruptedError, ConcurrentMaintenanceError) as error:
        raise CleanupFailedError(
            f"{snapshot.context.url}: version {snapshot.version} is committed and stands, but the cleanup of the log "
            f"after it failed: {error}; do not commit again. Remove the cause: the next checkpoint cleans up. With "
            f"{CLEANUP_FAILURE_POLICY.key}=continue this is a warning",
            snapshot.version,
        ) from error


def _without_failing(snapshot: Snapshot, write: Callable[[Snapshot], Snapshot]) -> Snapshot:
    context = snapshot.context
    try:
        return write(snapshot)
    except CleanupFailedError as error:
        if not context.settings[CHECKPOINT_ASYNC]:
            raise
        logger.error("%s", error)  # noqa: TRY400  # a background thread has no caller to raise to
    except IndexTablesError as error:
        logger.warning("%s: no checkpoint at version %d: %s", context.url, snapshot.version, error)
    except Exception:
        # If this raised, the caller would take the commit for failed and write again.
        logger.exception("%s: no checkpoint at version %d", context.url, snapshot.version)
    return snapshot


def _versions_since_checkpoint(snapshot: Snapshot) -> int:
    """The number of versions since the hint's checkpoint; negative if the hint is already newer."""
    hint = read_hint(snapshot.context.store)
    if hint is None:
        return snapshot.version
    if hint.version > snapshot.version:
        listing = list_log(snapshot.context.store, from_version=hint.version)
        if hint.version not in listing.bases:
            return snapshot.version
    return snapshot.version - hint.version


@cache
def _background(process_id: int) -> ThreadPoolExecutor:  # noqa: ARG001  # threads do not survive a fork
    """One thread for the whole process. It finishes its checkpoints before the process ends."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="indextables-background")
    atexit.register(pool.shutdown)
    return pool
