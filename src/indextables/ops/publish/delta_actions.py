"""The actions of the Delta log that say what a version of a table says. Columnar for files, objects for the rest."""

import uuid
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables._arrow import arrow_from_numpy
from indextables.errors import NotPublishableError
from indextables.log.actions import (
    COLUMN_MAPPING,
    DELETION_VECTORS,
    ENGINE_INFO,
    Metadata,
    ProtocolAction,
)
from indextables.log.deletion_vectors import IN_FILE, VECTOR_PREFIX, VECTOR_SUFFIX, z85
from indextables.log.file_keys import normalised_paths
from indextables.pruning.values import parse_values
from indextables.schema import TableShape
from indextables.schema.spark_json import FIELD_ID_KEY, STORED_NAME_KEY, spark_fields

# Writers of Delta must know every feature of a table. None knows this one, so none writes to a published log.
WRITER_FEATURE: Final = "indextables"
_TIMESTAMP_NTZ: Final = "timestampNtz"

_COLUMN_ID: Final = "delta.columnMapping.id"
_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct(
    [
        pa.field("storageType", pa.string()),
        pa.field("pathOrInlineDv", pa.string()),
        pa.field("offset", pa.int32()),
        pa.field("sizeInBytes", pa.int32()),
        pa.field("cardinality", pa.int64()),
    ]
)
ADD: Final = pa.struct(
    [
        pa.field("path", pa.string()),
        pa.field("partitionValues", _TEXTS),
        pa.field("size", pa.int64()),
        pa.field("modificationTime", pa.int64()),
        pa.field("dataChange", pa.bool_()),
        pa.field("stats", pa.string()),
        pa.field("deletionVector", _VECTOR),
    ]
)
REMOVE: Final = pa.struct(
    [
        pa.field("path", pa.string()),
        pa.field("deletionTimestamp", pa.int64()),
        pa.field("dataChange", pa.bool_()),
        pa.field("extendedFileMetadata", pa.bool_()),
        pa.field("partitionValues", _TEXTS),
        pa.field("size", pa.int64()),
        pa.field("deletionVector", _VECTOR),
    ]
)

# The characters of a path that stay as they are in a URL, besides letters and digits. Engines compare paths as texts.
_PLAIN: Final = "/=._~-"
_PLAIN_PATH: Final = rf"^[A-Za-z0-9{_PLAIN}]*$"
_CONTROL_CHARACTER: Final = r"[\x00-\x1f]"

# The storage type of a vector in a file beside the table.
_BESIDE_THE_TABLE: Final = "u"


# --- the table ----------------------------------------------------------------------------------------


def protocol_action(protocol: ProtocolAction, shape: TableShape) -> dict[str, Any]:
    """The protocol of the published log. Raises NotPublishableError for a feature that Delta readers would miss."""
    ours = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    unknown = ours - {DELETION_VECTORS, COLUMN_MAPPING}
    if unknown:
        raise NotPublishableError(f"the table has the feature {min(unknown)}, which Delta does not have")
    features = sorted(ours)
    if any(_has_ntz(field.type) for field in shape.schema):
        features.append(_TIMESTAMP_NTZ)
    reader = {"minReaderVersion": 3, "readerFeatures": features} if features else {"minReaderVersion": 1}
    return {**reader, "minWriterVersion": 7, "writerFeatures": [*features, WRITER_FEATURE]}


def metadata_action(metadata: Metadata, shape: TableShape, *, has_column_mapping: bool) -> dict[str, Any]:
    """The metadata of the published log: Delta has Spark's schema, too. Raises NotPublishableError.

    Our stored names are the physical names of Delta's column mapping.
    """
    for name in shape.defaults:
        raise NotPublishableError(
            f"splits without the column {name!r} have a default for it, which Delta does not have"
        )
    for name in shape.widened:
        raise NotPublishableError(
            f"the column {name!r} has another type in older splits, which is not published yet"
        )
    for field in shape.schema:
        if _has_null(field.type):
            raise NotPublishableError(
                f"the column {field.name!r} has no type but null, which Delta does not have"
            )
    schema, max_id = _delta_schema(metadata.schema_string, has_column_mapping=has_column_mapping)
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(max_id)}
    action = {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": mapping if has_column_mapping else {},
        "createdTime": metadata.created_time,
    }
    return {name: value for name, value in action.items() if value is not None}


