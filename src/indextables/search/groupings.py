"""How an aggregation groups rows: by value, by interval of numbers or of time, or by range.

A group never has null as its key. A grouping is immutable, and checks itself against the type of its column.
"""

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import pyarrow as pa

from indextables.errors import InvalidAggregationError

Step: TypeAlias = int | float | Decimal | timedelta
Bound: TypeAlias = int | float | Decimal | date | datetime | str
CalendarUnit = Literal["day", "month", "quarter", "year"]

DEFAULT_TERMS: Final = 10

BY_COUNT: Final = "count"
BY_KEY: Final = "key"

# The most digits of a decimal.
MAX_DIGITS: Final = 38


class Terms(msgspec.Struct, frozen=True):
    """Groups by value: the values of a column, without null.

    Attributes:
        column: The column to group by; `user.age` is a member of a struct.
        size: How many groups to return; None for all of them.
        order: What decides the order: "count", "key", or the name of a metric, such as "max(price)"; with a leading
            "-" from the highest to the lowest. Groups that are equal in this are ordered by their key.
        min_doc_count: Leave out groups with fewer rows.

    Raises:
        InvalidAggregationError: If the size or the least number of rows is below 1.

    Example:
        >>> table.aggregate(["count"], by=Terms("level", size=3))
    """

    column: str
    size: int | None = DEFAULT_TERMS
    order: str = f"-{BY_COUNT}"
    min_doc_count: int = 1

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise _error(self, f"the size is {self.size}; it must be at least 1")
        if self.min_doc_count < 1:
            raise _error(self, f"min_doc_count is {self.min_doc_count}; it must be at least 1")

    @property
    def label(self) -> str:
        return "terms"

    @property
    def order_name(self) -> str:
        """What decides the order, without the direction."""
        return self.order.removeprefix("-").strip()

    @property
    def is_descending(self) -> bool:
        """Whether the highest comes first."""
        return self.order.startswith("-")

    def check(self, data_type: pa.DataType) -> None:
        """Raise InvalidAggregationError for a type whose values cannot be grouped."""
        if not is_ordered(data_type):
            raise _wrong_type(self, data_type)

    def key_type(self, data_type: pa.DataType) -> pa.DataType:
        """Return the type of the keys."""
        return data_type


class Histogram(msgspec.Struct, frozen=True):
    """Groups by interval, lowest first, without empty intervals, nulls, NaN and infinity.

    Attributes:
        column: The column to group by.
        interval: The width of a group: a number or, for dates and timestamps, a timedelta.
        offset: Where one of the intervals starts, counted from zero or from 1970-01-01.
        min_doc_count: Leave out intervals with fewer rows.

    Raises:
        InvalidAggregationError: If the interval is not above zero.

    Example:
        >>> table.aggregate(["count"], by=Histogram("time", timedelta(days=1)))
    """

    column: str
    interval: Step
    offset: Step | None = None
    min_doc_count: int = 1

    def __post_init__(self) -> None:
        for step in (self.interval, self.offset):
            if step is not None and not isinstance(step, get_args(Step)):
                raise _error(
                    self, f"{step!r} is no number and no timedelta; DateHistogram takes texts such as '1d'"
                )
        span = self.interval.total_seconds() if isinstance(self.interval, timedelta) else self.interval
        if not 0 < span < float("inf"):
            raise _error(self, f"the interval is {self.interval}; it must be above zero")

    @property
    def label(self) -> str:
        return "histogram"

    def check(self, data_type: pa.DataType) -> None:
        """Raise InvalidAggregationError for a type that has no intervals, or none of this width."""
        if not is_measured(data_type):
            raise _wrong_type(self, data_type)
        self.steps(data_type)

    def key_type(self, data_type: pa.DataType) -> pa.DataType:
        """Return the type of the keys: the column's, or one that can hold the start of an interval."""
        if pa.types.is_integer(data_type):
            return pa.int64()
        if pa.types.is_floating(data_type):
            return pa.float64()
        return pa.decimal128(MAX_DIGITS, data_type.scale) if pa.types.is_decimal(data_type) else data_type

    def steps(self, data_type: pa.DataType) -> tuple[float, float]:
        """Return interval and offset in units of the column: days, its time unit, or unscaled decimals.

        The offset is at least zero and below the interval. Raises InvalidAggregationError for steps that do not fit.
        """
        interval = self._units(self.interval, data_type)
        if interval <= 0:
            raise _error(self, "the interval is too small for the column")
        offset = 0 if self.offset is None else self._units(self.offset, data_type) % interval
        return interval, offset

    def _units(self, step: Step, data_type: pa.DataType) -> float:
        unit = thousand_units(data_type)
        if unit is not None:
            if not isinstance(step, timedelta):
                raise _error(self, "the column holds dates or timestamps; give the interval as a timedelta")
            units, remainder = divmod(step * 1000, unit)
            if remainder:
                raise _error(self, f"{step} is not a multiple of {unit / 1000}")
            return units
        if isinstance(step, timedelta):
            raise _error(self, "the column holds numbers; give the interval as a number")
        if pa.types.is_floating(data_type):
            return float(step)
        scale = data_type.scale if pa.types.is_decimal(data_type) else 0
        try:
            # The shortest decimal of a float is what the caller wrote.
            unscaled = Decimal(repr(step) if isinstance(step, float) else step).scaleb(
                scale, Context(prec=2 * MAX_DIGITS)
            )
            whole = int(unscaled.to_integral_exact())
        except (InvalidOperation, OverflowError, ValueError) as error:
            raise _error(self, f"{step} is not a number") from error
        if whole != unscaled:
            raise _error(self, f"{step} has more decimal places than the column")
        return whole


