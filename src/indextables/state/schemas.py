"""The schemas of the state's Avro files, as data with field ids.

Fields are found by their names. The ids are kept for evolution: an id is never given to another field.
Ids below 160 are the specification's; those from 160 on are ours.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

NAMESPACE = "io.indextables.state"

FieldJson = Mapping[str, Any]

_OPTIONAL_TEXT = ["null", "string"]
_TEXT_MAP = {"type": "map", "values": "string"}
_LONG_MAP = {"type": "map", "values": "long"}
_TEXT_LIST = {"type": "array", "items": "string"}


def _required(name: str, avro_type: Any, field_id: int, doc: str) -> FieldJson:
    return {"name": name, "type": avro_type, "field-id": field_id, "doc": doc}


def _optional(name: str, avro_type: Any, field_id: int, doc: str) -> FieldJson:
    return {"name": name, "type": ["null", avro_type], "default": None, "field-id": field_id, "doc": doc}


# In every manifest, in this order.
FILE_ENTRY_FIELDS: tuple[FieldJson, ...] = (
    _required("path", "string", 100, "Path of the split, relative to the table's root"),
    _required("partitionValues", _TEXT_MAP, 101, "Partition values by column; null is an absent key"),
    _required("size", "long", 102, "File size in bytes"),
    _required("modificationTime", "long", 103, "File modification time (epoch milliseconds)"),
    _required("dataChange", "boolean", 104, "Whether the file represents a change of data"),
    _optional("stats", "string", 110, "JSON-encoded statistics"),
    _optional("minValues", _TEXT_MAP, 111, "Lower bounds per column, for data skipping"),
    _optional("maxValues", _TEXT_MAP, 112, "Upper bounds per column, for data skipping"),
    _optional("numRecords", "long", 113, "Number of records in the file"),
    _optional("footerStartOffset", "long", 120, "Byte offset where the footer begins"),
    _optional("footerEndOffset", "long", 121, "Byte offset where the footer ends"),
    {
        "name": "hasFooterOffsets",
        "type": "boolean",
        "default": False,
        "field-id": 124,
        "doc": "Whether footer offsets are populated",
    },
    _optional("splitTags", _TEXT_LIST, 132, "Tags of the split"),
    _optional("numMergeOps", "int", 134, "Number of merges that the split has been through"),
    _optional("docMappingRef", "string", 135, "Key of the doc mapping in the schema registry"),
    _optional("uncompressedSizeBytes", "long", 136, "Uncompressed size of the split's data"),
    _required("addedAtVersion", "long", 140, "Transaction version that added the file"),
    _required("addedAtTimestamp", "long", 141, "When the file was added (epoch milliseconds)"),
)

# In a manifest only if one of its entries has a value.
OPTIONAL_FILE_ENTRY_FIELDS: tuple[FieldJson, ...] = (
    _optional("deleteOpstamp", "long", 123, "Operation stamp of the last delete in the split"),
    _optional("docMappingJson", "string", 133, "Doc mapping, inline"),
    _optional("timeRangeStart", "string", 137, "Start of the split's time range"),
    _optional("timeRangeEnd", "string", 138, "End of the split's time range"),
    _optional("companionSourceFiles", _TEXT_LIST, 150, "Parquet files that a companion split indexes"),
    _optional("companionDeltaVersion", "long", 151, "Delta version that a companion split was built from"),
    _optional("companionFastFieldMode", "string", 152, "Fast field mode: DISABLED, HYBRID or PARQUET_ONLY"),
    _optional("tags", _TEXT_MAP, 160, "Tags of the add action"),
    _optional("hotcacheStartOffset", "long", 161, "Byte offset where the hot cache begins"),
    _optional("hotcacheLength", "long", 162, "Length of the hot cache in bytes"),
    _optional("unknownFields", "string", 163, "Fields of the add action without a column, as a JSON object"),
)


def file_entry_schema(optional_names: Collection[str], foreign_fields: Sequence[FieldJson]) -> bytes:
    """The schema of a manifest that holds these optional fields, and fields that others have defined."""
    optional = [item for item in OPTIONAL_FILE_ENTRY_FIELDS if item["name"] in optional_names]
    return orjson.dumps(
        {
            "type": "record",
            "name": "FileEntry",
            "namespace": NAMESPACE,
            "doc": "A file entry representing a split in the table state",
            "fields": [*FILE_ENTRY_FIELDS, *optional, *foreign_fields],
        }
    )


_PARTITION_BOUNDS_ITEM = {
    "type": "record",
    "name": "PartitionBoundsItem",
    "fields": [
        {"name": "min", "type": ["null", "string"], "default": None},
        {"name": "max", "type": ["null", "string"], "default": None},
    ],
}

_MANIFEST_INFO_ITEM = {
    "type": "record",
    "name": "ManifestInfoItem",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "numEntries", "type": "long"},
        {"name": "minAddedAtVersion", "type": "long"},
        {"name": "maxAddedAtVersion", "type": "long"},
        {
            "name": "partitionBounds",
            "type": ["null", {"type": "map", "values": _PARTITION_BOUNDS_ITEM}],
            "default": None,
        },
        {"name": "tombstoneCount", "type": "long", "default": 0},
        {"name": "liveEntryCount", "type": "long", "default": -1},
        # Ours: other readers skip them.
        {"name": "hasTypedBounds", "type": "boolean", "default": False},
        {"name": "firstPath", "type": _OPTIONAL_TEXT, "default": None},
        {"name": "lastPath", "type": _OPTIONAL_TEXT, "default": None},
    ],
}

# The fields after `metadata` are ours: everything else that must survive the version files it came from.
STATE_MANIFEST_SCHEMA: Mapping[str, Any] = {
    "type": "record",
    "name": "StateManifest",
    "namespace": NAMESPACE,
    "doc": "The complete state of a table at one version",
    "fields": [
        {"name": "formatVersion", "type": "int", "doc": "Version of the state format"},
        {"name": "stateVersion", "type": "long", "doc": "Transaction version that the state represents"},
        {"name": "createdAt", "type": "long", "doc": "When the state was written (epoch milliseconds)"},
        {"name": "numFiles", "type": "long", "doc": "Number of live files, after tombstones"},
        {"name": "totalBytes", "type": "long", "doc": "Size of all live files in bytes"},
        {"name": "manifests", "type": {"type": "array", "items": _MANIFEST_INFO_ITEM}},
        {"name": "tombstones", "type": _TEXT_LIST, "default": [], "doc": "Paths that were removed"},
        {"name": "schemaRegistry", "type": _TEXT_MAP, "default": {}, "doc": "Doc mappings by hash"},
        {"name": "protocolVersion", "type": "int", "default": 4, "doc": "4 for the Avro state"},
        {"name": "metadata", "type": _OPTIONAL_TEXT, "default": None, "doc": "metaData action, as JSON"},
        {"name": "protocol", "type": _OPTIONAL_TEXT, "default": None, "doc": "protocol action, as JSON"},
        {"name": "skips", "type": _TEXT_LIST, "default": [], "doc": "Open mergeskip actions, as JSON"},
        {"name": "transactions", "type": _LONG_MAP, "default": {}, "doc": "Last batch by streaming writer"},
        {"name": "unknownActions", "type": _TEXT_LIST, "default": [], "doc": "Other actions, as JSON"},
        {"name": "timestamp", "type": "long", "default": -1, "doc": "Commit time (epoch milliseconds)"},
        {"name": "recentCommits", "type": _TEXT_MAP, "default": {}, "doc": "Commit ids by version"},
    ],
}
