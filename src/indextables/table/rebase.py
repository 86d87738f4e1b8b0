"""The same version, from a newer base."""

from indextables.log.checkpoint import read_hint
from indextables.table.load import load_snapshot
from indextables.table.snapshot import Snapshot

_LONG_TAIL = 50


def rebase(snapshot: Snapshot) -> Snapshot:
    """The snapshot's version, read from the newest checkpoint at or before it.

    Whoever holds a table for long would otherwise carry every version since it was opened. File entries that are
    in memory stay there.
    """
    return load_snapshot(snapshot.context, snapshot.version).sharing_entries_of(snapshot)


def rebase_if_long(snapshot: Snapshot) -> Snapshot:
    """The snapshot, read from a newer checkpoint if it carries many versions and there is one."""
    segment = snapshot.segment
    if len(segment.tail) <= _LONG_TAIL:
        return snapshot
    hint = read_hint(snapshot.context.store)
    known = segment.base.version if segment.base is not None else -1
    return rebase(snapshot) if hint is not None and known < hint.version <= snapshot.version else snapshot
