"""PURGE deletes the files that no retained version refers to, and nothing else.

One plan (`plan`) decides what to delete; a dry run shows it, a real run follows it. PURGE deletes files in the order
of `PurgeKind`: a file before the files that it refers to. A crash at any point leaves orphans, never a dangling
reference.
"""

import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables import ops
from indextables.config.registry import (
    PURGE_ON_WRITE_SPLIT_RETENTION_HOURS,
    PURGE_ON_WRITE_TX_LOG_RETENTION_HOURS,
    PURGE_PARALLELISM,
)
from indextables.errors import (
    CommitConflictError,
    ConcurrentMaintenanceError,
    IndexTablesError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
    UnsafePathError,
)
from indextables.log.file_keys import normalised_paths
from indextables.log.paths import STATE_PREFIX
from indextables.log.segment import list_log, read_hint
from indextables.ops.checkpoint.cleanup import CleanupRules
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.purge.garbage import BATCH_KEYS, checkpoint_files_in_use, delete_keys
from indextables.ops.purge.plan import PurgePlan, PurgeRules, plan_purge, purge_rules
from indextables.ops.purge.report import SPLIT_KINDS, PurgeKind, PurgeRequest, PurgeResult, with_outcome
from indextables.ops.references import LivePaths, among, referred_files
from indextables.ops.runner import Runner, local_runner
from indextables.table import Snapshot, TableContext, changes_since, load_snapshot
from indextables.table.changes import actions_since
from indextables.table.commit import commit_purge_fence
from indextables.table.load import catch_up

logger = logging.getLogger(__name__)

_PLANNING_ATTEMPTS: Final = 3
_EPOCH: Final = datetime.fromtimestamp(0, UTC)

# How many splits a purge deletes before it looks for new commits.
_KEYS_PER_ROUND: Final = 16 * BATCH_KEYS


def purge(snapshot: Snapshot, request: PurgeRequest, runner: Runner) -> PurgeResult:
    """Delete, or in a dry run list, files that are old enough and that no retained version refers to.

    The age of a removed split counts from its removal, the age of a split that the log never mentions from its
    modification, both by the store's clock. The plan is made on the newest version, with the settings of `snapshot`.

    Before deleting uncommitted splits, PURGE commits a marker version that stops late writers (`commit_purge_fence`).

    With nothing deleted, raises InvalidOptionError for a retention that is too short, ClockSkewError, LogGapError,
    LogCorruptedError, UnsafePathError, and what `commit` raises. Raises StorageError if log files could not be deleted;
    no split is deleted then. Raises ConcurrentMaintenanceError if a concurrent cleanup interferes, and
    CommitConflictError if the table was dropped and created again; the next purge deletes the rest. Splits that could
    not be deleted are listed in the result.
    """
    context = snapshot.context
    rules = purge_rules(context, request.older_than, request.log_retention)
    return purge_by_rules(context, rules, runner, dry_run=request.dry_run)


def purge_by_rules(context: TableContext, rules: PurgeRules, runner: Runner, *, dry_run: bool) -> PurgeResult:
    """Like `purge`, with explicit rules."""
    plan = _plan(context, rules)
    files, newest = _untouched(plan.doomed), plan.head
    if not dry_run and plan.doomed.num_rows:
        if plan.fence_ms is not None:
            newest = commit_purge_fence(plan.head, plan.fence_ms)
        files = _execute(context, plan, newest, runner)
        context.cache.invalidate(context.store)
    if not dry_run:
        context.store.remove_empty_folders(STATE_PREFIX)
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


def purge_on_write(snapshot: Snapshot) -> None:
    """Purge after a commit, with the retentions for purge-on-write. Logs failures and never raises: the commit stands.

    The caller decides whether a purge is due.
    """
    context, settings = snapshot.context, snapshot.context.settings
    try:
        rules = purge_rules(context, settings[PURGE_ON_WRITE_SPLIT_RETENTION_HOURS], None)
        log_rules = replace(
            CleanupRules.from_settings(settings),
            version_retention_hours=settings[PURGE_ON_WRITE_TX_LOG_RETENTION_HOURS],
        )
        runner = local_runner(context, PURGE_PARALLELISM)
        result = purge_by_rules(context, replace(rules, log_rules=log_rules), runner, dry_run=False)
        if result.failures.num_rows:
            logger.warning(
                "%s: %d files could not be purged: %s",
                context.url, result.failures.num_rows, result.failures["error"][0].as_py(),
            )  # fmt: skip
        logger.info("%s: purged %d files", context.url, result.num_deleted)
    except IndexTablesError as error:
        logger.warning("%s: the purge after version %d failed: %s", context.url, snapshot.version, error)
    except Exception:
        # If this raised, the caller would take the commit for failed and write again.
        logger.exception("%s: the purge after version %d failed", context.url, snapshot.version)


def ensure_hint(context: TableContext, version: int) -> None:
    """Before versions are deleted, make the hint point at the checkpoint of `version` or at a newer one.

    By the hint, a stalled writer recognises that the number of its version may have been used before.
    """
    hint = read_hint(context.store)
    if hint is None or hint.version < version:
        write_checkpoint(load_snapshot(context, version))


