"""CHECKPOINT and COMPACT write the state of a table, so that readers need not replay the log.

A state in the Avro format is written as a change to the previous one, at a cost proportional to the change. A rewrite
keeps the fields and actions of other writers that this release does not know.
"""

import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns, Result, Status
from indextables.config.registry import (
    CHECKPOINT_COMPRESSION,
    CHECKPOINT_MAX_FILE_SIZE,
    PROTOCOL_AUTO_UPGRADE,
    STATE_FORMAT,
    STATE_RETRY_BASE_DELAY_MS,
    STATE_RETRY_MAX_ATTEMPTS,
    STATE_RETRY_MAX_DELAY_MS,
)
from indextables.errors import (
    AccessDeniedError,
    CheckpointValidationError,
    CheckpointWriteError,
    ConcurrentMaintenanceError,
    IndexTablesError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    VersionNotFoundError,
)
from indextables.log.actions import check_writable, upgraded
from indextables.log.checkpoint import Checkpoint, CheckpointSize
from indextables.log.decode import Tail, UnknownContent
from indextables.log.entries import EntrySource, PathSelection, empty_entries
from indextables.log.legacy_checkpoint import (
    read_part_names,
    read_row_keys,
    write_json_checkpoint,
    write_parquet_checkpoint,
)
from indextables.log.paths import (
    LOG_PREFIX,
    JsonCheckpointPart,
    ParquetCheckpointPart,
    parquet_checkpoint_key,
    parse_log_path,
    state_dir,
)
from indextables.log.replay import (
    EMPTY_HEADER,
    LogHeader,
    check_partition_values,
    removed_paths,
    replay_entries,
    replay_header,
)
from indextables.log.segment import (
    Base,
    BaseFormat,
    LastCheckpoint,
    advance_hint,
    build_listing,
    list_log,
    read_hint,
)
from indextables.log.version_file import find_object
from indextables.metrics import (
    CHECKPOINT_COMPRESSION_RATIO,
    CHECKPOINT_DURATION_MS,
    CHECKPOINT_SIZE_BYTES,
    STATE_WRITE_COMPACTED,
    STATE_WRITE_DURATION_MS,
)
from indextables.ops.checkpoint.added_at import with_versions_of_adds
from indextables.ops.checkpoint.cleanup import has_whole_checkpoint
from indextables.ops.checkpoint.entry_check import EntriesToRewrite, entry_problem
from indextables.ops.checkpoint.manifests_by_runner import with_manifests_by
from indextables.ops.runner import Runner
from indextables.state.changes import NetChanges, is_exact, net_changes, net_changes_of_exact_tail
from indextables.state.compaction import CompactionRules, Trigger, would_help
from indextables.state.foreign_fields import NO_FOREIGN_FIELDS, ForeignFields
from indextables.state.schemas import STATE_PROTOCOL_VERSION
from indextables.state.source import StateSource, report_tombstones
from indextables.state.writer import StateTarget, StateWritten, write_full_state, write_next_state
from indextables.storage import ObjectStore, RetryPolicy
from indextables.table import Operation, Snapshot, TableContext, commit, load_snapshot
from indextables.table.intent import EmptyCommit
from indextables.table.load import reload_from_newest_base
from indextables.table.log_reader import read_base, read_base_uncached, read_tail
from indextables.table.whole_base import Check, file_problem, on_whole_base

logger = logging.getLogger(__name__)

# Readers that support only older protocol versions cannot read checkpoints in parts.
_MULTI_PART_PROTOCOL_VERSION = 3