class DateHistogram(msgspec.Struct, frozen=True):
    """Groups by interval of time, earliest first, without empty intervals and nulls.

    Attributes:
        column: The column to group by: dates or timestamps.
        interval: "1d", "15m", "6h", "1w" (from Monday), "1M", "1q", "1y", the words "minute" to "year", or a timedelta.
            In a text, `ms`, `s`, `m`, `h`, `d` and `w` are fixed lengths; months, quarters and years follow the
            calendar.
        offset: How much later than midnight, or than the first of its unit, an interval starts, such as "6h".
        time_zone: The zone, such as "Europe/Berlin", whose days, months, quarters and years are the intervals. Keys
            are the moments at which they start.
        min_doc_count: Leave out intervals with fewer rows.

    Raises:
        InvalidAggregationError: If the interval, the offset or the zone is none.

    Example:
        >>> table.aggregate(["count"], by=DateHistogram("time", "1d"))
    """

    column: str
    interval: str | timedelta
    offset: str | timedelta | None = None
    time_zone: str | None = None
    min_doc_count: int = 1

    def __post_init__(self) -> None:
        self._parsed()
        self.shift()
        if self.time_zone is not None:
            if self.calendar() is None:
                raise _error(
                    self, "only days, months, quarters and years depend on a time zone; use an offset instead"
                )
            try:
                ZoneInfo(self.time_zone)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise _error(
                    self, f"there is no time zone {self.time_zone!r}; Europe/Berlin is one"
                ) from error

    @property
    def label(self) -> str:
        return "date histogram"

    def check(self, data_type: pa.DataType) -> None:
        """Raise InvalidAggregationError for a type without time, or one whose unit is too long."""
        if thousand_units(data_type) is None:
            raise _wrong_type(self, data_type)
        if self.time_zone is not None and getattr(data_type, "tz", None) is None:
            raise _error(self, f"the column has the type {data_type}, which has no time zone")
        fixed = self.fixed()
        if fixed is not None:
            fixed.check(data_type)
        elif self.offset is not None:
            Histogram(self.column, timedelta(days=1), self.shift()).check(data_type)

    def key_type(self, data_type: pa.DataType) -> pa.DataType:
        """Return the type of the keys."""
        return data_type

    def calendar(self) -> tuple[CalendarUnit, int] | None:
        """Return the unit of the calendar and how many of them; None if all intervals have the same length."""
        number, unit = self._parsed()
        if unit in ("month", "quarter", "year"):
            return unit, number  # type: ignore[return-value]
        if unit == "day" and self.time_zone is not None:
            return "day", number
        return None

    def fixed(self) -> Histogram | None:
        """Return the histogram of the same intervals, if all have the same length."""
        if self.calendar() is not None:
            return None
        number, unit = self._parsed()
        length = number * _LENGTHS[unit]
        offset = self.shift()
        # 1970-01-05 was a Monday.
        start = timedelta(days=4) if unit == "week" else timedelta(0)
        return Histogram(self.column, length, start + offset if start or offset else None, self.min_doc_count)

    def shift(self) -> timedelta:
        """Return the offset. Raises InvalidAggregationError."""
        if self.offset is None or isinstance(self.offset, timedelta):
            return self.offset or timedelta(0)
        is_negative = self.offset.startswith("-")
        number, unit = self._number_and_unit(self.offset.lstrip("+-"))
        if unit not in _LENGTHS:
            raise _error(self, f"the offset is {self.offset!r}; it must have a fixed length, such as 6h")
        return (-number if is_negative else number) * _LENGTHS[unit]

    def _parsed(self) -> tuple[int, str]:
        if not isinstance(self.interval, timedelta):
            return self._number_and_unit(self.interval)
        if self.interval <= timedelta(0):
            raise _error(self, f"the interval is {self.interval}; it must be above zero")
        return self.interval // timedelta(microseconds=1), "microsecond"

    def _number_and_unit(self, text: str) -> tuple[int, str]:
        match = _INTERVAL.fullmatch(str(text).strip())
        unit = "" if match is None else _UNITS.get(match["unit"], match["unit"].lower().removesuffix("s"))
        number = 0 if match is None else int(match["number"] or 1)
        if not number or unit not in _UNITS.values():
            raise _error(
                self,
                f"{text!r} is no interval; write a number and ms, s, m, h, d, w, M (month), q or y, such as 1d",
            )
        return number, unit


