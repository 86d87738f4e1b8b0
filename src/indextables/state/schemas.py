"""The Avro schemas of manifests and of state manifests, and the field table of the latter.

The fields of a manifest's entries come from `log.fields`. Readers find fields by name; the ids serve schema evolution.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import orjson
import pyarrow as pa

from indextables.log.actions import Int64
from indextables.log.fields import (
    DELETION_VECTOR,
    FILE_ENTRY_FIELDS,
    REQUIRED,
    STRING_LIST,
    STRING_MAP,
    EntryField,
)

NAMESPACE = "io.indextables.state"

# The version of the format, and the table protocol that a client needs to read it.
FORMAT_VERSION = 1
STATE_PROTOCOL_VERSION = 4

UNKNOWN_COUNT = -1
UNKNOWN_TIME = -1

AvroFieldJson = Mapping[str, Any]

_TEXT_MAP = {"type": "map", "values": "string"}
_LONG_MAP = {"type": "map", "values": "long"}
_TEXT_LIST = {"type": "array", "items": "string"}
_OPTIONAL_TEXT = ["null", "string"]
_VECTOR_RECORD = {
    "type": "record",
    "name": "DeletionVector",
    "fields": [
        {"name": "storageType", "type": _OPTIONAL_TEXT, "default": None},
        {"name": "pathOrInlineDv", "type": _OPTIONAL_TEXT, "default": None},
        {"name": "offset", "type": ["null", "int"], "default": None},
        {"name": "sizeInBytes", "type": ["null", "int"], "default": None},
        {"name": "cardinality", "type": ["null", "long"], "default": None},
    ],
}


# Manifests: file entries

_AVRO_TYPES: Mapping[pa.DataType, Any] = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.int32(): "int",
    pa.bool_(): "boolean",
    STRING_MAP: _TEXT_MAP,
    STRING_LIST: _TEXT_LIST,
    DELETION_VECTOR: _VECTOR_RECORD,
}


def file_entry_schema(rare_names: Collection[str], foreign_fields: Sequence[AvroFieldJson]) -> bytes:
    """The schema of a manifest with these fields beyond those of every manifest.

    `foreign_fields` are fields that other writers have defined.
    """
    rare = [field for field in _RARE_FIELDS if field.name in rare_names]
    return orjson.dumps(
        {
            "type": "record",
            "name": "FileEntry",
            "namespace": NAMESPACE,
            "doc": "A file entry representing a split in the table state",
            "fields": [*map(_entry_field_json, (*_COMMON_FIELDS, *rare)), *foreign_fields],
        }
    )


def _entry_field_json(field: EntryField) -> AvroFieldJson:
    avro_type = _AVRO_TYPES[field.type]
    described: dict[str, Any] = {"name": field.name, "type": avro_type}
    if field.default is None:
        described["type"] = ["null", avro_type]
    if field.default is not REQUIRED:
        described["default"] = field.default
    return {**described, "field-id": field.field_id, "doc": field.doc}


def _in_order_of_ids(fields: Sequence[EntryField]) -> tuple[EntryField, ...]:
    return tuple(sorted(fields, key=lambda field: field.field_id))


_COMMON_FIELDS = _in_order_of_ids([field for field in FILE_ENTRY_FIELDS if field.is_in_every_manifest])
_RARE_FIELDS = _in_order_of_ids([field for field in FILE_ENTRY_FIELDS if not field.is_in_every_manifest])


# State manifests


class StateField(msgspec.Struct, frozen=True):
    """A field of a state manifest, or of a state manifest's record of one manifest.

    `attribute` is its name in Python, `name` its name in Avro and in JSON. A field with a default may be missing.
    `parsed_type` is what a reader accepts; None if that is the type of the attribute itself.
    """

    attribute: str
    name: str
    avro_type: Any
    default: Any = REQUIRED
    doc: str | None = None
    parsed_type: Any = None

    @property
    def default_if_any(self) -> tuple[Any, ...]:
        return () if self.default is REQUIRED else (self.default,)

    @property
    def avro_json(self) -> AvroFieldJson:
        described: dict[str, Any] = {"name": self.name, "type": self.avro_type}
        if self.default is not REQUIRED:
            described["default"] = self.default
        if self.doc is not None:
            described["doc"] = self.doc
        return described


Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
FormatVersion = Annotated[int, msgspec.Meta(ge=1)]

# An action as an object, or as JSON text.
JsonAction = str | dict[str, Any]


def _optional_bounds(record_name: str) -> Any:
    fields = [{"name": end, "type": _OPTIONAL_TEXT, "default": None} for end in ("min", "max")]
    return ["null", {"type": "map", "values": {"type": "record", "name": record_name, "fields": fields}}]


MANIFEST_INFO_FIELDS: tuple[StateField, ...] = (
    StateField("path", "path", "string"),
    StateField("num_entries", "numEntries", "long"),
    StateField("min_added_at_version", "minAddedAtVersion", "long"),
    StateField("max_added_at_version", "maxAddedAtVersion", "long"),
    StateField("partition_bounds", "partitionBounds", _optional_bounds("PartitionBoundsItem"), None),
    StateField("tombstone_count", "tombstoneCount", "long", 0),
    StateField("live_entry_count", "liveEntryCount", "long", UNKNOWN_COUNT),
    # Ours: other readers skip them.
    StateField("has_typed_bounds", "hasTypedBounds", "boolean", False),
    StateField("typed_bounds", "typedBounds", _optional_bounds("TypedBoundsItem"), None),
    StateField("first_path", "firstPath", _OPTIONAL_TEXT, None),
    StateField("last_path", "lastPath", _OPTIONAL_TEXT, None),
    StateField("size_bytes", "sizeBytes", "long", UNKNOWN_COUNT),
)

_MANIFEST_INFO_RECORD = {
    "type": "record",
    "name": "ManifestInfoItem",
    "fields": [field.avro_json for field in MANIFEST_INFO_FIELDS],
}
_MANIFEST_INFOS = {"type": "array", "items": _MANIFEST_INFO_RECORD}

# JSON writers may write null for an empty collection.
_Texts, _TextsByKey, _LongsByKey = list[str] | None, dict[str, str] | None, dict[str, Int64] | None
_TextsByVersion = dict[int, str] | None
_Actions = list[JsonAction] | None

STATE_MANIFEST_FIELDS: tuple[StateField, ...] = (
    StateField("format_version", "formatVersion", "int", REQUIRED, "Version of the state format"),
    StateField(
        "state_version", "stateVersion", "long", REQUIRED, "Transaction version that the state represents"
    ),
    StateField(
        "created_at_ms", "createdAt", "long", REQUIRED, "When the state was written (epoch milliseconds)"
    ),
    StateField("num_files", "numFiles", "long", REQUIRED, "Number of live files, after tombstones"),
    StateField("total_bytes", "totalBytes", "long", REQUIRED, "Size of all live files in bytes"),
    StateField("manifests", "manifests", _MANIFEST_INFOS),
    StateField("tombstones", "tombstones", _TEXT_LIST, [], "Paths that were removed", _Texts),
    StateField("doc_mappings", "schemaRegistry", _TEXT_MAP, {}, "Doc mappings by hash", _TextsByKey),
    StateField(
        "protocol_version", "protocolVersion", "int", STATE_PROTOCOL_VERSION, "Version to read the table"
    ),
    StateField("metadata", "metadata", _OPTIONAL_TEXT, None, "metaData action, as JSON", JsonAction | None),
    # Ours: everything else that must survive the version files it came from.
    StateField("protocol", "protocol", _OPTIONAL_TEXT, None, "protocol action, as JSON", JsonAction | None),
    StateField("skips", "skips", _TEXT_LIST, [], "Open mergeskip actions, as JSON", _Actions),
    StateField("transactions", "transactions", _LONG_MAP, {}, "Last batch by streaming writer", _LongsByKey),
    StateField("unknown_actions", "unknownActions", _TEXT_LIST, [], "Other actions, as JSON", _Texts),
    StateField("timestamp_ms", "timestamp", "long", UNKNOWN_TIME, "Commit time (epoch milliseconds)"),
    StateField("recent_commits", "recentCommits", _TEXT_MAP, {}, "Commit ids by version", _TextsByVersion),
    StateField(
        "has_unlogged_protocol",
        "protocolNotInLog",
        "boolean",
        False,
        "The next transaction carries the protocol",
    ),
)

STATE_MANIFEST_SCHEMA: Mapping[str, Any] = {
    "type": "record",
    "name": "StateManifest",
    "namespace": NAMESPACE,
    "doc": "The complete state of a table at one version",
    "fields": [field.avro_json for field in STATE_MANIFEST_FIELDS],
}
