"""Actions, log files and checkpoints for tests, written as plain JSON, without our own encoders."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from indextables.log.decode import LogFile

SCHEMA_STRING = '{"type":"struct","fields":[]}'

FULL_ADD: Mapping[str, Any] = {
    "path": "date=2024-10-01/part-00000-ü😀.split",
    "partitionValues": {"date": "2024-10-01", "region": "eu"},
    "size": 1048576,
    "modificationTime": 1696000000000,
    "dataChange": True,
    "stats": '{"numRecords":1000,"minValues":{"id":1}}',
    "minValues": {"id": "1", "timestamp": "2024-10-01T00:00:00Z"},
    "maxValues": {"id": "1000", "timestamp": "2024-10-01T23:59:59Z"},
    "numRecords": 1000,
    "footerStartOffset": 1040000,
    "footerEndOffset": 1048576,
    "hasFooterOffsets": True,
    "splitTags": ["production", "batch-123"],
    "numMergeOps": 2,
    "docMappingRef": "z7TwwZ-tDWGD-uX5",
    "uncompressedSizeBytes": 2097152,
    "tags": {"source": "batch-job-123"},
    "hotcacheStartOffset": 7,
    "hotcacheLength": 8192,
    "timeRangeStart": "2024-10-01T00:00:00Z",
    "timeRangeEnd": "2024-10-01T23:59:59Z",
    "deleteOpstamp": 3,
    "docMappingJson": '{"fields":[{"name":"id","type":"i64"}]}',
    "companionSourceFiles": ["part-0.parquet"],
    "companionDeltaVersion": 12,
    "companionFastFieldMode": "HYBRID",
    "deletionVector": {
        "storageType": "p",
        "pathOrInlineDv": "deletion_vector_x.bin",
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 1,
    },
}

FULL_REMOVE: Mapping[str, Any] = {
    "path": "old-file.split",
    "deletionTimestamp": 1696000001000,
    "dataChange": True,
    "extendedFileMetadata": False,
    "partitionValues": {"year": "2024", "month": "09"},
    "size": 524288,
    "tags": {"reason": "overwrite"},
}

METADATA: Mapping[str, Any] = {
    "metaData": {
        "id": "a1b2c3d4",
        "format": {"provider": "indextables", "options": {}},
        "schemaString": SCHEMA_STRING,
        "partitionColumns": [],
        "configuration": {},
    }
}
PROTOCOL: Mapping[str, Any] = {"protocol": {"minReaderVersion": 4, "minWriterVersion": 4}}


def add(path: str, *, size: int = 1, **fields: Any) -> dict[str, Any]:
    """An add action with the required fields."""
    required = {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": 1,
        "dataChange": True,
    }
    return {"add": {**required, **fields}}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    """A remove action."""
    return {"remove": {"path": path, "dataChange": True, **fields}}


def json_lines(*actions: Mapping[str, Any]) -> bytes:
    """Actions as JSON lines."""
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode()


def log_file(version: int, *actions: Mapping[str, Any], modified_ms: int = 5) -> LogFile:
    """A version file."""
    return log_bytes(version, json_lines(*actions), modified_ms=modified_ms)


def log_bytes(version: int, lines: bytes, *, modified_ms: int = 5) -> LogFile:
    """A version file with these bytes."""
    return LogFile(version, f"memory://t/{version}.json", lines, modified_ms)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, nulls left out and maps as dictionaries."""
    return [
        {
            name: dict(value) if isinstance(table.schema.field(name).type, pa.MapType) else value
            for name, value in row.items()
            if value is not None
        }
        for row in table.to_pylist()
    ]


def paths(table: pa.Table) -> list[str]:
    """The paths of a table of entries or removes."""
    found: list[str] = table["path"].to_pylist()
    return found


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_int64s = st.integers(-(2**63), 2**63 - 1)
_maps = st.dictionaries(texts, texts | st.none(), max_size=3)


def _optional(**fields: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {name: strategy | st.none() for name, strategy in fields.items()}


add_actions: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"path": texts, "size": _int64s},
    optional=_optional(
        partitionValues=_maps,
        modificationTime=_int64s,
        dataChange=st.booleans(),
        stats=texts,
        minValues=_maps,
        maxValues=_maps,
        numRecords=_int64s,
        footerStartOffset=_int64s,
        hasFooterOffsets=st.booleans(),
        splitTags=st.lists(texts, max_size=2),
        numMergeOps=st.integers(-(2**31), 2**31 - 1),
        docMappingRef=texts,
        tags=_maps,
        companionSourceFiles=st.lists(texts, max_size=2),
        addedAtVersion=_int64s,
        addedAtTimestamp=_int64s,
    ),
).map(lambda fields: {"add": fields})

remove_actions: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"path": texts},
    optional=_optional(
        deletionTimestamp=_int64s,
        dataChange=st.booleans(),
        partitionValues=_maps,
        size=_int64s,
        extendedFileMetadata=st.booleans(),
        tags=_maps,
    ),
).map(lambda fields: {"remove": fields})


def versions_of(
    actions: st.SearchStrategy[dict[str, Any]], *, max_versions: int = 4, max_actions: int = 5
) -> st.SearchStrategy[Sequence[Sequence[dict[str, Any]]]]:
    """Several versions, each with several actions."""
    return st.lists(st.lists(actions, max_size=max_actions), max_size=max_versions)
