"""The Arrow schema of file entries: one row per split, the same in every layer.

A snapshot holds 70,000 or a million of these rows, so they exist as columns and never as objects. Column
names are the specification's. Columns that no entry of a table uses are simply all null.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables._arrow import arrow_from_numpy

STRING_MAP = pa.map_(pa.string(), pa.string())
STRING_LIST = pa.list_(pa.string())

# The fields of an add action, in the order in which the documents introduce them.
ADD_FIELDS: tuple[pa.Field, ...] = (
    pa.field("path", pa.string(), nullable=False),
    pa.field("partitionValues", STRING_MAP, nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("modificationTime", pa.int64(), nullable=False),
    pa.field("dataChange", pa.bool_(), nullable=False),
    pa.field("stats", pa.string()),
    pa.field("minValues", STRING_MAP),
    pa.field("maxValues", STRING_MAP),
    pa.field("numRecords", pa.int64()),
    pa.field("footerStartOffset", pa.int64()),
    pa.field("footerEndOffset", pa.int64()),
    pa.field("hasFooterOffsets", pa.bool_(), nullable=False),
    pa.field("splitTags", STRING_LIST),
    pa.field("numMergeOps", pa.int32()),
    pa.field("docMappingRef", pa.string()),
    pa.field("uncompressedSizeBytes", pa.int64()),
    # Older writers, and companion splits of other engines.
    pa.field("tags", STRING_MAP),
    pa.field("hotcacheStartOffset", pa.int64()),
    pa.field("hotcacheLength", pa.int64()),
    pa.field("timeRangeStart", pa.string()),
    pa.field("timeRangeEnd", pa.string()),
    pa.field("deleteOpstamp", pa.int64()),
    pa.field("docMappingJson", pa.string()),
    pa.field("companionSourceFiles", STRING_LIST),
    pa.field("companionDeltaVersion", pa.int64()),
    pa.field("companionFastFieldMode", pa.string()),
)

# What the log knows about an entry beyond its add action. `unknownFields` holds, as one JSON object, what a
# newer writer put into the add action and this release has no column for.
LOG_FIELDS: tuple[pa.Field, ...] = (
    pa.field("addedAtVersion", pa.int64(), nullable=False),
    pa.field("addedAtTimestamp", pa.int64(), nullable=False),
    pa.field("unknownFields", pa.string()),
)

FILE_ENTRY_SCHEMA = pa.schema([*ADD_FIELDS, *LOG_FIELDS])

# What a line of JSON may hold under "add": nothing is required before it has been looked at. Checkpoints
# say when each entry was added; version files do not have to.
ADD_STRUCT = pa.struct(
    [field.with_nullable(True) for field in FILE_ENTRY_SCHEMA if field.name != "unknownFields"]
)
REQUIRED_ADD_FIELDS = frozenset({"path", "size"})

# What an add means that leaves out a field which every entry has.
_DEFAULTS = {"modificationTime": 0, "dataChange": True, "hasFooterOffsets": False}


def empty_entries() -> pa.Table:
    """A table of file entries with no rows."""
    return FILE_ENTRY_SCHEMA.empty_table()


def entries_from_columns(
    columns: Mapping[str, pa.ChunkedArray],
    versions: npt.NDArray[np.int64],
    timestamps_ms: npt.NDArray[np.int64],
) -> pa.Table:
    """File entries from the fields of add actions, as columns, and for each add its version and commit time.

    The version and time stand in where the add itself does not say them. Columns that are missing are null,
    fields that older writers leave out take their defaults, and a null in a map is an absent key. Raises
    ValueError, naming the field, if an add has no path or no size.
    """
    found = {**columns}
    for field in FILE_ENTRY_SCHEMA:
        found.setdefault(field.name, pa.chunked_array([pa.nulls(len(versions), field.type)]))
        if field.name in REQUIRED_ADD_FIELDS and found[field.name].null_count:
            raise ValueError(f"an add action has no {field.name}")
    found["addedAtVersion"] = pc.coalesce(found["addedAtVersion"], arrow_from_numpy(versions))
    found["addedAtTimestamp"] = pc.coalesce(found["addedAtTimestamp"], arrow_from_numpy(timestamps_ms))
    for name, default in _DEFAULTS.items():
        found[name] = found[name].fill_null(default)
    return pa.Table.from_arrays(
        [_clean_maps(found[field.name], field) for field in FILE_ENTRY_SCHEMA], schema=FILE_ENTRY_SCHEMA
    )


def _clean_maps(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """A column of maps without null items and, if the field is not nullable, with empty maps for null ones."""
    if not pa.types.is_map(field.type):
        return column
    chunks = [_without_null_items(chunk) for chunk in column.chunks]
    if not field.nullable:
        chunks = [_without_null_maps(chunk) for chunk in chunks]
    return pa.chunked_array(chunks, field.type)


def _without_null_maps(maps: pa.MapArray) -> pa.MapArray:
    if not maps.null_count:
        return maps
    # A null map spans no items, so the same offsets without validity are empty maps.
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, maps.items)


def _without_null_items(maps: pa.MapArray) -> pa.MapArray:
    if not maps.items.null_count:
        return maps
    is_kept = maps.items.is_valid()
    kept_before = np.concatenate([[0], np.cumsum(is_kept.to_numpy(zero_copy_only=False))])
    return pa.MapArray.from_arrays(
        pa.array(kept_before[maps.offsets.to_numpy()], pa.int32()),
        maps.keys.filter(is_kept),
        maps.items.filter(is_kept),
        mask=maps.is_null(),
    )
