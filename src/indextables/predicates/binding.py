"""Binds predicates to a schema: columns get the schema's spelling, literals become values of the columns' types."""

import math
import sys
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, time, tzinfo
from decimal import ROUND_FLOOR, Context, Decimal
from difflib import get_close_matches
from enum import Enum, auto
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from indextables.errors import InvalidPredicateError
from indextables.predicates.literals import (
    DATE_FORM,
    MAX_NUMBER_LENGTH,
    TIMESTAMP_FORM,
    parse_date,
    parse_decimal,
    parse_integer,
    parse_timestamp,
)
from indextables.predicates.tree import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BoundPredicate,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Like,
    NestedColumn,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Value,
    check_depth,
    check_pattern,
)
from indextables.schema import find_column

UPWARD = (Operator.GT, Operator.GE)
DOWNWARD = (Operator.LT, Operator.LE)


def bind(predicate: Predicate, schema: pa.Schema, *, time_zone: tzinfo = UTC) -> BoundPredicate:
    """Bind a predicate to a schema.

    Column names are case-insensitive, as in Spark. `user.name` is a member of a struct or the key of a map, unless a
    column has this name. Literals become values of the column's type. If the type has no such
    value (x > 1.5 for an integer, a number out of range), the comparison is replaced by one that is true for the same
    rows. Timestamps without a zone are in `time_zone`.

    Raises InvalidPredicateError for unknown columns, for literals that cannot be compared with their column, and for
    trees that are too deep.
    """
    check_depth(predicate)
    return BoundPredicate(_Binder(schema, time_zone).bind(predicate))


class _Binder:
    __slots__ = ("schema", "time_zone")

    def __init__(self, schema: pa.Schema, time_zone: tzinfo) -> None:
        self.schema = schema
        self.time_zone = time_zone

    def bind(self, predicate: Predicate) -> Predicate:
        match predicate:
            case And(operands=operands):
                return And(*map(self.bind, operands))
            case Or(operands=operands):
                return Or(*map(self.bind, operands))
            case Not(operand=operand):
                return Not(self.bind(operand))
            case AlwaysTrue() | AlwaysFalse():
                return predicate
            case IsNull(column=column):
                return IsNull(self.field(column).name)
            case IsNotNull(column=column):
                return IsNotNull(self.field(column).name)
            case Comparison():
                return self.comparison(predicate)
            case In():
                return self.membership(predicate)
            case StartsWith(column=column, prefix=prefix):
                return StartsWith(self.text_field(column, prefix).name, prefix)
            case Like(column=column, pattern=pattern):
                check_pattern(column, pattern)
                return Like(self.text_field(column, pattern).name, pattern)
        raise InvalidPredicateError(f"{predicate!r} is not a predicate; use parse_predicate, or col()")

    def comparison(self, predicate: Comparison) -> Predicate:
        field = self.field(predicate.column)
        if predicate.value is None:
            return Comparison(field.name, predicate.operator, None)
        place = locate(predicate.value, field, self.time_zone)
        return _at_place(field.name, predicate.operator, place)

    def membership(self, predicate: In) -> Predicate:
        field = self.field(predicate.column)
        known = [value for value in predicate.values if value is not None]
        unknown = (None,) if len(known) < len(predicate.values) else ()
        if are_values_of(known, field.type):
            return In(field.name, (*dict.fromkeys(known), *unknown))
        places = [locate(value, field, self.time_zone) for value in known]
        values = dict.fromkeys(place.value for place in places if place.where is Where.AT)
        return In(field.name, (*values, *unknown))

    def text_field(self, column: str, text: str) -> "BoundField":
        field = self.field(column)
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            raise InvalidPredicateError(
                f"column {field.name!r} has the type {field.type}; LIKE applies to text only"
            )
        if not is_encodable(text):
            raise InvalidPredicateError(f"the pattern {text!r} for column {field.name!r} is not valid text")
        return field

    def field(self, column: str) -> "BoundField":
        field = find_column(self.schema, column)
        if field is not None:
            return BoundField(field.name, field.type)
        nested = self.nested(column)
        if nested is not None:
            return nested
        nearest = get_close_matches(column, self.schema.names, n=1, cutoff=0.5)
        remedy = f"did you mean {nearest[0]!r}?" if nearest else f"they are {', '.join(self.schema.names)}"
        raise InvalidPredicateError(f"there is no column {column!r}; {remedy}")

    def nested(self, column: str) -> "BoundField | None":
        """Return the value inside a column that `user.name` names; None if no column has such a name."""
        first, *members = column.split(".")
        field = find_column(self.schema, first)
        if field is None or not members:
            return None
        path, data_type = [str(field.name)], field.type
        for number, name in enumerate(members):
            if pa.types.is_map(data_type) and pa.types.is_string(data_type.key_type):
                # The rest is one key, even with dots in it.
                return BoundField(NestedColumn(tuple(path), ".".join(members[number:])), data_type.item_type)
            if not pa.types.is_struct(data_type):
                raise InvalidPredicateError(
                    f"{'.'.join(path)!r} has the type {data_type}, and conditions apply to the members of structs and "
                    f"to the keys of maps; search inside lists and JSON with a query, as in {column}:value"
                )
            member = find_column(pa.schema(data_type), name)
            if member is None:
                names = [each.name for each in data_type]
                nearest = get_close_matches(name, names, n=1, cutoff=0.5)
                remedy = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(names)}"
                raise InvalidPredicateError(f"{'.'.join(path)!r} has no member {name!r}; {remedy}")
            path.append(str(member.name))
            data_type = member.type
        return BoundField(NestedColumn(tuple(path)), data_type)