_INTERVAL: Final = re.compile(r"(?P<number>\d{0,9})\s*(?P<unit>[A-Za-z]+)")
_UNITS: Final = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "m": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
    "M": "month",
    "q": "quarter",
    "y": "year",
}
_LENGTHS: Final = {
    "microsecond": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}


class Range(msgspec.Struct, frozen=True):
    """A range of values, from a bound that it includes to one that it does not; None is no bound.

    Attributes:
        start: The lowest value.
        end: The first value above the range.
        name: The key of its group; by default its bounds, such as "10-100".
    """

    start: Bound | None = None
    end: Bound | None = None
    name: str | None = None

    @property
    def key(self) -> str:
        """The key of the group."""
        if self.name is not None:
            return self.name
        return f"{'*' if self.start is None else self.start}-{'*' if self.end is None else self.end}"


class Ranges(msgspec.Struct, frozen=True):
    """Groups by range, in the order of the ranges, without empty ones, nulls and NaN.

    Attributes:
        column: The column to group by.
        ranges: The ranges, which must not overlap. Bounds alone, such as [10, 100], are the ranges below, between and
            above them.

    Raises:
        InvalidAggregationError: If there is no range, or two have the same name.

    Example:
        >>> table.aggregate(["count"], by=Ranges("status", [300, 400, 500]))
    """

    column: str
    ranges: Sequence[Range | Bound]

    def __post_init__(self) -> None:
        given = tuple(self.ranges)
        bounds = [each for each in given if not isinstance(each, Range)]
        if not given or (bounds and len(bounds) < len(given)):
            raise _error(self, "give the bounds between the ranges, or objects of Range")
        if bounds:
            given = tuple(map(Range, (None, *bounds), (*bounds, None)))
        msgspec.structs.force_setattr(self, "ranges", given)
        names = [each.key for each in self.all]
        if len(set(names)) < len(names):
            raise _error(self, f"two ranges have the same name: {', '.join(names)}")

    @property
    def label(self) -> str:
        return "ranges"

    @property
    def all(self) -> tuple[Range, ...]:
        """The ranges, in order."""
        return self.ranges  # type: ignore[return-value]

    @property
    def keys(self) -> list[str]:
        """The keys of the groups, in order."""
        return [each.key for each in self.all]

    def check(self, data_type: pa.DataType) -> None:
        """Raise InvalidAggregationError for bounds that do not fit the column, and for ranges that overlap."""
        if not is_measured(data_type):
            raise _wrong_type(self, data_type)
        found = sorted(self.bounds(data_type), key=lambda pair: (pair[0] is not None, pair[0] or 0))
        for (start, end), (after, _) in pairwise(found):
            if end is None or after is None or after < end:
                raise _error(self, f"the ranges from {start} and from {after} overlap")
        if any(start is not None and end is not None and start >= end for start, end in found):
            raise _error(self, "a range ends where it starts, or before")

    def bounds(self, data_type: pa.DataType) -> list[tuple[Any, Any]]:
        """Return the bounds of each range as values of the column. Raises InvalidAggregationError."""
        return [(self._value(each.start, data_type), self._value(each.end, data_type)) for each in self.all]

    def key_type(self, _: pa.DataType) -> pa.DataType:
        """Return the type of the keys."""
        return pa.string()

    def _value(self, bound: Bound | None, data_type: pa.DataType) -> Any:
        if bound is None:
            return None
        is_time = thousand_units(data_type) is not None
        if is_time == isinstance(bound, (int, float, Decimal)):
            raise _error(self, f"{bound!r} is no bound for the type {data_type}")
        try:
            if not is_time:
                return Decimal(repr(bound) if isinstance(bound, float) else bound)  # type: ignore[arg-type]
            return _moment(bound, data_type)
        except (pa.ArrowException, InvalidOperation, ValueError, TypeError) as error:
            raise _error(self, f"{bound!r} is no bound for the type {data_type}: {error}") from error


