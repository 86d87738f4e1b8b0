"""Aggregations: metrics over all matching rows or over groups of them, and the schema of partial results."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

from indextables.errors import InvalidAggregationError
from indextables.schema import find_column

Step: TypeAlias = int | float | Decimal | timedelta

DEFAULT_TERMS: Final = 10


class MetricFunction(Enum):
    """A function of the values of a column; nulls are ignored."""

    COUNT = "count"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    AVG = "avg"


class Metric(msgspec.Struct, frozen=True):
    """A function of a column; without a column, the row count.

    Args:
        function: The function to compute.
        column: The column; only COUNT works without one.

    Raises:
        InvalidAggregationError: If the function needs a column.

    Example:
        >>> table.aggregate([Metric(MetricFunction.MAX, "price")])
    """

    function: MetricFunction
    column: str | None = None

    def __post_init__(self) -> None:
        if self.column is None and self.function is not MetricFunction.COUNT:
            raise InvalidAggregationError(
                f"{self.function.value} needs a column, as in {self.function.value}(price)"
            )

    @property
    def name(self) -> str:
        """The name of the result column: `count`, `max(price)`."""
        return self.function.value if self.column is None else f"{self.function.value}({self.column})"

    @classmethod
    def parse(cls, text: str) -> "Metric":
        """Parse the name of a metric.

        Args:
            text: `count`, or a function of a column, such as `max(price)`.

        Returns:
            The metric.

        Raises:
            InvalidAggregationError: If the text is not a metric.
        """
        function, opening, rest = text.strip().partition("(")
        known = {each.value: each for each in MetricFunction}
        if function.lower() not in known or (opening and not rest.endswith(")")):
            raise InvalidAggregationError(
                f"{text!r} is not a metric; write count, or one of {', '.join(known)} with a column, as in max(price)"
            )
        return cls(known[function.lower()], rest[:-1].strip() or None if opening else None)


class Terms(msgspec.Struct, frozen=True):
    """Groups by value: the most frequent values of a column, without null.

    Args:
        column: The column to group by.
        size: How many groups to return, the most frequent first.

    Raises:
        InvalidAggregationError: If the size is below 1.

    Example:
        >>> table.aggregate(["count"], by=Terms("level", size=3))
    """

    column: str
    size: int = DEFAULT_TERMS

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidAggregationError(
                f"terms of {self.column!r}: the size is {self.size}; it must be at least 1"
            )


class Histogram(msgspec.Struct, frozen=True):
    """Groups by interval, lowest first, without empty intervals, nulls and NaN.

    Args:
        column: The column to group by.
        interval: The width of a group: a number or, for dates and timestamps, a timedelta.
        offset: Where one of the intervals starts, counted from zero or from 1970-01-01.

    Raises:
        InvalidAggregationError: If the interval is not above zero.

    Example:
        >>> table.aggregate(["count"], by=Histogram("time", timedelta(days=1)))
    """

    column: str
    interval: Step
    offset: Step | None = None

    def __post_init__(self) -> None:
        span = self.interval.total_seconds() if isinstance(self.interval, timedelta) else self.interval
        if not 0 < span < float("inf"):
            raise InvalidAggregationError(
                f"histogram of {self.column!r}: the interval is {self.interval}; it must be above zero"
            )


class Aggregation(msgspec.Struct, frozen=True):
    """Metrics over all matching rows, or over each group of them.

    Args:
        metrics: The metrics, at least one and each only once.
        by: How to group the rows; None for a single group.

    Raises:
        InvalidAggregationError: If there is no metric, or a metric occurs twice.

    Example:
        >>> Aggregation.of(["count", "max(price)"], by="level")
    """

    metrics: tuple[Metric, ...] = (Metric(MetricFunction.COUNT),)
    by: Terms | Histogram | None = None

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        if not names:
            raise InvalidAggregationError("an aggregation needs at least one metric, such as count")
        if len(set(names)) < len(names):
            raise InvalidAggregationError(f"an aggregation has the same metric twice: {', '.join(names)}")

    @classmethod
    def of(cls, metrics: Sequence[str | Metric], by: str | Terms | Histogram | None = None) -> "Aggregation":
        """Build an aggregation from metric names and a column to group by.

        Args:
            metrics: Metrics, or their names, such as `count` and `max(price)`.
            by: A grouping, or the column whose values are the groups.

        Returns:
            The aggregation.

        Raises:
            InvalidAggregationError: If a metric is invalid or occurs twice.
        """
        parsed = tuple(metric if isinstance(metric, Metric) else Metric.parse(metric) for metric in metrics)
        return cls(parsed, Terms(by) if isinstance(by, str) else by)

    @property
    def columns(self) -> tuple[str, ...]:
        """The distinct columns of the metrics."""
        return tuple(dict.fromkeys(metric.column for metric in self.metrics if metric.column is not None))

    def functions_of(self, column: str) -> frozenset[MetricFunction]:
        """Return the functions of the metrics of a column."""
        return frozenset(metric.function for metric in self.metrics if metric.column == column)

    def check(self, schema: pa.Schema) -> None:
        """Raise InvalidAggregationError for columns that do not exist or have an unsuitable type."""
        for metric in self.metrics:
            if metric.column is not None:
                data_type = column_of(schema, metric.column).type
                if not _is_fit(metric.function, data_type):
                    raise InvalidAggregationError(f"{metric.name} does not apply to the type {data_type}")
        if self.by is None:
            return
        data_type = column_of(schema, self.by.column).type
        is_terms = isinstance(self.by, Terms)
        grouping = "terms" if is_terms else "a histogram"
        if not (is_ordered(data_type) if is_terms else is_measured(data_type)):
            raise InvalidAggregationError(
                f"column {self.by.column!r} has the type {data_type}, which {grouping} cannot group"
            )


def column_of(schema: pa.Schema, name: str) -> pa.Field:
    """Return a column. Raises InvalidAggregationError, with the nearest name, if it does not exist."""
    column = find_column(schema, name)
    if column is not None:
        return column
    near = get_close_matches(name, schema.names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(schema.names)}"
    raise InvalidAggregationError(f"there is no column {name!r}; {remedy}")


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


def _is_fit(function: MetricFunction, data_type: pa.DataType) -> bool:
    match function:
        case MetricFunction.COUNT:
            return True
        case MetricFunction.MIN | MetricFunction.MAX:
            return is_ordered(data_type)
    return is_number(data_type)


# Partial results: one table per split, one row per group, with its `key`, its number of `rows`, and for each metric
# column, by its index, the `count` of values, the number of `nan`, the `sum`, the `min` and the `max`. All of these
# merge exactly.

KEY: Final = "key"
ROWS: Final = "rows"

# The most digits of a decimal, and of a partial sum: twice as many, so no sum of decimals overflows it.
MAX_DIGITS: Final = 38
SUM_DIGITS: Final = 76


class PartialColumns(msgspec.Struct, frozen=True):
    """The column names of the partial results of one metric column, and the key of Tantivy's answer."""

    index: int

    @property
    def answer(self) -> str:
        """The key of Tantivy's answer. Not the column's name, which may collide with Tantivy's own keys."""
        return f"metric{self.index}"

    @property
    def count(self) -> str:
        """The number of non-null values."""
        return f"count{self.index}"

    @property
    def nan(self) -> str:
        """The number of NaN values, if `min` and `max` ignore them."""
        return f"nan{self.index}"

    @property
    def sum(self) -> str:
        return f"sum{self.index}"

    @property
    def min(self) -> str:
        return f"min{self.index}"

    @property
    def max(self) -> str:
        return f"max{self.index}"