class CheckpointResult(Result, frozen=True):
    """The result of `IndexTable.checkpoint` and `IndexTable.compact`.

    Attributes:
        table_path: The URL of the table.
        version: The version of the checkpoint.
        previous_format: The format of the previous checkpoint; None if there was none.
        new_format: The format of the checkpoint: "avro-state", "json" or "parquet".
        num_files: The number of live splits.
        total_bytes: The size of the live splits.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`"),
        Column("previous_format", pa.string(), "the format of the previous checkpoint; null: there was none"),
        Column("new_format", pa.string(), "the format of the checkpoint: `avro-state`, `json` or `parquet`"),
        Column("version", pa.int64(), "the version of the checkpoint"),
        Column("num_files", pa.int64(), "the number of live splits"),
        Column("total_bytes", pa.int64(), "the size of the live splits"),
        MESSAGE,
    )

    table_path: str
    version: int
    previous_format: str | None
    new_format: str
    num_files: int
    total_bytes: int

    @property
    def status(self) -> Status:
        """Always SUCCESS: a checkpoint that cannot be written raises an error."""
        return Status.SUCCESS

    @property
    def message(self) -> str:
        """A one-line summary."""
        return f"version {self.version} has a checkpoint in the format {self.new_format}"


def write_checkpoint(
    snapshot: Snapshot, runner: Runner | None = None, *, check: Check = entry_problem
) -> CheckpointResult:
    """Write a checkpoint of the snapshot in the configured format, read it back, and point the hint at it.

    An existing checkpoint of that version and format stays, unless it is damaged: then it is rewritten. `check` decides
    whether the state that the new one builds on is whole; if not, an older checkpoint or the log alone replaces it. A
    `runner` reads and writes the manifests of very large states.

    Raises LogCorruptedError if a part of the table cannot be read (an incomplete checkpoint is never written),
    ConcurrentMaintenanceError if a concurrent cleanup deleted this version, UnsupportedProtocolError, and
    CheckpointWriteError, also if the write took so long that garbage collection may have deleted its files.
    """
    return _write_verified(_reloaded(snapshot, runner), _WRITERS[_configured_format(snapshot)], check)


def compact(
    snapshot: Snapshot,
    runner: Runner | None = None,
    trigger: Trigger = Trigger.FORCED,
    *,
    check: Check = entry_problem,
) -> CheckpointResult:
    """Rewrite the state without tombstones and fragments. A compact state stays as it is. See `write_checkpoint`.

    By default all manifests are rewritten; with another `trigger`, only those that need it. A state is never replaced:
    if this version already has one, an empty commit makes a new version for the compacted state. In the older formats,
    every checkpoint is compact. A `runner` reads and writes the manifests of very large states.
    """
    return _compact(_reloaded(snapshot, runner), trigger, check)


def write_state(
    snapshot: Snapshot, trigger: Trigger | None = None, base_entries: pa.Table | None = None
) -> StateWritten:
    """Write the snapshot's Avro state, as a change to the previous state if that is an Avro state, too.

    A `trigger` forces a compaction; otherwise the compaction rules decide. `base_entries` are those of the previous
    state, if they have been read. Raises LogCorruptedError, with nothing published, if a part of the table that is
    needed cannot be read.
    """
    started = time.perf_counter()
    written = _write_state(snapshot, trigger, base_entries)
    table = snapshot.context.url
    STATE_WRITE_DURATION_MS.record((time.perf_counter() - started) * 1000, table)
    STATE_WRITE_COMPACTED.record(1 if written.trigger is not None else 0, table)
    report_tombstones(written.state, table)
    if written.is_written:
        _report(snapshot, BaseFormat.AVRO_STATE, written.size, written.state.num_files, started)
    return written


def is_compact(snapshot: Snapshot) -> bool:
    """Whether the snapshot is stored as a state that a compaction would not improve."""
    base = snapshot.segment.base
    if base is None or base.format is not BaseFormat.AVRO_STATE or snapshot.segment.version_files:
        return False
    _, source = read_base(snapshot.context, base, UnknownContent.KEEP)
    assert isinstance(source, StateSource)  # because the base is an Avro state
    rules = CompactionRules.from_settings(snapshot.context.settings)
    return not would_help(source.state, rules, snapshot.shape)


def read_for_rewrite(
    snapshot: Snapshot, *, keeps_columns: bool = False, base_entries: pa.Table | None = None
) -> Checkpoint:
    """Read the complete content of the snapshot, with the fields and actions that this release does not know.

    With `keeps_columns`, foreign columns of a state stay columns, for a writer that can keep them; `base_entries` are
    those of the base with such columns, if they have been read. Raises LogCorruptedError if any part cannot be read.
    """
    segment = snapshot.segment
    header, entries = EMPTY_HEADER, empty_entries()
    if segment.base is not None:
        header, source = read_base(snapshot.context, segment.base, UnknownContent.KEEP)
        entries = _all_entries(source, keeps_columns=keeps_columns) if base_entries is None else base_entries
        if segment.base.format is not BaseFormat.AVRO_STATE:
            entries = with_versions_of_adds(snapshot.context, segment.base, entries)
    tail = _read_tail(snapshot)
    header = complete_header(snapshot, replay_header(header, tail.versions, removed_paths(tail)))
    return Checkpoint(header, replay_entries(entries, tail))


def complete_header(snapshot: Snapshot, header: LogHeader) -> LogHeader:
    """Add what a header lacks if it comes from a state of another writer: protocol, metadata, transactions and commits.

    The snapshot found them elsewhere in the log. A checkpoint must contain them, because cleanup may delete the
    versions that it covers.
    """
    return replace(
        header,
        protocol=header.protocol or snapshot.protocol,
        metadata=header.metadata or snapshot.metadata,
        transactions=snapshot.header.transactions,
        recent_commits=snapshot.header.recent_commits,
    )


def _reloaded(snapshot: Snapshot, runner: Runner | None) -> Snapshot:
    """Load the snapshot's version from its newest base, so that the runner reads and writes manifests."""
    context = with_manifests_by(snapshot.context, runner)
    return load_snapshot(context, snapshot.version).sharing_entries_of(snapshot)


