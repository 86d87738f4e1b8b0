"""What another writer's version did, as far as a conflict is decided by it. Read without decoding its files.

A writer that lost a race is in a hurry: whoever takes longer to catch up than others take to commit never wins.
"""

import msgspec

from indextables.log.actions import scan_lines
from indextables.log.decode import LogFile, VersionSummary, decode_tail


class Winner(msgspec.Struct, frozen=True):
    """One version. `changes_data` says that it has an add with new rows, and not only rows that moved."""

    summary: VersionSummary
    has_adds: bool
    has_removes: bool
    changes_data: bool


def summary_of(log_file: LogFile) -> VersionSummary:
    """What a version says besides its adds and removes. Raises LogCorruptedError."""
    actions = scan_lines(log_file.name, log_file.lines).actions
    if actions.commit_info is None:
        # Only the adds and removes tell when it was committed.
        return decode_tail([log_file]).versions[0]
    return VersionSummary(log_file.version, actions.commit_info.timestamp, actions)


def winner_of(log_file: LogFile) -> Winner:
    """What a version did, by its actions alone: other writers do not say. Raises LogCorruptedError."""
    try:
        lines = _LINES.decode_lines(log_file.lines)
    except msgspec.MsgspecError:
        tail = decode_tail([log_file])
        changes_data = any(tail.adds["dataChange"].to_pylist())
        return Winner(tail.versions[0], tail.adds.num_rows > 0, tail.removes.num_rows > 0, changes_data)
    adds = [line.add for line in lines if line.add is not None]
    return Winner(
        summary=summary_of(log_file),
        has_adds=bool(adds),
        has_removes=any(line.remove is not None for line in lines),
        changes_data=any(add.data_change for add in adds),
    )


class _Action(msgspec.Struct, rename="camel"):
    data_change: bool = False


class _Line(msgspec.Struct):
    add: _Action | None = None
    remove: _Action | None = None


_LINES = msgspec.json.Decoder(_Line)
