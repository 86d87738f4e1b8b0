"""The actions of the log as objects, their JSON, the protocol check, and the scan for the actions of a log file.

File entries in bulk never take this form: `log.decode` decodes them straight into Arrow. Field names are snake_case
here and camelCase on disk. Fields of every protocol version are present.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from indextables._structs import decodable
from indextables._version import __version__
from indextables.errors import LogCorruptedError, UnsupportedProtocolError
from indextables.log.deletion_vectors import DeletionVector
from indextables.log.fields import ADD_FIELDS, REMOVE_FIELDS, names_on_disk

T = TypeVar("T")

# The widths that other implementations use. Decoding rejects a number that does not fit.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

# Fields of an action that this release does not know. A rewrite keeps them.
Unknown = Mapping[str, Any]

ENGINE_INFO = f"indextables-python/{__version__}"

_MS_PER_HOUR = 3_600_000


class Action(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of all actions: immutable, camelCase on disk, defaults left out.

    A default that comes from a factory is written anyway: some readers have no default for that field.
    """


@decodable
class ProtocolAction(Action, frozen=True):
    """The protocol versions and features that a client needs to read or to write the table."""

    min_reader_version: Int32
    min_writer_version: Int32
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """The data files' format; always "indextables"."""

    provider: str = "indextables"
    options: Mapping[str, str] = msgspec.field(default_factory=dict)


@decodable
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


@decodable
class AddAction(Action, frozen=True, rename=names_on_disk(ADD_FIELDS)):
    """Adds a split to the table.

    Paths are relative to the table's root; times are epoch milliseconds. `log.fields` describes each field.

    Example:
        >>> add = AddAction(
        ...     path="date=2024-01-01/part-0.split",
        ...     partition_values={"date": "2024-01-01"},
        ...     size=1_048_576,
        ...     modification_time=1_704_067_200_000,
        ...     data_change=True,
        ... )
    """

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
    deletion_vector: DeletionVector | None = None


@decodable
class RemoveAction(Action, frozen=True, rename=names_on_disk(REMOVE_FIELDS)):
    """Removes a split from the table. The file itself stays until PURGE deletes it."""

    path: str
    data_change: bool
    deletion_timestamp: Int64 | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: Int64 | None = None
    extended_file_metadata: bool | None = None
    tags: Mapping[str, str] | None = None


@decodable
class SkipAction(Action, frozen=True):
    """Records that an operation could not process a split. The split stays live and is retried after `retry_after`."""

    path: str
    skip_timestamp: Int64
    reason: str
    operation: str
    skip_count: Int32 = msgspec.field(default_factory=lambda: 1)
    retry_after: Int64 | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: Int64 | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)

    def retried_from_ms(self, cooldown_hours: float) -> int:
        """When the split is tried again; the cooldown counts only if the writer did not record the time."""
        if self.retry_after is not None:
            return self.retry_after
        return self.skip_timestamp + int(cooldown_hours * _MS_PER_HOUR)


@decodable
class TransactionAction(Action, frozen=True):
    """The last batch that a streaming writer committed. A restarted writer does not commit it again."""

    app_id: str
    version: Int64
    last_updated: Int64 | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


@decodable
class CommitInfo(Action, frozen=True):
    """The author, time, operation and metrics of a commit. Other implementations ignore this action.

    `is_exact` means that the writer checked its actions against the previous version: every remove carries the size
    of a path that was live, and no add is of a path that was live. A checkpoint can then be written without reading
    the old entries.
    """

    commit_id: str
    timestamp: Int64
    operation: str
    read_version: Int64 | None = None
    operation_parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    operation_metrics: Mapping[str, int] = msgspec.field(default_factory=dict)
    engine_info: str | None = None
    is_exact: bool = False


@decodable
class CheckpointInfo(Action, frozen=True):
    """Metadata of a checkpoint. Other implementations ignore this action.

    `num_adds` lets a reader detect missing lines; `recent_commits` maps versions to commit ids. `known_schemas`
    are the hashes of doc mappings that the checkpoint adds to the configuration of its metaData, because other
    implementations look for them there. They are not part of the table's metadata.
    """

    version: Int64
    timestamp: Int64
    num_adds: Int64
    recent_commits: Mapping[Int64, str] = msgspec.field(default_factory=dict)
    known_schemas: tuple[str, ...] = ()


AnyAction = (
    ProtocolAction
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
    ProtocolAction: "protocol",
    Metadata: "metaData",
    AddAction: "add",
    RemoveAction: "remove",
    SkipAction: "mergeskip",
    TransactionAction: "txn",
    CommitInfo: "commitInfo",
    CheckpointInfo: "checkpointInfo",
}


