"""How a state manifest names its manifests, and which key each name stands for.

Three forms occur: `manifests/manifest-<id>.avro` (shared by states, the one that we write), the same below
`state-v<version>/`, and the bare file name, relative to the directory of the state itself.
"""

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
import orjson
import pyarrow as pa
from msgspec.structs import replace

from indextables.errors import ManifestCorruptedError, UnsafePathError, UnsupportedProtocolError
from indextables.log.actions import (
    ACTION_NAMES,
    Metadata,
    Protocol,
    SkipAction,
    encode_actions,
    parse_action,
)
from indextables.log.paths import (
    LOG_PREFIX,
    SHARED_MANIFEST_PATH,
    ManifestFile,
    StateManifestFile,
    parse_log_path,
    state_dir,
)
from indextables.log.replay import LogHeader, registry_of
from indextables.log.segment import Base
from indextables.pruning import Bounds
from indextables.state.avro.container import (
    DEFAULT_CODEC,
    Codec,
    Container,
    encode_block,
    encode_header,
    parse_container,
)
from indextables.state.avro.decode import encode_row, read_rows
from indextables.state.avro.types import AvroFormatError
from indextables.state.schemas import STATE_MANIFEST_SCHEMA
from indextables.storage import ObjectStore
from indextables.storage.keys import validate_key

# Names are random, and nothing else keeps two writers apart: 128 bits never meet.
_ID_BYTES = 16


def new_manifest_path() -> str:
    """A path for a manifest to be written, as a state manifest refers to it."""
    name = f"manifest-{secrets.token_hex(_ID_BYTES)}.avro"
    return f"{SHARED_MANIFEST_PATH}{name}"


def manifest_key(path: str, state_version: int) -> str:
    """The key, below the table's root, of a manifest that the state at `state_version` names.

    Raises ManifestCorruptedError for a path of any other form: nothing outside the log's own folders is ever
    read or deleted on the word of a state manifest.
    """
    relative = path if "/" in path else f"{state_dir(state_version)}/{path}"
    key = f"{LOG_PREFIX}{relative}"
    try:
        validate_key(key)
    except UnsafePathError as error:
        raise _refused(path, state_version) from error
    if not isinstance(parse_log_path(key), ManifestFile):
        raise _refused(path, state_version)
    return key


def normalized_manifest_path(path: str, state_version: int) -> str:
    """The same manifest, named so that states of other versions can refer to it. Raises as `manifest_key`."""
    return manifest_key(path, state_version).removeprefix(LOG_PREFIX)


def _refused(path: str, state_version: int) -> ManifestCorruptedError:
    return ManifestCorruptedError(
        f"the state of version {state_version} refers to {path[:200]!r}, which is no manifest of this log"
    )


# The state manifest: which manifests make up a table at one version, and everything else a reader needs.


FORMAT_VERSION = 1
PROTOCOL_VERSION = 4

UNKNOWN_COUNT = -1
UNKNOWN_TIME = -1


def no_tombstones() -> pa.StringArray:
    """The tombstones of a state in which every entry is live."""
    return pa.array([], pa.string())


class ManifestInfo(msgspec.Struct, frozen=True):
    """What a state knows about one of its manifests without opening it.

    `path` is as written: see `manifest_path` for its three forms. `partition_bounds` is None if nobody
    computed them, and such a manifest is never pruned. `has_typed_bounds` says that they were compared by the
    columns' types; other writers compare texts. It is the mark of our own writer, with bounds or without.
    `live_entry_count` may be UNKNOWN_COUNT. `first_path` and `last_path`, in the order of their characters, are None if
    nobody looked.
    """

    path: str
    num_entries: int
    min_added_at_version: int
    max_added_at_version: int
    partition_bounds: Mapping[str, Bounds] | None = None
    tombstone_count: int = 0
    live_entry_count: int = UNKNOWN_COUNT
    has_typed_bounds: bool = False
    first_path: str | None = None
    last_path: str | None = None


class StateManifest(msgspec.Struct, frozen=True):
    """The state of a table at `state_version`.

    `num_files` and `total_bytes` count live files: entries of the manifests whose path is not in
    `tombstones`, an Arrow array because there may be many. `metadata` and the fields after it (which other
    writers do not have) are None or empty if unknown. `timestamp_ms` is the commit time of `state_version`,
    or UNKNOWN_TIME.
    """

    state_version: int
    created_at_ms: int
    num_files: int
    total_bytes: int
    manifests: tuple[ManifestInfo, ...]
    tombstones: pa.StringArray = msgspec.field(default_factory=no_tombstones)
    schema_registry: Mapping[str, str] = msgspec.field(default_factory=dict)
    protocol_version: int = PROTOCOL_VERSION
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    skips: tuple[SkipAction, ...] = ()
    transactions: Mapping[str, int] = msgspec.field(default_factory=dict)
    unknown_actions: tuple[str, ...] = ()
    timestamp_ms: int = UNKNOWN_TIME
    recent_commits: Mapping[int, str] = msgspec.field(default_factory=dict)
    format_version: int = FORMAT_VERSION


