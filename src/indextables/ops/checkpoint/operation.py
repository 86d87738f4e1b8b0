"""CHECKPOINT in the Avro format: the state after the last one, at a cost in proportion to the change."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns, Result, Status
from indextables.config.registry import (
    CHECKPOINT_COMPRESSION,
    CHECKPOINT_MAX_FILE_SIZE,
    STATE_FORMAT,
)
from indextables.errors import LogCorruptedError, ObjectNotFoundError, VersionNotFoundError
from indextables.log.checkpoint import Checkpoint, LastCheckpoint, advance_hint, read_hint
from indextables.log.decode import Tail, UnknownContent
from indextables.log.entries import EntrySource, PathSelection, empty_entries
from indextables.log.legacy_checkpoint import read_part_names, write_json_checkpoint, write_parquet_checkpoint
from indextables.log.paths import (
    LAST_CHECKPOINT_KEY,
    LOG_PREFIX,
    JsonCheckpointPart,
    parquet_checkpoint_key,
    parse_log_path,
    state_dir,
)
from indextables.log.protocol import check_writable
from indextables.log.replay import EMPTY_HEADER, LogHeader, removed_paths, replay_entries, replay_header
from indextables.log.segment import Base, BaseFormat, build_listing, list_log
from indextables.log.version_file import find_object
from indextables.metrics import (
    STATE_TOMBSTONE_COUNT,
    STATE_TOMBSTONE_RATIO,
    STATE_WRITE_COMPACTED,
    STATE_WRITE_DURATION_MS,
)
from indextables.ops.checkpoint.cleanup import read_entries
from indextables.ops.checkpoint.manifests_by_runner import manifests_by_runner
from indextables.ops.runner import Runner
from indextables.state.changes import NetChanges, is_exact, net_changes, net_changes_of_exact_tail
from indextables.state.compaction import CompactionRules, Trigger, would_help
from indextables.state.source import StateSource
from indextables.state.state_manifest import PROTOCOL_VERSION
from indextables.state.writer import StateTarget, StateWritten, write_full_state, write_next_state
from indextables.table import Operation, Snapshot, TableContext, commit, load_snapshot
from indextables.table.intent import EmptyCommit
from indextables.table.load import reload_from_newest_base
from indextables.table.log_reader import read_base, read_base_uncached, read_tail


def write_state(snapshot: Snapshot, trigger: Trigger | None = None) -> StateWritten:
    """Write the snapshot's state, from the one before it where that is in the same format.

    With a `trigger`, the state is compacted; otherwise it is if its rules say so. Raises LogCorruptedError if any
    part of the table that is needed cannot be read: nothing is published then.
    """
    started = time.perf_counter()
    written = _write_state(snapshot, trigger)
    state = written.state
    STATE_WRITE_DURATION_MS.record((time.perf_counter() - started) * 1000)
    STATE_WRITE_COMPACTED.record(1 if written.trigger is not None else 0)
    STATE_TOMBSTONE_COUNT.record(len(state.tombstones))
    STATE_TOMBSTONE_RATIO.record(len(state.tombstones) / max(state.num_files, 1))
    return written


def _write_state(snapshot: Snapshot, trigger: Trigger | None) -> StateWritten:
    target = StateTarget.from_settings(
        snapshot.context.store, snapshot.schema, snapshot.partition_columns, snapshot.context.settings
    )
    base = snapshot.segment.base
    if base is None or base.format is not BaseFormat.AVRO_STATE or trigger is Trigger.FORCED:
        checkpoint = read_for_rewrite(snapshot, keeps_columns=True)
        return write_full_state(target, _as_current(checkpoint.header), checkpoint.entries, trigger)
    base_header, source = read_base(snapshot.context, base, UnknownContent.KEEP)
    assert isinstance(source, StateSource)  # what the format of the base says
    tail = read_tail(snapshot.context, snapshot.segment.tail, UnknownContent.KEEP)
    header = complete_header(snapshot, replay_header(base_header, tail.versions, removed_paths(tail)))
    going_on = replace(target, origin=base.meta.key)
    return write_next_state(going_on, _as_current(header), source, _changes(source, tail), trigger)


def _as_current(header: LogHeader) -> LogHeader:
    """The header of a table that has a state, and so needs a reader and a writer that know states."""
    protocol = header.protocol
    assert protocol is not None  # of a complete header
    return replace(
        header,
        protocol=replace(
            protocol,
            min_reader_version=max(protocol.min_reader_version, PROTOCOL_VERSION),
            min_writer_version=max(protocol.min_writer_version, PROTOCOL_VERSION),
        ),
    )


def is_compact(snapshot: Snapshot) -> bool:
    """Whether the snapshot is a state already that a compaction would not improve."""
    base = snapshot.segment.base
    if base is None or base.format is not BaseFormat.AVRO_STATE or snapshot.segment.tail:
        return False
    _, source = read_base(snapshot.context, base, UnknownContent.KEEP)
    assert isinstance(source, StateSource)  # what the format of the base says
    rules = CompactionRules.from_settings(snapshot.context.settings)
    return not would_help(source.manifest, rules, is_partitioned=bool(snapshot.partition_columns))


def _changes(source: StateSource, tail: Tail) -> NetChanges:
    if is_exact(tail):
        return net_changes_of_exact_tail(tail)
    paths = pa.chunked_array([*tail.adds["path"].chunks, *tail.removes["path"].chunks], pa.string())
    touched = PathSelection(pc.unique(paths))
    return net_changes(tail, source.load(touched, ["path", "size"]).entries)


# CHECKPOINT and COMPACT: the table's state in one place, so that a reader need not replay the log.


logger = logging.getLogger(__name__)


class CheckpointResult(Result, frozen=True):
    """What `IndexTable.checkpoint` or `IndexTable.compact` wrote.

    Attributes:
        table_path: The URL of the table.
        version: The version of the checkpoint.
        previous_format: The format of the newest checkpoint before; None if there was none.
        new_format: The format of the checkpoint: "avro-state", "json" or "parquet".
        num_files: The number of live splits.
        total_bytes: The size of the live splits.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`"),
        Column(
            "previous_format", pa.string(), "the format of the newest checkpoint before; null: there was none"
        ),
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


def write_checkpoint(snapshot: Snapshot, runner: Runner | None = None) -> CheckpointResult:
    """Write the snapshot down in the configured format, read it back, and point the hint at it.

    If that version has a checkpoint in this format already, it stays, unless it cannot be read to the last entry: then
    it is built again. Raises LogCorruptedError if a part of the table cannot be read: an incomplete checkpoint is
    never written; VersionNotFoundError if others went on and cleaned this version up; UnsupportedProtocolError; and
    StorageError, also for a write that took so long that its files may have been collected as garbage. A `runner`
    does the work on manifests, if these are very many.
    """
    with manifests_by_runner(snapshot.context, runner):
        return _write(reload_from_newest_base(snapshot), _WRITERS[_configured_format(snapshot)])


def compact(
    snapshot: Snapshot, runner: Runner | None = None, trigger: Trigger = Trigger.FORCED
) -> CheckpointResult:
    """Write the state anew, without tombstones and fragments; a compact state stays as it is.

    All of it, or with another `trigger` only the manifests that need it.

    A state is never replaced: if this version has one, it is compacted under a version of its own, which changes
    nothing else. In the older formats every checkpoint is compact. A `runner` does the work on manifests, if these
    are very many.
    """
    with manifests_by_runner(snapshot.context, runner):
        return _compact(reload_from_newest_base(snapshot), trigger)


def _compact(snapshot: Snapshot, trigger: Trigger) -> CheckpointResult:
    if _configured_format(snapshot) is not BaseFormat.AVRO_STATE or is_compact(snapshot):
        return _write(snapshot, _WRITERS[_configured_format(snapshot)])
    if _bases(snapshot.context, snapshot.version, BaseFormat.AVRO_STATE):
        snapshot = commit(snapshot, EmptyCommit(), Operation("COMPACT")).snapshot
    return _write(snapshot, lambda snapshot: write_state(snapshot, trigger))


class _Readable(msgspec.Struct, frozen=True):
    base: Base
    source: EntrySource


def _write(snapshot: Snapshot, write: Callable[[Snapshot], object]) -> CheckpointResult:
    context, version, wanted = snapshot.context, snapshot.version, _configured_format(snapshot)
    # Whoever does not know what the table needs might leave something out.
    check_writable(snapshot.protocol, context.url)
    existing = _bases(context, version, wanted)
    damaged = [base for base in existing if not _is_whole(context, base)]
    if len(damaged) == len(existing):
        write(_make_room(snapshot, damaged) if damaged else snapshot)
    found = _find_readable(context, version, wanted)
    if found is None:
        raise _lost(context, version)
    previous, hint = read_hint(context.store), _hint(snapshot, found)
    _advance_hint(context, previous, hint)
    return CheckpointResult(
        table_path=context.url,
        version=version,
        previous_format=None if previous is None else previous.format_name,
        new_format=hint.format_name,
        num_files=found.source.num_files,
        total_bytes=found.source.total_bytes,
    )


def _lost(context: TableContext, version: int) -> LogCorruptedError | VersionNotFoundError:
    """Why a checkpoint is not there although it was just written."""
    listing = list_log(context.store, from_version=version)
    if version not in listing.bases and listing.bases:
        return VersionNotFoundError(
            f"{context.url}: the checkpoint of version {version} was cleaned up by somebody else as soon as it was "
            f"written, because there is one of version {max(listing.bases)}; open the table again"
        )
    return LogCorruptedError(
        f"{context.url}: the checkpoint of version {version} could not be read back after it was written; nothing "
        f"was cleaned up, and readers replay the log as before"
    )


def _is_whole(context: TableContext, base: Base) -> bool:
    try:
        read_entries(context, base)
    except LogCorruptedError as error:
        logger.warning("%s: the checkpoint at %d is built again: %s", context.url, base.version, error)
        return False
    return True


def _make_room(snapshot: Snapshot, damaged: Sequence[Base]) -> Snapshot:
    """Delete checkpoints that cannot be read. Returns the same version, by way of other files.

    Raises what `load_snapshot` raises, with nothing deleted, if there is no other way. Of a checkpoint that another
    writer has built again meanwhile nothing is deleted either.
    """
    context = snapshot.context
    other = load_snapshot(context, snapshot.version, passing_over=[base.meta.key for base in damaged])
    _ = other.entries
    for base in damaged:
        if find_object(context.store, base.meta.key) == base.meta:
            context.store.delete_many(_keys(base))
    return other


def _keys(base: Base) -> tuple[str, ...]:
    """What has to go so that a checkpoint can be written again, first the file that makes it valid."""
    if base.format is BaseFormat.PARQUET:
        return (base.meta.key, parquet_checkpoint_key(base.version))
    return (base.meta.key,)


def _advance_hint(context: TableContext, current: LastCheckpoint | None, hint: LastCheckpoint) -> None:
    if current is not None and current.version > hint.version:
        is_matched = current.version in list_log(context.store, from_version=current.version).bases
        if not is_matched:
            # It would keep the hint from ever moving on.
            context.store.delete_many([LAST_CHECKPOINT_KEY])
    advance_hint(context.store, hint)


def _configured_format(snapshot: Snapshot) -> BaseFormat:
    return _FORMATS[snapshot.context.settings[STATE_FORMAT]]


def _write_json(snapshot: Snapshot) -> None:
    context = snapshot.context
    write_json_checkpoint(
        context.store,
        read_for_rewrite(snapshot),
        max_part_bytes=context.settings[CHECKPOINT_MAX_FILE_SIZE],
        created_ms=context.store.clock.now_ms(),
    )


def _write_parquet(snapshot: Snapshot) -> None:
    context = snapshot.context
    write_parquet_checkpoint(
        context.store,
        read_for_rewrite(snapshot),
        compression=context.settings[CHECKPOINT_COMPRESSION],
        created_ms=context.store.clock.now_ms(),
    )


def _find_readable(context: TableContext, version: int, wanted: BaseFormat) -> _Readable | None:
    """The checkpoint of a version in a format, if it is there and can be read."""
    for base in _bases(context, version, wanted):
        try:
            _, source = read_base_uncached(context, base, UnknownContent.IGNORE)
        except (LogCorruptedError, ObjectNotFoundError):
            continue
        return _Readable(base, source)
    return None


def _bases(context: TableContext, version: int, wanted: BaseFormat) -> list[Base]:
    if wanted is BaseFormat.AVRO_STATE:
        listing = build_listing(context.store.list(f"{LOG_PREFIX}{state_dir(version)}/"))
    else:
        listing = list_log(context.store, from_version=version)
    return [base for base in listing.bases.get(version, ()) if base.format is wanted]


def _hint(snapshot: Snapshot, found: _Readable) -> LastCheckpoint:
    base, store = found.base, snapshot.context.store
    is_state = base.format is BaseFormat.AVRO_STATE
    protocol_version = snapshot.protocol.min_reader_version
    parts = read_part_names(store, base.meta) if base.format is BaseFormat.JSON else ()
    return LastCheckpoint(
        version=snapshot.version,
        size=found.source.num_files,
        size_in_bytes=found.source.total_bytes,
        num_files=found.source.num_files,
        created_time=store.clock.now_ms(),
        parts=len(parts) or None,
        checkpoint_id=_checkpoint_id(parts),
        format="json-multipart" if parts else base.format.value,
        state_dir=state_dir(base.version) if is_state else None,
        protocol_version=max(protocol_version, PROTOCOL_VERSION) if is_state else protocol_version,
    )


def _checkpoint_id(parts: tuple[str, ...]) -> str | None:
    """The id that the names of the parts share."""
    path = parse_log_path(LOG_PREFIX + parts[0]) if parts else None
    return path.checkpoint_id if isinstance(path, JsonCheckpointPart) else None


_FORMATS = {"avro": BaseFormat.AVRO_STATE, "json": BaseFormat.JSON, "parquet": BaseFormat.PARQUET}
_WRITERS: Mapping[BaseFormat, Callable[[Snapshot], object]] = {
    BaseFormat.AVRO_STATE: write_state,
    BaseFormat.JSON: _write_json,
    BaseFormat.PARQUET: _write_parquet,
}


# Reading a table in order to write it down again: nothing that other writers put there may be lost.


def read_for_rewrite(snapshot: Snapshot, *, keeps_columns: bool = False) -> Checkpoint:
    """The snapshot's whole content, with the fields and actions that this release does not know.

    Fields in columns of their own stay there if whoever writes them again can keep columns. Raises LogCorruptedError if
    any part of it cannot be read.
    """
    segment = snapshot.segment
    header, entries = EMPTY_HEADER, empty_entries()
    if segment.base is not None:
        header, source = read_base(snapshot.context, segment.base, UnknownContent.KEEP)
        entries = _all_entries(source, keeps_columns=keeps_columns)
    tail = read_tail(snapshot.context, segment.tail, UnknownContent.KEEP)
    header = complete_header(snapshot, replay_header(header, tail.versions, removed_paths(tail)))
    return Checkpoint(header, replay_entries(entries, tail))


def _all_entries(source: EntrySource, *, keeps_columns: bool) -> pa.Table:
    if isinstance(source, StateSource):
        return source.load_with_foreign_columns() if keeps_columns else source.load_for_rewrite()
    return source.load(None, None).entries


def complete_header(snapshot: Snapshot, header: LogHeader) -> LogHeader:
    """A header with protocol and metadata, which states of other writers do not carry.

    They were found elsewhere when the snapshot was opened; a checkpoint must have them, because what it covers may
    be cleaned up.
    """
    return replace(
        header,
        protocol=header.protocol or snapshot.protocol,
        metadata=header.metadata or snapshot.metadata,
    )
