"""The Arrow schema of file entries: one row per split, the same in every layer.

A snapshot holds 70,000 or a million of these rows, so they exist as columns and never as objects. Column
names are the specification's. Columns that no entry of a table uses are simply all null.
"""

import pyarrow as pa

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


def empty_entries() -> pa.Table:
    """A table of file entries with no rows."""
    return FILE_ENTRY_SCHEMA.empty_table()
