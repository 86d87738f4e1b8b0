"""Arrow columns to JSON lines: the way back from `decode`, for actions in bulk."""

import io

import arro3.io
import pyarrow as pa

_ROWS_PER_BATCH = 8192


def action_lines(name: str, table: pa.Table) -> bytes:
    """Each row as the action `name`, one a line; nulls are left out, maps become objects."""
    lines = io.BytesIO()
    structs = table.to_struct_array(max_chunksize=_ROWS_PER_BATCH)
    arro3.io.write_ndjson(pa.table({name: structs}), lines)
    return lines.getvalue()
