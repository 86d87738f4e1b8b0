"""Ranges inside JSON: numbers and moments are compared as such, and other text is left to its terms.

Tantivy stores the numbers of a path as one column, of integers if all of them are whole, and converts the bounds of a
range to its type. It rounds a fraction to the whole number next to zero, so 3.5 would find 3. So a range is cut into
parts: one between integers, and one from each fraction to the next integer. The latter is a range of floats and, at
the same time, one of integers that holds none.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple, TypeGuard

from indextables.predicates.literals import parse_date, parse_decimal, parse_timestamp
from indextables.search.index_query import IndexField, IndexQuery, all_queries, any_query, no_rows
from indextables.search.parser import Bound, Place

_MIN_I64: Final = -(1 << 63)
_MAX_I64: Final = (1 << 63) - 1


def json_range(
    index: IndexField, lower: Bound | None, upper: Bound | None, place: Place
) -> IndexQuery | None:
    """Return the query for the values of a path between bounds; None if the bounds are neither numbers nor moments.

    A date means its whole day, and times without a zone are in UTC. Raises InvalidQueryError for ends of different
    types, and for a column without fast values.
    """
    numbers = [None if bound is None else _number(bound.text, place) for bound in (lower, upper)]
    moments = [None if bound is None else parse_timestamp(bound.text) for bound in (lower, upper)]
    num_ends = (lower is not None) + (upper is not None)
    if not any(value is not None for value in (*numbers, *moments)):
        return None
    if num_ends not in (_count(numbers), _count(moments)):
        raise place.error("the ends of this range have different types; write two numbers, or two timestamps")
    if not index.mapping.fast:
        raise place.error(
            f"column {index.mapping.name!r} is indexed with spark.indextables.indexing.json.mode = minimal, so its "
            f"values cannot be compared; write a value, or index the column with the mode full"
        )
    if num_ends == _count(moments):
        return _moments(index, lower, upper)
    parts = [_part(index, *part) for part in _parts(_end(lower, numbers[0]), _end(upper, numbers[1]))]
    return any_query(parts) if parts else no_rows()


def _count(values: Sequence[object]) -> int:
    return sum(value is not None for value in values)


class _End(NamedTuple):
    """One end of a range of numbers: an integer of 64 bits, or a float with a fraction."""

    number: int | float
    is_inclusive: bool


def _number(text: str, place: Place) -> int | float | None:
    number = parse_decimal(text)
    if number is None or number.is_nan():
        return None
    if not _MIN_I64 <= number <= _MAX_I64:
        raise place.error(
            "numbers inside JSON are compared up to 9223372036854775807; leave this end open with *"
        )
    nearest = float(number)
    if number == number.to_integral_value():
        return int(number)
    return int(nearest) if nearest.is_integer() else nearest


def _end(bound: Bound | None, number: int | float | None) -> _End | None:
    return None if bound is None or number is None else _End(number, bound.is_inclusive)


def _parts(lower: _End | None, upper: _End | None) -> Iterator[tuple[_End | None, _End | None]]:
    """Yield ranges that together are this one: between integers, or beside one integer and with a fraction."""
    if _is_empty(lower, upper):
        return
    if _has_fraction(lower) and _has_fraction(upper) and _neighbours(lower) == _neighbours(upper):
        yield lower, upper
        return
    if _has_fraction(lower):
        above = _neighbours(lower)[1]
        yield lower, _End(math.nextafter(above, -math.inf), is_inclusive=True)
        lower = _End(above, is_inclusive=True)
    if _has_fraction(upper):
        below = _neighbours(upper)[0]
        yield _End(math.nextafter(below, math.inf), is_inclusive=True), upper
        upper = _End(below, is_inclusive=True)
    if not _is_empty(lower, upper):
        yield lower, upper


def _is_empty(lower: _End | None, upper: _End | None) -> bool:
    if lower is None or upper is None or lower.number < upper.number:
        return False
    return lower.number > upper.number or not (lower.is_inclusive and upper.is_inclusive)


def _has_fraction(end: _End | None) -> TypeGuard[_End]:
    return end is not None and isinstance(end.number, float)


def _neighbours(end: _End) -> tuple[int, int]:
    return math.floor(end.number), math.ceil(end.number)


def _part(index: IndexField, lower: _End | None, upper: _End | None) -> IndexQuery:
    if not _has_fraction(lower):
        return _between(index, lower, upper)
    below, above = _neighbours(lower)
    without_integers = _between(index, _End(below, is_inclusive=False), _End(above, is_inclusive=False))
    return all_queries([_between(index, lower, upper), without_integers])


def _between(index: IndexField, lower: _End | None, upper: _End | None) -> IndexQuery:
    return index.json_numbers(
        None if lower is None else lower.number,
        None if upper is None else upper.number,
        include_lower=lower is None or lower.is_inclusive,
        include_upper=upper is None or upper.is_inclusive,
    )


def _moments(index: IndexField, lower: Bound | None, upper: Bound | None) -> IndexQuery:
    low = None if lower is None else _moment(lower, is_lower=True)
    high = None if upper is None else _moment(upper, is_lower=False)
    return index.json_moments(
        None if low is None else low[0],
        None if high is None else high[0],
        include_lower=low is None or low[1],
        include_upper=high is None or high[1],
    )


def _moment(bound: Bound, *, is_lower: bool) -> tuple[datetime, bool]:
    moment = parse_timestamp(bound.text)
    assert moment is not None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if parse_date(bound.text) is None or bound.is_inclusive == is_lower or moment.date() == date.max:
        return moment, bound.is_inclusive
    # After a day is from the next one on, and up to a day is before the next one.
    return moment + timedelta(days=1), is_lower
