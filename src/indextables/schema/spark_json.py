"""Converts between Arrow schemas and the schema JSON of Spark (`StructType.json`), and hashes doc mappings.

At every level of a schema, names are unique without regard to case, and the depth is bounded. Equal doc mappings have
equal hashes, whatever the order of their keys.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import orjson
import pyarrow as pa

from indextables._caching import shared_memo
from indextables.errors import InvalidSchemaError

# Deeper than any schema in practice, and far from Python's recursion limit.
MAX_NESTING = 64


# Field metadata is a JSON object in Spark, and pairs of bytes in Arrow. Text values keep their key on both sides, so
# that a comment stays a comment. Other values are stored under this key, as JSON.
SPARK_METADATA_KEY = b"spark.metadata"

# Arrow and Parquet describe the physical file under keys with these prefixes, which would be wrong for the table.
PHYSICAL_PREFIXES = (b"ARROW:", b"PARQUET:")

# Where a Spark schema has field ids (`field_ids`), and what the table knows of a changed column (`evolution`). Only the
# table assigns them, so no conversion keeps them.
FIELD_ID_KEY = "parquet.field.id"
NESTED_IDS_KEY = "parquet.field.nested.ids"
STORED_NAME_KEY = "indextables.storedName"
DEFAULT_KEY = "indextables.default"
WIDENED_KEY = "indextables.widened"
_KEYS_OF_TABLE = frozenset({FIELD_ID_KEY, NESTED_IDS_KEY, STORED_NAME_KEY, DEFAULT_KEY, WIDENED_KEY})


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
    "decimal": pa.decimal128(10, 0),  # Spark's default precision and scale
}

MAX_DECIMAL_PRECISION = 38


HASH_LENGTH = 16


@shared_memo("schema.spark_json.schemas", "schemas by their JSON", max_entries=64)
def from_spark_json(text: str | bytes) -> pa.Schema:
    """Return the Arrow schema of a Spark schema in JSON.

    Raises InvalidSchemaError if the text is not a Spark struct, or has a type that tables do not support.
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


# Arrow has many more types than Spark. A type is converted if all its values fit a Spark type. Any other type is
# rejected with a suggested cast, because only the caller knows which loss is acceptable.

UINT64_AS_DECIMAL = "decimal(20,0)"

# The first test that is true determines the Spark type.
_SPARK_NAMES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
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
    """Return the Spark schema JSON of an Arrow schema, compact and with keys in Spark's order.

    Raises InvalidSchemaError, naming the column and the cast, for types with values that no Spark type has, and for
    names that differ only in case.
    """
    document = {"type": "struct", "fields": _struct_fields_json(schema, "", 0)}
    return orjson.dumps(document).decode()


def _struct_fields_json(fields: pa.Schema | pa.StructType, parent: str, depth: int) -> list[dict[str, Any]]:
    members = list(cast("Any", fields))
    check_names((field.name for field in members), f"struct {parent!r}" if parent else "the schema")
    return [_field_json(field, parent, depth) for field in members]


def _field_json(field: pa.Field, parent: str, depth: int) -> dict[str, Any]:
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
    for is_type, name in _SPARK_NAMES:
        if is_type(data_type):
            return name
    if isinstance(data_type, pa.TimestampType):
        return _timestamp(data_type, column)
    if pa.types.is_decimal(data_type):
        return _decimal_name(data_type, column)
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
        return {"type": "struct", "fields": _struct_fields_json(data_type, column, depth + 1)}
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
        # Spark timestamps have microseconds; the last three digits would be lost silently.
        zone = f", tz={data_type.tz!r}" if data_type.tz else ""
        raise _refused(column, data_type, f"timestamp('us'{zone})")
    return "timestamp" if data_type.tz else "timestamp_ntz"


# The four decimal types of Arrow share no base class.
def _decimal_name(data_type: Any, column: str) -> str:
    if data_type.precision > MAX_DECIMAL_PRECISION or not 0 <= data_type.scale <= data_type.precision:
        raise _refused(column, data_type, f"decimal128({MAX_DECIMAL_PRECISION}, 0), or fewer digits")
    return f"decimal({data_type.precision},{data_type.scale})"


