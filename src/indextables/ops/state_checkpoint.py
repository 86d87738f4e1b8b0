"""CHECKPOINT in the Avro format: the state after the last one, at a cost in proportion to the change."""

import time

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.log.decode import Tail, UnknownContent
from indextables.log.entries import PathSelection
from indextables.log.replay import LogHeader, removed_paths, replay_header
from indextables.log.segment import BaseFormat
from indextables.metrics import (
    STATE_TOMBSTONE_COUNT,
    STATE_TOMBSTONE_RATIO,
    STATE_WRITE_COMPACTED,
    STATE_WRITE_DURATION_MS,
)
from indextables.state.changes import NetChanges, is_exact, net_changes, net_changes_of_exact_tail
from indextables.state.compaction import CompactionRules, Trigger, would_help
from indextables.state.source import StateSource
from indextables.state.state_manifest import PROTOCOL_VERSION
from indextables.state.writer import StateTarget, StateWritten, write_full_state, write_next_state
from indextables.table import Snapshot
from indextables.table.log_reader import read_base, read_tail
from indextables.table.rewrite import complete_header, read_for_rewrite


def write_state(snapshot: Snapshot, trigger: Trigger | None = None) -> StateWritten:
    """Write the snapshot's state, from the one before it where that is in the same format.

    With a `trigger`, the state is compacted; otherwise it is if its rules say so. Raises LogCorruptedError if any
    part of the table that is needed cannot be read: nothing is published then.
    """
    started = time.perf_counter()
    written = _write(snapshot, trigger)
    state = written.state
    STATE_WRITE_DURATION_MS.record((time.perf_counter() - started) * 1000)
    STATE_WRITE_COMPACTED.record(1 if written.trigger is not None else 0)
    STATE_TOMBSTONE_COUNT.record(len(state.tombstones))
    STATE_TOMBSTONE_RATIO.record(len(state.tombstones) / max(state.num_files, 1))
    return written


def _write(snapshot: Snapshot, trigger: Trigger | None) -> StateWritten:
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
