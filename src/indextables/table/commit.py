"""Did a version file that was just written become part of the table?

Usually: yes, at once. But a writer may have planned on version 5, slept, and written version 6 after other
writers had gone on to version 20 and the versions before that had been cleaned up. The name was free, and yet
nobody will ever read the file. Or the table was dropped and created again, and version 6 is none of its own.

Two looks tell that neither happened. The file that the snapshot was read from is still the same one: the table was
not created again, and not cleaned up past it. And no checkpoint stands at or beyond the new version: cleaning up
always writes one, and advances the hint to it, first.
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
    LogCorruptedError,
    LogGapError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.actions import ENGINE_INFO, CommitInfo, TransactionAction, encode_actions, new_commit_id
from indextables.log.checkpoint import read_hint
from indextables.log.decode import LogFile
from indextables.log.entries import add_lines, remove_lines
from indextables.log.paths import version_key
from indextables.log.protocol import check_writable
from indextables.log.segment import list_log
from indextables.log.version_file import Conflict, compress, find_version_file, write_version_file
from indextables.storage import ObjectMeta
from indextables.table.conflict import reason_after_cleanup, reason_to_give_up
from indextables.table.context import TableContext
from indextables.table.intent import Intent, MergeGroup, RecordTransaction
from indextables.table.load import CaughtUp, catch_up, follow, is_base_file_unchanged, load_snapshot
from indextables.table.log_reader import remember
from indextables.table.plan import Plan, make_plan
from indextables.table.snapshot import Snapshot


def verify_commit(planned_on: Snapshot, version: int, commit_id: str) -> bool:
    """Whether the commit `commit_id`, written as `version`, is in the table. If not, its file is deleted.

    Raises CommitOutcomeUnknownError if the log does not tell any more, or the store stops answering.
    """
    context = planned_on.context
    try:
        if is_base_file_unchanged(planned_on) and _newest_checkpoint(planned_on, version) < version:
            return True
        return _is_in_newest(planned_on, version, commit_id)
    except StorageError as error:
        raise CommitOutcomeUnknownError(
            f"{context.url}: version {version} was written, but the store stopped answering before it was certain that "
            f"it is part of the table ({error}); read the history again before you retry"
        ) from error


def _newest_checkpoint(planned_on: Snapshot, version: int) -> int:
    """By the hint, if a version file vouches for it: a cleanup would have taken that, too.

    A checkpoint is often kept when the versions after it go, and a hint may be missing or turned back.
    """
    store = planned_on.context.store
    hint = read_hint(store) if planned_on.segment.tail else None
    if hint is not None:
        return hint.version
    return max(list_log(store, from_version=version).bases, default=-1)


def _is_in_newest(planned_on: Snapshot, version: int, commit_id: str) -> bool:
    """Look the commit up in the table as it is now: checkpoints remember the ids of recent commits."""
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
        f"{context.url}: version {version} was written, but the table went on to version {newest.version} meanwhile "
        f"and does not say whether it was included; compare the history before you retry"
    )


def _newest_or_none(context: TableContext) -> Snapshot | None:
    try:
        return load_snapshot(context)
    except (TableNotFoundError, LogCorruptedError, VersionNotFoundError):
        return None


def _withdraw(context: TableContext, version: int) -> bool:
    """Take a file away that was written into another table than the one it was meant for."""
    if find_version_file(context.store, version + 1) is not None:
        raise CommitOutcomeUnknownError(
            f"{context.url}: version {version} was written into a table that was created again meanwhile, and other "
            f"writers have gone on from there; remove the files that it added"
        )
    context.store.delete_many([version_key(version)])
    return False


# The commit loop.
#
# The life of a commit:
#
# intent ──▶ plan on snapshot v ──▶ write v+1 if absent ──▶ Written ──▶ still ours? ──▶ done ▲ │ │ │ Conflict
# no: the log was cleaned │ ▼ up past v while we slept │ read the winners, in order │ │ may we go on? ── no
# ──▶ CommitConflictError │ └───────────── yes: new snapshot ◀────────────────────────┘
#
# The version file is the commit: before it stands under its name nothing has happened, and afterwards
# everything has. A write whose answer is lost is recognised by its commit id. Nothing is ever committed
# twice.


# A writer that lost a race chases the head: it tries again and again, reading only what the winners did, before the
# configured back-off ends the round. With a pause after every loss, the loser with the longest one would lose for
# ever against writers that have just arrived.
_TRIES_PER_ATTEMPT = 20
_MAX_PAUSE_IN_TRIES = 8

# A snapshot older than this is read again before it is written upon: the log may have been cleaned up, or the
# table created anew, since.
_STALE_AFTER_MS = 10_000

# The time of a file that could not be asked for: it matches no file, so that the log is read anew.
_UNKNOWN_MS = -1


class Operation(msgspec.Struct, frozen=True):
    """How a transaction appears in the history."""

    name: str
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    metrics: Mapping[str, int] = msgspec.field(default_factory=dict)


class CommitResult(Result, frozen=True):
    """What a commit did. `snapshot` shows the table after it; `is_committed` is false if there was nothing to do."""

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
        """The version that holds the transaction, or the newest one if there was nothing to do."""
        return self.snapshot.version


def _nothing(_: Snapshot) -> None:
    return None


def commit(
    snapshot: Snapshot,
    intent: Intent,
    operation: Operation,
    *,
    before_each_try: Callable[[Snapshot], None] = _nothing,
) -> CommitResult:
    """Commit a transaction that was planned on `snapshot`, going on from newer versions where that is right.

    `before_each_try` is called with the snapshot that a version file is about to be written on, and stops the commit
    with what it raises.

    Raises CommitConflictError if another writer's commit cannot be reconciled with this one,
    CommitRetriesExhaustedError if others were faster as often as the settings allow, LogGapError if
    versions are missing from the log, UnsupportedProtocolError, and CommitOutcomeUnknownError if the store
    stopped answering; only after the last may the transaction have taken effect.
    """
    context = snapshot.context
    max_attempts = context.settings[TRANSACTION_RETRY_MAX_ATTEMPTS]
    max_tries = max_attempts * _TRIES_PER_ATTEMPT
    if context.store.clock.now_ms() - snapshot.loaded_at_ms > _STALE_AFTER_MS:
        snapshot = _going_on(snapshot, catch_up(snapshot), intent)
    for tries in range(1, max_tries + 1):
        started_ms = context.store.clock.now_ms()
        if tries > 1:
            snapshot = _going_on(snapshot, follow(snapshot), intent)
        result = _try(snapshot, intent, operation, tries, before_each_try)
        if result is not None:
            return result
        if tries < max_tries:
            _pause(context, tries, context.store.clock.now_ms() - started_ms)
    raise CommitRetriesExhaustedError(
        f"{context.url}: other writers were faster {max_tries} times; try again later, or raise "
        f"{TRANSACTION_RETRY_MAX_ATTEMPTS.key} (now {max_attempts})"
    )


def _try(
    snapshot: Snapshot,
    intent: Intent,
    operation: Operation,
    tries: int,
    before_each_try: Callable[[Snapshot], None],
) -> CommitResult | None:
    """Write the version after `snapshot`; None if it is taken."""
    context = snapshot.context
    _check_may_write(snapshot)
    plan = make_plan(intent, snapshot)
    if plan.is_empty:
        return CommitResult(snapshot, is_committed=False, tries=tries, given_up=plan.given_up)
    info = _commit_info(plan, snapshot, operation)
    lines = _lines(plan, info)
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
    later = snapshot.extended([(version, meta)], [log_file])
    return CommitResult(later, True, tries, plan.given_up)


def _meta(context: TableContext, version: int, data: bytes) -> ObjectMeta:
    """The file as it is in the store. The commit stands, even if the store does not answer any more."""
    key = version_key(version)
    try:
        return context.store.head(key)
    except StorageError:
        return ObjectMeta(key, len(data), _UNKNOWN_MS)


def _going_on(snapshot: Snapshot, caught_up: CaughtUp, intent: Intent) -> Snapshot:
    """The newest snapshot, if what happened since allows the transaction to go on there."""
    if caught_up.winners is None:
        reason = reason_after_cleanup(intent, snapshot, caught_up.snapshot)
    else:
        reasons = (reason_to_give_up(intent, snapshot.metadata, winner) for winner in caught_up.winners)
        reason = next((reason for reason in reasons if reason is not None), None)
    if reason is not None:
        raise CommitConflictError(
            f"{snapshot.context.url}: a transaction planned on version {snapshot.version} ({intent.kind.value}) cannot "
            f"be committed any more: {reason}; start again from the newest version"
        )
    return caught_up.snapshot


def _check_may_write(snapshot: Snapshot) -> None:
    check_writable(snapshot.protocol, snapshot.context.url)
    if snapshot.gap is not None:
        raise LogGapError(
            f"{snapshot.context.url}: version {snapshot.gap.first_missing} is missing or unreadable although version "
            f"{snapshot.gap.newest} exists; committing now would make ignored versions visible. Restore the file, or "
            f"rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
        )


def _commit_info(plan: Plan, snapshot: Snapshot, operation: Operation) -> CommitInfo:
    return CommitInfo(
        commit_id=new_commit_id(),
        # The table's time never runs backwards, whatever this machine's clock says.
        timestamp=max(snapshot.context.store.clock.now_ms(), snapshot.timestamp_ms),
        operation=operation.name,
        read_version=snapshot.version,
        operation_parameters=operation.parameters,
        operation_metrics={**plan.metrics, **operation.metrics},
        engine_info=ENGINE_INFO,
        is_exact=plan.is_exact,
    )


def _lines(plan: Plan, info: CommitInfo) -> bytes:
    removes = remove_lines(plan.removes, info.timestamp, plan.removes_data) if plan.num_removes else b""
    return encode_actions([info]) + removes + encode_actions(plan.actions) + _restored_lines(plan)


def _restored_lines(plan: Plan) -> bytes:
    """Entries as new adds: they count as added by this commit, and as a change of the data."""
    if plan.restored is None or not plan.num_restored:
        return b""
    entries = plan.restored.drop_columns(["addedAtVersion", "addedAtTimestamp"])
    index = entries.schema.get_field_index("dataChange")
    changed = pa.array(np.ones(entries.num_rows, dtype=np.bool_))
    return add_lines(entries.set_column(index, entries.schema.field(index), changed))


def _pause(context: TableContext, losses: int, try_ms: int) -> None:
    """Wait after so many lost races, the last of which took `try_ms`.

    The first loser goes on at once. Whoever keeps losing leaves room for the others, in proportion to what a try takes
    here: a fixed time would be too long for a local disk, or too short for a busy store. After a whole round the
    configured back-off comes on top. All pauses are random, so that losers do not meet again.
    """
    settings = context.settings
    longest_ms = try_ms * min(losses - 1, _MAX_PAUSE_IN_TRIES)
    if losses % _TRIES_PER_ATTEMPT == 0:
        rounds = losses // _TRIES_PER_ATTEMPT
        longest_ms += settings[TRANSACTION_RETRY_BASE_DELAY_MS] * 2 ** (rounds - 1)
    capped_ms = min(longest_ms, settings[TRANSACTION_RETRY_MAX_DELAY_MS])
    if capped_ms > 0:
        context.store.clock.sleep(random.uniform(0, capped_ms) / 1000)


# The line that a purge draws before it deletes what nobody has committed.
#
# A writer may look for its splits, sleep, and commit them, and a purge may look for commits, sleep, and
# delete: no look is late enough to rule the other out. So a purge first commits the time up to which it
# deletes. Whatever was committed before that version is known to the purge when it deletes, and whoever
# commits after it knows the time, because only the version after the newest one can be written.


# It lives where the last batch of each streaming writer does, so that every checkpoint carries it on.
PURGE_APP_ID: Final = "indextables.purge"

# No purge takes younger splits, unless somebody has switched its check off: that is at everybody's own risk, because
# the times of some stores are too coarse to tell what came before such a purge from what came after it.
LONG_WAIT_MS: Final = 3_600_000


def purge_fence_ms(snapshot: Snapshot) -> int:
    """Splits of up to this time, by the store's clock, must not be committed any more; 0 if there is no such time."""
    return snapshot.header.transactions.get(PURGE_APP_ID, 0)


def draw_purge_fence(snapshot: Snapshot, until_ms: int) -> Snapshot:
    """Let nobody commit splits of up to this time any more. Nothing is committed if that is so already.

    Returns a snapshot that says so. Raises what `commit` raises.
    """
    fence = RecordTransaction(TransactionAction(app_id=PURGE_APP_ID, version=until_ms))
    return commit(snapshot, fence, Operation("PURGE", {"uncommittedUntil": str(until_ms)})).snapshot
