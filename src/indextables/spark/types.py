"""Conversion between Spark schemas and Arrow schemas, and checks that data and tables match."""

import json
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from indextables.errors import InvalidSchemaError
from indextables.schema import (
    TableShape,
    find_column,
    from_spark_json,
    record_field_ids,
    to_spark_json,
)
from indextables.split.writer import conform


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to a Spark schema. Raises InvalidSchemaError for a type that Spark lacks."""
    return StructType.fromJson(json.loads(to_spark_json(schema)))


def parquet_schema(shape: TableShape) -> StructType:
    """The Spark schema of a table with its field ids, for Spark's own Parquet source.

    With `spark.sql.parquet.fieldId.read.enabled`, Spark finds the columns of a split by these ids. Schemas of
    DataFrames that this package makes have no ids: Spark would write them into files that are not the table's.
    """
    return StructType.fromJson(json.loads(record_field_ids(to_spark_json(shape.schema), shape.field_ids)))


def table_schema(schema: StructType) -> pa.Schema:
    """Convert a Spark schema to the Arrow schema of a table.

    Raises InvalidSchemaError for a type that tables do not support, such as an interval.
    """
    return from_spark_json(schema.json())


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns, all nullable, as in tables that Spark itself creates from a DataFrame."""
    return pa.schema([field.with_nullable(True).with_type(_nullable(field.type)) for field in schema])


def check_written(given: pa.Schema, table: pa.Schema, place: str) -> None:
    """Raise InvalidSchemaError if rows of the schema `given` cannot be written to a table.

    Columns are matched by name, in any order; none may be missing.
    """
    missing = [name for name in table.names if find_column(given, name) is None]
    if missing:
        raise InvalidSchemaError(
            f"{place}: the data lacks the table's column {missing[0]!r}; it has {', '.join(given.names)}. Add the "
            f"column, filled with nulls if needed"
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
                f"{place}: column {field.name!r} has the type {found.type}, but the table has {field.type}; cast it"
            )


def read_columns(requested: pa.Schema, table: pa.Schema, virtual: Sequence[str], place: str) -> list[str]:
    """The table's columns that a read with the schema `requested` selects, in the table's spelling.

    Raises InvalidSchemaError for a column that the table lacks or has with another type.
    """
    names: list[str] = []
    for field in requested:
        if field.name in virtual:
            continue
        found = find_column(table, field.name)
        if found is None:
            raise InvalidSchemaError(
                f"{place}: no column {field.name!r}; the columns are {', '.join(table.names)}"
            )
        if not _is_same(field.type, found.type):
            raise InvalidSchemaError(
                f"{place}: column {found.name!r} has the type {found.type} and cannot be read as {field.type}; read "
                f"it as {found.type}, and cast the result"
            )
        names.append(found.name)
    return names


def quote_name(name: str) -> str:
    """Quote a column or table name for Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def _is_same(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two types are equal, apart from nullability."""
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
