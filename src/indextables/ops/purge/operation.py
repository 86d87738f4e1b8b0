"""PURGE: delete what nothing refers to any more, and nothing else.

What may go is decided in one plan (`purge_plan`), which a dry run shows and a real run follows. The order of
deletion is that of `PurgeKind`: pointers, then what they point at. A crash at any point leaves orphans.
"""

import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config.registry import (
    PURGE_ON_WRITE_ENABLED,
    PURGE_ON_WRITE_SPLIT_RETENTION_HOURS,
    PURGE_ON_WRITE_TRIGGER_AFTER_MERGE,
    PURGE_ON_WRITE_TRIGGER_AFTER_WRITES,
    PURGE_ON_WRITE_TX_LOG_RETENTION_HOURS,
    PURGE_PARALLELISM,
)
from indextables.errors import (
    CommitConflictError,
    IndexTablesError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
    UnsafePathError,
    VersionNotFoundError,
)
from indextables.log.checkpoint import read_hint
from indextables.log.segment import list_log
from indextables.ops.checkpoint.cleanup import CleanupRules
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.purge.garbage import BATCH_KEYS, checkpoint_files_in_use, delete_keys
from indextables.ops.purge.plan import PurgePlan, PurgeRules, plan_purge, purge_rules
from indextables.ops.purge.report import SPLIT_KINDS, PurgeKind, PurgeRequest, PurgeResult, with_outcome
from indextables.ops.references import LivePaths, among, normalised_paths
from indextables.ops.runner import Runner, local_runner
from indextables.table import Snapshot, TableContext, changes_since, load_snapshot
from indextables.table.commit import draw_purge_fence
from indextables.table.load import catch_up

_PLANNING_ATTEMPTS: Final = 3
_EPOCH: Final = datetime.fromtimestamp(0, UTC)

# How many splits are deleted between two looks at what was committed meanwhile.
_KEYS_PER_ROUND: Final = 16 * BATCH_KEYS


def purge(snapshot: Snapshot, request: PurgeRequest, runner: Runner) -> PurgeResult:
    """Delete, or in a dry run list, old files that no retained version refers to.

    Removed splits are aged by their removal, splits that the log has never seen by their modification, both by the
    store's clock. The plan is made on the newest version, with the settings of `snapshot`.

    Before deleting uncommitted splits, PURGE commits a marker version that stops late writers (`draw_purge_fence`).

    Raises InvalidOptionError for a retention that is too short, ClockSkewError, LogGapError, LogCorruptedError,
    UnsafePathError, and what `commit` raises, with nothing deleted; StorageError if files of the log could not be
    deleted: no split was then; VersionNotFoundError and CommitConflictError if others cleaned up at the same time, or
    created the table again: what is left goes with the next purge. Splits that could not be deleted are in the report.
    """
    context = snapshot.context
    rules = purge_rules(context, request.older_than, request.log_retention)
    return purge_by_rules(context, rules, runner, dry_run=request.dry_run)


def purge_by_rules(context: TableContext, rules: PurgeRules, runner: Runner, *, dry_run: bool) -> PurgeResult:
    """Purge as `purge` does, by explicit rules."""
    plan = _plan(context, rules)
    files, newest = _untouched(plan.doomed), plan.head
    if not dry_run and plan.doomed.num_rows:
        if plan.fence_ms is not None:
            newest = draw_purge_fence(plan.head, plan.fence_ms)
        files = _execute(context, plan, newest, runner)
        context.cache.invalidate(context.store)
    return PurgeResult(
        table_path=context.url,
        version=newest.version,
        is_dry_run=dry_run,
        files=files,
        as_of=_moment(plan.now_ms),
        split_cutoff=_moment(plan.split_cutoff_ms),
        orphan_cutoff=_moment(plan.orphan_cutoff_ms),
        num_kept_for_time_travel=plan.kept_for_time_travel,
        bytes_kept_for_time_travel=plan.kept_for_time_travel_bytes,
        num_left_over=plan.left_over,
    )