def _compact(snapshot: Snapshot, trigger: Trigger, check: Check) -> CheckpointResult:
    if _configured_format(snapshot) is not BaseFormat.AVRO_STATE or is_compact(snapshot):
        return _write_verified(snapshot, _WRITERS[_configured_format(snapshot)], check)
    # Checked before the commit, so that a table that cannot be compacted gets no new version.
    entries = EntriesToRewrite()
    is_read_whole = trigger is Trigger.FORCED and check is entry_problem
    whole = on_whole_base(snapshot, entries.problem if is_read_whole else check)
    snapshot = whole.snapshot
    if _bases(snapshot.context, snapshot.version, BaseFormat.AVRO_STATE):
        snapshot = commit(snapshot, EmptyCommit(), Operation("COMPACT")).snapshot
    result = _write_verified(
        snapshot,
        lambda snapshot: write_state(snapshot, trigger, entries.of(snapshot.segment.base)),
        file_problem,
    )
    if check is entry_problem:
        _delete_damaged(snapshot.context, whole.damaged)
    return result


class _ReadableBase(msgspec.Struct, frozen=True):
    base: Base
    source: EntrySource


def _write_verified(
    snapshot: Snapshot, write: Callable[[Snapshot], object], check: Check
) -> CheckpointResult:
    """Write a checkpoint unless a readable one exists, read it back, and advance the hint."""
    context, version = snapshot.context, snapshot.version
    # A release that does not support the table's protocol might drop content.
    check_writable(snapshot.protocol, context.url)
    found = _write_files(snapshot, write, check)
    if found is None:
        raise _not_readable(context, version)
    previous, hint = read_hint(context.store), _new_hint(snapshot, found)
    _advance_hint(context, previous, hint)
    return CheckpointResult(
        table_path=context.url,
        version=version,
        previous_format=None if previous is None else previous.format_name,
        new_format=hint.format_name,
        num_files=found.source.num_files,
        total_bytes=found.source.total_bytes,
    )


def _write_files(
    snapshot: Snapshot, write: Callable[[Snapshot], object], check: Check
) -> _ReadableBase | None:
    """Write the files of a checkpoint if they are missing or damaged, and read them back.

    Raises AccessDeniedError, and CheckpointWriteError for any other failure of the store.
    """
    try:
        return _write_with_retries(snapshot, write, check)
    except (CheckpointWriteError, AccessDeniedError):
        raise
    except StorageError as error:
        raise CheckpointWriteError(
            f"{snapshot.context.url}: the checkpoint of version {snapshot.version} could not be written ({error}); "
            f"readers replay the log as before; write it again with CHECKPOINT"
        ) from error


