"""Merges the partial results of many splits into the result of an aggregation. All results are exact."""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indextables._arrow import arrow_from_numpy
from indextables.errors import InvalidAggregationError
from indextables.search.aggregation import (
    DEFAULT_PERCENTS,
    ROWS,
    SUM_DIGITS,
    VALUE,
    Aggregation,
    Metric,
    MetricFunction,
    PartialAggregate,
    PartialColumns,
    column_of,
    partial_schema,
    values_schema,
)
from indextables.search.groupings import BY_KEY, MAX_DIGITS, Ranges, Terms

# The digits that Spark adds to decimals in sums, and to their scale in averages.
SUM_EXTRA_DIGITS: Final = 10
AVG_EXTRA_DIGITS: Final = 4

_EXACT: Final = Context(prec=SUM_DIGITS + MAX_DIGITS, rounding=ROUND_HALF_UP)

_MERGE_BY_SUM: Final = ("count", "nan", "sum")
_RUN: Final = "run"
_PARENT: Final = "parent"
_ORDER: Final = "order"

_Integers = NDArray[np.int64]


def merge_aggregates(
    aggregation: Aggregation, partials: Sequence[PartialAggregate], schema: pa.Schema
) -> pa.Table:
    """Return a row per group, with the keys of the group first, or a single row, and a column per metric.

    Types are Spark's: counts and sums of integers are bigint, averages are double or decimal, minima, maxima and keys
    have the column's type. Without any values, sum, avg, min and max are null. All groups of all splits are merged
    before any of them is left out, so the most frequent terms are those of the whole table. Raises
    InvalidAggregationError for a sum or an average that does not fit its type.
    """
    groups = _merged(
        [partial.groups for partial in partials], partial_schema(aggregation, schema), aggregation.keys
    )
    names, columns = [], []
    for by, key in zip(aggregation.by, aggregation.keys, strict=True):
        names.append(column_of(schema, by.column).name)
        keys = groups.column(key)
        columns.append(pa.array(by.keys, pa.string()).take(keys) if isinstance(by, Ranges) else keys)
    values = dict(zip(aggregation.value_columns, _merged_values(aggregation, partials, schema), strict=True))
    for metric in aggregation.metrics:
        names.append(metric.name)
        columns.append(_metric(metric, aggregation, groups, values, schema))
    answer = pa.Table.from_arrays(columns, names=names)
    return answer.take(arrow_from_numpy(_chosen(aggregation, groups, schema))) if aggregation.by else answer


def _merged(tables: Sequence[pa.Table], schema: pa.Schema, keys: Sequence[str]) -> pa.Table:
    """Merge partial results by their keys, in the order of the keys."""
    return _reduced(pa.concat_tables([schema.empty_table(), *tables]), keys)


