"""The steps of a histogram in the units of the index: days, microseconds, and decimals without their point."""

from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from indextables.errors import InvalidAggregationError
from indextables.search.aggregation import Histogram, Step
from indextables.split.doc_mapping import FieldKind, FieldMapping

TIME_UNITS: Final = {
    FieldKind.DATE: timedelta(days=1),
    FieldKind.TIMESTAMP: timedelta(microseconds=1),
    FieldKind.TIMESTAMP_NTZ: timedelta(microseconds=1),
}

# Doubles tell whole numbers apart up to here; Tantivy computes the buckets with them.
EXACT_DOUBLES: Final = 1 << 53


def histogram_request(by: Histogram, field: FieldMapping) -> dict[str, Any]:
    """The request to Tantivy. Raises InvalidAggregationError for steps that do not fit the column."""
    interval = _units(by.interval, by, field)
    offset = _units(by.offset, by, field) % interval if by.offset is not None else 0
    if not 0 < interval < EXACT_DOUBLES:
        raise _error(by, "the interval is too small or too large for the column")
    # Empty buckets are left out: between two distant values there would be any number of them.
    return {
        "field": field.index_name,
        "interval": float(interval),
        "offset": float(offset),
        "min_doc_count": 1,
    }


def _units(step: Step, by: Histogram, field: FieldMapping) -> float:
    if field.kind in TIME_UNITS:
        return _time_units(step, by, TIME_UNITS[field.kind])
    if isinstance(step, timedelta):
        raise _error(by, "the column holds numbers; give the interval as a number")
    if field.kind is FieldKind.F64:
        return float(step)
    try:
        # The shortest text of a float is what its writer meant.
        unscaled = Decimal(repr(step) if isinstance(step, float) else step).scaleb(field.scale)
        whole = int(unscaled.to_integral_exact())
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise _error(by, f"{step} is no number") from error
    if whole != unscaled:
        raise _error(by, f"{step} has more digits after the point than the column")
    return whole


def _time_units(step: Step, by: Histogram, unit: timedelta) -> int:
    if not isinstance(step, timedelta):
        raise _error(by, "the column holds moments; give the interval as a timedelta")
    units, remainder = divmod(step, unit)
    if remainder:
        raise _error(by, f"{step} is no multiple of {unit}")
    return units


def _error(by: Histogram, reason: str) -> InvalidAggregationError:
    return InvalidAggregationError(f"histogram of {by.column!r}: {reason}")
