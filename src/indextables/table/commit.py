"""The commit loop.

The life of a commit:

    intent ──▶ plan on snapshot v ──▶ write v+1 if absent ──▶ Written ──▶ still ours? ──▶ done
                    ▲                        │                                │
                    │                     Conflict                     no: the log was cleaned
                    │                        ▼                         up past v while we slept
                    │             read the winners, in order                  │
                    │             may we go on? ── no ──▶ CommitConflictError │
                    └───────────── yes: new snapshot ◀────────────────────────┘

The version file is the commit: before it stands under its name nothing has happened, and afterwards everything
has. A write whose answer is lost is recognised by its commit id. Nothing is ever committed twice.
"""

import random
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import pyarrow as pa

from indextables.config.registry import (
    TRANSACTION_COMPRESSION_ENABLED,
    TRANSACTION_RETRY_BASE_DELAY_MS,
    TRANSACTION_RETRY_MAX_ATTEMPTS,
    TRANSACTION_RETRY_MAX_DELAY_MS,
)
from indextables.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    LogGapError,
    StorageError,
)
from indextables.log.actions import ENGINE_INFO, CommitInfo, encode_actions, new_commit_id
from indextables.log.decode import LogFile
from indextables.log.entries import add_lines, remove_lines
from indextables.log.paths import version_key
from indextables.log.protocol import check_writable
from indextables.log.version_file import Conflict, compress, write_version_file
from indextables.storage import ObjectMeta
from indextables.table.catch_up import CaughtUp, catch_up, follow
from indextables.table.conflict import reason_after_cleanup, reason_to_give_up
from indextables.table.context import TableContext
from indextables.table.intent import Intent, MergeGroup
from indextables.table.landing import is_landed
from indextables.table.log_files import remember
from indextables.table.plan import Plan, make_plan
from indextables.table.snapshot import Snapshot

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


class CommitResult(msgspec.Struct, frozen=True):
    """The snapshot that shows the transaction. `is_committed` is false if there was nothing to do."""

    snapshot: Snapshot
    is_committed: bool
    tries: int
    given_up: tuple[MergeGroup, ...] = ()

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
    if not is_landed(snapshot, version, info.commit_id):
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