# State manifests ↔ bytes: `_manifest.avro`, written and read, and `_manifest.json`, which is only read.
#
# Fields that we do not know are ignored; those that are missing take their default.


A = TypeVar("A", Metadata, Protocol, SkipAction)

_MAX_LONG = 2**63 - 1
_Long = Annotated[int, msgspec.Meta(ge=-_MAX_LONG - 1, le=_MAX_LONG)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_LONG)]
_JsonAction = str | dict[str, Any]

_SCHEMA = orjson.dumps(STATE_MANIFEST_SCHEMA)


class _BoundsItem(msgspec.Struct):
    min: str | None = None
    max: str | None = None


class _ManifestItem(msgspec.Struct, rename="camel"):
    path: str
    num_entries: _Count
    min_added_at_version: _Long
    max_added_at_version: _Long
    partition_bounds: dict[str, _BoundsItem] | None = None
    tombstone_count: _Long = 0
    live_entry_count: _Long = UNKNOWN_COUNT
    has_typed_bounds: bool = False
    first_path: str | None = None
    last_path: str | None = None


class _OnDisk(msgspec.Struct, rename="camel"):
    """The fields of both formats, by their names there. JSON writers may put null for an empty collection."""

    format_version: Annotated[int, msgspec.Meta(ge=1)]
    state_version: _Count
    created_at: _Long
    num_files: _Count
    total_bytes: _Count
    manifests: list[_ManifestItem]
    tombstones: list[str] | None = None
    schema_registry: dict[str, str] | None = None
    protocol_version: int = PROTOCOL_VERSION
    metadata: _JsonAction | None = None
    protocol: _JsonAction | None = None
    skips: list[_JsonAction] | None = None
    transactions: dict[str, _Long] | None = None
    unknown_actions: list[str] | None = None
    timestamp: _Long = UNKNOWN_TIME
    recent_commits: dict[int, str] | None = None


def encode_state_manifest(manifest: StateManifest, codec: Codec = DEFAULT_CODEC) -> bytes:
    """The content of `_manifest.avro`. The same manifest and codec yield the same bytes."""
    header, sync = encode_header(_SCHEMA, codec, num_records=1)
    row = encode_row(STATE_MANIFEST_SCHEMA, _record(manifest))
    return header + encode_block(1, codec.compress(row), sync)


def decode_state_manifest(data: bytes, name: str) -> StateManifest:
    """A state manifest from `_manifest.avro`. `name` is the file's, for messages.

    Raises ManifestCorruptedError if it is damaged, and UnsupportedProtocolError if its format is newer than
    this release.
    """
    try:
        row = _only_row(parse_container(data))
        return _state_manifest(msgspec.convert(row, _OnDisk, strict=False), name)
    except (AvroFormatError, msgspec.ValidationError, orjson.JSONDecodeError) as error:
        raise ManifestCorruptedError(f"{name} cannot be read: {error}") from error


def decode_json_state_manifest(data: bytes, name: str) -> StateManifest:
    """A state manifest from `_manifest.json`, with the errors of `decode_state_manifest`."""
    try:
        # This parser, unlike the typed one, bounds how deep the text may be nested.
        return _state_manifest(msgspec.convert(orjson.loads(data), _OnDisk, strict=False), name)
    except (msgspec.ValidationError, orjson.JSONDecodeError) as error:
        raise ManifestCorruptedError(f"{name} cannot be read: {error}") from error


def _only_row(container: Container) -> dict[str, Any]:
    if container.num_records != 1:
        raise AvroFormatError(f"it has {container.num_records} records, and should have one")
    (row,) = read_rows(container)
    return row


def _record(manifest: StateManifest) -> dict[str, Any]:
    return {
        "formatVersion": manifest.format_version,
        "stateVersion": manifest.state_version,
        "createdAt": manifest.created_at_ms,
        "numFiles": manifest.num_files,
        "totalBytes": manifest.total_bytes,
        "manifests": [_manifest_record(info) for info in manifest.manifests],
        "tombstones": manifest.tombstones.to_pylist(),
        "schemaRegistry": dict(manifest.schema_registry),
        "protocolVersion": manifest.protocol_version,
        "metadata": None if manifest.metadata is None else _action_json(manifest.metadata),
        "protocol": None if manifest.protocol is None else _action_json(manifest.protocol),
        "skips": [_action_json(skip) for skip in manifest.skips],
        "transactions": dict(manifest.transactions),
        "unknownActions": list(manifest.unknown_actions),
        "timestamp": manifest.timestamp_ms,
        "recentCommits": {str(version): commit for version, commit in manifest.recent_commits.items()},
    }