def _moment(epoch_ms: int) -> datetime:
    """A cutoff as a datetime; a retention may be longer than datetime reaches back."""
    return _EPOCH + timedelta(milliseconds=max(epoch_ms, 0))


def ensure_hint(context: TableContext, version: int) -> None:
    """Make sure that the hint points at the checkpoint of a version, or at a newer one, before versions go.

    A writer that slept recognises by it that the number of its version may have been used before (`landing`).
    """
    hint = read_hint(context.store)
    if hint is None or hint.version < version:
        write_checkpoint(load_snapshot(context, version))


def _plan(context: TableContext, rules: PurgeRules) -> PurgePlan:
    for attempt in range(_PLANNING_ATTEMPTS):
        try:
            return plan_purge(context, rules)
        except ObjectNotFoundError as error:
            if attempt == _PLANNING_ATTEMPTS - 1:
                raise VersionNotFoundError(
                    f"{context.url}: nothing was deleted, because a file of the log vanished while it was read "
                    f"({error}); is somebody else purging at the same time?"
                ) from error
        except (LogCorruptedError, UnsafePathError) as error:
            raise type(error)(
                f"{context.url}: nothing was deleted, because it cannot be told what the log refers to: {error}"
            ) from error
    raise AssertionError("unreachable: the loop returns or raises")


def _execute(context: TableContext, plan: PurgePlan, fenced: Snapshot, runner: Runner) -> pa.Table:
    """Delete what the plan says, now that `fenced` is the newest version, or the one that the plan was made on."""
    kinds = plan.doomed["kind"]
    splits = plan.doomed.filter(pc.is_in(kinds, pa.array([kind.value for kind in SPLIT_KINDS])))
    splits, committed = _split_by_commits(splits, plan.head, fenced)
    done = [_untouched(committed)]
    if plan.anchor is not None:
        ensure_hint(context, plan.anchor)
    for kind in PurgeKind:
        if kind in SPLIT_KINDS:
            continue
        doomed = plan.doomed.filter(pc.equal(kinds, kind.value))
        if kind is PurgeKind.MANIFEST and doomed.num_rows:
            doomed, used = _split_by_use(context, doomed)
            done.append(_untouched(used))
        done.append(_delete_log_files(context, doomed, runner))
    splits, shown = _split_by_late_checkpoints(context, splits, plan)
    done.append(_untouched(shown))
    newest = fenced
    for start in range(0, splits.num_rows, _KEYS_PER_ROUND):
        newest = catch_up(newest).snapshot
        if newest.metadata.id != plan.head.metadata.id:
            raise CommitConflictError(
                f"{context.url}: the table was dropped and created again while it was purged; what is left of the "
                f"old one goes with the next purge"
            )
        doomed, committed = _split_by_commits(splits.slice(start, _KEYS_PER_ROUND), fenced, newest)
        done += [_delete_splits(context, doomed, runner), _untouched(committed)]
    return pa.concat_tables(done)