def _delta_schema(schema_string: str, *, has_column_mapping: bool) -> tuple[str, int]:
    """The schema for Delta, and the highest id of a column.

    Of the metadata of columns, comments stay. Field ids without column mapping would make some engines look for columns
    by id alone.
    """
    document, max_id = orjson.loads(schema_string), 0
    for field in spark_fields(document):
        metadata = field.get("metadata") or {}
        kept = {"comment": metadata["comment"]} if isinstance(metadata.get("comment"), str) else {}
        max_id = max(max_id, metadata.get(FIELD_ID_KEY, 0))
        if has_column_mapping:
            kept |= {
                _COLUMN_ID: metadata[FIELD_ID_KEY],
                _PHYSICAL_NAME: metadata.get(STORED_NAME_KEY, field["name"]),
            }
        field["metadata"] = kept
    return orjson.dumps(document).decode(), max_id


def commit_info(table_id: str, version: int, timestamp_ms: int, operation: str | None) -> dict[str, Any]:
    """What tells a commit of ours from that of another engine: it names the table."""
    return {
        "timestamp": timestamp_ms,
        "operation": operation or "WRITE",
        "operationParameters": {},
        "engineInfo": ENGINE_INFO,
        WRITER_FEATURE: {"tableId": table_id, "version": version},
    }


# --- files --------------------------------------------------------------------------------------------


def adds(entries: pa.Table, shape: TableShape, url: str) -> pa.StructArray:
    """The adds of file entries. Raises NotPublishableError."""
    columns = {
        "path": _urls(entries["path"], url),
        "partitionValues": _partition_values(entries["partitionValues"], shape),
        "size": entries["size"],
        "modificationTime": entries["modificationTime"],
        "dataChange": entries["dataChange"],
        "stats": _statistics(entries, shape),
        "deletionVector": _vectors(entries["deletionVector"]),
    }
    return _struct(columns, ADD)


def removes(
    entries: pa.Table, shape: TableShape, url: str, timestamp_ms: int, *, data_change: bool
) -> pa.StructArray:
    """The removes of file entries, as they were before. Raises NotPublishableError."""
    count = entries.num_rows
    columns = {
        "path": _urls(entries["path"], url),
        "deletionTimestamp": pa.repeat(timestamp_ms, count),
        "dataChange": pa.repeat(data_change, count),
        "extendedFileMetadata": pa.repeat(True, count),
        "partitionValues": _partition_values(entries["partitionValues"], shape),
        "size": entries["size"],
        "deletionVector": _vectors(entries["deletionVector"]),
    }
    return _struct(columns, REMOVE)


def _struct(columns: Mapping[str, pa.Array | pa.ChunkedArray], kind: pa.StructType) -> pa.StructArray:
    table = pa.table(dict(columns), schema=pa.schema(list(kind))).combine_chunks()
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _urls(paths: pa.ChunkedArray, url: str) -> pa.Array:
    """Paths relative to the table, percent-encoded as Delta wants them."""
    keys = normalised_paths(_one(paths), url)
    if pc.all(pc.match_substring_regex(keys, _PLAIN_PATH)).as_py() in (True, None):
        return keys
    distinct = keys.dictionary_encode()
    quoted = pa.array([quote(key, safe=_PLAIN) for key in distinct.dictionary.to_pylist()], pa.string())
    return quoted.take(distinct.indices)


def _partition_values(values: pa.ChunkedArray, shape: TableShape) -> pa.Array:
    """Partition values as Delta writes them. The empty text is null by its protocol, but not for every reader."""
    maps = _one(values)
    keys = shape.partition_keys
    columns = [_partition_column(maps, key, shape.schema.field(name)) for name, key in keys.items()]
    count, width = len(maps), len(columns)
    if not columns:
        empty = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count + 1), empty, empty)
    # Row by row: the values of all columns of a row stand together.
    order = arrow_from_numpy(np.arange(width * count).reshape(width, count).T.ravel())
    offsets = arrow_from_numpy(np.arange(0, count * width + 1, width, dtype=np.int32))
    names = pa.array(list(keys.values()), pa.string()).take(
        arrow_from_numpy(np.tile(np.arange(width), count))
    )
    return pa.MapArray.from_arrays(offsets, names, pa.concat_arrays(columns).take(order))