def _refused(column: str, data_type: pa.DataType, remedy: str) -> InvalidSchemaError:
    return InvalidSchemaError(
        f"column {column!r} has the Arrow type {data_type}, which tables cannot hold; cast it to {remedy}"
    )


def spark_fields(spark_type: Any) -> Iterator[dict[str, Any]]:
    """Yield every StructField of a type, at any depth."""
    if not isinstance(spark_type, dict):
        return
    for field in spark_type.get("fields", ()):
        yield field
        yield from spark_fields(field["type"])
    for key in ("elementType", "keyType", "valueType", "sqlType"):
        yield from spark_fields(spark_type.get(key))


def check_depth(column: str, depth: int) -> None:
    """Raise InvalidSchemaError for a type that is nested deeper than MAX_NESTING."""
    if depth > MAX_NESTING:
        top = column.partition(".")[0]
        raise InvalidSchemaError(f"column {top!r} is nested more than {MAX_NESTING} levels deep; flatten it")


def check_names(names: Iterable[str], place: str) -> None:
    """Raise InvalidSchemaError for empty names, and for names that differ only in case."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise InvalidSchemaError(f"{place} has a column without a name; name it")
        key = name.lower()
        if key in seen:
            raise InvalidSchemaError(
                f"{place} has the columns {seen[key]!r} and {name!r}, the same name to Spark; rename one"
            )
        seen[key] = name


def arrow_metadata(spark: Mapping[str, Any]) -> dict[bytes, bytes] | None:
    """Return the Arrow form of a Spark field's metadata, without what only tables have; None if nothing is left."""
    spark = _of_user(spark)
    texts = {key.encode(): value.encode() for key, value in spark.items() if isinstance(value, str)}
    others = {key: value for key, value in spark.items() if not isinstance(value, str)}
    if others:
        texts[SPARK_METADATA_KEY] = orjson.dumps(others, option=orjson.OPT_SORT_KEYS)
    return texts or None


def spark_metadata(arrow: Mapping[bytes, bytes] | None, column: str) -> dict[str, Any]:
    """Return the Spark form of an Arrow field's metadata, without what only tables have.

    Raises InvalidSchemaError if an entry is not text, because JSON cannot hold raw bytes.
    """
    spark: dict[str, Any] = {}
    for key, value in (arrow or {}).items():
        if key.startswith(PHYSICAL_PREFIXES):
            continue
        if key == SPARK_METADATA_KEY:
            spark.update(_non_text_values(value, column))
            continue
        try:
            spark[key.decode()] = value.decode()
        except UnicodeDecodeError as error:
            raise InvalidSchemaError(
                f"column {column!r}: metadata entry {key!r} is not utf-8 text; remove it from the field"
            ) from error
    return _of_user(spark)


def _of_user(spark: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spark.items() if key not in _KEYS_OF_TABLE}


def _non_text_values(value: bytes, column: str) -> dict[str, Any]:
    try:
        decoded = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidSchemaError(
            f"column {column!r}: metadata entry {SPARK_METADATA_KEY.decode()!r} is not JSON; remove it"
        ) from error
    if not isinstance(decoded, dict):
        raise InvalidSchemaError(
            f"column {column!r}: metadata entry {SPARK_METADATA_KEY.decode()!r} is not a JSON object; remove it"
        )
    return decoded


def doc_mapping_hash(mapping_json: str) -> str:
    """Return the hash of the canonical form of a doc mapping's JSON. Raises ValueError if it is not JSON."""
    digest = hashlib.sha256(canonical_json(mapping_json)).digest()
    return base64.urlsafe_b64encode(digest).decode()[:HASH_LENGTH]


def hash_or_none(mapping_json: str) -> str | None:
    """Return the hash of a doc mapping's JSON, or None if it is not JSON."""
    try:
        return doc_mapping_hash(mapping_json)
    except ValueError:
        return None


def canonical_json(text: str) -> bytes:
    """Return JSON with sorted keys, arrays of named objects sorted by name, and no white space."""
    return orjson.dumps(_canonical(orjson.loads(text)), option=orjson.OPT_SORT_KEYS)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_canonical(item) for item in value]
        if items and all(isinstance(item, dict) and "name" in item for item in items):
            return sorted(items, key=lambda item: str(item["name"]))
        return items
    return value
