"""Nested values as the JSON objects that an index searches. The rows themselves keep the values as they are.

Dates and timestamps become ISO 8601 text, decimals numbers, bytes Base64; NaN and infinity, which JSON does
not have, become null.
"""

import base64
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from indextables.split.fields import ARRAY_KEY, FieldMapping

_Convert: TypeAlias = Callable[[Any], Any]


def json_objects(column: pa.Array, field: FieldMapping) -> list[dict[str, Any] | None]:
    """The values of a struct, array or map column as JSON objects; null stays null."""
    # Arrow writes moments of any year as text; Python's own types end with the year 9999.
    plain = column.cast(_plain_type(column.type))
    convert = _converter(column.type)
    values = plain.to_pylist()
    if field.is_array:
        return [None if value is None else {ARRAY_KEY: convert(value)} for value in values]
    return [None if value is None else convert(value) for value in values]


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    """The same type with text for moments and floats for decimals."""
    if pa.types.is_struct(data_type):
        return pa.struct([member.with_type(_plain_type(member.type)) for member in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_plain_type(data_type.value_type)))
    if pa.types.is_map(data_type):
        key, item = data_type.key_field, data_type.item_field
        return pa.map_(key.with_type(_plain_type(key.type)), item.with_type(_plain_type(item.type)))
    if pa.types.is_temporal(data_type):
        return pa.string()
    return pa.float64() if pa.types.is_decimal(data_type) else data_type


def _converter(data_type: pa.DataType) -> _Convert:
    """A function from the Python values of a type, made plain, to what JSON has."""
    if pa.types.is_struct(data_type):
        return _struct([(member.name, _or_null(_converter(member.type))) for member in data_type])
    if pa.types.is_map(data_type):
        return _map(data_type)
    if pa.types.is_list(data_type):
        convert = _or_null(_converter(data_type.value_type))
        return lambda values: [convert(value) for value in values]
    for is_type, convert in _ATOMIC:
        if is_type(data_type):
            return convert
    return lambda value: value


def _struct(members: list[tuple[str, _Convert]]) -> _Convert:
    return lambda value: {name: convert(value[name]) for name, convert in members}


def _map(data_type: pa.MapType) -> _Convert:
    key, item = _converter(data_type.key_type), _or_null(_converter(data_type.item_type))
    if pa.types.is_nested(data_type.key_type):
        return lambda entries: [{"key": key(name), "value": item(value)} for name, value in entries]
    return lambda entries: {_key(key(name)): item(value) for name, value in entries}


def _key(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _or_null(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _moment(value: str) -> str | None:
    # Arrow's own words, in angle brackets, stand for what is no date of any year.
    return None if value.startswith("<") else value.replace(" ", "T", 1)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_ATOMIC: tuple[tuple[Callable[[pa.DataType], bool], _Convert], ...] = (
    (pa.types.is_floating, _finite),
    (pa.types.is_temporal, _moment),
    (pa.types.is_binary, _base64),
)