def _partition_column(maps: pa.MapArray, key: str, field: pa.Field) -> pa.Array:
    texts = pc.map_lookup(maps, key, "first")
    if pa.types.is_string(field.type):
        if pc.any(pc.equal(texts, "")).as_py():
            raise NotPublishableError(
                f"the partition column {field.name!r} has an empty text, which Delta cannot tell from null"
            )
        return texts
    parsed = parse_values(texts, field.type)
    if not pc.all(parsed.understood).as_py() and len(texts):
        bad = texts.filter(pc.invert(parsed.understood))[0].as_py()
        raise NotPublishableError(
            f"the partition column {field.name!r} has the value {bad!r}, not a {field.type}"
        )
    return _plain_text(parsed.values)


def _plain_text(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        return pc.strftime(values, "%Y-%m-%dT%H:%M:%SZ" if values.type.tz else "%Y-%m-%d %H:%M:%S")
    return values.cast(pa.string())


def _vectors(vectors: pa.ChunkedArray) -> pa.Array:
    found = _one(vectors)
    if found.null_count == len(found):
        return pa.nulls(len(found), _VECTOR)
    kinds, places = found.field("storageType"), found.field("pathOrInlineDv")
    in_files = pc.equal(kinds, IN_FILE)
    distinct = pc.unique(places.filter(pc.fill_null(in_files, False)))
    named = pa.array([_vector_name(path) for path in distinct.to_pylist()], pa.string())
    names = named.take(pc.index_in(places, value_set=distinct))
    columns = [
        pc.if_else(in_files, _BESIDE_THE_TABLE, kinds),
        pc.if_else(in_files, names, places),
        *(found.field(field.name).cast(field.type) for field in list(_VECTOR)[2:]),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_VECTOR), mask=found.is_null())


def _vector_name(path: str) -> str:
    """Delta's name of a file of vectors beside the table: the bytes of its UUID."""
    name = path.removeprefix(VECTOR_PREFIX).removesuffix(VECTOR_SUFFIX)
    return z85(uuid.UUID(name).bytes)


# --- statistics ---------------------------------------------------------------------------------------


def _statistics(entries: pa.Table, shape: TableShape) -> pa.Array:
    """Row counts and bounds, as JSON. A bound that Delta readers could misread is left out."""
    counts = _one(entries["numRecords"])
    return pc.binary_join_element_wise(
        '{"numRecords":',
        counts.cast(pa.string()),
        ',"minValues":{',
        _bounds(_one(entries["minValues"]), shape, is_maximum=False),
        '},"maxValues":{',
        _bounds(_one(entries["maxValues"]), shape, is_maximum=True),
        '},"tightBounds":false}',
        "",
    )


def _bounds(maps: pa.MapArray, shape: TableShape, *, is_maximum: bool) -> pa.Array:
    fragments = [pa.repeat("", len(maps)).cast(pa.string())]
    # The log has statistics under stored names, as Delta has them under physical names.
    for field in shape.stored.schema:
        if field.name in shape.partition_keys:
            continue
        values = _json_values(pc.map_lookup(maps, field.name, "first"), field.type, is_maximum=is_maximum)
        if values is not None:
            name = orjson.dumps(field.name).decode()
            fragments.append(pc.fill_null(pc.binary_join_element_wise(f",{name}:", values, ""), ""))
    return pc.utf8_ltrim(pc.binary_join_element_wise(*fragments, ""), ",")


def _json_values(texts: pa.Array, kind: pa.DataType, *, is_maximum: bool) -> pa.Array | None:
    """Bounds as JSON values; None for types whose bounds the engines read in different ways."""
    if pa.types.is_string(kind):
        escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
        is_safe = pc.invert(pc.match_substring_regex(texts, _CONTROL_CHARACTER))
        return _quoted(pc.if_else(is_safe, escaped, pa.scalar(None, pa.string())))
    values = parse_values(texts, kind).values
    if pa.types.is_integer(kind):
        return values.cast(pa.string())
    if pa.types.is_date(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_floating(kind):
        numbers = values.cast(pa.float64())
        return pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64())).cast(pa.string())
    if pa.types.is_timestamp(kind):
        # Milliseconds are what all engines understand.
        coarse = (pc.ceil_temporal if is_maximum else pc.floor_temporal)(values, unit="millisecond")
        suffix = "Z" if kind.tz else ""
        return _quoted(pc.strftime(coarse.cast(pa.timestamp("ms", kind.tz)), f"%Y-%m-%dT%H:%M:%S{suffix}"))
    return None


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _has_null(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(_has_null(kind.field(i).type) for i in range(kind.num_fields))


def _has_ntz(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_ntz(kind.field(i).type) for i in range(kind.num_fields))