def partial_schema(aggregation: Aggregation, schema: pa.Schema) -> pa.Schema:
    """Return the schema of partial results; `schema` is the table's."""
    fields = [] if aggregation.by is None else [pa.field(KEY, key_type(aggregation.by, schema))]
    fields.append(pa.field(ROWS, pa.int64()))
    for index, column in enumerate(aggregation.columns):
        names, data_type = PartialColumns(index), column_of(schema, column).type
        fields += [pa.field(names.count, pa.int64()), pa.field(names.nan, pa.int64())]
        if is_number(data_type):
            fields.append(pa.field(names.sum, sum_type(data_type)))
        if is_ordered(data_type):
            fields += [pa.field(names.min, data_type), pa.field(names.max, data_type)]
    return pa.schema(fields)


def key_type(by: Terms | Histogram, schema: pa.Schema) -> pa.DataType:
    """Return the type of group keys: the column's, or one that can hold the start of an interval."""
    data_type = column_of(schema, by.column).type
    if isinstance(by, Terms) or not is_measured(data_type):
        return data_type
    if pa.types.is_integer(data_type):
        return pa.int64()
    if pa.types.is_floating(data_type):
        return pa.float64()
    return pa.decimal128(MAX_DIGITS, data_type.scale) if pa.types.is_decimal(data_type) else data_type


def sum_type(data_type: pa.DataType) -> pa.DataType:
    """Return a type that sums without loss; floats are summed as doubles."""
    if pa.types.is_floating(data_type):
        return pa.float64()
    return pa.decimal256(SUM_DIGITS, data_type.scale if pa.types.is_decimal(data_type) else 0)
