"""What can be asked of many rows at once: metrics, over all rows or over groups of them."""

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
    """What is computed from the values of a column; nulls do not count."""

    COUNT = "count"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    AVG = "avg"


class Metric(msgspec.Struct, frozen=True):
    """A function of a column; without a column, the count of rows."""

    function: MetricFunction
    column: str | None = None

    def __post_init__(self) -> None:
        if self.column is None and self.function is not MetricFunction.COUNT:
            raise InvalidAggregationError(f"{self.function.value} needs a column; name one")

    @property
    def name(self) -> str:
        """The name of the result's column: `count`, `max(price)`."""
        return self.function.value if self.column is None else f"{self.function.value}({self.column})"

    @classmethod
    def parse(cls, text: str) -> "Metric":
        """A metric by its name, `count` or `max(price)`. Raises InvalidAggregationError."""
        function, opening, rest = text.strip().partition("(")
        known = {each.value: each for each in MetricFunction}
        if function.lower() not in known or (opening and not rest.endswith(")")):
            raise InvalidAggregationError(
                f"{text!r} is no metric; write count, or one of {', '.join(known)} of a column, as in max(price)"
            )
        return cls(known[function.lower()], rest[:-1].strip() or None if opening else None)


class Terms(msgspec.Struct, frozen=True):
    """One group for each value of a column, the most frequent `size` of them; nulls are in no group."""

    column: str
    size: int = DEFAULT_TERMS

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidAggregationError(
                f"terms of {self.column!r}: the size is {self.size}; ask for 1 or more"
            )


class Histogram(msgspec.Struct, frozen=True):
    """One group for each interval of a column that has values, lowest first; nulls and NaN are in none.

    Intervals are a number, or, for dates and timestamps, a time span; they begin at `offset` (from zero, or
    from 1970-01-01) and its multiples.
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
    """Metrics over all rows that match, or over each group of them."""

    metrics: tuple[Metric, ...] = (Metric(MetricFunction.COUNT),)
    by: Terms | Histogram | None = None

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        if not names:
            raise InvalidAggregationError("an aggregation needs a metric, such as count; name one")
        if len(set(names)) < len(names):
            raise InvalidAggregationError(f"an aggregation names a metric twice: {', '.join(names)}")

    @classmethod
    def of(cls, metrics: Sequence[str | Metric], by: str | Terms | Histogram | None = None) -> "Aggregation":
        """An aggregation in a caller's words: metrics by name, and groups by a column's values."""
        parsed = tuple(metric if isinstance(metric, Metric) else Metric.parse(metric) for metric in metrics)
        return cls(parsed, Terms(by) if isinstance(by, str) else by)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the metrics, each once."""
        return tuple(dict.fromkeys(metric.column for metric in self.metrics if metric.column is not None))

    def functions_of(self, column: str) -> frozenset[MetricFunction]:
        """What is asked of a column."""
        return frozenset(metric.function for metric in self.metrics if metric.column == column)

    def check(self, schema: pa.Schema) -> None:
        """Raise InvalidAggregationError for columns that a table does not have, or that do not fit."""
        for metric in self.metrics:
            if metric.column is not None:
                data_type = column_of(schema, metric.column).type
                if not _is_fit(metric.function, data_type):
                    raise InvalidAggregationError(f"{metric.name} does not apply to the type {data_type}")
        if self.by is None:
            return
        data_type = column_of(schema, self.by.column).type
        if not (is_ordered(data_type) if isinstance(self.by, Terms) else is_measured(data_type)):
            raise InvalidAggregationError(
                f"column {self.by.column!r} has the type {data_type}, which cannot be grouped in this way"
            )


def column_of(schema: pa.Schema, name: str) -> pa.Field:
    """A column by its name. Raises InvalidAggregationError with the nearest name if there is none."""
    column = find_column(schema, name)
    if column is not None:
        return column
    near = get_close_matches(name, schema.names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(schema.names)}"
    raise InvalidAggregationError(f"there is no column {name!r}; {remedy}")


def is_number(data_type: pa.DataType) -> bool:
    """Whether values can be added up."""
    is_types = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_type(data_type) for is_type in is_types)


def is_measured(data_type: pa.DataType) -> bool:
    """Whether values lie at a distance from each other."""
    return is_number(data_type) or pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)


def is_ordered(data_type: pa.DataType) -> bool:
    """Whether values can be compared as a whole."""
    return is_measured(data_type) or pa.types.is_boolean(data_type) or pa.types.is_string(data_type)


def _is_fit(function: MetricFunction, data_type: pa.DataType) -> bool:
    match function:
        case MetricFunction.COUNT:
            return True
        case MetricFunction.MIN | MetricFunction.MAX:
            return is_ordered(data_type)
    return is_number(data_type)


# The table that carries an aggregation's partial results from a split to where they are merged.
#
# One row per group: its `key`, its number of `rows`, and for the metrics' columns, by their index, the
# `count` of values, how many of them are `nan`, their `sum`, `min` and `max`. All of these can be merged
# exactly.


KEY: Final = "key"
ROWS: Final = "rows"

# As many digits as a decimal can have: sums of 64-bit integers never overflow it.
SUM_DIGITS: Final = 38


class PartialColumns(msgspec.Struct, frozen=True):
    """The names of one metric column's partial results, and of Tantivy's answer about it."""

    index: int

    @property
    def answer(self) -> str:
        """What Tantivy answers; no column's name, which could be one of Tantivy's own keys."""
        return f"metric{self.index}"

    @property
    def count(self) -> str:
        """The number of values that are not null."""
        return f"count{self.index}"

    @property
    def nan(self) -> str:
        """How many of them are NaN, if `min` and `max` left those out."""
        return f"nan{self.index}"

    @property
    def sum(self) -> str:
        """Their sum."""
        return f"sum{self.index}"

    @property
    def min(self) -> str:
        """The lowest value."""
        return f"min{self.index}"

    @property
    def max(self) -> str:
        """The highest value."""
        return f"max{self.index}"


def partial_schema(aggregation: Aggregation, schema: pa.Schema) -> pa.Schema:
    """The columns of partial results; `schema` is the table's."""
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
    """The type of the groups' keys: the column's, or one that also holds where an interval begins."""
    data_type = column_of(schema, by.column).type
    if isinstance(by, Terms) or not is_measured(data_type):
        return data_type
    if pa.types.is_integer(data_type):
        return pa.int64()
    if pa.types.is_floating(data_type):
        return pa.float64()
    return pa.decimal128(SUM_DIGITS, data_type.scale) if pa.types.is_decimal(data_type) else data_type


def sum_type(data_type: pa.DataType) -> pa.DataType:
    """The type in which values are added up without loss; floats are added up as floats."""
    if pa.types.is_floating(data_type):
        return pa.float64()
    return pa.decimal128(SUM_DIGITS, data_type.scale if pa.types.is_decimal(data_type) else 0)
