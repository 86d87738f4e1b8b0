"""Writes an Arrow schema as the schema JSON of Spark.

Arrow has many more types than Spark. Those whose every value fits a Spark type are mapped to it; the others
are refused, with the cast that the user has to choose, because only they know what may be lost.
"""

from collections.abc import Callable
from typing import Any, cast

import orjson
import pyarrow as pa

from indextables.errors import InvalidSchemaError
from indextables.schema.from_spark import MAX_DECIMAL_PRECISION
from indextables.schema.metadata import spark_metadata
from indextables.schema.nesting import check_depth, check_names

UINT64_AS_DECIMAL = "decimal(20,0)"

# In this order: the first test that is true names the Spark type.
ATOMIC_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "byte"),
    (pa.types.is_int16, "short"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "long"),
    (pa.types.is_uint8, "short"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_uint32, "long"),
    (pa.types.is_uint64, UINT64_AS_DECIMAL),
    (pa.types.is_float16, "float"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_date, "date"),
    (pa.types.is_null, "void"),
)

REFUSED_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_time, "string, or to int64"),
    (pa.types.is_duration, "int64"),
    (pa.types.is_interval, "int64"),
    (pa.types.is_union, "a struct"),
)


def to_spark_json(schema: pa.Schema) -> str:
    """The Spark schema JSON of an Arrow schema, compact and in Spark's own order of keys.

    Raises InvalidSchemaError, naming the column and the cast, for types with values that Spark does not have,
    and for names that Spark could not tell apart.
    """
    document = {"type": "struct", "fields": _struct_fields(schema, "", 0)}
    return orjson.dumps(document).decode()


def _struct_fields(fields: pa.Schema | pa.StructType, parent: str, depth: int) -> list[dict[str, Any]]:
    members = list(cast("Any", fields))
    check_names((field.name for field in members), f"struct {parent!r}" if parent else "the schema")
    return [_field(field, parent, depth) for field in members]


def _field(field: pa.Field, parent: str, depth: int) -> dict[str, Any]:
    column = f"{parent}.{field.name}" if parent else field.name
    return {
        "name": field.name,
        "type": _spark_type(field.type, column, depth),
        "nullable": field.nullable,
        "metadata": spark_metadata(field.metadata, column),
    }


def _spark_type(data_type: pa.DataType, column: str, depth: int) -> str | dict[str, Any]:
    check_depth(column, depth)
    if isinstance(data_type, pa.BaseExtensionType):
        raise _refused(column, data_type, str(data_type.storage_type))
    for is_type, name in ATOMIC_TYPES:
        if is_type(data_type):
            return name
    if isinstance(data_type, pa.TimestampType):
        return _timestamp(data_type, column)
    if pa.types.is_decimal(data_type):
        return _decimal(data_type, column)
    if isinstance(data_type, pa.DictionaryType | pa.RunEndEncodedType):
        return _spark_type(data_type.value_type, column, depth + 1)
    nested = _nested_type(data_type, column, depth)
    if nested is not None:
        return nested
    for is_type, remedy in REFUSED_TYPES:
        if is_type(data_type):
            raise _refused(column, data_type, remedy)
    raise _refused(column, data_type, "a type that Spark has")


def _nested_type(data_type: pa.DataType, column: str, depth: int) -> dict[str, Any] | None:
    if isinstance(data_type, pa.StructType):
        return {"type": "struct", "fields": _struct_fields(data_type, column, depth + 1)}
    if isinstance(data_type, pa.MapType):
        return {
            "type": "map",
            "keyType": _spark_type(data_type.key_type, f"{column}.key", depth + 1),
            "valueType": _spark_type(data_type.item_type, f"{column}.value", depth + 1),
            "valueContainsNull": data_type.item_field.nullable,
        }
    list_types = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
    if isinstance(data_type, list_types):
        return {
            "type": "array",
            "elementType": _spark_type(data_type.value_type, f"{column}.element", depth + 1),
            "containsNull": data_type.value_field.nullable,
        }
    return None


def _timestamp(data_type: pa.TimestampType, column: str) -> str:
    if data_type.unit == "ns":
        # Spark counts microseconds: the digits below would be lost without a word.
        zone = f", tz={data_type.tz!r}" if data_type.tz else ""
        raise _refused(column, data_type, f"timestamp('us'{zone})")
    return "timestamp" if data_type.tz else "timestamp_ntz"


# The four decimal types of Arrow share no base class.
def _decimal(data_type: Any, column: str) -> str:
    if data_type.precision > MAX_DECIMAL_PRECISION or not 0 <= data_type.scale <= data_type.precision:
        raise _refused(column, data_type, f"decimal128({MAX_DECIMAL_PRECISION}, 0), or fewer digits")
    return f"decimal({data_type.precision},{data_type.scale})"


def _refused(column: str, data_type: pa.DataType, remedy: str) -> InvalidSchemaError:
    return InvalidSchemaError(
        f"column {column!r} has the Arrow type {data_type}, which tables cannot hold; cast it to {remedy}"
    )