def _manifest_record(info: ManifestInfo) -> dict[str, Any]:
    return {
        "path": info.path,
        "numEntries": info.num_entries,
        "minAddedAtVersion": info.min_added_at_version,
        "maxAddedAtVersion": info.max_added_at_version,
        "partitionBounds": _bounds_record(info.partition_bounds),
        "tombstoneCount": info.tombstone_count,
        "liveEntryCount": info.live_entry_count,
        "hasTypedBounds": info.has_typed_bounds,
        "firstPath": info.first_path,
        "lastPath": info.last_path,
    }


def _bounds_record(bounds: Mapping[str, Bounds] | None) -> dict[str, Any] | None:
    if bounds is None:
        return None
    return {column: {"min": bound.min, "max": bound.max} for column, bound in bounds.items()}


def _action_json(action: Metadata | Protocol | SkipAction) -> str:
    return encode_actions([action]).decode().strip()


def _state_manifest(found: _OnDisk, name: str) -> StateManifest:
    if found.format_version > FORMAT_VERSION:
        raise UnsupportedProtocolError(
            f"{name} has the state format {found.format_version}; this release reads up to {FORMAT_VERSION}, "
            f"so upgrade indextables"
        )
    return _with_counts_that_add_up(
        StateManifest(
            format_version=found.format_version,
            state_version=found.state_version,
            created_at_ms=found.created_at,
            num_files=found.num_files,
            total_bytes=found.total_bytes,
            manifests=tuple(_manifest_info(item) for item in found.manifests),
            tombstones=pa.array(found.tombstones or [], pa.string()),
            schema_registry=found.schema_registry or {},
            protocol_version=found.protocol_version,
            metadata=None if found.metadata is None else _action(found.metadata, Metadata),
            protocol=None if found.protocol is None else _action(found.protocol, Protocol),
            skips=tuple(_action(skip, SkipAction) for skip in found.skips or ()),
            transactions=found.transactions or {},
            unknown_actions=tuple(found.unknown_actions or ()),
            timestamp_ms=found.timestamp,
            recent_commits=found.recent_commits or {},
        )
    )


def _with_counts_that_add_up(state: StateManifest) -> StateManifest:
    """The state, without the counts of its manifests if they are wrong.

    Other writers add tombstones, and leave the counts as they were in the state that they go on from.
    """
    manifests = state.manifests
    live = [info.live_entry_count for info in manifests]
    dead = sum(info.tombstone_count for info in manifests)
    if UNKNOWN_COUNT not in live and sum(live) == state.num_files and dead >= len(state.tombstones):
        return state
    uncounted = (replace(info, tombstone_count=0, live_entry_count=UNKNOWN_COUNT) for info in manifests)
    return replace(state, manifests=tuple(uncounted))


def _manifest_info(item: _ManifestItem) -> ManifestInfo:
    bounds = item.partition_bounds
    return ManifestInfo(
        path=item.path,
        num_entries=item.num_entries,
        min_added_at_version=item.min_added_at_version,
        max_added_at_version=item.max_added_at_version,
        partition_bounds=bounds
        if bounds is None
        else {column: Bounds(bound.min, bound.max) for column, bound in bounds.items()},
        tombstone_count=item.tombstone_count,
        live_entry_count=item.live_entry_count,
        has_typed_bounds=item.has_typed_bounds,
        first_path=item.first_path,
        last_path=item.last_path,
    )


def _action(found: _JsonAction, kind: type[A]) -> A:
    """An action as the log has it, `{"metaData": {…}}`, or bare; as an object, or as JSON text."""
    value = orjson.loads(found) if isinstance(found, str) else found
    name = ACTION_NAMES[kind]
    return parse_action(value[name] if isinstance(value, dict) and name in value else value, kind)


# The file that makes a state directory a state.


def read_state_manifest(store: ObjectStore, base: Base) -> StateManifest:
    """A state manifest, in either format. Raises ManifestCorruptedError if it is damaged or mislabelled."""
    name = f"{store.url}/{base.meta.key}"
    path = parse_log_path(base.meta.key)
    data = store.get(base.meta.key)
    is_avro = isinstance(path, StateManifestFile) and path.is_avro
    manifest = decode_state_manifest(data, name) if is_avro else decode_json_state_manifest(data, name)
    if manifest.state_version != base.version:
        raise ManifestCorruptedError(f"{name}: holds the state of version {manifest.state_version}")
    return manifest


# Between the header of the log and the state manifest that carries it.


def header_of(manifest: StateManifest) -> LogHeader:
    """What a state says about the table apart from its files.

    States of other writers say neither the protocol nor, often, the metadata: those are None then.
    """
    return LogHeader(
        version=manifest.state_version,
        timestamp_ms=manifest.created_at_ms
        if manifest.timestamp_ms == UNKNOWN_TIME
        else manifest.timestamp_ms,
        protocol=manifest.protocol,
        metadata=manifest.metadata,
        schema_registry={**manifest.schema_registry, **registry_of(manifest.metadata)},
        skips={skip.path: skip for skip in manifest.skips},
        transactions=manifest.transactions,
        recent_commits=manifest.recent_commits,
        unknown_actions=manifest.unknown_actions,
    )
