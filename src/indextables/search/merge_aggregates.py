"""Merges the partial results of many splits into the result of an aggregation."""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidAggregationError
from indextables.search.aggregation import (
    KEY,
    MAX_DIGITS,
    ROWS,
    SUM_DIGITS,
    Aggregation,
    Metric,
    MetricFunction,
    PartialColumns,
    Terms,
    column_of,
    partial_schema,
)
from indextables.search.split_aggregate import PartialAggregate

# In the result's metadata: the most rows by which a count may be too low, or a missing group may exceed the last one,
# because a split returned only its largest groups. "0" means that all counts are exact.
MAX_COUNT_ERROR: Final = b"indextables.maxCountError"

# The digits that Spark adds to decimals in sums, and to their scale in averages.
SUM_EXTRA_DIGITS: Final = 10
AVG_EXTRA_DIGITS: Final = 4

_EXACT: Final = Context(prec=SUM_DIGITS + MAX_DIGITS, rounding=ROUND_HALF_UP)

_MERGE_BY_SUM: Final = ("count", "nan", "sum")


def merge_aggregates(
    aggregation: Aggregation, partials: Sequence[PartialAggregate], schema: pa.Schema
) -> pa.Table:
    """Return a row per group, with the group's key first, or a single row, and a column per metric.

    Types are Spark's: counts and sums of integers are bigint, averages are double or decimal, minima, maxima and keys
    have the column's type. Terms are ordered by frequency, then by value; histograms by key. Without any values,
    sum, avg, min and max are null. The metadata key MAX_COUNT_ERROR bounds the error of the counts of terms. Raises
    InvalidAggregationError for a sum or an average that does not fit its type.
    """
    groups = _merged(aggregation, partials, schema)
    names = [] if aggregation.by is None else [column_of(schema, aggregation.by.column).name]
    columns = [groups.column(KEY)] if aggregation.by is not None else []
    for metric in aggregation.metrics:
        names.append(metric.name)
        columns.append(_metric(metric, aggregation, groups, schema))
    hidden_rows = sum(partial.hidden_rows for partial in partials)
    answer = pa.Table.from_arrays(columns, names=names)
    return answer.replace_schema_metadata({MAX_COUNT_ERROR: str(hidden_rows).encode()})


def _merged(aggregation: Aggregation, partials: Sequence[PartialAggregate], schema: pa.Schema) -> pa.Table:
    """Merge partial results by group, and return the groups of the result in order."""
    expected = partial_schema(aggregation, schema)
    rows = pa.concat_tables([expected.empty_table(), *(partial.groups for partial in partials)])
    keys = [KEY] if aggregation.by is not None else []
    functions = [(name, _merge_function(name)) for name in expected.names if name != KEY]
    # Threads would add floats in an order of their own, so the same question could get two answers.
    merged = rows.group_by(keys, use_threads=False).aggregate(functions)
    names = [*keys, *(name for name, _ in functions)]
    merged = merged.select([*keys, *(f"{name}_{function}" for name, function in functions)])
    groups = merged.rename_columns(names)
    if aggregation.by is None:
        return groups
    if not isinstance(aggregation.by, Terms):
        return groups.sort_by(KEY)
    return groups.sort_by([(ROWS, "descending"), (KEY, "ascending")]).slice(0, aggregation.by.size)


def _merge_function(name: str) -> str:
    if name == ROWS or name.startswith(_MERGE_BY_SUM):
        return "sum"
    return "min" if name.startswith("min") else "max"


def _metric(metric: Metric, aggregation: Aggregation, groups: pa.Table, schema: pa.Schema) -> pa.Array:
    if metric.column is None:
        return pc.fill_null(groups.column(ROWS), 0)
    names = PartialColumns(aggregation.columns.index(metric.column))
    data_type = column_of(schema, metric.column).type
    counts = pc.fill_null(groups.column(names.count), 0)
    match metric.function:
        case MetricFunction.COUNT:
            return counts
        case MetricFunction.SUM:
            return _sums(metric, groups.column(names.sum), data_type)
        case MetricFunction.AVG:
            return _averages(metric, groups.column(names.sum), counts, data_type)
    extremes = groups.column(names.min if metric.function is MetricFunction.MIN else names.max)
    if not pa.types.is_floating(data_type):
        return extremes
    # NaN is above every other number: the maximum if any value is NaN, the minimum if all are.
    nans = pc.fill_null(groups.column(names.nan), 0)
    is_nan = pc.equal(nans, counts) if metric.function is MetricFunction.MIN else pc.greater(nans, 0)
    return pc.if_else(pc.and_(is_nan, pc.greater(counts, 0)), pa.scalar(float("nan"), data_type), extremes)


def _sums(metric: Metric, sums: pa.ChunkedArray, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_floating(data_type):
        return sums
    result_type = pa.int64()
    if pa.types.is_decimal(data_type):
        digits = min(data_type.precision + SUM_EXTRA_DIGITS, MAX_DIGITS)
        result_type = pa.decimal128(digits, data_type.scale)
    try:
        return sums.cast(result_type)
    except pa.ArrowInvalid as error:
        raise _does_not_fit(metric, result_type) from error


def _averages(
    metric: Metric, sums: pa.ChunkedArray, counts: pa.ChunkedArray, data_type: pa.DataType
) -> pa.Array:
    if pa.types.is_floating(data_type):
        return pc.divide(sums, counts)
    pairs = zip(sums.to_pylist(), counts.to_pylist(), strict=True)
    if not pa.types.is_decimal(data_type):
        return pa.array(
            [None if total is None else int(total) / count for total, count in pairs], pa.float64()
        )
    scale = min(data_type.scale + AVG_EXTRA_DIGITS, MAX_DIGITS)
    result_type = pa.decimal128(min(data_type.precision + AVG_EXTRA_DIGITS, MAX_DIGITS), scale)
    step = Decimal(1).scaleb(-scale)
    averages = [
        None if total is None else _EXACT.divide(total, count).quantize(step, context=_EXACT)
        for total, count in pairs
    ]
    try:
        return pa.array(averages, result_type)
    except pa.ArrowInvalid as error:
        raise _does_not_fit(metric, result_type) from error


def _does_not_fit(metric: Metric, result_type: pa.DataType) -> InvalidAggregationError:
    return InvalidAggregationError(
        f"{metric.name} does not fit the type {result_type}; narrow the rows with where, or aggregate them instead"
    )