def _write_with_retries(
    snapshot: Snapshot, write: Callable[[Snapshot], object], check: Check
) -> _ReadableBase | None:
    """Write the checkpoint and read it back; None if it cannot be read.

    Transient failures are retried, and so are writes whose base a concurrent cleanup deleted. Every retry reads the log
    again, because a concurrent writer may have deleted the base or written the same checkpoint.
    """
    context, policy = snapshot.context, _retry_policy(snapshot.context)
    for attempt in itertools.count(1):
        try:
            _write_if_missing(snapshot, write, check)
            return _find_readable(context, snapshot.version, _configured_format(snapshot))
        except (TransientStorageError, ConcurrentMaintenanceError) as error:
            if attempt >= policy.max_attempts:
                raise
            logger.info(
                "%s: attempt %d to write the checkpoint of version %d failed: %s",
                context.url, attempt, snapshot.version, error,
            )  # fmt: skip
            context.store.clock.sleep(policy.pause(attempt))
            snapshot = _reloaded_after(snapshot, error)
    raise AssertionError("unreachable: the loop returns or raises")


def _write_if_missing(snapshot: Snapshot, write: Callable[[Snapshot], object], check: Check) -> None:
    """Write the checkpoint unless a whole one exists. Damaged ones that it replaces are deleted.

    A damaged checkpoint is deleted only after every entry of its version has been read from other files.
    """
    existing = _bases(snapshot.context, snapshot.version, _configured_format(snapshot))
    damaged = [base for base in existing if not has_whole_checkpoint(snapshot.context, [base])]
    if len(damaged) < len(existing):
        return
    whole = on_whole_base(snapshot, entry_problem if damaged else check)
    if check is entry_problem:
        damaged += [base for base in whole.damaged if base not in damaged]
    _delete_damaged(snapshot.context, damaged)
    try:
        write(whole.snapshot)
    except ObjectNotFoundError as error:
        raise whole.snapshot.error_of_missing_file(error) from error


def _reloaded_after(snapshot: Snapshot, error: IndexTablesError) -> Snapshot:
    """Load the same version from the newest base. Raises `error` if the log no longer contains that version."""
    try:
        return reload_from_newest_base(snapshot)
    except TransientStorageError:
        return snapshot  # the next attempt succeeds if the store has recovered
    except (VersionNotFoundError, ConcurrentMaintenanceError):
        raise error from None


def _retry_policy(context: TableContext) -> RetryPolicy:
    settings = context.settings
    return RetryPolicy(
        max_attempts=settings[STATE_RETRY_MAX_ATTEMPTS],
        base_seconds=settings[STATE_RETRY_BASE_DELAY_MS] / 1000,
        cap_seconds=settings[STATE_RETRY_MAX_DELAY_MS] / 1000,
    )


def _not_readable(
    context: TableContext, version: int
) -> CheckpointValidationError | ConcurrentMaintenanceError:
    """Return the error for a checkpoint that cannot be read back right after it was written."""
    listing = list_log(context.store, from_version=version)
    if version not in listing.bases and listing.bases:
        return ConcurrentMaintenanceError(
            f"{context.url}: a concurrent cleanup deleted the new checkpoint of version {version}, because there is "
            f"one of version {max(listing.bases)}; open the table again"
        )
    return CheckpointValidationError(
        f"{context.url}: the checkpoint of version {version} could not be read back after it was written; nothing "
        f"was cleaned up, and readers replay the log as before. Check the storage, and write it again with CHECKPOINT"
    )


def _delete_damaged(context: TableContext, damaged: Sequence[Base]) -> None:
    """Delete damaged checkpoints of versions that other files lead to, unless another writer has replaced them."""
    for base in damaged:
        if find_object(context.store, base.meta.key) == base.meta:
            context.store.delete_many(_keys_to_delete(base))


def _keys_to_delete(base: Base) -> tuple[str, ...]:
    """Return the files to delete before a rewrite, starting with the one that makes the checkpoint valid."""
    if base.format is BaseFormat.PARQUET:
        return (base.meta.key, parquet_checkpoint_key(base.version))
    return (base.meta.key,)


def _advance_hint(context: TableContext, current: LastCheckpoint | None, hint: LastCheckpoint) -> None:
    lost = None
    if current is not None and current.version > hint.version:
        # A hint that points past the newest checkpoint would never advance again.
        is_matched = current.version in list_log(context.store, from_version=current.version).bases
        lost = None if is_matched else current
    advance_hint(context.store, hint, over=lost)


