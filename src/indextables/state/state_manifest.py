"""The state manifest: which manifests make up a table at one version, and everything else that a reader needs.

It is `_manifest.avro`, which is written and read, or `_manifest.json`, which is only read. `state.schemas` lists the
fields. Missing fields take their defaults; unknown fields of an Avro state manifest go into the next state
(`state.foreign_fields`).
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import orjson
import pyarrow as pa
from msgspec.structs import replace

from indextables._structs import decodable
from indextables.errors import ManifestCorruptedError, UnsafePathError, UnsupportedProtocolError
from indextables.log.actions import (
    ACTION_NAMES,
    READER_VERSION,
    Int64,
    Metadata,
    ProtocolAction,
    SkipAction,
    encode_actions,
    parse_action,
)
from indextables.log.file_keys import has_absolute, keys_or_paths
from indextables.log.paths import (
    LOG_PREFIX,
    SHARED_MANIFEST_PATH,
    ManifestFile,
    StateManifestFile,
    parse_log_path,
    state_dir,
)
from indextables.log.replay import LogHeader, registered_doc_mappings
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
from indextables.state.avro.decode import read_rows
from indextables.state.avro.encode import encode_row
from indextables.state.avro.types import AvroFormatError
from indextables.state.foreign_fields import (
    NO_FOREIGN_FIELDS,
    ForeignFields,
    find_foreign_fields,
    schema_with,
    usable_for,
)
from indextables.state.schemas import (
    FORMAT_VERSION,
    MANIFEST_INFO_FIELDS,
    STATE_MANIFEST_FIELDS,
    STATE_MANIFEST_SCHEMA,
    STATE_PROTOCOL_VERSION,
    UNKNOWN_COUNT,
    UNKNOWN_TIME,
    Count,
    FormatVersion,
    JsonAction,
    StateField,
)
from indextables.storage import ObjectStore
from indextables.storage.urls import validate_key

A = TypeVar("A", Metadata, ProtocolAction, SkipAction)

# Manifest names are random, and nothing else keeps two writers apart: 128 bits do not collide.
_ID_BYTES = 16

_SCHEMA = orjson.dumps(STATE_MANIFEST_SCHEMA)


def no_tombstones() -> pa.StringArray:
    return pa.array([], pa.string())


def _names_on_disk(fields: Sequence[StateField]) -> dict[str, str]:
    return {field.attribute: field.name for field in fields}


class ManifestInfo(msgspec.Struct, frozen=True, rename=_names_on_disk(MANIFEST_INFO_FIELDS)):
    """What a state knows about one of its manifests without opening it.

    `path` is as written: see `manifest_key` for its three forms. `partition_bounds` is None if the writer did not
    compute them; such a manifest is never pruned. `has_typed_bounds` means that the writer compared values by the
    columns' types; other writers compare texts. Our own writer sets it even without bounds, and puts bounds that would
    mislead a reader that compares texts into `typed_bounds` instead. `live_entry_count` may be UNKNOWN_COUNT.
    `first_path` and `last_path`, in code point order, are None if the writer did not compute them.
    `size_bytes` is the size of the file, or UNKNOWN_COUNT.
    """

    path: str
    num_entries: Count
    min_added_at_version: Int64
    max_added_at_version: Int64
    partition_bounds: Mapping[str, Bounds] | None = None
    tombstone_count: Int64 = 0
    live_entry_count: Int64 = UNKNOWN_COUNT
    has_typed_bounds: bool = False
    typed_bounds: Mapping[str, Bounds] | None = None
    first_path: str | None = None
    last_path: str | None = None
    size_bytes: Int64 = UNKNOWN_COUNT

    @property
    def bounds(self) -> Mapping[str, Bounds]:
        """The bounds of all partition columns that have any."""
        return {**(self.partition_bounds or {}), **(self.typed_bounds or {})}


class StateManifest(msgspec.Struct, frozen=True):
    """The state of a table at `state_version`.

    `num_files` and `total_bytes` count live files: entries of the manifests whose path is not in `tombstones`, an Arrow
    array because there may be many. `doc_mappings` maps hashes to JSON. `metadata` and the fields after it (which other
    writers do not write) are None or empty if unknown. `timestamp_ms` is the commit time of `state_version`, or
    UNKNOWN_TIME. `has_unlogged_protocol` is explained at `LogHeader`. `foreign` are the fields that this release does
    not know.
    """

    state_version: Count
    created_at_ms: Int64
    num_files: Count
    total_bytes: Count
    manifests: tuple[ManifestInfo, ...]
    tombstones: pa.StringArray = msgspec.field(default_factory=no_tombstones)
    doc_mappings: Mapping[str, str] = msgspec.field(default_factory=dict)
    protocol_version: int = STATE_PROTOCOL_VERSION
    metadata: Metadata | None = None
    protocol: ProtocolAction | None = None
    skips: tuple[SkipAction, ...] = ()
    transactions: Mapping[str, int] = msgspec.field(default_factory=dict)
    unknown_actions: tuple[str, ...] = ()
    timestamp_ms: Int64 = UNKNOWN_TIME
    recent_commits: Mapping[int, str] = msgspec.field(default_factory=dict)
    has_unlogged_protocol: bool = False
    format_version: FormatVersion = FORMAT_VERSION
    foreign: ForeignFields = NO_FOREIGN_FIELDS


def read_state_manifest(store: ObjectStore, base: Base) -> StateManifest:
    """Read a state manifest in either format. Raises ManifestCorruptedError if it is damaged or of another version."""
    name = f"{store.url}/{base.meta.key}"
    path = parse_log_path(base.meta.key)
    data = store.get(base.meta.key)
    is_avro = isinstance(path, StateManifestFile) and path.is_avro
    manifest = decode_state_manifest(data, name) if is_avro else decode_json_state_manifest(data, name)
    if manifest.state_version != base.version:
        raise ManifestCorruptedError(
            f"{name}: holds the state of version {manifest.state_version}, not of {base.version}"
        )
    if has_absolute(manifest.tombstones):
        return replace(manifest, tombstones=keys_or_paths(manifest.tombstones, store.url))
    return manifest


def header_of(manifest: StateManifest) -> LogHeader:
    """The log header that a state carries.

    States of other writers have no protocol and often no metadata: these are None then.
    """
    is_timed = manifest.timestamp_ms != UNKNOWN_TIME
    return LogHeader(
        version=manifest.state_version,
        timestamp_ms=manifest.timestamp_ms if is_timed else manifest.created_at_ms,
        protocol=manifest.protocol,
        metadata=manifest.metadata,
        doc_mappings={**manifest.doc_mappings, **registered_doc_mappings(manifest.metadata)},
        skips={skip.path: skip for skip in manifest.skips},
        transactions=manifest.transactions,
        recent_commits=manifest.recent_commits,
        unknown_actions=manifest.unknown_actions,
        has_unlogged_protocol=manifest.has_unlogged_protocol,
    )


def encode_state_manifest(manifest: StateManifest, codec: Codec = DEFAULT_CODEC) -> bytes:
    """The content of `_manifest.avro`. The same manifest and codec yield the same bytes."""
    record = {
        field.name: _ENCODERS.get(field.attribute, _unchanged)(getattr(manifest, field.attribute))
        for field in STATE_MANIFEST_FIELDS
    }
    schema, schema_in_header = STATE_MANIFEST_SCHEMA, _SCHEMA
    if manifest.foreign.are_any:
        foreign = usable_for(manifest.foreign, [info.path for info in manifest.manifests])
        schema = schema_with(foreign, is_annotated=False)
        schema_in_header = orjson.dumps(schema_with(foreign, is_annotated=True))
        record |= foreign.values
        record["manifests"] = [
            {**info, **foreign.values_by_manifest[info["path"]]} for info in record["manifests"]
        ]
    header, sync = encode_header(schema_in_header, codec, num_records=1)
    row = encode_row(schema, record)
    return header + encode_block(1, codec.compress(row), sync)


def decode_state_manifest(data: bytes, name: str) -> StateManifest:
    """Decode `_manifest.avro`; `name` is the file's, for messages.

    Raises ManifestCorruptedError if it is damaged, and UnsupportedProtocolError if its format, or the protocol that it
    needs, is newer than this release.
    """
    try:
        container = parse_container(data)
        row = _only_row(container)
        return replace(_decoded(row, name), foreign=find_foreign_fields(container.schema, row))
    except (AvroFormatError, msgspec.ValidationError, orjson.JSONDecodeError) as error:
        raise ManifestCorruptedError(f"{name} cannot be read: {error}") from error


def decode_json_state_manifest(data: bytes, name: str) -> StateManifest:
    """Decode `_manifest.json`, with the errors of `decode_state_manifest`."""
    try:
        # Unlike msgspec's typed decoder, this parser limits how deep the text may be nested.
        return _decoded(orjson.loads(data), name)
    except (msgspec.ValidationError, orjson.JSONDecodeError) as error:
        raise ManifestCorruptedError(f"{name} cannot be read: {error}") from error


def new_manifest_path() -> str:
    """A unique path for a new manifest, as a state manifest refers to it."""
    name = f"manifest-{secrets.token_hex(_ID_BYTES)}.avro"
    return f"{SHARED_MANIFEST_PATH}{name}"


def manifest_key(path: str, state_version: int) -> str:
    """The key, below the table's root, of a manifest that the state at `state_version` names.

    Three forms of `path` occur: `manifests/manifest-<id>.avro` (shared by states; the one that we write), the same
    below `state-v<version>/`, and the bare file name, relative to the state's own directory. Raises
    ManifestCorruptedError for any other form, so that a state manifest never makes us read or delete a file outside
    the log's own folders.
    """
    relative = path if "/" in path else f"{state_dir(state_version)}/{path}"
    key = f"{LOG_PREFIX}{relative}"
    try:
        validate_key(key)
    except UnsafePathError as error:
        raise _invalid_path(path, state_version) from error
    if not isinstance(parse_log_path(key), ManifestFile):
        raise _invalid_path(path, state_version)
    return key


def normalized_manifest_path(path: str, state_version: int) -> str:
    """The form of a manifest's path that states of every version can refer to. Raises as `manifest_key`."""
    return manifest_key(path, state_version).removeprefix(LOG_PREFIX)