def new_commit_id() -> str:
    """A unique id by which a writer recognizes its own commit when it reads it back."""
    return str(uuid.uuid4())


# The table protocol: which versions and features this release reads and writes
#
# The specification ends at version 4, which introduced Avro states. Version 5 is ours: the table holds, or may hold,
# splits of this implementation, which the JVM cannot read.

READER_VERSION = 5
WRITER_VERSION = 5
SPLIT_PROTOCOL_VERSION = 5

# The feature of a table with deletion vectors: a client that does not apply them would read deleted rows.
DELETION_VECTORS = "deletionVectors"
# The feature of a table with changed columns: a client that finds columns by their names, or takes them to have one
# type in all splits, would read other values.
COLUMN_MAPPING = "columnMapping"

# Features that the specification and other writers name. Every release of this package supports all of them.
KNOWN_FEATURES = frozenset(
    {
        "avroState",
        "multiPartCheckpoint",
        "schemaDeduplication",
        "footerOffsets",
        "tantivy4java",
        "conditionalWrites",
        "checkpoint",
        "checkpoints",
        "extendedMetadata",
        "optimizeWrite",
        "skippedFiles",
        DELETION_VECTORS,
        COLUMN_MAPPING,
    }
)

CURRENT_PROTOCOL = ProtocolAction(min_reader_version=READER_VERSION, min_writer_version=WRITER_VERSION)
# The protocol of a table without a protocol action, which was optional before version 2 of the format.
DEFAULT_PROTOCOL = ProtocolAction(min_reader_version=1, min_writer_version=1)


def check_readable(protocol: ProtocolAction, table: str) -> None:
    """Raise UnsupportedProtocolError, naming the version or feature needed, unless this release can read the table."""
    _check(protocol.min_reader_version, READER_VERSION, protocol.reader_features, table, "read")


def check_writable(protocol: ProtocolAction, table: str) -> None:
    """Raise UnsupportedProtocolError unless this release can both read and write the table."""
    check_readable(protocol, table)
    _check(protocol.min_writer_version, WRITER_VERSION, protocol.writer_features, table, "write to")


def upgraded(protocol: ProtocolAction, reader_version: int, writer_version: int) -> ProtocolAction:
    """Return the protocol raised to at least these versions. Versions never decrease, and features stay."""
    return ProtocolAction(
        min_reader_version=max(protocol.min_reader_version, reader_version),
        min_writer_version=max(protocol.min_writer_version, writer_version),
        reader_features=protocol.reader_features,
        writer_features=protocol.writer_features,
        unknown=protocol.unknown,
    )


def with_feature(protocol: ProtocolAction, feature: str) -> ProtocolAction:
    """Return the protocol with a feature that readers and writers need."""
    return msgspec.structs.replace(
        protocol,
        reader_features=tuple(dict.fromkeys([*(protocol.reader_features or ()), feature])),
        writer_features=tuple(dict.fromkeys([*(protocol.writer_features or ()), feature])),
    )


def without_feature(protocol: ProtocolAction, feature: str) -> ProtocolAction:
    """Return the protocol without a feature, for comparisons."""
    return msgspec.structs.replace(
        protocol,
        reader_features=tuple(name for name in protocol.reader_features or () if name != feature) or None,
        writer_features=tuple(name for name in protocol.writer_features or () if name != feature) or None,
    )


def _check(needed: int, supported: int, features: tuple[str, ...] | None, table: str, verb: str) -> None:
    if needed > supported:
        raise UnsupportedProtocolError(
            f"{table}: needs protocol version {needed} to {verb}, this release of indextables supports "
            f"version {supported}; upgrade indextables"
        )
    unknown = sorted(set(features or ()) - KNOWN_FEATURES)
    if unknown:
        raise UnsupportedProtocolError(
            f"{table}: needs the features {', '.join(unknown)} to {verb}, which this release of indextables "
            f"does not have; upgrade indextables"
        )


# Encoding and decoding single actions


def encode_actions(actions: Sequence[AnyAction]) -> bytes:
    """The actions as JSON lines, including the unknown fields that they were read with."""
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


# The scan for small actions: all kinds but adds and removes.
#
# One pass over the bytes of a log file finds them and skips everything else, so a checkpoint with 70,000 adds and two
# other lines costs two parsed actions. The same pass verifies that the file is a sequence of JSON objects without
# excessive nesting, which makes it safe for the native decoder.

_SMALL_KINDS = (ProtocolAction, Metadata, SkipAction, TransactionAction, CommitInfo, CheckpointInfo)


