"""Reads the schema JSON that Spark writes (`StructType.json`) into an Arrow schema."""

from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from indextables.errors import InvalidSchemaError
from indextables.schema.metadata import arrow_metadata
from indextables.schema.nesting import check_depth, check_names

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

ATOMIC_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "void": pa.null(),
    "null": pa.null(),  # the name of void before Spark 3
    "decimal": pa.decimal128(10, 0),  # what Spark means by a decimal without precision
}

MAX_DECIMAL_PRECISION = 38


def from_spark_json(text: str | bytes) -> pa.Schema:
    """The Arrow schema of a Spark schema in JSON.

    Raises InvalidSchemaError if the text is not a Spark struct, or has a type that tables cannot hold.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidSchemaError(f"the schema is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("type") != "struct":
        raise InvalidSchemaError('the schema is not a Spark struct, {"type":"struct","fields":[…]}')
    return pa.schema(_struct_fields(document, "", 0))


def _struct_fields(struct: Mapping[str, Any], parent: str, depth: int) -> list[pa.Field]:
    place = f"struct {parent!r}" if parent else "the schema"
    fields = struct.get("fields")
    if not isinstance(fields, list):
        raise InvalidSchemaError(f"{place} has no list of fields")
    converted = [_field(field, parent, depth) for field in fields]
    check_names((field.name for field in converted), place)
    return converted


def _field(field: object, parent: str, depth: int) -> pa.Field:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
        place = f"struct {parent!r}" if parent else "the schema"
        raise InvalidSchemaError(f"{place} has a field that is not an object with a name and a type")
    name = field["name"]
    metadata = field.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidSchemaError(f"column {name!r} has metadata that is not an object")
    column = f"{parent}.{name}" if parent else name
    return pa.field(
        name,
        _data_type(field["type"], column, depth),
        nullable=field.get("nullable") is not False,
        metadata=arrow_metadata(metadata),
    )


def _data_type(spark_type: object, column: str, depth: int) -> pa.DataType:
    check_depth(column, depth)
    if isinstance(spark_type, str):
        return _atomic_type(spark_type, column)
    if not isinstance(spark_type, dict):
        raise InvalidSchemaError(f"column {column!r} has a type that is neither a name nor an object")
    match spark_type.get("type"):
        case "struct":
            return pa.struct(_struct_fields(spark_type, column, depth + 1))
        case "array":
            element = _data_type(spark_type.get("elementType"), f"{column}.element", depth + 1)
            return pa.list_(pa.field("element", element, spark_type.get("containsNull") is not False))
        case "map":
            key = _data_type(spark_type.get("keyType"), f"{column}.key", depth + 1)
            value = _data_type(spark_type.get("valueType"), f"{column}.value", depth + 1)
            value_field = pa.field("value", value, spark_type.get("valueContainsNull") is not False)
            return pa.map_(pa.field("key", key, nullable=False), value_field)
        case "udt":
            return _data_type(spark_type.get("sqlType"), column, depth + 1)
        case other:
            raise InvalidSchemaError(f"column {column!r} has the type {other!r}, which tables cannot hold")


def _atomic_type(name: str, column: str) -> pa.DataType:
    known = ATOMIC_TYPES.get(name)
    if known is not None:
        return known
    base, _, rest = name.partition("(")
    if base == "decimal":
        return _decimal(rest, name, column)
    if base in ("char", "varchar") or name.startswith("string collate "):
        return pa.string()
    raise InvalidSchemaError(f"column {column!r} has the type {name!r}, which tables cannot hold")


def _decimal(arguments: str, name: str, column: str) -> pa.DataType:
    digits, _, fraction = arguments.removesuffix(")").partition(",")
    try:
        precision, scale = int(digits), int(fraction or "0")
    except ValueError as error:
        raise InvalidSchemaError(f"column {column!r} has the type {name!r}: write decimal(10,2)") from error
    if not (1 <= precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
        raise InvalidSchemaError(
            f"column {column!r} has the type {name!r}: precision is 1 to {MAX_DECIMAL_PRECISION}, "
            "and scale 0 to the precision"
        )
    return pa.decimal128(precision, scale)
