"""The actions that are few: protocol, metaData, mergeskip, txn, commitInfo and checkpointInfo.

One pass over the bytes of a log file finds them and skips everything else, so that a checkpoint with 70,000
adds and two other lines costs two parsed actions. The same pass makes sure that the file is a sequence of JSON
objects that are not nested without end, which a native decoder can be trusted with.
"""

from typing import Any, TypeVar

import msgspec

from indextables.log.actions import (
    ACTION_NAMES,
    CheckpointInfo,
    CommitInfo,
    Metadata,
    Protocol,
    SkipAction,
    TransactionAction,
    parse_action,
)
from indextables.log.bad_lines import not_an_action, not_json

T = TypeVar("T")

_KINDS = (Protocol, Metadata, SkipAction, TransactionAction, CommitInfo, CheckpointInfo)


class SmallActions(msgspec.Struct, frozen=True):
    """The small actions of one log file; of a kind that can only apply once, the last."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    commit_info: CommitInfo | None = None
    checkpoint_info: CheckpointInfo | None = None
    skips: tuple[SkipAction, ...] = ()
    transactions: tuple[TransactionAction, ...] = ()
    protocol_count: int = 0
    metadata_count: int = 0


class ScannedFile(msgspec.Struct, frozen=True):
    """A log file after the first pass: how many JSON objects it holds, and its small actions."""

    num_objects: int
    actions: SmallActions


def scan_lines(name: str, lines: bytes) -> ScannedFile:
    """Look through JSON lines for small actions.

    Raises LogCorruptedError, naming the line, if they are not JSON objects or a small action is not valid.
    """
    try:
        objects = _SCANNER.decode_lines(lines)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise not_json(name, lines, error) from error
    found: dict[type, list[Any]] = {kind: [] for kind in _KINDS}
    for some_actions in filter(_NO_SMALL_ACTION.__ne__, objects):
        try:
            _collect(some_actions, found)
        except ValueError as error:
            raise not_an_action(name, lines, objects.index(some_actions), error) from error
    return ScannedFile(
        num_objects=len(objects),
        actions=SmallActions(
            protocol=_last(found[Protocol]),
            metadata=_last(found[Metadata]),
            commit_info=_last(found[CommitInfo]),
            checkpoint_info=_last(found[CheckpointInfo]),
            skips=tuple(found[SkipAction]),
            transactions=tuple(found[TransactionAction]),
            protocol_count=len(found[Protocol]),
            metadata_count=len(found[Metadata]),
        ),
    )


def _collect(line: msgspec.Struct, found: dict[type, list[Any]]) -> None:
    for kind in _KINDS:
        raw = getattr(line, ACTION_NAMES[kind])
        value = msgspec.json.decode(raw) if raw != _ABSENT else None
        if value is None:
            continue
        try:
            found[kind].append(parse_action(value, kind))
        except msgspec.ValidationError:
            # Other writers have a commitInfo of their own, which tells us nothing.
            if kind is not CommitInfo:
                raise


def _last(actions: list[T]) -> T | None:
    return actions[-1] if actions else None


# A line of which only the small actions are looked at. `gc=False`: there is one for every line of a checkpoint,
# and they refer to nothing that could refer back.
_ABSENT = msgspec.Raw()
_Line = msgspec.defstruct(
    "_Line", [(ACTION_NAMES[kind], msgspec.Raw, _ABSENT) for kind in _KINDS], gc=False, frozen=True
)
_NO_SMALL_ACTION = _Line()
_SCANNER = msgspec.json.Decoder(_Line)