def _invalid_path(path: str, state_version: int) -> ManifestCorruptedError:
    return ManifestCorruptedError(
        f"the state of version {state_version} refers to {path[:200]!r}, which is not a manifest of this log"
    )


# Decoded and encoded form of each field. Fields that are not listed here are the same in both.


def _action_json(action: Metadata | ProtocolAction | SkipAction | None) -> str | None:
    return None if action is None else encode_actions([action]).decode().strip()


def _parse_json_action(found: JsonAction, kind: type[A]) -> A:
    """An action with its name, `{"metaData": {…}}`, or bare; as an object, or as JSON text."""
    value = orjson.loads(found) if isinstance(found, str) else found
    name = ACTION_NAMES[kind]
    return parse_action(value[name] if isinstance(value, dict) and name in value else value, kind)


_ENCODERS: Mapping[str, Callable[[Any], Any]] = {
    "manifests": msgspec.to_builtins,
    "tombstones": lambda paths: paths.to_pylist(),
    "doc_mappings": dict,
    "metadata": _action_json,
    "protocol": _action_json,
    "skips": lambda actions: [_action_json(action) for action in actions],
    "transactions": dict,
    "unknown_actions": list,
    "recent_commits": lambda commits: {str(version): commit_id for version, commit_id in commits.items()},
}
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "tombstones": lambda paths: pa.array(paths or [], pa.string()),
    "doc_mappings": lambda mappings: mappings or {},
    "metadata": lambda action: None if action is None else _parse_json_action(action, Metadata),
    "protocol": lambda action: None if action is None else _parse_json_action(action, ProtocolAction),
    "skips": lambda actions: tuple(_parse_json_action(action, SkipAction) for action in actions or ()),
    "transactions": lambda batches: batches or {},
    "unknown_actions": lambda actions: tuple(actions or ()),
    "recent_commits": lambda commits: commits or {},
}