def _configured_format(snapshot: Snapshot) -> BaseFormat:
    """Return the format in the settings, or JSON if that format needs a newer protocol than the table may have."""
    wanted = _FORMATS[snapshot.context.settings[STATE_FORMAT]]
    if wanted is BaseFormat.AVRO_STATE and not _may_need_protocol(snapshot, STATE_PROTOCOL_VERSION):
        return BaseFormat.JSON
    return wanted


def _may_need_protocol(snapshot: Snapshot, version: int) -> bool:
    """Whether a checkpoint may use a format that this protocol version introduced."""
    protocol = snapshot.protocol
    needed = min(protocol.min_reader_version, protocol.min_writer_version)
    return needed >= version or snapshot.context.settings[PROTOCOL_AUTO_UPGRADE]


def _write_json(snapshot: Snapshot) -> None:
    context = snapshot.context
    started, checkpoint = time.perf_counter(), read_for_rewrite(snapshot)
    size = write_json_checkpoint(
        context.store,
        checkpoint,
        max_part_bytes=_max_part_bytes(snapshot),
        created_ms=context.store.clock.now_ms(),
    )
    _report(snapshot, BaseFormat.JSON, size, checkpoint.entries.num_rows, started)


def _write_parquet(snapshot: Snapshot) -> None:
    context = snapshot.context
    started, checkpoint = time.perf_counter(), read_for_rewrite(snapshot)
    size = write_parquet_checkpoint(
        context.store,
        checkpoint,
        compression=context.settings[CHECKPOINT_COMPRESSION],
        max_part_bytes=_max_part_bytes(snapshot),
        created_ms=context.store.clock.now_ms(),
    )
    _report(snapshot, BaseFormat.PARQUET, size, checkpoint.entries.num_rows, started)


def _report(
    snapshot: Snapshot, format_: BaseFormat, size: CheckpointSize | None, num_files: int, started: float
) -> None:
    """Report a checkpoint that was written since `started`; `size` is None if another writer was faster."""
    if size is None:
        return
    table, name, took_ms = snapshot.context.url, format_.value, (time.perf_counter() - started) * 1000
    CHECKPOINT_DURATION_MS.record(took_ms, table, format=name)
    CHECKPOINT_SIZE_BYTES.record(size.num_bytes, table, format=name)
    if size.compression_ratio is not None:
        CHECKPOINT_COMPRESSION_RATIO.record(size.compression_ratio, table, format=name)
    logger.info(
        "%s: wrote the checkpoint of version %d: %d files, %d bytes of %s, in %.1f ms",
        table, snapshot.version, num_files, size.num_bytes, name, took_ms,
    )  # fmt: skip


def _max_part_bytes(snapshot: Snapshot) -> int:
    may_have_parts = _may_need_protocol(snapshot, _MULTI_PART_PROTOCOL_VERSION)
    return snapshot.context.settings[CHECKPOINT_MAX_FILE_SIZE] if may_have_parts else sys.maxsize


def _find_readable(context: TableContext, version: int, format_: BaseFormat) -> _ReadableBase | None:
    for base in _bases(context, version, format_):
        try:
            _, source = read_base_uncached(context, base, UnknownContent.IGNORE)
        except (LogCorruptedError, ObjectNotFoundError):
            continue
        return _ReadableBase(base, source)
    return None


def _bases(context: TableContext, version: int, format_: BaseFormat) -> list[Base]:
    if format_ is BaseFormat.AVRO_STATE:
        listing = build_listing(context.store.list(f"{LOG_PREFIX}{state_dir(version)}/"))
    else:
        listing = list_log(context.store, from_version=version)
    return [base for base in listing.bases.get(version, ()) if base.format is format_]


def _new_hint(snapshot: Snapshot, found: _ReadableBase) -> LastCheckpoint:
    base, store = found.base, snapshot.context.store
    is_state = base.format is BaseFormat.AVRO_STATE
    protocol_version = snapshot.protocol.min_reader_version
    parts = _parts(store, base)
    return LastCheckpoint(
        version=snapshot.version,
        size=found.source.num_files,
        size_in_bytes=found.source.total_bytes,
        num_files=found.source.num_files,
        created_time=store.clock.now_ms(),
        parts=len(parts) or None,
        checkpoint_id=parts[0].checkpoint_id if parts else None,
        format="json-multipart" if parts and base.format is BaseFormat.JSON else base.format.value,
        state_dir=state_dir(base.version) if is_state else None,
        protocol_version=max(protocol_version, STATE_PROTOCOL_VERSION) if is_state else protocol_version,
    )