def _reduced(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    functions = [(name, _merge_function(name)) for name in rows.column_names if name not in keys]
    # Threads would add floats in an order of their own, so the same question could get two answers.
    merged = rows.group_by(list(keys), use_threads=False).aggregate(functions)
    merged = merged.select([*keys, *(f"{name}_{function}" for name, function in functions)])
    merged = merged.rename_columns([*keys, *(name for name, _ in functions)])
    return merged.sort_by([(key, "ascending") for key in keys]) if keys else merged


def _merge_function(name: str) -> str:
    if name == ROWS or name.startswith(_MERGE_BY_SUM):
        return "sum"
    return "min" if name.startswith("min") else "max"


# The choice and the order of groups. Groups are sorted by their keys, so those with the same outer keys are a run.


def _chosen(aggregation: Aggregation, groups: pa.Table, schema: pa.Schema) -> _Integers:
    """The positions of the groups of the answer, in order."""
    is_kept = np.ones(groups.num_rows, dtype=bool)
    ranks: list[_Integers] = []
    parents = np.zeros(groups.num_rows, dtype=np.int64)
    is_new = np.zeros(groups.num_rows, dtype=bool)
    is_new[:1] = True
    partials = groups.drop_columns(aggregation.keys)
    for by, key in zip(aggregation.by, aggregation.keys, strict=True):
        is_new = is_new | _changes(groups.column(key))
        runs = np.cumsum(is_new) - 1
        level = _reduced(partials.append_column(_RUN, arrow_from_numpy(runs)), [_RUN])
        rank = np.arange(len(level))
        if isinstance(by, Terms):
            rank = _ranks(by, aggregation, level, parents[is_new], schema)
        if isinstance(by, Terms) and by.size is not None:
            is_kept &= rank[runs] < by.size
        if not isinstance(by, Ranges):
            is_kept &= np.asarray(level.column(ROWS))[runs] >= by.min_doc_count
        ranks.append(rank[runs])
        parents = runs
    positions = np.flatnonzero(is_kept)
    order: _Integers = np.lexsort([rank[positions] for rank in reversed(ranks)])
    return positions[order]


def _changes(keys: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Whether each key differs from the one before it."""
    codes = np.asarray(keys.combine_chunks().dictionary_encode().indices)
    changes: NDArray[np.bool_] = np.diff(codes, prepend=-1) != 0
    return changes


def _ranks(
    by: Terms, aggregation: Aggregation, level: pa.Table, parents: _Integers, schema: pa.Schema
) -> _Integers:
    """The position of each group among those with the same parent, in the order of terms."""
    metric = aggregation.order_metric(by)
    if by.order_name == BY_KEY:
        order: pa.ChunkedArray | pa.Array = level.column(_RUN)
    elif metric is None:
        order = level.column(ROWS)
    else:
        order = _metric(metric, aggregation, level, {}, schema)
    direction = "descending" if by.is_descending else "ascending"
    table = pa.table({_PARENT: arrow_from_numpy(parents), _ORDER: order, _RUN: level.column(_RUN)})
    sorting = [(_PARENT, "ascending"), (_ORDER, direction), (_RUN, "ascending")]
    best = np.asarray(pc.sort_indices(table, sort_keys=sorting)).astype(np.int64)
    first = np.searchsorted(parents[best], parents[best])
    ranks = np.empty(len(best), np.int64)
    ranks[best] = np.arange(len(best)) - first
    return ranks


# Metrics.


def _metric(
    metric: Metric,
    aggregation: Aggregation,
    groups: pa.Table,
    values: dict[int, pa.Table],
    schema: pa.Schema,
) -> pa.Array | pa.ChunkedArray:
    if metric.column is None:
        return pc.fill_null(groups.column(ROWS), 0)
    index = aggregation.columns.index(metric.column)
    names, data_type = PartialColumns(index), column_of(schema, metric.column).type
    counts = pc.fill_null(groups.column(names.count), 0)
    match metric.function:
        case MetricFunction.COUNT | MetricFunction.VALUE_COUNT:
            return counts
        case MetricFunction.SUM:
            return _sums(metric, groups.column(names.sum), data_type)
        case MetricFunction.AVG:
            return _averages(metric, groups.column(names.sum), counts, data_type)
        case MetricFunction.MIN | MetricFunction.MAX:
            return _extremes(metric.function, groups, names, counts, data_type)
        case MetricFunction.STATS:
            parts = [
                (
                    function.value,
                    _metric(Metric(function, metric.column), aggregation, groups, values, schema),
                )
                for function in _STATS
            ]
            arrays = [_one_array(part) for _, part in parts]
            return pa.StructArray.from_arrays(arrays, names=[name for name, _ in parts])
        case MetricFunction.CARDINALITY:
            return arrow_from_numpy(_Distribution(values[index], aggregation.keys).distinct())
        case MetricFunction.PERCENTILES:
            return _percentiles(metric, _Distribution(values[index], aggregation.keys))


_STATS: Final = (
    MetricFunction.COUNT,
    MetricFunction.MIN,
    MetricFunction.MAX,
    MetricFunction.SUM,
    MetricFunction.AVG,
)


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _extremes(
    function: MetricFunction,
    groups: pa.Table,
    names: PartialColumns,
    counts: pa.ChunkedArray,
    data_type: pa.DataType,
) -> pa.ChunkedArray:
    extremes = groups.column(names.min if function is MetricFunction.MIN else names.max)
    if not pa.types.is_floating(data_type):
        return extremes
    # NaN is above every other number: the maximum if any value is NaN, the minimum if all are.
    nans = pc.fill_null(groups.column(names.nan), 0)
    is_nan = pc.equal(nans, counts) if function is MetricFunction.MIN else pc.greater(nans, 0)
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


# Metrics of all values. Every group has at least one row here, because null is one of its values.


def _merged_values(
    aggregation: Aggregation, partials: Sequence[PartialAggregate], schema: pa.Schema
) -> list[pa.Table]:
    """The values of each column that needs them, with their numbers of rows, sorted by group and value."""
    return [
        _merged(
            [partial.values[position] for partial in partials],
            values_schema(aggregation, index, schema),
            [*aggregation.keys, VALUE],
        )
        for position, index in enumerate(aggregation.value_columns)
    ]


class _Distribution:
    """The values of each group: their numbers of rows, and where the group starts. Null is the last value."""

    def __init__(self, values: pa.Table, keys: Sequence[str]) -> None:
        self.values = values.column(VALUE)
        self.is_valid = np.asarray(pc.is_valid(self.values))
        self.rows = np.where(self.is_valid, np.asarray(values.column(ROWS)), 0).astype(np.int64)
        is_new = np.zeros(values.num_rows, dtype=bool)
        is_new[:1] = True
        for key in keys:
            is_new |= _changes(values.column(key))
        # Without groups there is one answer, even of no rows.
        self.starts: _Integers = np.flatnonzero(is_new) if keys else np.zeros(1, np.int64)

    def distinct(self) -> _Integers:
        """The number of values of each group."""
        counts = np.concatenate([[0], np.cumsum(self.is_valid)])
        ends = np.append(self.starts[1:], len(self.is_valid))
        found: _Integers = (counts[ends] - counts[self.starts]).astype(np.int64)
        return found

    def percentile(self, percent: float) -> pa.Array:
        """The value below which a share of each group lies, between the two nearest values; null without values."""
        numbers = np.asarray(pc.fill_null(self.values.cast(pa.float64()), 0.0))
        before = np.concatenate([[0], np.cumsum(self.rows)])
        ends = np.append(self.starts[1:], len(self.rows))
        totals = before[ends] - before[self.starts]
        has_values = totals > 0
        position = (totals[has_values] - 1) * (percent / 100)
        low = np.floor(position).astype(np.int64)
        share = position - low
        first = before[self.starts[has_values]]
        lower = numbers[np.searchsorted(before, first + low, side="right") - 1]
        upper = numbers[np.searchsorted(before, first + np.ceil(position).astype(np.int64), side="right") - 1]
        with np.errstate(invalid="ignore"):
            between = np.where(lower == upper, lower, lower + (upper - lower) * share)
        found = np.zeros(len(self.starts))
        found[has_values] = between
        return pc.if_else(arrow_from_numpy(has_values), arrow_from_numpy(found), None)


def _percentiles(metric: Metric, distribution: _Distribution) -> pa.Array:
    percents = metric.percents or DEFAULT_PERCENTS
    arrays = [distribution.percentile(percent) for percent in percents]
    return pa.StructArray.from_arrays(arrays, names=[f"p{percent:g}" for percent in percents])
