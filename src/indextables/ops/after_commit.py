"""What is due after a commit. None of it ever fails the commit, which stands.

A failed cleanup of the log is an error if `cleanup.failurePolicy` says so: the error says that the commit stands.
"""

import atexit
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from indextables.config.registry import (
    CHECKPOINT_ASYNC,
    CHECKPOINT_ENABLED,
    CHECKPOINT_INTERVAL,
    CLEANUP_FAILURE_POLICY,
    STATE_COMPACTION_AFTER_MERGE,
)
from indextables.errors import CleanupFailedError, IndexTablesError, LogCorruptedError, StorageError
from indextables.log.checkpoint import read_hint
from indextables.log.segment import list_log
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.purge.operation import purge_after_merge, purge_after_write
from indextables.state.compaction import Trigger
from indextables.table import Snapshot
from indextables.table.load import reload_from_newest_base, reload_if_tail_is_long

logger = logging.getLogger(__name__)


def after_commit(snapshot: Snapshot) -> Snapshot:
    """Write a checkpoint after every N versions, here or in the background, clean up what it covers, and purge.

    Returns the same version, read from the checkpoint if there is a new one.
    """
    later = _checkpointed(snapshot, _checkpoint_if_due)
    purge_after_write(later)
    return later


def after_merge(snapshot: Snapshot) -> Snapshot:
    """Compact the state after splits were merged, unless the settings say otherwise; see `after_commit`."""
    is_compacted = snapshot.context.settings[STATE_COMPACTION_AFTER_MERGE]
    later = _checkpointed(snapshot, _compact if is_compacted else _checkpoint_if_due)
    purge_after_merge(later)
    return later


def wait_for_background() -> None:
    """Return when all checkpoints that were started in the background are done."""
    done: Future[None] = _background(os.getpid()).submit(lambda: None)
    done.result()


def _checkpointed(snapshot: Snapshot, checkpoint: Callable[[Snapshot], Snapshot]) -> Snapshot:
    """The snapshot after its checkpoint, or as it is if that is made in the background, or not at all."""
    settings = snapshot.context.settings
    if not settings[CHECKPOINT_ENABLED]:
        return snapshot
    if not settings[CHECKPOINT_ASYNC]:
        return _without_failing(snapshot, checkpoint)
    try:
        _background(os.getpid()).submit(_without_failing, snapshot, checkpoint)
    except RuntimeError:  # the interpreter is about to end
        return _without_failing(snapshot, checkpoint)
    return snapshot


def _checkpoint_if_due(snapshot: Snapshot) -> Snapshot:
    since, interval = _versions_since_checkpoint(snapshot), snapshot.context.settings[CHECKPOINT_INTERVAL]
    # Every writer sees the same versions: only the one whose turn it is writes. But versions that are nobody's write,
    # or whose writer died, may take the turns.
    is_due = since > 0 and (since % interval == 0 or since > 2 * interval)
    if not is_due:
        return reload_if_tail_is_long(snapshot)
    report = write_checkpoint(snapshot)
    _clean_up(snapshot, report.version)
    return reload_from_newest_base(snapshot)


def _compact(snapshot: Snapshot) -> Snapshot:
    report = compact(snapshot, trigger=Trigger.AFTER_MERGE)
    _clean_up(snapshot, report.version)
    return reload_from_newest_base(snapshot)


def _clean_up(snapshot: Snapshot, checkpoint_version: int) -> None:
    """Clean up what a checkpoint covers. Raises CleanupFailedError if that fails and the settings make it an error."""
    try:
        clean_up(snapshot.context, checkpoint_version)
    except (StorageError, LogCorruptedError) as error:
        raise CleanupFailedError(
            f"{snapshot.context.url}: version {snapshot.version} is committed and stands, but the cleanup of the log "
            f"after it failed: {error}; do not commit again. Remove the cause: the next checkpoint cleans up. With "
            f"{CLEANUP_FAILURE_POLICY.key}=continue this is a warning",
            snapshot.version,
        ) from error


def _without_failing(snapshot: Snapshot, checkpoint: Callable[[Snapshot], Snapshot]) -> Snapshot:
    context = snapshot.context
    try:
        return checkpoint(snapshot)
    except CleanupFailedError as error:
        if not context.settings[CHECKPOINT_ASYNC]:
            raise
        logger.error("%s", error)  # noqa: TRY400  # in the background there is no caller to raise it to
    except IndexTablesError as error:
        logger.warning("%s: no checkpoint at version %d: %s", context.url, snapshot.version, error)
    except Exception:
        # Whatever it is: the commit stands, and a caller who saw an error would commit again.
        logger.exception("%s: no checkpoint at version %d", context.url, snapshot.version)
    return snapshot


def _versions_since_checkpoint(snapshot: Snapshot) -> int:
    """How many versions ago the hint's checkpoint was made: a negative number if others went on meanwhile."""
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
    """One thread for the whole process; what it has begun is finished before the process ends."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="indextables-background")
    atexit.register(pool.shutdown)
    return pool