def _parts(store: ObjectStore, base: Base) -> list[JsonCheckpointPart | ParquetCheckpointPart]:
    """Return the parts of a checkpoint; none if it is one file, or a state."""
    keys: Iterable[str] = ()
    if base.format is BaseFormat.JSON:
        keys = (LOG_PREFIX + name for name in read_part_names(store, base.meta))
    elif base.format is BaseFormat.PARQUET:
        keys = read_row_keys(store, base.meta, base.version)
    paths = (parse_log_path(key) for key in keys)
    return [path for path in paths if isinstance(path, JsonCheckpointPart | ParquetCheckpointPart)]


def _write_state(snapshot: Snapshot, trigger: Trigger | None, base_entries: pa.Table | None) -> StateWritten:
    target = StateTarget.from_settings(
        snapshot.context.store,
        snapshot.shape,
        snapshot.context.settings,
        snapshot.context.manifest_executor,
    )
    base = snapshot.segment.base
    if base is None or base.format is not BaseFormat.AVRO_STATE or trigger is Trigger.FORCED:
        checkpoint = read_for_rewrite(snapshot, keeps_columns=True, base_entries=base_entries)
        target = replace(target, foreign=_foreign_fields(snapshot))
        return write_full_state(target, _as_current(checkpoint.header), checkpoint.entries, trigger)
    base_header, source = read_base(snapshot.context, base, UnknownContent.KEEP)
    assert isinstance(source, StateSource)  # because the base is an Avro state
    tail = _read_tail(snapshot)
    header = complete_header(snapshot, replay_header(base_header, tail.versions, removed_paths(tail)))
    next_target = replace(target, origin=base.meta.key)
    return write_next_state(next_target, _as_current(header), source, _changes(source, tail), trigger)


def _foreign_fields(snapshot: Snapshot) -> ForeignFields:
    """The fields of other writers in the state that a snapshot is read from, if it is read from one."""
    base = snapshot.segment.base
    if base is None:
        return NO_FOREIGN_FIELDS
    _, source = read_base(snapshot.context, base, UnknownContent.KEEP)
    return source.state.foreign if isinstance(source, StateSource) else NO_FOREIGN_FIELDS


def _read_tail(snapshot: Snapshot) -> Tail:
    tail = read_tail(snapshot.context, snapshot.segment.version_files, UnknownContent.KEEP)
    check_partition_values(tail.versions, snapshot.metadata, snapshot.context.url)
    return tail


def _as_current(header: LogHeader) -> LogHeader:
    """Return the header with a protocol that requires support for Avro states."""
    assert header.protocol is not None  # complete_header has set it
    protocol = upgraded(header.protocol, STATE_PROTOCOL_VERSION, STATE_PROTOCOL_VERSION)
    is_raised = protocol != header.protocol
    return replace(header, protocol=protocol, has_unlogged_protocol=header.has_unlogged_protocol or is_raised)


def _changes(source: StateSource, tail: Tail) -> NetChanges:
    if is_exact(tail):
        return net_changes_of_exact_tail(tail)
    paths = pa.chunked_array([*tail.adds["path"].chunks, *tail.removes["path"].chunks], pa.string())
    touched = PathSelection(pc.unique(paths))
    return net_changes(tail, source.load(touched, ["path", "size"]).entries)


def _all_entries(source: EntrySource, *, keeps_columns: bool) -> pa.Table:
    if isinstance(source, StateSource):
        return source.load_with_foreign_columns() if keeps_columns else source.load_for_rewrite()
    return source.load(None, None).entries


_FORMATS = {"avro": BaseFormat.AVRO_STATE, "json": BaseFormat.JSON, "parquet": BaseFormat.PARQUET}
_WRITERS: Mapping[BaseFormat, Callable[[Snapshot], object]] = {
    BaseFormat.AVRO_STATE: write_state,
    BaseFormat.JSON: _write_json,
    BaseFormat.PARQUET: _write_parquet,
}
