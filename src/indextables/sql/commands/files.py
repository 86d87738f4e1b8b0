"""The files that a statement deletes or would delete, as one value of its answer."""

import numpy as np
import pyarrow as pa

from indextables.sql.columns import FILE


def files_column(table: pa.Table, files: pa.Table, *, is_deleted: bool) -> pa.Table:
    """An answer of one row with its column `files` filled.

    `files` has the columns of `DOOMED_SCHEMA`, perhaps with their outcomes; where there is none, `is_deleted` counts.
    """
    count = files.num_rows
    has_outcome = "isDeleted" in files.column_names
    values = [
        *(files[name] for name in ("path", "kind", "size", "ageHours")),
        files["isDeleted"] if has_outcome else pa.array(np.full(count, is_deleted)),
        files["error"] if has_outcome else pa.nulls(count, pa.string()),
    ]
    structs = pa.StructArray.from_arrays([_in_one_piece(value) for value in values], fields=list(FILE))
    listed = pa.LargeListArray.from_arrays(pa.array([0, count], pa.int64()), structs).cast(pa.list_(FILE))
    index = table.schema.get_field_index("files")
    return table.set_column(index, table.schema.field(index), listed)


def _in_one_piece(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
