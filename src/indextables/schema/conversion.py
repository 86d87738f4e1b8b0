"""Conversion of Arrow columns to the types of a table, without loss.

Every value keeps its meaning: 3 becomes 3.0, nanoseconds become microseconds if the last digits are zeros, and numbers,
dates and timestamps become their text in a string column. A value that would lose something is an error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, time
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from indextables.schema.shape import find_column

V = TypeVar("V", bound=Sequence[Any])


class LossyConversionError(ValueError):
    """A value has no equal in the wanted type. The message says why."""


_MAX_FLOAT32: Final = (2 - 2**-23) * 2.0**127
_STRINGS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_LISTS: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)

# The families of types, and the families that each one converts to. Nested types are compared by their parts.
_FAMILIES: Final[tuple[tuple[str, tuple[Callable[[pa.DataType], bool], ...], frozenset[str]], ...]] = (
    ("boolean", (pa.types.is_boolean,), frozenset({"boolean", "string"})),
    ("integer", (pa.types.is_integer,), frozenset({"integer", "float", "decimal", "string"})),
    ("float", (pa.types.is_floating,), frozenset({"float", "integer", "string"})),
    ("decimal", (pa.types.is_decimal,), frozenset({"decimal", "integer", "string"})),
    ("string", _STRINGS, frozenset({"string"})),
    ("binary", _BYTES, frozenset({"binary"})),
    ("date", (pa.types.is_date,), frozenset({"date", "timestamp", "string"})),
    ("timestamp", (pa.types.is_timestamp,), frozenset({"timestamp", "date", "string"})),
    ("time", (pa.types.is_time,), frozenset({"string"})),
    ("struct", (pa.types.is_struct,), frozenset({"struct"})),
    ("map", (pa.types.is_map,), frozenset({"map"})),
    ("array", _LISTS, frozenset({"array"})),
)


def family_of(data_type: pa.DataType) -> str | None:
    """The family of a type: "integer", "float", "string", …; None for a type that tables do not hold."""
    return next((name for name, tests, _ in _FAMILIES if any(test(data_type) for test in tests)), None)


def converts(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type may have equals in another one. `convert` checks the values themselves."""
    plain = plain_type(given)
    if pa.types.is_null(plain) or plain.equals(wanted):
        return True
    if pa.types.is_timestamp(plain) and pa.types.is_timestamp(wanted):
        return (plain.tz is None) == (wanted.tz is None)
    targets = next((targets for _, tests, targets in _FAMILIES if any(test(plain) for test in tests)), None)
    if targets is None or family_of(wanted) not in targets:
        return False
    if isinstance(wanted, pa.StructType):
        return _structs_convert(plain, wanted)
    if pa.types.is_list(wanted):
        return converts(plain.value_type, wanted.value_type)
    if {family_of(plain), family_of(wanted)} == {"date", "timestamp"}:
        # A zone would have to be made up, or dropped.
        return getattr(plain, "tz", None) is None and getattr(wanted, "tz", None) is None
    return True


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type of the values of an encoded column or an extension type, and any other type itself."""
    if isinstance(data_type, pa.BaseExtensionType):
        return plain_type(data_type.storage_type)
    if isinstance(data_type, pa.DictionaryType | pa.RunEndEncodedType):
        return plain_type(data_type.value_type)
    return data_type


def without_views(rows: pa.Table) -> pa.Table:
    """Return the rows with plain strings and bytes for views, as in the data of Polars: not all kernels take views."""
    schema = pa.schema([field.with_type(_without_views(field.type)) for field in rows.schema])
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _without_views(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(data_type):
        return pa.large_string()
    if pa.types.is_binary_view(data_type):
        return pa.large_binary()
    if isinstance(data_type, pa.StructType):
        return pa.struct([member.with_type(_without_views(member.type)) for member in data_type])
    if isinstance(data_type, pa.LargeListType):
        return pa.large_list(data_type.value_field.with_type(_without_views(data_type.value_type)))
    if isinstance(data_type, pa.ListType):
        return pa.list_(data_type.value_field.with_type(_without_views(data_type.value_type)))
    return data_type


def convert(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return the same values in another type that `converts` allows. Raises LossyConversionError."""
    if column.type.equals(wanted):
        return column
    return pa.chunked_array([_convert(chunk, wanted) for chunk in column.chunks], wanted)


def convert_parts(array: Any, wanted: pa.DataType, leaf: Callable[[Any, pa.DataType], Any]) -> Any:
    """Convert a column whose parts, such as the fields of a struct, are converted by `leaf`."""
    if array.type.equals(wanted):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if isinstance(wanted, pa.StructType) and pa.types.is_struct(array.type):
        return _convert_struct(array, wanted, leaf)
    if pa.types.is_list(wanted) and family_of(array.type) == "array":
        return _convert_list(array, wanted, leaf)
    return leaf(array, wanted)


