"""Remove actions as columns: their Arrow schema, and their lines in a version file."""

import numpy as np
import pyarrow as pa

from indextables.log.entries import STRING_MAP
from indextables.log.json_lines import action_lines

REMOVE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("path", pa.string(), nullable=False),
    pa.field("deletionTimestamp", pa.int64()),
    pa.field("dataChange", pa.bool_()),
    pa.field("partitionValues", STRING_MAP),
    pa.field("size", pa.int64()),
    pa.field("extendedFileMetadata", pa.bool_()),
    pa.field("tags", STRING_MAP),
)
REMOVE_STRUCT = pa.struct([field.with_nullable(True) for field in REMOVE_FIELDS])
REQUIRED_REMOVE_FIELDS = frozenset({"path"})

# A remove in a tail of versions: the version that made it stands beside it.
REMOVE_SCHEMA = pa.schema([*REMOVE_FIELDS, pa.field("version", pa.int64(), nullable=False)])


def remove_lines(entries: pa.Table, deletion_timestamp_ms: int, data_change: bool) -> bytes:
    """JSON lines that remove file entries (path, partitionValues and size are used)."""
    count = entries.num_rows
    removes = pa.table(
        {
            "path": entries["path"],
            "deletionTimestamp": pa.array(np.full(count, deletion_timestamp_ms, dtype=np.int64)),
            "dataChange": pa.array(np.full(count, data_change)),
            "partitionValues": entries["partitionValues"],
            "size": entries["size"],
        }
    )
    return action_lines("remove", removes)