def _moment(bound: Any, data_type: pa.DataType) -> int:
    """The number of a date or timestamp in the unit of a type."""
    zone = getattr(data_type, "tz", None)
    if isinstance(bound, str):
        bound = datetime.fromisoformat(bound)
    if isinstance(bound, datetime) and (bound.tzinfo is None) != (zone is None):
        bound = bound.replace(tzinfo=None if zone is None else ZoneInfo("UTC"))
    if pa.types.is_timestamp(data_type) and not isinstance(bound, datetime):
        bound = pa.scalar(bound, pa.date32()).cast(pa.timestamp(data_type.unit)).as_py()
        bound = bound if zone is None else bound.replace(tzinfo=ZoneInfo("UTC"))
    if pa.types.is_date32(data_type) and isinstance(bound, datetime):
        bound = bound.date()
    number: int = pa.scalar(bound, data_type).cast(_number_type(data_type)).as_py()
    return number


def _number_type(data_type: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(data_type) else pa.int64()


Grouping: TypeAlias = Terms | Histogram | DateHistogram | Ranges


def thousand_units(data_type: pa.DataType) -> timedelta | None:
    """Return a thousand units of dates or timestamps (a timedelta has no nanoseconds); None for other types."""
    if pa.types.is_date32(data_type):
        return timedelta(days=1000)
    if not pa.types.is_timestamp(data_type):
        return None
    return {
        "s": timedelta(seconds=1000),
        "ms": timedelta(seconds=1),
        "us": timedelta(milliseconds=1),
        "ns": timedelta(microseconds=1),
    }[data_type.unit]


def is_number(data_type: pa.DataType) -> bool:
    """Return whether values can be added."""
    is_types = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_type(data_type) for is_type in is_types)


def is_measured(data_type: pa.DataType) -> bool:
    """Return whether values have distances, so intervals make sense."""
    return is_number(data_type) or pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)


def is_ordered(data_type: pa.DataType) -> bool:
    """Return whether whole values can be ordered."""
    return is_measured(data_type) or pa.types.is_boolean(data_type) or pa.types.is_string(data_type)


def parse_grouping(text: str, default_size: int | None = DEFAULT_TERMS) -> Grouping:
    """Parse a grouping as SQL and the command line write it.

    `level` and `terms(level, 5)` are terms, `histogram(price, 10)`, `date_histogram(time, 1d)` and
    `ranges(status, 300, 400, 500)` the others. A name alone gives `default_size` terms, None for all. Raises
    InvalidAggregationError.
    """
    name, opening, rest = text.strip().partition("(")
    if not opening or not rest.endswith(")"):
        return Terms(text.strip(), default_size)
    column, *values = (part.strip() for part in rest[:-1].split(","))
    match name.strip().lower(), values:
        case "terms", []:
            return Terms(column)
        case "terms", [size] if size.isdecimal():
            return Terms(column, int(size))
        case "histogram", [interval]:
            return Histogram(column, _number(text, interval))
        case "histogram", [interval, offset]:
            return Histogram(column, _number(text, interval), _number(text, offset))
        case "date_histogram", [interval]:
            return DateHistogram(column, interval)
        case "date_histogram", [interval, zone]:
            return DateHistogram(column, interval, time_zone=zone)
        case "ranges", [_, *_]:
            return Ranges(column, [value if "-" in value[1:] else _number(text, value) for value in values])
    raise InvalidAggregationError(
        f"{text!r} is not a grouping; write a column, terms(column, size), histogram(column, interval), "
        f"date_histogram(column, 1d) or ranges(column, 10, 100)"
    )


def _number(text: str, value: str) -> int | Decimal:
    try:
        return int(value) if value.lstrip("-").isdecimal() else Decimal(value)
    except InvalidOperation as error:
        raise InvalidAggregationError(f"{text!r}: {value!r} is not a number") from error


def _wrong_type(by: Grouping, data_type: pa.DataType) -> InvalidAggregationError:
    grouping = by.label if by.label.endswith("s") else f"a {by.label}"
    return InvalidAggregationError(
        f"column {by.column!r} has the type {data_type}, which {grouping} cannot group"
    )


def _error(by: Grouping, reason: str) -> InvalidAggregationError:
    return InvalidAggregationError(f"{by.label} of {by.column!r}: {reason}")
