"""The common type of two columns, if every value of both keeps its meaning in it."""

from typing import Any

import msgspec
import pyarrow as pa

from indextables.schema.conversion import family_of, plain_type
from indextables.schema.spark_json import MAX_DECIMAL_PRECISION, TIMESTAMP, TIMESTAMP_NTZ

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_SIGNED_OF = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_INT64_DIGITS = 19
_UINT64_DIGITS = 20


class Seen(msgspec.Struct, frozen=True):
    """The type of a column as far as it was read.

    `is_text` means that the values are text, which was recognised as numbers or times: they can be read as strings
    just as well.
    """

    type: pa.DataType
    is_text: bool = False


NOTHING_SEEN = Seen(pa.null())


def unify(one: Seen, other: Seen) -> Seen | None:
    """What was seen in both. None if they have no common type."""
    is_text = (one.is_text or pa.types.is_null(one.type)) and (other.is_text or pa.types.is_null(other.type))
    common = common_type(one.type, other.type)
    if common is not None:
        return Seen(common, is_text)
    if all(seen.is_text or pa.types.is_string(seen.type) for seen in (one, other)):
        return Seen(pa.string(), is_text)
    return None


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The common type of two types that `table_type` returned. None if there is none."""
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    families = frozenset({family_of(one), family_of(other)})
    if families == {"integer"}:
        return max(one, other, key=_INTEGERS.index)
    if families in ({"float"}, {"float", "integer"}):
        return pa.float64()
    if families in ({"decimal"}, {"decimal", "integer"}):
        return _common_decimal(_as_decimal(one), _as_decimal(other))
    if families in ({"date", "timestamp"}, {"timestamp"}):
        zones = {getattr(one, "tz", None), getattr(other, "tz", None)}
        return TIMESTAMP_NTZ if zones == {None} else pa.string()
    if families <= {"date", "timestamp", "string"}:
        return pa.string()
    return _common_nested(one, other)


def _common_nested(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _common_struct(one, other)
    if pa.types.is_list(one) and pa.types.is_list(other):
        element = common_type(one.value_type, other.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if pa.types.is_map(one) and pa.types.is_map(other):
        key = common_type(one.key_type, other.key_type)
        item = common_type(one.item_type, other.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return None


def _common_struct(one: pa.StructType, other: pa.StructType) -> pa.DataType | None:
    types: dict[str, pa.DataType] = {field.name: field.type for field in one}
    for field in other:
        common = common_type(types.get(field.name, pa.null()), field.type)
        if common is None:
            return None
        types[field.name] = common
    return pa.struct(list(types.items()))


def conflict_path(one: pa.DataType, other: pa.DataType, path: str) -> str:
    """The innermost field that keeps two types from having a common one."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        types = {field.name: field.type for field in one}
        for field in other:
            given = types.get(field.name, pa.null())
            if common_type(given, field.type) is None:
                return conflict_path(given, field.type, f"{path}.{field.name}")
    if pa.types.is_list(one) and pa.types.is_list(other):
        return conflict_path(one.value_type, other.value_type, path)
    return path


def table_type(data_type: pa.DataType) -> pa.DataType:
    """The type of a table's column that holds a column of an Arrow type, or of a file.

    Nanoseconds become microseconds, if no digit is lost; times of day become strings. A type that no table holds stays
    as it is, and is refused later, by name.
    """
    plain = plain_type(data_type)
    if pa.types.is_timestamp(plain):
        return TIMESTAMP if plain.tz else TIMESTAMP_NTZ
    if plain in _SIGNED_OF:
        return _SIGNED_OF[plain]
    if pa.types.is_uint64(plain):
        return pa.decimal128(_UINT64_DIGITS, 0)
    if pa.types.is_float16(plain):
        return pa.float32()
    if pa.types.is_decimal(plain):
        return (
            pa.decimal128(plain.precision, plain.scale) if plain.precision <= MAX_DECIMAL_PRECISION else plain
        )
    if pa.types.is_struct(plain):
        return pa.struct([(field.name, table_type(field.type)) for field in plain])
    if pa.types.is_map(plain):
        return pa.map_(table_type(plain.key_type), table_type(plain.item_type))
    match family_of(plain):
        case "array":
            return pa.list_(pa.field("element", table_type(plain.value_type)))
        case "string" | "time":
            return pa.string()
        case "binary":
            return pa.binary()
        case "date":
            return pa.date32()
    return plain


def final_type(data_type: pa.DataType) -> pa.DataType:
    """The type of a column after all input was read: a string where there were only nulls or empty objects."""
    if pa.types.is_null(data_type) or (pa.types.is_struct(data_type) and not data_type.num_fields):
        return pa.string()
    if pa.types.is_struct(data_type):
        return pa.struct([(field.name, final_type(field.type)) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(pa.field("element", final_type(data_type.value_type)))
    if pa.types.is_map(data_type):
        return pa.map_(final_type(data_type.key_type), final_type(data_type.item_type))
    return data_type


# The decimal types of Arrow share no base class.
def _as_decimal(data_type: Any) -> Any:
    return data_type if pa.types.is_decimal(data_type) else pa.decimal128(_INT64_DIGITS, 0)


def _common_decimal(one: Any, other: Any) -> pa.DataType | None:
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return pa.decimal128(precision, scale) if precision <= MAX_DECIMAL_PRECISION else None
