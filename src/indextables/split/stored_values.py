"""Values of stored documents, as Tantivy returns them, in the table's types.

Writers on the JVM have stored dates and timestamps as dates or as numbers (days, microseconds), decimals as
floats or text, and nested values as JSON objects, with arrays under a key of their own. All of that is read.
"""

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from ipaddress import IPv6Address, ip_address
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from indextables.errors import SplitCorruptedError
from indextables.split.fields import ARRAY_KEY

_Convert: TypeAlias = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_DECIMALS = Context(prec=38, rounding=ROUND_HALF_EVEN)


def stored_column(values: list[Any], field: pa.Field, place: str) -> pa.Array:
    """A column of stored values; None for null. Raises SplitCorruptedError if a value is of another kind."""
    convert = _or_null(_converter(field.type))
    try:
        return pa.array([convert(value) for value in values], field.type)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        raise SplitCorruptedError(
            f"{place}: column {field.name!r} holds stored values that are no {field.type}: {error!r}"
        ) from error


def plain_address(value: str) -> str:
    """An IP address as people write it: Tantivy keeps those of version 4 inside those of version 6."""
    address = ip_address(value)
    return str(address.ipv4_mapped or address) if isinstance(address, IPv6Address) else value


def _converter(data_type: pa.DataType) -> _Convert:
    if pa.types.is_struct(data_type):
        return _struct([(member.name, _or_null(_converter(member.type))) for member in data_type])
    if pa.types.is_list(data_type):
        return _list(_or_null(_converter(data_type.value_type)))
    if pa.types.is_map(data_type):
        return _map(_converter(data_type.key_type), _or_null(_converter(data_type.item_type)))
    if pa.types.is_decimal(data_type):
        return _decimal(data_type.scale)
    for is_type, convert in _ATOMIC:
        if is_type(data_type):
            return convert
    return lambda value: value


def _or_null(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _struct(members: list[tuple[str, _Convert]]) -> _Convert:
    def convert(value: Any) -> dict[str, Any]:
        document = _document(value)
        return {name: convert_member(document.get(name)) for name, convert_member in members}

    return convert


def _list(convert_element: _Convert) -> _Convert:
    def convert(value: Any) -> list[Any]:
        document = _document(value)
        elements = document.get(ARRAY_KEY, []) if isinstance(document, dict) else document
        return [convert_element(element) for element in elements]

    return convert


def _map(convert_key: _Convert, convert_item: _Convert) -> _Convert:
    def convert(value: Any) -> list[tuple[Any, Any]]:
        document = _document(value)
        if isinstance(document, dict) and ARRAY_KEY not in document:
            return [(convert_key(key), convert_item(item)) for key, item in document.items()]
        entries = document[ARRAY_KEY] if isinstance(document, dict) else document
        return [(convert_key(entry["key"]), convert_item(entry["value"])) for entry in entries]

    return convert


def _document(value: Any) -> Any:
    return orjson.loads(value) if isinstance(value, str) else value


def _boolean(value: Any) -> bool:
    return value == "true" if isinstance(value, str) else bool(value)


def _integer(value: Any) -> int:
    number = int(value)
    if number != value and not isinstance(value, str):
        raise ValueError("not a whole number")
    return number


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # Text in a JSON object that looks like a moment has become one.
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return orjson.dumps(value, option=orjson.OPT_UTC_Z).decode()


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(value)


def _decimal(scale: int) -> _Convert:
    unit = Decimal(1).scaleb(-scale)
    return lambda value: Decimal(str(value)).quantize(unit, context=_DECIMALS)


def _day(value: Any) -> int:
    if isinstance(value, datetime):
        return (value.date() - _EPOCH_DAY).days
    if isinstance(value, str):
        return (date.fromisoformat(value[:10]) - _EPOCH_DAY).days
    return (value - _EPOCH_DAY).days if isinstance(value, date) else int(value)


def _moment(value: Any) -> int:
    if isinstance(value, str):
        return _moment(datetime.fromisoformat(value))
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND
    return int(value)


_ATOMIC: tuple[tuple[Callable[[pa.DataType], bool], _Convert], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, float),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _bytes),
    (pa.types.is_date32, _day),
    (pa.types.is_timestamp, _moment),
)