class BoundField(NamedTuple):
    """A column, or a value inside one, and its type."""

    name: str
    type: pa.DataType


def _at_place(column: str, operator: Operator, place: "Place") -> Predicate:
    if place.where is Where.AT:
        return Comparison(column, operator, place.value)
    no_value = In(column, ())  # false for every value, unknown for null
    any_value = Not(no_value)
    if operator is Operator.EQ:
        return no_value
    if operator is Operator.NE:
        return any_value
    match place.where:
        case Where.AFTER:
            # No value lies between `place.value` and the literal, so < and <= are equivalent, and so are > and >=.
            border = Operator.LE if operator in DOWNWARD else Operator.GT
            return Comparison(column, border, place.value)
        case Where.BELOW_ALL:
            return any_value if operator in UPWARD else no_value
        case _:
            return any_value if operator in DOWNWARD else no_value


# Typed literals: the place of a literal among the values of a column's type. A literal need not be a value of the type:
# 1.5 lies between two integers, and 300 lies above every byte. With the place, a comparison keeps its meaning without
# casting the column.


class Where(Enum):
    """The position of a literal relative to the values of a type."""

    AT = auto()  # it is a value of the type
    AFTER = auto()  # between the given value and the next one
    BELOW_ALL = auto()
    ABOVE_ALL = auto()


class Place(msgspec.Struct, frozen=True):
    """A literal's place; AT and AFTER have a value of the column's type."""

    where: Where
    value: Value | None = None


BELOW_ALL = Place(Where.BELOW_ALL)
ABOVE_ALL = Place(Where.ABOVE_ALL)

# The texts that Spark converts to booleans.
TRUE_TEXTS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_TEXTS = frozenset({"false", "f", "no", "n", "0"})

# Decimals have at most 38 digits. Numbers with exponents beyond this lie outside the range of every decimal, or between
# zero and the next value. They need no exact arithmetic, whose cost would be unbounded.
EXTREME_EXPONENT = 60
EXACT = Context(prec=2 * MAX_NUMBER_LENGTH + 2 * EXTREME_EXPONENT)


def locate(value: Any, field: BoundField, time_zone: tzinfo) -> Place:
    """Find the place of a literal among the values of a column.

    Raises InvalidPredicateError, naming the column and the expected form, for a literal that cannot be compared with
    the column.
    """
    data_type = field.type
    literal = value.item() if isinstance(value, np.generic) else value
    for is_type, locate_in_type in LOCATORS:
        if is_type(data_type):
            place = locate_in_type(literal, data_type, time_zone)
            if place is None:
                break
            return place
    raise InvalidPredicateError(
        f"column {field.name!r} has the type {data_type} and cannot be compared with {_shown(value)}; "
        f"{expected_form(data_type)}"
    )


def are_values_of(values: Collection[Any], data_type: pa.DataType) -> bool:
    """Return whether every literal is certain to be a value of the type, so that its place is AT.

    A fast check for long lists. If the answer is False, the caller locates each literal.
    """
    kinds = set(map(type, values))
    if kinds == {int} and pa.types.is_integer(data_type):
        low, high = _integer_range(data_type)
        return bool(low <= min(values) and max(values) <= high)
    if kinds == {str} and (pa.types.is_string(data_type) or pa.types.is_large_string(data_type)):
        return is_encodable("".join(values))
    return False


def expected_form(data_type: pa.DataType) -> str:
    """Return how to write a literal of this type, for an error message."""
    for is_type, form in EXPECTED_FORMS:
        if is_type(data_type):
            return f"write {form}"
    return "only IS NULL and IS NOT NULL apply to this type"


def _locate_boolean(value: Any, _type: pa.DataType, _zone: tzinfo) -> Place | None:
    if isinstance(value, str):
        text = value.strip().lower()
        return Place(Where.AT, text in TRUE_TEXTS) if text in TRUE_TEXTS | FALSE_TEXTS else None
    return Place(Where.AT, value) if isinstance(value, bool) else None


def _locate_integer(value: Any, data_type: pa.DataType, _zone: tzinfo) -> Place | None:
    number = parse_integer(value) if isinstance(value, str) else value
    low, high = _integer_range(data_type)
    place = _on_grid(_as_decimal(number), 0, Decimal(low), Decimal(high))
    if place is None or place.value is None:
        return place
    return Place(place.where, int(place.value))  # type: ignore[arg-type]  # the grid's values are decimals


