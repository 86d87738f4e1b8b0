"""Columns that only another writer knows: kept as they are in Avro, and as JSON where there are no columns."""

from typing import Any

import orjson
import pyarrow as pa

from indextables.log.entries import FILE_ENTRY_SCHEMA


def with_foreign_columns_folded(entries: pa.Table) -> pa.Table:
    """Entries with the known columns only; the values of all others go into `unknownFields`, as JSON."""
    foreign = [name for name in entries.column_names if name not in FILE_ENTRY_SCHEMA.names]
    known = entries.select(FILE_ENTRY_SCHEMA.names)
    used = [name for name in foreign if entries[name].null_count < entries.num_rows]
    if not used:
        return known
    # Rows are touched one by one here, because a foreign value can have any type; few tables have any.
    folded = [
        _folded(row.pop("unknownFields"), row)
        for row in entries.select(["unknownFields", *used]).to_pylist(maps_as_pydicts="strict")
    ]
    index = FILE_ENTRY_SCHEMA.get_field_index("unknownFields")
    return known.set_column(index, FILE_ENTRY_SCHEMA.field(index), pa.array(folded, pa.string()))


def _folded(unknown_fields: str | None, foreign: dict[str, Any]) -> str | None:
    fields = {name: value for name, value in foreign.items() if value is not None}
    if unknown_fields is not None:
        fields |= orjson.loads(unknown_fields)
    return orjson.dumps(fields, default=_as_text).decode() if fields else None


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
