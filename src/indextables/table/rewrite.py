"""Reading a table in order to write it down again: nothing that other writers put there may be lost."""

import pyarrow as pa
from msgspec.structs import replace

from indextables.log.checkpoint import Checkpoint
from indextables.log.decode import UnknownContent
from indextables.log.entries import EntrySource, empty_entries
from indextables.log.replay import EMPTY_HEADER, LogHeader, removed_paths, replay_entries, replay_header
from indextables.state.source import StateSource
from indextables.table.log_reader import read_base, read_tail
from indextables.table.snapshot import Snapshot


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
