"""Stored names: the names of columns in splits and in the log, which never change.

A column is called in its table what users call it, and keeps the name that it was created with everywhere else: in
Parquet files, indexes, doc mappings and statistics. No other column of the table ever gets that name. So a name in a
file means one column, whenever the file was written. Members of structs have stored names as well.

The schema in the log records the stored name of a field if it differs from its name.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson
import pyarrow as pa

from indextables.schema.spark_json import (
    DEFAULT_KEY,
    FIELD_ID_KEY,
    STORED_NAME_KEY,
    WIDENED_KEY,
    from_spark_json,
    spark_fields,
    to_spark_json,
)

# The fields of a JSON object that stands for a map with nested keys.
_ENTRY: Final = ("key", "value")


def stored_schema(schema_string: str) -> pa.Schema | None:
    """Return the schema with stored names, in which every field has its place; None if they are the names."""
    if STORED_NAME_KEY not in schema_string:
        return None
    document = orjson.loads(schema_string)
    for field in spark_fields(document):
        field["name"] = (field.get("metadata") or {}).get(STORED_NAME_KEY, field["name"])
    return from_spark_json(orjson.dumps(document))


def record_stored_names(schema_string: str, stored: pa.Schema) -> str:
    """Return a valid Spark schema in JSON with the names of `stored` as stored names."""
    document, other = orjson.loads(schema_string), orjson.loads(to_spark_json(stored))
    for field, in_file in zip(spark_fields(document), spark_fields(other), strict=True):
        if field["name"] != in_file["name"]:
            field["metadata"] = {**(field.get("metadata") or {}), STORED_NAME_KEY: in_file["name"]}
    return orjson.dumps(document).decode()


def stored_names_by_id(schema_string: str) -> dict[int, str]:
    """Return the stored names of the columns and members that have ids."""
    found = {}
    for field in spark_fields(orjson.loads(schema_string)):
        metadata = field.get("metadata") or {}
        if FIELD_ID_KEY in metadata:
            found[metadata[FIELD_ID_KEY]] = metadata.get(STORED_NAME_KEY, field["name"])
    return found


def record_stored_names_by_id(schema_string: str, stored: Mapping[int, str]) -> str:
    """Return a valid Spark schema in JSON with these stored names, by the ids of the fields."""
    document = orjson.loads(schema_string)
    for field in spark_fields(document):
        metadata = dict(field.get("metadata") or {})
        name = stored.get(metadata.get(FIELD_ID_KEY, 0), field["name"])
        metadata.pop(STORED_NAME_KEY, None)
        field["metadata"] = metadata if name == field["name"] else {**metadata, STORED_NAME_KEY: name}
    return orjson.dumps(document).decode()


def column_defaults(schema_string: str) -> dict[str, str]:
    """Return the texts of the values that splits without a column have, by the column's name, unless it is null."""
    if DEFAULT_KEY not in schema_string:
        return {}
    fields = orjson.loads(schema_string)["fields"]
    found = {field["name"]: (field.get("metadata") or {}).get(DEFAULT_KEY) for field in fields}
    return {name: text for name, text in found.items() if text is not None}


def widened_columns(schema_string: str) -> dict[str, pa.DataType]:
    """Return the first types of the columns that have wider ones now: older splits have them."""
    if WIDENED_KEY not in schema_string:
        return {}
    document = orjson.loads(schema_string)
    for field in document["fields"]:
        field["type"] = (field.get("metadata") or {}).get(WIDENED_KEY, field["type"])
    first, now = from_spark_json(orjson.dumps(document)), from_spark_json(schema_string)
    return {field.name: field.type for field in first if field.type != now.field(field.name).type}


def renamed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the names of a schema that differs from theirs in names alone. Nothing is copied."""
    if rows.schema.equals(schema):
        return rows
    return pa.Table.from_arrays(
        [with_type(column, field.type) for column, field in zip(rows.columns, schema, strict=True)],
        schema=schema,
    )


def with_type(column: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """Return a column as a type that differs in the names of members alone."""
    if not pa.types.is_nested(data_type) or column.type.equals(data_type):
        return column
    return pa.chunked_array([chunk.view(data_type) for chunk in column.chunks], data_type)


def stored_path(data_type: pa.DataType, stored: pa.DataType, path: Sequence[str]) -> tuple[str, ...] | None:
    """Return the stored names on a path into the values of a column; None if a member does not exist.

    The path is that of a query: elements of arrays have no step of their own, and the name of a member may have dots.
    """
    if not path:
        return ()
    if isinstance(data_type, pa.StructType):
        return _member_path(data_type, stored, path)
    if isinstance(data_type, pa.ListType):
        return stored_path(data_type.value_type, stored.value_type, path)
    if isinstance(data_type, pa.MapType):
        is_entry = pa.types.is_nested(data_type.key_type) and path[0] in _ENTRY
        types = (
            (data_type.key_type, stored.key_type)
            if is_entry and path[0] == _ENTRY[0]
            else (data_type.item_type, stored.item_type)
        )
        rest = stored_path(*types, path[1:])
        return None if rest is None else (path[0], *rest)
    return tuple(path)


def _member_path(
    data_type: pa.StructType, stored: pa.DataType, path: Sequence[str]
) -> tuple[str, ...] | None:
    for length in range(1, len(path) + 1):
        index = data_type.get_field_index(".".join(path[:length]))
        if index >= 0:
            rest = stored_path(data_type.field(index).type, stored.field(index).type, path[length:])
            return None if rest is None else (stored.field(index).name, *rest)
    return None