def _integer_range(data_type: pa.DataType) -> tuple[int, int]:
    bits = data_type.bit_width
    if pa.types.is_unsigned_integer(data_type):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _locate_decimal(value: Any, data_type: pa.DataType, _zone: tzinfo) -> Place | None:
    number = parse_decimal(value) if isinstance(value, str) else value
    high = Decimal(10**data_type.precision - 1).scaleb(-data_type.scale, EXACT)
    return _on_grid(_as_decimal(number), data_type.scale, -high, high)


def _locate_float(value: Any, _type: pa.DataType, _zone: tzinfo) -> Place | None:
    # As in Spark, values are compared as doubles, even if the column has 32-bit floats.
    number = _as_decimal(parse_decimal(value) if isinstance(value, str) else value)
    if number is None:
        return None
    nearest = value if isinstance(value, float) else float(number)
    if math.isinf(nearest) and number.is_finite():
        return Place(Where.AFTER, sys.float_info.max if nearest > 0 else -math.inf)
    return Place(Where.AT, nearest)


def _locate_string(value: Any, _type: pa.DataType, _zone: tzinfo) -> Place | None:
    return Place(Where.AT, value) if isinstance(value, str) and is_encodable(value) else None


def _locate_binary(value: Any, _type: pa.DataType, _zone: tzinfo) -> Place | None:
    if isinstance(value, str):
        return Place(Where.AT, value.encode()) if is_encodable(value) else None
    return Place(Where.AT, bytes(value)) if isinstance(value, bytes | bytearray) else None


def _locate_date(value: Any, _type: pa.DataType, zone: tzinfo) -> Place | None:
    if isinstance(value, str):
        value = parse_date(value)
    if not isinstance(value, datetime):
        return Place(Where.AT, value) if isinstance(value, date) else None
    local = _in_zone(value, zone)
    if local is None:
        return None
    return Place(Where.AT if local.time() == time.min else Where.AFTER, local.date())


def _locate_timestamp(value: Any, data_type: pa.DataType, zone: tzinfo) -> Place | None:
    if isinstance(value, str):
        value = parse_timestamp(value.strip())
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time.min)
    if not isinstance(value, datetime):
        return None
    if data_type.tz is None:
        local = _in_zone(value, zone)
        return None if local is None else Place(Where.AT, local)
    aware = value if value.tzinfo else value.replace(tzinfo=zone)
    try:
        return Place(Where.AT, aware.astimezone(UTC))
    except OverflowError:  # the first and the last day of the calendar, in another zone
        return None


def _in_zone(moment: datetime, zone: tzinfo) -> datetime | None:
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        return None


def _as_decimal(number: Any) -> Decimal | None:
    # The shortest text of a float is the number that the user wrote: 0.1, not 0.1000000000000000055….
    if isinstance(number, bool):
        return None
    if isinstance(number, float):
        return Decimal(repr(number))
    if isinstance(number, int):
        return Decimal(number)
    return number if isinstance(number, Decimal) and not number.is_snan() else None


def _on_grid(number: Decimal | None, scale: int, low: Decimal, high: Decimal) -> Place | None:
    """Find the place among the multiples of 10^-scale from `low` to `high`. As in Spark, NaN is above all."""
    if number is None:
        return None
    if number.is_nan() or number > high:
        return ABOVE_ALL
    if number < low:
        return BELOW_ALL
    step = Decimal(1).scaleb(-scale, EXACT)
    if number and number.adjusted() < -EXTREME_EXPONENT:
        return Place(Where.AFTER, 0 * step if number > 0 else -step)
    floor = number.quantize(step, ROUND_FLOOR, EXACT)
    return Place(Where.AT if floor == number else Where.AFTER, floor)


def is_encodable(text: str) -> bool:
    """Return whether text can be encoded as UTF-8; a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


Locator = Callable[[Any, pa.DataType, tzinfo], Place | None]

LOCATORS: tuple[tuple[Callable[[pa.DataType], bool], Locator], ...] = (
    (pa.types.is_boolean, _locate_boolean),
    (pa.types.is_integer, _locate_integer),
    (pa.types.is_floating, _locate_float),
    (pa.types.is_decimal, _locate_decimal),
    (pa.types.is_string, _locate_string),
    (pa.types.is_large_string, _locate_string),
    (pa.types.is_binary, _locate_binary),
    (pa.types.is_large_binary, _locate_binary),
    (pa.types.is_date32, _locate_date),
    (pa.types.is_timestamp, _locate_timestamp),
)

EXPECTED_FORMS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "TRUE or FALSE"),
    (pa.types.is_integer, "a whole number such as 42"),
    (pa.types.is_floating, "a number such as 1.5"),
    (pa.types.is_decimal, "a number such as 1.5"),
    (pa.types.is_string, "text in quotes such as 'abc'"),
    (pa.types.is_large_string, "text in quotes such as 'abc'"),
    (pa.types.is_binary, "bytes such as X'1F'"),
    (pa.types.is_large_binary, "bytes such as X'1F'"),
    (pa.types.is_date32, f"a date such as '{DATE_FORM}'"),
    (pa.types.is_timestamp, f"a timestamp such as '{TIMESTAMP_FORM}'"),
)