def _plan(context: TableContext, rules: PurgeRules) -> PurgePlan:
    for attempt in range(_PLANNING_ATTEMPTS):
        try:
            return plan_purge(context, rules)
        except (ObjectNotFoundError, ConcurrentMaintenanceError) as error:
            if attempt == _PLANNING_ATTEMPTS - 1:
                raise ConcurrentMaintenanceError(
                    f"{context.url}: nothing was deleted, because log files disappeared while PURGE read them "
                    f"({error}); another purge or cleanup is probably running: purge again when it is done"
                ) from error
        except (LogCorruptedError, UnsafePathError) as error:
            raise type(error)(
                f"{context.url}: nothing was deleted, because PURGE cannot determine which files the log refers to: "
                f"{error}"
            ) from error
    raise AssertionError("unreachable: the loop returns or raises")


def _execute(context: TableContext, plan: PurgePlan, fenced: Snapshot, runner: Runner) -> pa.Table:
    """Delete the doomed files. `fenced` is the marker version, or the plan's head if none was needed.

    The plan may be outdated by now. Before each step, files that have come into use since are taken out of it.
    """
    kinds = plan.doomed["kind"]
    splits = plan.doomed.filter(pc.is_in(kinds, pa.array([kind.value for kind in SPLIT_KINDS])))
    splits, committed = _partition_by_commits(splits, plan.head, fenced)
    done = [_untouched(committed)]
    if plan.anchor is not None:
        ensure_hint(context, plan.anchor)
    for kind in PurgeKind:
        if kind in SPLIT_KINDS:
            continue
        doomed = plan.doomed.filter(pc.equal(kinds, kind.value))
        if kind is PurgeKind.MANIFEST and doomed.num_rows:
            doomed, used = _partition_by_use(context, doomed)
            done.append(_untouched(used))
        done.append(_delete_log_files(context, doomed, runner))
    # Expired versions go from a published log, too, before the splits that only they refer to.
    ops.publish.trim_published(context)
    splits, live = _partition_by_late_checkpoints(context, splits, plan)
    done.append(_untouched(live))
    newest = fenced
    for start in range(0, splits.num_rows, _KEYS_PER_ROUND):
        newest = catch_up(newest).snapshot
        if newest.metadata.id != plan.head.metadata.id:
            raise CommitConflictError(
                f"{context.url}: the table was dropped and created again during the purge; purge again to delete "
                f"the remaining files of the old table"
            )
        doomed, committed = _partition_by_commits(splits.slice(start, _KEYS_PER_ROUND), fenced, newest)
        done += [_delete_splits(context, doomed, runner), _untouched(committed)]
    return pa.concat_tables(done)


def _partition_by_use(context: TableContext, doomed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The doomed manifests and parts that no checkpoint uses, and those that checkpoints newer than the plan use.

    No further checkpoint can start to use them: before publishing, a writer checks that the checkpoint which it builds
    on still exists, and PURGE has already deleted the expired ones.
    """
    used = checkpoint_files_in_use(context)
    is_used = among(doomed["path"], pa.array(sorted(used), pa.string()))
    return doomed.filter(pc.invert(is_used)), doomed.filter(is_used)


def _delete_log_files(context: TableContext, doomed: pa.Table, runner: Runner) -> pa.Table:
    if not doomed.num_rows:
        return _untouched(doomed)
    deletion = delete_keys(context, doomed["path"].to_pylist(), runner, "deleting log files")
    if deletion.first_error is not None:
        # The files that these refer to must not be deleted before them.
        raise StorageError(
            f"{context.url}: log files could not be deleted, so no split was deleted: {deletion.first_error}; purge "
            f"again"
        )
    return with_outcome(doomed, deletion.is_deleted, list(deletion.errors))


def _partition_by_late_checkpoints(
    context: TableContext, doomed: pa.Table, plan: PurgePlan
) -> tuple[pa.Table, pa.Table]:
    """The doomed splits that may go, and those that are live in checkpoints published since the plan was made.

    A late checkpoint of an older version makes a version readable that the plan considered expired.
    """
    late = LivePaths(context)
    for base in list_log(context.store).bases_newest_first():
        if base.version < plan.head.version and base.meta.key not in plan.checkpoints:
            with contextlib.suppress(ObjectNotFoundError):
                late.add(base)
    is_live = among(doomed["path"], late.paths())
    return doomed.filter(pc.invert(is_live)), doomed.filter(is_live)


def _partition_by_commits(doomed: pa.Table, since: Snapshot, newest: Snapshot) -> tuple[pa.Table, pa.Table]:
    """The doomed splits that may go, and those that writers committed after `since`."""
    if newest.version == since.version:
        return doomed, doomed.slice(0, 0)
    # Every add counts: time travel needs a file that has been removed again, too.
    actions = actions_since(newest, since.version) or changes_since(newest, since.version)
    added = referred_files(actions.adds)
    is_added = among(doomed["path"], normalised_paths(added, newest.context.url))
    return doomed.filter(pc.invert(is_added)), doomed.filter(is_added)


def _delete_splits(context: TableContext, doomed: pa.Table, runner: Runner) -> pa.Table:
    deletion = delete_keys(context, doomed["path"].to_pylist(), runner, "deleting splits")
    return with_outcome(doomed, deletion.is_deleted, list(deletion.errors))


def _untouched(doomed: pa.Table) -> pa.Table:
    """The report rows of files that were not deleted."""
    return with_outcome(doomed, np.zeros(doomed.num_rows, dtype=np.bool_), [None] * doomed.num_rows)
