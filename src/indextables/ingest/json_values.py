"""JSON read exactly, value by value: the way for lines that Arrow's reader refuses, or would change.

Numbers stay text until their type is known, so that no digit is lost.
"""

import json
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from indextables.ingest.lattice import common_type, conflict_path
from indextables.ingest.text_types import read_text, recognised_type
from indextables.schema.conversion import LossyConversionError
from indextables.schema.spark_json import check_depth

_MAY_BE_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INT64: Final = range(-(2**63), 2**63)


class NotJsonError(ValueError):
    """A text is not one JSON object. The message says why."""


class Integer(str):
    """A whole number, as it is written."""

    __slots__ = ()


class Decimal(str):
    """A number with a fraction or an exponent, as it is written."""

    __slots__ = ()


def parse_object(text: bytes) -> dict[str, Any]:
    """Parse one JSON object. Raises NotJsonError, also for a name twice in one object, NaN, and lone surrogates."""
    try:
        value = _DECODER.decode(text.decode())
        if b"\\u" in text:
            text_of(value).encode()
    except UnicodeEncodeError as error:
        raise NotJsonError("a string has half of a surrogate pair, which is no character") from error
    except RecursionError as error:
        raise NotJsonError("the value is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise NotJsonError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(value, dict):
        raise NotJsonError("it is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotJsonError(f"an object has the field {twice!r} twice")
    return value


def _refuse_constant(text: str) -> None:
    raise NotJsonError(f"{text} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=Integer, parse_float=Decimal, parse_constant=_refuse_constant
)


def text_of(value: Any) -> str:
    """A value as JSON, with numbers as they were written."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Integer | Decimal):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{','.join(map(text_of, value))}]"
    return "{" + ",".join(f"{text_of(name)}:{text_of(each)}" for name, each in value.items()) + "}"


def type_of(value: Any, path: str = "", depth: int = 0) -> pa.DataType:
    """The type of a value. Raises NotJsonError for a list whose elements have no common type."""
    check_depth(path, depth)
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, Integer):
        return pa.int64() if int(value) in _INT64 else pa.float64()
    if isinstance(value, Decimal):
        return pa.float64()
    if isinstance(value, str):
        if _MAY_BE_TIME.match(value):
            return recognised_type(pa.chunked_array([[value]]), only_times=True)
        return pa.string()
    if isinstance(value, dict):
        return pa.struct([(name, type_of(each, f"{path}.{name}", depth + 1)) for name, each in value.items()])
    element = pa.null()
    for each in value:
        other = type_of(each, path, depth + 1)
        common = common_type(element, other)
        if common is None:
            raise ListConflictError(conflict_path(element, other, path))
        element = common
    return pa.list_(pa.field("element", element))


class ListConflictError(ValueError):
    """The elements of a list have no common type. The message is the path of the list."""


def column_of(values: Sequence[Any], wanted: pa.DataType, *, ignores_new: bool = False) -> pa.Array:
    """Values as a column of a type. Fields of objects that a struct does not have are ignored, or refused.

    Raises LossyConversionError for a value that the type does not have.
    """
    if pa.types.is_string(wanted):
        return pa.array([_as_string(value) for value in values], wanted)
    if pa.types.is_struct(wanted):
        return _struct_column(values, wanted, ignores_new)
    if pa.types.is_list(wanted):
        lists = [_expect(value, list, "a list") for value in values]
        elements = [each for value in lists if value is not None for each in value]
        return pa.ListArray.from_arrays(
            _offsets(lists),
            column_of(elements, wanted.value_type, ignores_new=ignores_new),
            type=wanted,
            mask=_nulls(lists),
        )
    if pa.types.is_map(wanted):
        return _map_column(values, wanted)
    return read_text(pa.array([_as_scalar(value) for value in values], pa.string()), wanted)


def _struct_column(values: Sequence[Any], wanted: pa.StructType, ignores_new: bool) -> pa.Array:
    objects = [_expect(value, dict, "an object") for value in values]
    names = {field.name.lower(): field.name for field in wanted}
    children: dict[str, list[Any]] = {field.name: [None] * len(values) for field in wanted}
    for row, value in enumerate(objects):
        for name, each in (value or {}).items():
            if name.lower() in names:
                children[names[name.lower()]][row] = each
            elif not ignores_new:
                raise LossyConversionError(
                    f"the object has the field {name!r}, which the table does not have"
                )
    arrays = [column_of(children[field.name], field.type, ignores_new=ignores_new) for field in wanted]
    return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=_nulls(objects))


def _map_column(values: Sequence[Any], wanted: pa.MapType) -> pa.Array:
    maps = [_expect(value, dict, "an object") for value in values]
    keys = [key for value in maps if value is not None for key in value]
    items = [item for value in maps if value is not None for item in value.values()]
    offsets = _offsets(maps)
    array = pa.MapArray.from_arrays(
        offsets, column_of(keys, wanted.key_type), column_of(items, wanted.item_type), type=wanted
    )
    nulls = _nulls(maps)
    return pa.array(
        [
            None if is_null else value
            for value, is_null in zip(array.to_pylist(), nulls.to_pylist(), strict=True)
        ],
        wanted,
    )


def _as_string(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return str(value) if isinstance(value, str) else text_of(value)


def _as_scalar(value: Any) -> str | None:
    if isinstance(value, dict | list):
        raise LossyConversionError(f"{text_of(value)[:40]} is not a single value")
    return _as_string(value)


def _expect(value: Any, kind: type, name: str) -> Any:
    if value is None or isinstance(value, kind):
        return value
    raise LossyConversionError(f"{text_of(value)[:40]} is not {name}")


def _offsets(values: Sequence[Any]) -> pa.Array:
    return pa.array([0, *accumulate(len(value or ()) for value in values)], pa.int32())


def _nulls(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())
