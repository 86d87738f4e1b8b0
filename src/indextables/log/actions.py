"""Where a log file is damaged. Looked for only once something is known to be wrong."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from indextables._version import __version__
from indextables.errors import LogCorruptedError


def not_json(name: str, lines: bytes, error: Exception) -> LogCorruptedError:
    """The error for a file that is not a sequence of JSON objects: it names the first line that is none."""
    for number, line in enumerate(lines.split(b"\n"), start=1):
        try:
            _COUNTER.decode_lines(line)
        except (msgspec.MsgspecError, RecursionError) as line_error:
            return _error(name, f"line {number}", line_error)
    return _error(name, "the file", error)


def not_text(name: str, lines: bytes, error: UnicodeDecodeError) -> LogCorruptedError:
    """The error for a file that is not UTF-8 throughout."""
    number = lines.count(b"\n", 0, error.start) + 1
    return _error(name, f"line {number}", error)


def not_an_action(name: str, lines: bytes, position: int, error: Exception) -> LogCorruptedError:
    """The error for the object at `position`, which is JSON, but not the action that it says it is."""
    return _error(name, _place(lines, position), error)


def _place(lines: bytes, position: int) -> str:
    """The line of an object; an object that spans lines has only its number."""
    seen = 0
    for number, line in enumerate(lines.split(b"\n"), start=1):
        try:
            seen += len(_COUNTER.decode_lines(line))
        except msgspec.MsgspecError:
            break
        if seen > position:
            return f"line {number}"
    return f"action {position + 1}"


def _error(name: str, place: str, error: Exception) -> LogCorruptedError:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return LogCorruptedError(f"{name}: {place} is not a valid action ({reason})")


class _AnyObject(msgspec.Struct):
    """A JSON object, whatever it holds."""


_COUNTER = msgspec.json.Decoder(_AnyObject)


# The actions of the log, as objects: for the few that somebody touches.
#
# File entries in bulk never take this form; they are decoded straight into Arrow (`decode`). Field names are
# snake_case here and camelCase on disk. Fields of every protocol version are present, the old ones included.


T = TypeVar("T")

# Numbers as every other reader has them; what does not fit is refused where it is read.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

# Fields of an action that a newer writer knows and this release does not: kept where it is rewritten.
Unknown = Mapping[str, Any]

ENGINE_INFO = f"indextables-python/{__version__}"


class Action(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What all actions share: immutable, camelCase on disk, defaults left out.

    A default that comes from a factory is written all the same: readers that have no default need it.
    """


class Protocol(Action, frozen=True):
    """The protocol versions and features that a client needs in order to read or to write the table."""

    min_reader_version: Int32
    min_writer_version: Int32
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """The data files' format; always "indextables"."""

    provider: str = "indextables"
    options: Mapping[str, str] = msgspec.field(default_factory=dict)


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The table's identity, schema, partitioning and properties."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    format: Format = msgspec.field(default_factory=Format)
    created_time: Int64 | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


class AddAction(Action, frozen=True):
    """A split joins the table. Paths are relative to the table's root; times are epoch milliseconds."""

    path: str
    partition_values: Mapping[str, str | None]
    size: Int64
    modification_time: Int64
    data_change: bool
    stats: str | None = None
    min_values: Mapping[str, str] | None = None
    max_values: Mapping[str, str] | None = None
    num_records: Int64 | None = None
    footer_start_offset: Int64 | None = None
    footer_end_offset: Int64 | None = None
    has_footer_offsets: bool = msgspec.field(default_factory=bool)
    split_tags: tuple[str, ...] | None = None
    num_merge_ops: Int32 | None = None
    doc_mapping_ref: str | None = None
    uncompressed_size_bytes: Int64 | None = None
    tags: Mapping[str, str] | None = None
    hotcache_start_offset: Int64 | None = None
    hotcache_length: Int64 | None = None
    time_range_start: str | None = None
    time_range_end: str | None = None
    delete_opstamp: Int64 | None = None
    doc_mapping_json: str | None = None
    companion_source_files: tuple[str, ...] | None = None
    companion_delta_version: Int64 | None = None
    companion_fast_field_mode: str | None = None


class RemoveAction(Action, frozen=True):
    """A split leaves the table. The file itself stays until a purge."""

    path: str
    data_change: bool
    deletion_timestamp: Int64 | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: Int64 | None = None
    extended_file_metadata: bool | None = None
    tags: Mapping[str, str] | None = None


