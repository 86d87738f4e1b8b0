"""The commit loop, and the fence that PURGE commits.

The life of a commit:

    intent ──▶ plan on snapshot v ──▶ write v+1 if absent ──▶ Written ──▶ verify_commit ──▶ done
                     ▲                        │                               │
                     │                    Conflict                      no: cleanup went past v
                     │                        ▼                         while this writer stalled
                     │            read the concurrent commits                 │
                     │                 in order; may this                     │
                     │              transaction continue? ── no ──▶ CommitConflictError
                     │                        │                               │
                     └────── yes: on the newest snapshot ◀────────────────────┘

The version file is the commit: before it exists under its name nothing has happened, and afterwards everything has. If
the answer to the write is lost, the commit id tells whether the file is ours. No transaction is committed twice.
"""

import random
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa

from indextables._results import TABLE_PATH, Column, Columns, Result, Status
from indextables.config.registry import (
    TRANSACTION_COMPRESSION_ENABLED,
    TRANSACTION_RETRY_BASE_DELAY_MS,
    TRANSACTION_RETRY_MAX_ATTEMPTS,
    TRANSACTION_RETRY_MAX_DELAY_MS,
)
from indextables.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConcurrentMaintenanceError,
    LogCorruptedError,
    LogGapError,
    StorageError,
    TableNotFoundError,
)
from indextables.log.actions import (
    ENGINE_INFO,
    CommitInfo,
    ProtocolAction,
    TransactionAction,
    check_writable,
    encode_actions,
    new_commit_id,
)
from indextables.log.decode import LogFile
from indextables.log.entries import add_lines, remove_lines
from indextables.log.paths import version_key
from indextables.log.segment import VersionEntry, list_log, read_hint
from indextables.log.version_file import Conflict, compress, find_version_file, write_version_file
from indextables.metrics import COMMIT_CONFLICTS, COMMITS, INDEXED_ROWS
from indextables.storage import ObjectMeta
from indextables.table.conflict import reason_after_cleanup, reason_to_give_up
from indextables.table.context import TableContext
from indextables.table.intent import Intent, MergeGroup, RecordTransaction
from indextables.table.load import CaughtUp, catch_up, follow, is_base_file_unchanged, load_snapshot
from indextables.table.log_reader import remember
from indextables.table.plan import Plan, make_plan
from indextables.table.snapshot import Snapshot
from indextables.table.whole_base import check_may_build_on

# After a concurrent commit, the writer retries almost at once and reads only the new versions. The configured back-off
# comes once per round of tries. With a long pause after every try, a waiting writer would always lose against writers
# that have just arrived.
_TRIES_PER_ATTEMPT = 20
_MAX_PAUSE_IN_TRIES = 8

# An older snapshot is refreshed before the first try: the log may have been cleaned up, or the table created again.
_STALE_AFTER_MS = 10_000

# Stands for the unknown modification time of a file. It matches no file, so the log is read again.
_UNKNOWN_MS = -1

# The fence lives among the transactions of streaming writers, so every checkpoint carries it on.
PURGE_APP_ID: Final = "indextables.purge"

# PURGE deletes no younger uncommitted splits, unless the caller disables that check at their own risk: the file times
# of some stores are too coarse to order files around a younger fence.
LONG_WAIT_MS: Final = 3_600_000


class Operation(msgspec.Struct, frozen=True):
    """How a transaction appears in the history."""

    name: str
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    metrics: Mapping[str, int] = msgspec.field(default_factory=dict)


