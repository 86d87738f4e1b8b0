"""The keys of rows: for each row, the group of a grouping that it is in. Null is no group."""

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables._arrow import arrow_from_numpy
from indextables.errors import InvalidAggregationError
from indextables.search.groupings import (
    DateHistogram,
    Grouping,
    Histogram,
    Ranges,
    Terms,
    is_number,
)

_EXACT: Final = Context(prec=100)


def group_keys(by: Grouping, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the key of each value; ranges have positions as keys. Raises InvalidAggregationError."""
    match by:
        case Terms():
            return plain_values(values)
        case Histogram():
            return _intervals(by, values)
        case DateHistogram():
            fixed = by.fixed()
            return _calendar_intervals(by, values) if fixed is None else _intervals(fixed, values)
        case Ranges():
            return _ranges(by, values)


def plain_values(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values with one NaN and one zero, as the index has them."""
    if not pa.types.is_floating(values.type):
        return values
    zero, nan = (pa.scalar(number, values.type) for number in (0.0, math.nan))
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


def _intervals(by: Histogram, values: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = values.type
    interval, offset = by.steps(kind)
    if pa.types.is_decimal(kind):
        return _by_distinct(
            values, by.key_type(kind), lambda value: _interval_of(value, kind, interval, offset)
        )
    if pa.types.is_floating(kind):
        numbers = values.cast(pa.float64())
        numbers = pc.if_else(pc.is_finite(numbers), numbers, None)
        steps = pc.floor(pc.divide(pc.subtract(numbers, offset), interval))
        return pc.add(pc.multiply(steps, interval), offset)
    numbers = _as_integers(values)
    extremes = pc.min_max(numbers)
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    key_type = by.key_type(kind)
    if low is None:
        return pa.chunked_array([pa.nulls(len(values), key_type)])
    lowest = (low - int(offset)) // int(interval) * int(interval) + int(offset)
    if lowest < -(1 << 63) or high - int(offset) >= 1 << 63:
        raise InvalidAggregationError(f"histogram of {by.column!r}: an interval does not fit 64 bits")
    starts = np.asarray(pc.fill_null(numbers, low)) - np.int64(offset)
    starts = starts // np.int64(interval) * np.int64(interval) + np.int64(offset)
    keys = pc.if_else(pc.is_valid(numbers), pa.chunked_array([arrow_from_numpy(starts)]), None)
    return keys.cast(pa.int32()).cast(key_type) if pa.types.is_date32(kind) else keys.cast(key_type)


def _interval_of(value: Decimal, kind: pa.DataType, interval: float, offset: float) -> Decimal:
    unscaled = int(value.scaleb(kind.scale, _EXACT))
    start = (unscaled - int(offset)) // int(interval) * int(interval) + int(offset)
    return Decimal(start).scaleb(-kind.scale, _EXACT)


def _calendar_intervals(by: DateHistogram, values: pa.ChunkedArray) -> pa.ChunkedArray:
    calendar = by.calendar()
    assert calendar is not None
    unit, number = calendar
    kind, shift = values.type, by.shift()
    zone = by.time_zone or getattr(kind, "tz", None)
    # A date has no time of day, and a timestamp that is floored must show the clock of its zone.
    local = values.cast(pa.timestamp("us")) if pa.types.is_date32(kind) else values
    if zone is not None:
        local = pc.local_timestamp(local.cast(pa.timestamp(kind.unit, zone)))
    local = _shifted(local, -shift)
    starts = _shifted(pc.floor_temporal(local, multiple=number, unit=unit), shift)
    if zone is not None:
        # Where clocks skip midnight, the day begins when they have done so.
        starts = pc.assume_timezone(starts, zone, ambiguous="earliest", nonexistent="latest")
    return starts.cast(kind)


def _shifted(moments: pa.ChunkedArray, shift: timedelta) -> pa.ChunkedArray:
    return pc.add(moments, pa.scalar(shift, pa.duration(moments.type.unit))) if shift else moments


def _ranges(by: Ranges, values: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = values.type
    numbers = values if is_number(kind) else _as_integers(values)
    keys = pa.chunked_array([pa.nulls(len(values), pa.int64())])
    for position, (start, end) in enumerate(by.bounds(kind)):
        is_in = pc.is_valid(numbers)
        if pa.types.is_floating(kind):
            is_in = pc.and_(is_in, pc.invert(pc.is_nan(numbers)))
        if start is not None:
            is_in = pc.and_(is_in, pc.greater_equal(numbers, _bound(start, kind)))
        if end is not None:
            is_in = pc.and_(is_in, pc.less(numbers, _bound(end, kind)))
        keys = pc.if_else(pc.fill_null(is_in, False), pa.scalar(position, pa.int64()), keys)
    return keys


def _bound(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A bound in a type that compares exactly with the column."""
    if pa.types.is_floating(kind):
        return pa.scalar(float(value), pa.float64())
    if pa.types.is_decimal(kind) or (isinstance(value, Decimal) and value != value.to_integral_value()):
        return pa.scalar(value)
    return pa.scalar(int(value), pa.int64())


def _as_integers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers, or dates and timestamps in their unit, as 64-bit integers."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


def _by_distinct(
    values: pa.ChunkedArray, key_type: pa.DataType, key_of: Callable[[Any], Any]
) -> pa.ChunkedArray:
    """The keys of values that Arrow cannot compute with, one by one for the distinct values."""
    encoded = values.combine_chunks().dictionary_encode()
    keys = pa.array([key_of(value) for value in encoded.dictionary.to_pylist()], key_type)
    return pa.chunked_array([keys.take(encoded.indices)])
