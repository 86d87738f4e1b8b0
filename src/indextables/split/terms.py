"""A value as the index holds it: what a query for that value has to look for."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from typing import TypeAlias

from indextables.errors import InvalidPredicateError
from indextables.predicates import Value
from indextables.split.fields import FieldKind, FieldMapping

IndexTerm: TypeAlias = bool | int | float | str | bytes

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Two's complement in 128 bits with its sign flipped: as hexadecimal digits, it sorts like the numbers.
BIG_DECIMAL_DIGITS = 32
_BIG_DECIMAL_ZERO = 1 << 127


def index_term(field: FieldMapping, value: Value) -> IndexTerm:
    """The term of a value in this field. Text is not analyzed: it is the term itself.

    `value` is of the column's type, as `predicates.bind` makes it. Raises InvalidPredicateError for a value
    of another type, for a field that has no terms of single values (JSON), and for one that is not indexed.
    """
    try:
        return _term(field, value)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InvalidPredicateError(
            f"column {field.name!r} is indexed as {field.kind.value}, which has no term for {value!r}"
        ) from error


def _term(field: FieldMapping, value: Value) -> IndexTerm:
    match field.kind, value:
        case (FieldKind.TEXT | FieldKind.STRING, str()):
            return value
        case FieldKind.IP, str():
            return str(ip_address(value))
        case FieldKind.BOOL, bool():
            return value
        case FieldKind.I64, int() if not isinstance(value, bool):
            return value
        case FieldKind.F64, float() | int() if not isinstance(value, bool):
            return float(value) + 0.0  # -0.0 becomes 0.0
        case ((FieldKind.TIMESTAMP | FieldKind.TIMESTAMP_NTZ), datetime()):
            return _microseconds(value)
        case FieldKind.DATE, date() if not isinstance(value, datetime):
            return (value - _EPOCH_DAY).days
        case FieldKind.DECIMAL, Decimal() | int():
            return _unscaled(Decimal(value), field.scale)
        case FieldKind.BIG_DECIMAL, Decimal() | int():
            key = _unscaled(Decimal(value), field.scale) + _BIG_DECIMAL_ZERO
            return f"{key:0{BIG_DECIMAL_DIGITS}x}"
        case FieldKind.BYTES, bytes():
            return value
    raise TypeError("no term")


def _microseconds(value: datetime) -> int:
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _unscaled(value: Decimal, scale: int) -> int:
    # Arithmetic of decimals rounds to the digits of a context; that of integers does not.
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError("not a finite number")
    number = int("".join(map(str, digits)))
    shift = exponent + scale
    power: int = 10 ** abs(shift)
    unscaled, lost = (number * power, 0) if shift >= 0 else divmod(number, power)
    if lost:
        raise ValueError("more digits than the column has")
    return -unscaled if sign else unscaled