# The fields before they are decoded, by their names on disk.
_ATTRIBUTE_TYPES = {field.name: field.type for field in msgspec.structs.fields(StateManifest)}
_Parsed = decodable(
    msgspec.defstruct(
        "_Parsed",
        [
            (field.attribute, field.parsed_type or _ATTRIBUTE_TYPES[field.attribute], *field.default_if_any)
            for field in STATE_MANIFEST_FIELDS
        ],
        rename=_names_on_disk(STATE_MANIFEST_FIELDS),
    )
)


def _only_row(container: Container) -> dict[str, Any]:
    if container.num_records != 1:
        raise AvroFormatError(f"it has {container.num_records} records, and should have one")
    (row,) = read_rows(container)
    return row


def _decoded(record: Any, name: str) -> StateManifest:
    parsed: Any = msgspec.convert(record, _Parsed, strict=False)
    if parsed.format_version > FORMAT_VERSION:
        raise UnsupportedProtocolError(
            f"{name} has the state format {parsed.format_version}; this release reads up to {FORMAT_VERSION}, "
            f"so upgrade indextables"
        )
    if parsed.protocol_version > READER_VERSION:
        raise UnsupportedProtocolError(
            f"{name} needs protocol version {parsed.protocol_version}; this release of indextables supports version "
            f"{READER_VERSION}; upgrade indextables"
        )
    values = {
        field.attribute: _DECODERS.get(field.attribute, _unchanged)(getattr(parsed, field.attribute))
        for field in STATE_MANIFEST_FIELDS
    }
    return _without_stale_counts(StateManifest(**values))


def _unchanged(value: Any) -> Any:
    return value


def _without_stale_counts(state: StateManifest) -> StateManifest:
    """The state, without the counts of its manifests if they do not add up.

    Other writers add tombstones and copy the counts of the previous state unchanged.
    """
    manifests = state.manifests
    live = [info.live_entry_count for info in manifests]
    dead = sum(info.tombstone_count for info in manifests)
    if UNKNOWN_COUNT not in live and sum(live) == state.num_files and dead >= len(state.tombstones):
        return state
    uncounted = (replace(info, tombstone_count=0, live_entry_count=UNKNOWN_COUNT) for info in manifests)
    return replace(state, manifests=tuple(uncounted))