class SmallActions(msgspec.Struct, frozen=True):
    """The small actions of one log file. For kinds that apply once, the last action of the kind."""

    protocol: ProtocolAction | None = None
    metadata: Metadata | None = None
    commit_info: CommitInfo | None = None
    checkpoint_info: CheckpointInfo | None = None
    skips: tuple[SkipAction, ...] = ()
    transactions: tuple[TransactionAction, ...] = ()
    protocol_count: int = 0
    metadata_count: int = 0


class ScannedFile(msgspec.Struct, frozen=True):
    """The result of scanning a log file: the number of JSON objects and the small actions."""

    num_objects: int
    actions: SmallActions


def scan_lines(name: str, lines: bytes) -> ScannedFile:
    """Scan JSON lines for small actions.

    Raises LogCorruptedError, naming the line, if a line is not a JSON object or a small action is invalid.
    """
    try:
        objects = _SCANNER.decode_lines(lines)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise invalid_json(name, lines, error) from error
    found: dict[type, list[Any]] = {kind: [] for kind in _SMALL_KINDS}
    for line in filter(_NO_SMALL_ACTION.__ne__, objects):
        try:
            _collect(line, found)
        except ValueError as error:
            raise invalid_action(name, lines, objects.index(line), error) from error
    return ScannedFile(
        num_objects=len(objects),
        actions=SmallActions(
            protocol=_last(found[ProtocolAction]),
            metadata=_last(found[Metadata]),
            commit_info=_last(found[CommitInfo]),
            checkpoint_info=_last(found[CheckpointInfo]),
            skips=tuple(found[SkipAction]),
            transactions=tuple(found[TransactionAction]),
            protocol_count=len(found[ProtocolAction]),
            metadata_count=len(found[Metadata]),
        ),
    )


def _collect(line: msgspec.Struct, found: dict[type, list[Any]]) -> None:
    for kind in _SMALL_KINDS:
        raw = getattr(line, ACTION_NAMES[kind])
        value = msgspec.json.decode(raw) if raw != _ABSENT else None
        if value is None:
            continue
        try:
            found[kind].append(parse_action(value, kind))
        except msgspec.ValidationError:
            # Other writers have their own commitInfo, which has nothing that readers need.
            if kind is not CommitInfo:
                raise


def _last(actions: list[T]) -> T | None:
    return actions[-1] if actions else None


# Decodes only the small actions of a line. `gc=False`: there is one object per line of a checkpoint, and none of them
# can be part of a reference cycle.
_ABSENT = msgspec.Raw()
_Line = msgspec.defstruct(
    "_Line", [(ACTION_NAMES[kind], msgspec.Raw, _ABSENT) for kind in _SMALL_KINDS], gc=False, frozen=True
)
_NO_SMALL_ACTION = _Line()
_SCANNER = msgspec.json.Decoder(_Line)


# Errors that locate the damage in a log file. Lines are searched only after decoding has failed.


def invalid_json(name: str, lines: bytes, error: Exception) -> LogCorruptedError:
    """The error for a file that is not a sequence of JSON objects. It names the first bad line."""
    for number, line in enumerate(lines.split(b"\n"), start=1):
        try:
            _OBJECT_COUNTER.decode_lines(line)
        except (msgspec.MsgspecError, RecursionError) as line_error:
            return _corrupted(name, f"line {number}", line_error)
    return _corrupted(name, "the file", error)


def invalid_utf8(name: str, lines: bytes, error: UnicodeDecodeError) -> LogCorruptedError:
    """The error for a file that is not valid UTF-8."""
    number = lines.count(b"\n", 0, error.start) + 1
    return _corrupted(name, f"line {number}", error)


def invalid_action(name: str, lines: bytes, position: int, error: Exception) -> LogCorruptedError:
    """The error for the JSON object at `position`, which is not a valid action."""
    return _corrupted(name, _locate(lines, position), error)


def _locate(lines: bytes, position: int) -> str:
    """The line of an object, or only its number if objects span several lines."""
    seen = 0
    for number, line in enumerate(lines.split(b"\n"), start=1):
        try:
            seen += len(_OBJECT_COUNTER.decode_lines(line))
        except msgspec.MsgspecError:
            break
        if seen > position:
            return f"line {number}"
    return f"action {position + 1}"


def _corrupted(name: str, place: str, error: Exception) -> LogCorruptedError:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return LogCorruptedError(f"{name}: {place} is not a valid action ({reason})")


class _AnyObject(msgspec.Struct):
    """A JSON object with any fields."""


_OBJECT_COUNTER = msgspec.json.Decoder(_AnyObject)