def _convert(array: Any, wanted: pa.DataType) -> Any:
    return convert_parts(array, wanted, _convert_leaf)


def _convert_leaf(array: Any, wanted: pa.DataType) -> Any:
    if isinstance(array.type, pa.BaseExtensionType):
        return _convert(array.storage, wanted)
    if isinstance(array.type, pa.DictionaryType | pa.RunEndEncodedType):
        return _convert(_cast(array, array.type.value_type), wanted)
    if pa.types.is_decimal(wanted) and pa.types.is_integer(array.type):
        # Arrow asks for as many digits as the integer type may have; the values may have fewer.
        return _cast(_cast(array, pa.decimal128(38, 0)), wanted)
    converted = _cast(array, wanted)
    if _may_round(array.type, wanted) and not _is_same(array, _cast(converted, array.type)):
        raise LossyConversionError(f"a value of the type {array.type} cannot be kept exactly as {wanted}")
    return converted


def _may_round(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow's cast rounds without an error."""
    families = (family_of(given), family_of(wanted))
    return families == ("timestamp", "date") or (
        families == ("float", "float") and not pa.types.is_float64(wanted)
    )


def _is_same(array: pa.Array, other: pa.Array) -> bool:
    same = pc.equal(array, other)
    if pa.types.is_floating(array.type):
        same = pc.or_(same, pc.and_(pc.is_nan(array), pc.is_nan(other)))
    return bool(pc.all(same, min_count=0).as_py())


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise LossyConversionError(str(error)) from error


def _structs_convert(given: pa.StructType, wanted: pa.StructType) -> bool:
    fields = {field.name.lower(): field.type for field in wanted}
    return all(
        field.name.lower() in fields and converts(field.type, fields[field.name.lower()]) for field in given
    )


def _convert_struct(
    array: pa.StructArray, wanted: pa.StructType, leaf: Callable[[Any, pa.DataType], Any]
) -> pa.StructArray:
    given = pa.schema(list(array.type))
    children = []
    for field in wanted:
        found = find_column(given, field.name)
        child = (
            pa.nulls(len(array), field.type)
            if found is None
            else convert_parts(array.field(given.get_field_index(found.name)), field.type, leaf)
        )
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())


def _convert_list(array: Any, wanted: pa.ListType, leaf: Callable[[Any, pa.DataType], Any]) -> pa.ListArray:
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    values = convert_parts(array.flatten(), wanted.value_type, leaf)
    return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=array.is_null())


def misfits(values: V, convert: Callable[[V], Any]) -> dict[int, str]:
    """The places of the values that cannot be converted, and why. Takes few calls if there are few of them."""
    try:
        convert(values)
    except LossyConversionError as error:
        if len(values) == 1:
            return {0: str(error)}
    else:
        return {}
    middle = len(values) // 2
    first, second = values[:middle], values[middle:]
    found = misfits(first, convert)  # type: ignore[arg-type]  # a slice has the type of the sequence
    found.update({middle + place: reason for place, reason in misfits(second, convert).items()})  # type: ignore[arg-type]
    return found


def loss_of(value: Any, data_type: pa.DataType) -> str | None:
    """What Arrow would leave out of a Python value without an error, or None."""
    parts: Iterable[tuple[Any, pa.DataType]] = ()
    if pa.types.is_struct(data_type) and isinstance(value, Mapping):
        members = {member.name: member.type for member in data_type}
        unknown = [name for name in value if name not in members]
        if unknown:
            return f"there is no member {unknown[0]!r}; the members are {', '.join(members)}"
        parts = ((each, members[name]) for name, each in value.items())
    elif pa.types.is_list(data_type) and isinstance(value, list | tuple):
        parts = ((each, data_type.value_type) for each in value)
    elif pa.types.is_map(data_type) and isinstance(value, Mapping):
        parts = ((each, data_type.item_type) for each in value.values())
    elif pa.types.is_integer(data_type) and isinstance(value, float) and not value.is_integer():
        return f"{value!r} is no whole number"
    elif (
        pa.types.is_float32(data_type)
        and isinstance(value, float)
        and _MAX_FLOAT32 < abs(value) < float("inf")
    ):
        return f"{value!r} is too large"
    elif pa.types.is_date32(data_type) and isinstance(value, datetime) and value.time() != time():
        return "it has a time of day"
    return next((found for part in parts if (found := loss_of(*part)) is not None), None)