def _split_by_use(context: TableContext, doomed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Files of which checkpoints are made, without and with those of checkpoints that came since the plan was made.

    Whoever goes on from an older checkpoint looks, before publishing, whether it is still there: it is gone by now.
    """
    used = checkpoint_files_in_use(context)
    is_used = among(doomed["path"], pa.array(sorted(used), pa.string()))
    return doomed.filter(pc.invert(is_used)), doomed.filter(is_used)


def _delete_log_files(context: TableContext, doomed: pa.Table, runner: Runner) -> pa.Table:
    if not doomed.num_rows:
        return _untouched(doomed)
    deletion = delete_keys(context, doomed["path"].to_pylist(), runner, "deleting files of the log")
    if deletion.first_error is not None:
        # What these files refer to must not go before them.
        raise StorageError(
            f"{context.url}: files of the log could not be deleted, and no split was: {deletion.first_error}"
        )
    return with_outcome(doomed, deletion.is_deleted, list(deletion.errors))


def _split_by_late_checkpoints(
    context: TableContext, doomed: pa.Table, plan: PurgePlan
) -> tuple[pa.Table, pa.Table]:
    """Splits, without and with those of checkpoints of older versions that were published since the plan was made.

    They let somebody read a version that was to go with the older checkpoint from which they were made.
    """
    late = LivePaths(context)
    for base in list_log(context.store).bases_newest_first():
        if base.version < plan.head.version and base.meta.key not in plan.checkpoints:
            with contextlib.suppress(ObjectNotFoundError):
                late.add(base)
    is_shown = among(doomed["path"], late.paths())
    return doomed.filter(pc.invert(is_shown)), doomed.filter(is_shown)


def _split_by_commits(doomed: pa.Table, since: Snapshot, newest: Snapshot) -> tuple[pa.Table, pa.Table]:
    """Splits, without and with those that were committed since a version."""
    if newest.version == since.version:
        return doomed, doomed.slice(0, 0)
    added = changes_since(newest, since.version).adds["path"].combine_chunks()
    is_added = among(doomed["path"], normalised_paths(added, newest.context.url))
    return doomed.filter(pc.invert(is_added)), doomed.filter(is_added)


def _delete_splits(context: TableContext, doomed: pa.Table, runner: Runner) -> pa.Table:
    deletion = delete_keys(context, doomed["path"].to_pylist(), runner, "deleting splits")
    return with_outcome(doomed, deletion.is_deleted, list(deletion.errors))


def _untouched(doomed: pa.Table) -> pa.Table:
    return with_outcome(doomed, np.zeros(doomed.num_rows, dtype=np.bool_), [None] * doomed.num_rows)


# Purge-on-write: a purge as a part of writing, as the settings ask for it. It never fails the write.


logger = logging.getLogger(__name__)


def purge_after_write(snapshot: Snapshot) -> None:
    """Purge if it is the turn of the version that was just committed.

    Every writer sees the same version numbers: of all writers of a table, only the one whose turn it is purges.
    """
    settings = snapshot.context.settings
    writes = settings[PURGE_ON_WRITE_TRIGGER_AFTER_WRITES]
    if settings[PURGE_ON_WRITE_ENABLED] and writes and snapshot.version % writes == 0:
        _purge(snapshot)


def purge_after_merge(snapshot: Snapshot) -> None:
    """Purge after a merge has committed, whoever asked for it, if the settings ask for that."""
    settings = snapshot.context.settings
    if settings[PURGE_ON_WRITE_ENABLED] and settings[PURGE_ON_WRITE_TRIGGER_AFTER_MERGE]:
        _purge(snapshot)


def _purge(snapshot: Snapshot) -> None:
    context, settings = snapshot.context, snapshot.context.settings
    try:
        rules = purge_rules(context, settings[PURGE_ON_WRITE_SPLIT_RETENTION_HOURS], None)
        log_rules = replace(
            CleanupRules.from_settings(settings),
            version_retention_hours=settings[PURGE_ON_WRITE_TX_LOG_RETENTION_HOURS],
        )
        runner = local_runner(context, PURGE_PARALLELISM)
        report = purge_by_rules(context, replace(rules, log_rules=log_rules), runner, dry_run=False)
        if report.failures.num_rows:
            logger.warning(
                "%s: %d files could not be purged: %s",
                context.url, report.failures.num_rows, report.failures["error"][0].as_py(),
            )  # fmt: skip
        logger.info("%s: purged %d files", context.url, report.num_deleted)
    except IndexTablesError as error:
        logger.warning("%s: nothing was purged after version %d: %s", context.url, snapshot.version, error)
    except Exception:
        # Whatever it is: the commit stands, and a caller who saw an error would commit again.
        logger.exception("%s: nothing was purged after version %d", context.url, snapshot.version)