class CommitResult(Result, frozen=True):
    """What a commit did. `snapshot` contains the transaction; `is_committed` is false if there was nothing to commit.

    `given_up` are the merge groups that concurrent commits made obsolete.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: there was nothing to commit"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        Column("num_files", pa.int64(), "the number of live splits"),
        Column("num_rows", pa.int64(), "the number of rows; null: a split does not record it"),
        Column("total_bytes", pa.int64(), "the size of the live splits"),
    )

    snapshot: Snapshot
    is_committed: bool
    tries: int
    given_up: tuple[MergeGroup, ...] = ()

    @property
    def table_path(self) -> str:
        return self.snapshot.context.url

    @property
    def status(self) -> Status:
        return Status.SUCCESS if self.is_committed else Status.NO_ACTION

    @property
    def num_files(self) -> int:
        return self.snapshot.num_files

    @property
    def num_rows(self) -> int | None:
        return self.snapshot.num_rows

    @property
    def total_bytes(self) -> int:
        return self.snapshot.total_bytes

    @property
    def version(self) -> int:
        """The version of the transaction, or the newest version if there was nothing to commit."""
        return self.snapshot.version


def no_check(_: Snapshot) -> None:
    """The check before each try of a commit that needs none."""


def commit(
    snapshot: Snapshot,
    intent: Intent,
    operation: Operation,
    *,
    before_each_try: Callable[[Snapshot], None] = no_check,
) -> CommitResult:
    """Commit a transaction that was planned on `snapshot`, or on newer versions after concurrent commits.

    Calls `before_each_try` with the snapshot that the next version file builds on. An error that it raises aborts the
    commit.

    Raises CommitConflictError if a concurrent commit conflicts with this transaction, CommitRetriesExhaustedError if
    concurrent commits took the next version in every try, LogGapError if versions are missing from the log or the
    newest one cannot be read, UnsupportedProtocolError, and CommitOutcomeUnknownError if the store stopped answering.
    Only after the last one may the transaction have taken effect.
    """
    try:
        return _commit(snapshot, intent, operation, before_each_try)
    except (CommitConflictError, CommitRetriesExhaustedError):
        COMMIT_CONFLICTS.record(1, snapshot.context.url, operation=operation.name, outcome="failed")
        raise


def _commit(
    snapshot: Snapshot, intent: Intent, operation: Operation, before_each_try: Callable[[Snapshot], None]
) -> CommitResult:
    context = snapshot.context
    max_attempts = context.settings[TRANSACTION_RETRY_MAX_ATTEMPTS]
    max_tries = max_attempts * _TRIES_PER_ATTEMPT
    if context.store.clock.now_ms() - snapshot.loaded_at_ms > _STALE_AFTER_MS:
        snapshot = _continue_on_newest(snapshot, catch_up(snapshot), intent)
    for tries in range(1, max_tries + 1):
        started_ms = context.store.clock.now_ms()
        if tries > 1:
            snapshot = _continue_on_newest(snapshot, follow(snapshot), intent)
            COMMIT_CONFLICTS.record(1, context.url, operation=operation.name, outcome="retried")
        result = _try(snapshot, intent, operation, tries, before_each_try)
        if result is not None:
            return result
        if tries < max_tries:
            _pause(context, tries, context.store.clock.now_ms() - started_ms)
    raise CommitRetriesExhaustedError(
        f"{context.url}: failed to write transaction log version {snapshot.version + 1} - file already exists: "
        f"concurrent commits took the next version in all {max_tries} tries; retry later, or raise "
        f"{TRANSACTION_RETRY_MAX_ATTEMPTS.key} (now {max_attempts})"
    )


def _try(
    snapshot: Snapshot,
    intent: Intent,
    operation: Operation,
    tries: int,
    before_each_try: Callable[[Snapshot], None],
) -> CommitResult | None:
    """Write the version after `snapshot`. None if a concurrent commit took it."""
    context = snapshot.context
    _check_may_write(snapshot)
    plan = make_plan(intent, snapshot)
    if plan.is_empty:
        return CommitResult(snapshot, is_committed=False, tries=tries, given_up=plan.given_up)
    info = _commit_info(plan, snapshot, operation)
    lines = _lines(plan, info, snapshot)
    version = snapshot.version + 1
    data = compress(lines) if context.settings[TRANSACTION_COMPRESSION_ENABLED] else lines
    before_each_try(snapshot)
    if isinstance(write_version_file(context.store, version, data), Conflict):
        return None
    if not verify_commit(snapshot, version, info.commit_id):
        return None
    meta = _meta(context, version, data)
    log_file = LogFile(version, f"{context.url}/{meta.key}", lines, meta.last_modified_ms)
    remember(context, meta, log_file)
    later = snapshot.extended([VersionEntry(version, meta)], [log_file])
    COMMITS.record(1, context.url, operation=operation.name)
    if plan.num_new_rows:
        INDEXED_ROWS.record(plan.num_new_rows, context.url, operation=operation.name)
    return CommitResult(later, True, tries, plan.given_up)


def _check_may_write(snapshot: Snapshot) -> None:
    check_writable(snapshot.protocol, snapshot.context.url)
    if snapshot.gap is not None:
        raise LogGapError(
            f"{snapshot.context.url}: version {snapshot.gap.first_missing} is missing or unreadable although version "
            f"{snapshot.gap.newest} exists; a commit now would make ignored versions visible. Restore the file, or "
            f"rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
        )
    check_may_build_on(snapshot)


def _continue_on_newest(snapshot: Snapshot, caught_up: CaughtUp, intent: Intent) -> Snapshot:
    """The newest snapshot, if the concurrent commits allow this transaction to continue on it."""
    if caught_up.concurrent_commits is None:
        reason = reason_after_cleanup(intent, snapshot, caught_up.snapshot)
    else:
        reasons = (
            reason_to_give_up(intent, snapshot.metadata, concurrent, snapshot.protocol)
            for concurrent in caught_up.concurrent_commits
        )
        reason = next((reason for reason in reasons if reason is not None), None)
    if reason is not None:
        raise CommitConflictError(
            f"{snapshot.context.url}: a transaction planned on version {snapshot.version} ({intent.kind.value}) "
            f"conflicts with a concurrent commit: {reason}; start again from the newest version"
        )
    return caught_up.snapshot


def _pause(context: TableContext, lost_tries: int, try_ms: int) -> None:
    """Wait after a number of lost tries, the last of which took `try_ms`.

    The first retry follows at once. Later pauses grow with the number of lost tries, in units of what a try takes here:
    a fixed time would be too long for a local disk, or too short for a busy store. After each round the configured
    back-off is added. All pauses are random, so that two writers do not collide again and again.
    """
    settings = context.settings
    longest_ms = try_ms * min(lost_tries - 1, _MAX_PAUSE_IN_TRIES)
    if lost_tries % _TRIES_PER_ATTEMPT == 0:
        rounds = lost_tries // _TRIES_PER_ATTEMPT
        longest_ms += settings[TRANSACTION_RETRY_BASE_DELAY_MS] * 2 ** (rounds - 1)
    capped_ms = min(longest_ms, settings[TRANSACTION_RETRY_MAX_DELAY_MS])
    if capped_ms > 0:
        context.store.clock.sleep(random.uniform(0, capped_ms) / 1000)


# --- the version file ---------------------------------------------------------------------------------


def _commit_info(plan: Plan, snapshot: Snapshot, operation: Operation) -> CommitInfo:
    return CommitInfo(
        commit_id=new_commit_id(),
        # Timestamps of a table never decrease, whatever the clock of this machine says.
        timestamp=max(snapshot.context.store.clock.now_ms(), snapshot.timestamp_ms),
        operation=operation.name,
        read_version=snapshot.version,
        operation_parameters=operation.parameters,
        operation_metrics={**plan.metrics, **operation.metrics},
        engine_info=ENGINE_INFO,
        is_exact=plan.is_exact,
    )


def _lines(plan: Plan, info: CommitInfo, snapshot: Snapshot) -> bytes:
    removes = remove_lines(plan.removes, info.timestamp, plan.removes_data) if plan.num_removes else b""
    actions = (*_unlogged_protocol(plan, snapshot), *plan.actions)
    return encode_actions([info]) + removes + encode_actions(actions) + _restored_lines(plan)


def _unlogged_protocol(plan: Plan, snapshot: Snapshot) -> tuple[ProtocolAction, ...]:
    """The protocol, if only a checkpoint says so: clients that read no checkpoints must see it in the log."""
    is_planned = any(isinstance(action, ProtocolAction) for action in plan.actions)
    return (snapshot.protocol,) if snapshot.header.has_unlogged_protocol and not is_planned else ()


def _restored_lines(plan: Plan) -> bytes:
    """Restored entries as new adds of this commit, which change the data."""
    if plan.restored is None or not plan.num_restored:
        return b""
    entries = plan.restored.drop_columns(["addedAtVersion", "addedAtTimestamp"])
    index = entries.schema.get_field_index("dataChange")
    changed = pa.array(np.ones(entries.num_rows, dtype=np.bool_))
    return add_lines(entries.set_column(index, entries.schema.field(index), changed))


def _meta(context: TableContext, version: int, data: bytes) -> ObjectMeta:
    """The committed file as the store describes it. The commit stands even if the store stops answering."""
    key = version_key(version)
    try:
        return context.store.head(key)
    except StorageError:
        return ObjectMeta(key, len(data), _UNKNOWN_MS)


# --- verifying that a written version is part of the table --------------------------------------------
#
# Usually it is. But a writer may have planned on version 5, stalled, and written version 6 after the table had reached
# version 20 and cleanup had removed the versions before. The name was free, and yet no reader will ever read the file.
# Or the table was dropped and created again, and version 6 belongs to another table.
#
# Two checks rule that out. The base file of the snapshot is unchanged: the table was neither created again nor cleaned
# up past it. And there is no checkpoint at or after the new version: cleanup writes one, and advances the hint to it,
# before it deletes anything.


def verify_commit(planned_on: Snapshot, version: int, commit_id: str) -> bool:
    """Whether the commit `commit_id`, written as `version`, is part of the table. If not, its file is deleted.

    Raises CommitOutcomeUnknownError if the log no longer tells, or the store stops answering.
    """
    context = planned_on.context
    try:
        if is_base_file_unchanged(planned_on) and _newest_checkpoint(planned_on, version) < version:
            return True
        return _is_in_newest(planned_on, version, commit_id)
    except StorageError as error:
        raise CommitOutcomeUnknownError(
            f"{context.url}: version {version} was written, but the store stopped answering before it was certain that "
            f"it is part of the table ({error}); check the history before you retry"
        ) from error


def _newest_checkpoint(planned_on: Snapshot, version: int) -> int:
    """The version of the newest checkpoint. The hint is trusted if the base file is a version file.

    Cleanup would have deleted that version file, too. It often keeps a checkpoint whose following versions it deletes,
    and the hint may be missing or turned back, so after a checkpoint the log is listed.
    """
    store = planned_on.context.store
    hint = read_hint(store) if planned_on.segment.version_files else None
    if hint is not None:
        return hint.version
    return max(list_log(store, from_version=version).bases, default=-1)


def _is_in_newest(planned_on: Snapshot, version: int, commit_id: str) -> bool:
    """Look the commit up in the newest snapshot: checkpoints record the ids of recent commits."""
    context = planned_on.context
    newest = _newest_or_none(context)
    if newest is None or newest.metadata.id != planned_on.metadata.id or newest.version < version:
        return _withdraw(context, version)
    recorded = newest.header.recent_commits
    if recorded.get(version) == commit_id:
        return True
    if recorded and min(recorded) <= version:
        context.store.delete_many([version_key(version)])
        return False
    raise CommitOutcomeUnknownError(
        f"{context.url}: version {version} was written, but the table has reached version {newest.version} and does "
        f"not record whether it includes this commit; check the history before you retry"
    )


def _newest_or_none(context: TableContext) -> Snapshot | None:
    try:
        return load_snapshot(context)
    except (TableNotFoundError, LogCorruptedError, ConcurrentMaintenanceError):
        return None


def _withdraw(context: TableContext, version: int) -> bool:
    """Delete a version file that was written into another table than the one it was planned on."""
    if find_version_file(context.store, version + 1) is not None:
        raise CommitOutcomeUnknownError(
            f"{context.url}: version {version} was written into a table that was created again in the meantime, and "
            f"other writers have committed after it; remove the files that it added"
        )
    context.store.delete_many([version_key(version)])
    return False


# --- the fence of PURGE -------------------------------------------------------------------------------
#
# A writer may check its splits, stall, and commit them; PURGE may check the commits, stall, and delete the splits. No
# check is late enough to rule that out. So PURGE first commits a fence: the time up to which it deletes uncommitted
# splits. PURGE sees every commit before the fence when it deletes. Every writer that commits after the fence sees the
# fence, because it can only write the version after the newest one.


def purge_fence_ms(snapshot: Snapshot) -> int:
    """Splits up to this time, by the clock of the store, must not be committed. 0 if there is no fence."""
    return snapshot.header.transactions.get(PURGE_APP_ID, 0)


def commit_purge_fence(snapshot: Snapshot, until_ms: int) -> Snapshot:
    """Forbid commits of splits up to this time. Commits nothing if the fence is already there.

    Returns a snapshot with the fence. Raises what `commit` raises.
    """
    fence = RecordTransaction(TransactionAction(app_id=PURGE_APP_ID, version=until_ms))
    return commit(snapshot, fence, Operation("PURGE", {"uncommittedUntil": str(until_ms)})).snapshot