class SkipAction(Action, frozen=True):
    """An operation could not process a split, which stays live; it is tried again after `retry_after`."""

    path: str
    skip_timestamp: Int64
    reason: str
    operation: str
    skip_count: Int32 = msgspec.field(default_factory=lambda: 1)
    retry_after: Int64 | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: Int64 | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


class TransactionAction(Action, frozen=True):
    """The last batch that a streaming writer committed, so that a restart does not commit it again."""

    app_id: str
    version: Int64
    last_updated: Int64 | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


class CommitInfo(Action, frozen=True):
    """Who committed what, when and why. Other implementations ignore this action.

    `is_exact` says that the writer checked its actions against the version before: every remove is of a path
    that was live, and carries its size; no add is of a path that was live. A checkpoint can then
    be written from the change alone.
    """

    commit_id: str
    timestamp: Int64
    operation: str
    read_version: Int64 | None = None
    operation_parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    operation_metrics: Mapping[str, int] = msgspec.field(default_factory=dict)
    engine_info: str | None = None
    is_exact: bool = False


class CheckpointInfo(Action, frozen=True):
    """What a checkpoint knows about itself. Other implementations ignore this action.

    `num_adds` lets a reader notice that lines are missing; `recent_commits` maps versions to commit ids.
    `known_schemas` are the hashes of doc mappings that the table knows without its metadata saying so: they are in the
    checkpoint's metaData, where other readers look for them.
    """

    version: Int64
    timestamp: Int64
    num_adds: Int64
    recent_commits: Mapping[Int64, str] = msgspec.field(default_factory=dict)
    known_schemas: tuple[str, ...] = ()


AnyAction = (
    Protocol
    | Metadata
    | AddAction
    | RemoveAction
    | SkipAction
    | TransactionAction
    | CommitInfo
    | CheckpointInfo
)

# The name of each action on disk.
ACTION_NAMES: Mapping[type[AnyAction], str] = {
    Protocol: "protocol",
    Metadata: "metaData",
    AddAction: "add",
    RemoveAction: "remove",
    SkipAction: "mergeskip",
    TransactionAction: "txn",
    CommitInfo: "commitInfo",
    CheckpointInfo: "checkpointInfo",
}


def new_commit_id() -> str:
    """An id by which a writer recognises its own commit when it reads it back."""
    return str(uuid.uuid4())


def encode_actions(actions: Sequence[AnyAction]) -> bytes:
    """The actions as JSON lines, with the unknown fields that they were read with."""
    return _ENCODER.encode_lines([{ACTION_NAMES[type(action)]: _on_disk(action)} for action in actions])


def parse_action(value: Any, kind: type[T]) -> T:
    """An action from its parsed JSON. Raises msgspec.ValidationError if a field is missing or mistyped."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError(f"expected the fields of an action, found {type(value).__name__}")
    names = _FIELD_NAMES[kind]
    known = {name: field for name, field in value.items() if name in names}
    action = msgspec.convert(known, kind, strict=False)
    if len(known) == len(value) or "unknown" not in kind.__struct_fields__:  # type: ignore[attr-defined]  # a Struct
        return action
    unknown = {name: field for name, field in value.items() if name not in names}
    return msgspec.structs.replace(action, unknown=unknown)  # type: ignore[type-var]  # a Struct


def _on_disk(action: AnyAction) -> object:
    values = getattr(action, "partition_values", None)
    if values and None in values.values():
        # On disk, a null value is an absent key.
        present = {name: value for name, value in values.items() if value is not None}
        action = msgspec.structs.replace(action, partition_values=present)
    if not hasattr(action, "unknown"):
        return action
    fields = msgspec.to_builtins(action)
    fields.pop("unknown", None)
    return {**fields, **action.unknown}


_ENCODER = msgspec.json.Encoder()
_FIELD_NAMES: Mapping[type, frozenset[str]] = {
    kind: frozenset(field.encode_name for field in msgspec.structs.fields(kind)) - {"unknown"}
    for kind in ACTION_NAMES
}


# The actions that are few: protocol, metaData, mergeskip, txn, commitInfo and checkpointInfo.
#
# One pass over the bytes of a log file finds them and skips everything else, so that a checkpoint with 70,000
# adds and two other lines costs two parsed actions. The same pass makes sure that the file is a sequence of
# JSON objects that are not nested without end, which a native decoder can be trusted with.


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
