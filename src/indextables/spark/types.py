"""Spark's schemas and Arrow's: the one that a table has, and the one that Spark wants its batches in."""

import inspect
import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from indextables.errors import InvalidSchemaError
from indextables.schema import find_column, from_spark_json, to_spark_json
from indextables.split.writer import conform

# Releases before 4.2 do not ask for a time zone, and mean this one.
_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow one. Raises InvalidSchemaError for types that Spark does not have."""
    return StructType.fromJson(json.loads(to_spark_json(schema)))


def table_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that a table has for a Spark one.

    Raises InvalidSchemaError for a type that tables cannot hold, such as an interval.
    """
    return from_spark_json(schema.json())


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns, all of which may be null: what Spark's own tables have when a DataFrame creates them."""
    return pa.schema([field.with_nullable(True).with_type(_nullable(field.type)) for field in schema])


def batch_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects the batches of a data source in."""
    return to_arrow_schema(schema, **_IN_UTC)


def check_written(given: pa.Schema, table: pa.Schema, place: str) -> None:
    """Raise InvalidSchemaError if rows of the schema `given` cannot be written to a table, column by column.

    Columns are found by name, in any order; none may be missing.
    """
    missing = [name for name in table.names if find_column(given, name) is None]
    if missing:
        raise InvalidSchemaError(
            f"{place}: column {missing[0]!r} of the table is missing from the data, which has "
            f"{', '.join(given.names)}; add it, with nulls if there is nothing to say"
        )
    try:
        conform(given.empty_table(), table)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"{place}: {error}") from error
    for field in table:
        found = find_column(given, field.name)
        if found is None or pa.types.is_null(found.type) or not pa.types.is_nested(field.type):
            continue
        if not _is_same(found.type, field.type):
            raise InvalidSchemaError(
                f"{place}: column {field.name!r} has the type {found.type}, and the table has {field.type}; cast it"
            )


def read_columns(asked: pa.Schema, table: pa.Schema, virtual: Sequence[str], place: str) -> list[str]:
    """The columns of a table that a read with the schema `asked` means, as the table spells them.

    Raises InvalidSchemaError for columns that the table does not have, or has with another type.
    """
    names: list[str] = []
    for field in asked:
        if field.name in virtual:
            continue
        found = find_column(table, field.name)
        if found is None:
            raise InvalidSchemaError(
                f"{place}: there is no column {field.name!r}; the columns are {', '.join(table.names)}"
            )
        if not _is_same(field.type, found.type):
            raise InvalidSchemaError(
                f"{place}: column {found.name!r} has the type {found.type} and cannot be read as {field.type}; read "
                f"it as it is, and cast the result"
            )
        names.append(found.name)
    return names


def _is_same(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two types have the same values, nulls left aside."""
    return bool(_nullable(left).equals(_nullable(right)))


def _nullable(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(data_type):
        fields = (data_type.field(position) for position in range(data_type.num_fields))
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in fields])
    if pa.types.is_map(data_type):
        value = pa.field("value", _nullable(data_type.item_type))
        return pa.map_(pa.field("key", _nullable(data_type.key_type), nullable=False), value)
    if pa.types.is_list(data_type):
        return pa.list_(pa.field("element", _nullable(data_type.value_type)))
    return data_type
