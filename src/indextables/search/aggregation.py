"""Aggregations: metrics over all matching rows or over groups of them, and the schema of partial results."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Final

import msgspec
import pyarrow as pa

from indextables.errors import InvalidAggregationError
from indextables.schema import find_column
from indextables.search.groupings import (
    BY_COUNT,
    BY_KEY,
    DEFAULT_TERMS,
    Grouping,
    Ranges,
    Terms,
    is_number,
    is_ordered,
    parse_grouping,
)

DEFAULT_PERCENTS: Final = (1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0)

_METRIC: Final = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*")


class MetricFunction(Enum):
    """A function of the values of a column; nulls are ignored."""

    COUNT = "count"
    VALUE_COUNT = "value_count"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    AVG = "avg"
    STATS = "stats"
    CARDINALITY = "cardinality"
    PERCENTILES = "percentiles"

    @property
    def parts(self) -> frozenset["MetricFunction"]:
        """The functions that this one shows, and itself otherwise."""
        cls = MetricFunction
        return frozenset((cls.MIN, cls.MAX, cls.SUM, cls.AVG)) if self is cls.STATS else frozenset((self,))


# These need all values, not only what merges into a number.
VALUE_FUNCTIONS: Final = frozenset({MetricFunction.CARDINALITY, MetricFunction.PERCENTILES})
_NUMERIC: Final = frozenset(
    {MetricFunction.SUM, MetricFunction.AVG, MetricFunction.STATS, MetricFunction.PERCENTILES}
)
_ORDERED: Final = frozenset({MetricFunction.MIN, MetricFunction.MAX, MetricFunction.CARDINALITY})


class Metric(msgspec.Struct, frozen=True):
    """A function of a column; without a column, the row count.

    Attributes:
        function: The function to compute.
        column: The column; only COUNT works without one. `user.age` is a member of a struct.
        percents: For PERCENTILES: which ones, from 0 to 100.

    Raises:
        InvalidAggregationError: If the function needs a column, or a percent is none.

    Example:
        >>> table.aggregate([Metric(MetricFunction.MAX, "price")])
    """

    function: MetricFunction
    column: str | None = None
    percents: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        name = self.function.value
        if self.column is None and self.function is not MetricFunction.COUNT:
            raise InvalidAggregationError(f"{name} needs a column, as in {name}(price)")
        if self.percents and self.function is not MetricFunction.PERCENTILES:
            raise InvalidAggregationError(f"{name} has no percents")
        if not all(0 <= percent <= 100 for percent in self.percents):
            raise InvalidAggregationError(f"{name} of {self.column!r}: percents are from 0 to 100")
        if len(set(self.percents)) < len(self.percents):
            raise InvalidAggregationError(f"{name} of {self.column!r}: a percent is given twice")

    @property
    def name(self) -> str:
        """The name of the result column: `count`, `max(price)`."""
        return self.function.value if self.column is None else f"{self.function.value}({self.column})"

    @classmethod
    def parse(cls, text: str) -> "Metric":
        """Parse the name of a metric.

        Args:
            text: `count`, or a function of a column, such as `max(price)` or `percentiles(price, 50, 99)`.

        Returns:
            The metric.

        Raises:
            InvalidAggregationError: If the text is not a metric.
        """
        known = {each.value: each for each in MetricFunction}
        match = _METRIC.fullmatch(text)
        function = None if match is None else known.get(match[1].lower())
        if match is None or function is None:
            raise InvalidAggregationError(
                f"{text!r} is not a metric; write count, or one of {', '.join(known)} with a column, as in max(price)"
            )
        column = (match[2] or "").strip()
        percents: tuple[float, ...] = ()
        if function is MetricFunction.PERCENTILES:
            column, *texts = map(str.strip, column.split(","))
            percents = tuple(_percent(text, each) for each in texts)
        return cls(function, column or None, percents)


class Aggregation(msgspec.Struct, frozen=True):
    """Metrics over all matching rows, or over each group of them.

    Args:
        metrics: The metrics, at least one and each only once.
        by: How to group the rows, from the outer to the inner groups; nothing for a single group.

    Raises:
        InvalidAggregationError: If there is no metric, or a metric or a column to group by occurs twice.

    Example:
        >>> Aggregation.of(["count", "max(price)"], by="level")
    """

    metrics: tuple[Metric, ...] = (Metric(MetricFunction.COUNT),)
    by: tuple[Grouping, ...] = ()

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        if not names:
            raise InvalidAggregationError("an aggregation needs at least one metric, such as count")
        if len(set(names)) < len(names):
            raise InvalidAggregationError(f"an aggregation has the same metric twice: {', '.join(names)}")
        columns = [by.column.lower() for by in self.by]
        if len(set(columns)) < len(columns):
            raise InvalidAggregationError(f"an aggregation groups by a column twice: {', '.join(columns)}")
        for by in self.by:
            if isinstance(by, Terms):
                self.order_metric(by)

    @classmethod
    def of(
        cls,
        metrics: str | Metric | Sequence[str | Metric],
        by: str | Grouping | Sequence[str | Grouping] | None = None,
    ) -> "Aggregation":
        """Build an aggregation from metric names and columns to group by.

        Args:
            metrics: Metrics, or their names, such as `count` and `max(price)`.
            by: Groupings, or columns whose values are the groups. One column gives its ten most frequent values,
                several columns give all combinations of their values.

        Returns:
            The aggregation.

        Raises:
            InvalidAggregationError: If a metric or a grouping is invalid or occurs twice.
        """
        some = (metrics,) if isinstance(metrics, str | Metric) else metrics
        parsed = tuple(metric if isinstance(metric, Metric) else Metric.parse(metric) for metric in some)
        groupings = () if by is None else (by,) if isinstance(by, str | Grouping) else tuple(by)
        size = DEFAULT_TERMS if len(groupings) == 1 else None
        return cls(
            parsed, tuple(parse_grouping(each, size) if isinstance(each, str) else each for each in groupings)
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The distinct columns of the metrics."""
        return tuple(dict.fromkeys(metric.column for metric in self.metrics if metric.column is not None))

    @property
    def keys(self) -> list[str]:
        """The names of the key columns of partial results."""
        return [f"{KEY}{level}" for level in range(len(self.by))]

    @property
    def value_columns(self) -> list[int]:
        """The columns, by their index, of which a metric needs all values."""
        return [
            index for index, column in enumerate(self.columns) if self.functions_of(column) & VALUE_FUNCTIONS
        ]

    def functions_of(self, column: str) -> frozenset[MetricFunction]:
        """Return the functions of the metrics of a column."""
        found = (metric.function.parts for metric in self.metrics if metric.column == column)
        return frozenset().union(*found)

    def order_metric(self, by: Terms) -> Metric | None:
        """Return the metric that orders terms; None if the count or the key does. Raises InvalidAggregationError."""
        name = by.order_name
        if name in (BY_COUNT, BY_KEY):
            return None
        sortable = {
            metric.name: metric
            for metric in self.metrics
            if metric.function not in VALUE_FUNCTIONS and metric.function is not MetricFunction.STATS
        }
        if name not in sortable:
            known = ", ".join(dict.fromkeys((BY_COUNT, BY_KEY, *sortable)))
            raise InvalidAggregationError(
                f"terms of {by.column!r}: the order is {by.order!r}; it must be one of {known}, "
                f"with a leading - for the highest first"
            )
        return sortable[name]

    def check(self, schema: pa.Schema) -> None:
        """Raise InvalidAggregationError for columns that do not exist or have an unsuitable type."""
        for metric in self.metrics:
            if metric.column is not None:
                data_type = column_of(schema, metric.column).type
                if not _is_fit(metric.function, data_type):
                    raise InvalidAggregationError(f"{metric.name} does not apply to the type {data_type}")
        for by in self.by:
            by.check(column_of(schema, by.column).type)


def split_list(text: str) -> tuple[str, ...]:
    """Split a list of metrics or groupings at its commas, except those in parentheses."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(stripped for part in parts if (stripped := part.strip()))


def _percent(text: str, percent: str) -> float:
    try:
        return float(percent)
    except ValueError as error:
        raise InvalidAggregationError(f"{text!r}: {percent!r} is not a number") from error


def column_of(schema: pa.Schema, name: str) -> pa.Field:
    """Return a column, or the member of a struct that a path such as `user.age` names.

    Raises InvalidAggregationError, with the nearest name, if it does not exist.
    """
    column = find_column(schema, name)
    if column is not None:
        return column
    path = member_path(schema, name)
    if path:
        field = column_of(schema, path[0])
        for member in path[1:]:
            field = field.type.field(member)
        return field.with_name(".".join(path))
    near = get_close_matches(name, schema.names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(schema.names)}"
    raise InvalidAggregationError(f"there is no column {name!r}; {remedy}")


def member_path(schema: pa.Schema, name: str) -> list[str]:
    """Return the column and the members that a path names; nothing if it names none."""
    for dot in (index for index, character in enumerate(name) if character == "."):
        column = find_column(schema, name[:dot])
        if column is None or not pa.types.is_struct(column.type):
            continue
        rest = name[dot + 1 :]
        members = pa.schema(list(column.type))
        member = find_column(members, rest)
        inner = [member.name] if member is not None else member_path(members, rest)
        if inner:
            return [column.name, *inner]
    return []


def _is_fit(function: MetricFunction, data_type: pa.DataType) -> bool:
    if function in _NUMERIC:
        return is_number(data_type)
    return is_ordered(data_type) if function in _ORDERED else True


# Partial results: one table per split, one row per group, with its keys `key0` …, its number of `rows`, and for each
# metric column, by its index, the `count` of values, the number of `nan`, the `sum`, the `min` and the `max`. All of
# these merge exactly. So do values: one row per group and value, with its number of `rows`.

KEY: Final = "key"
ROWS: Final = "rows"
VALUE: Final = "value"

# The digits of a partial sum: twice those of a decimal, so no sum of decimals overflows it.
SUM_DIGITS: Final = 76


class PartialAggregate(msgspec.Struct, frozen=True):
    """The groups of some rows, and for each of `Aggregation.value_columns` the values in each group."""

    groups: pa.Table
    values: tuple[pa.Table, ...] = ()


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
    fields = [*_key_fields(aggregation, schema), pa.field(ROWS, pa.int64())]
    for index, column in enumerate(aggregation.columns):
        names, data_type = PartialColumns(index), column_of(schema, column).type
        fields += [pa.field(names.count, pa.int64()), pa.field(names.nan, pa.int64())]
        if is_number(data_type):
            fields.append(pa.field(names.sum, sum_type(data_type)))
        if is_ordered(data_type):
            fields += [pa.field(names.min, data_type), pa.field(names.max, data_type)]
    return pa.schema(fields)


def values_schema(aggregation: Aggregation, index: int, schema: pa.Schema) -> pa.Schema:
    """Return the schema of the values of a metric column."""
    value = pa.field(VALUE, column_of(schema, aggregation.columns[index]).type)
    return pa.schema([*_key_fields(aggregation, schema), value, pa.field(ROWS, pa.int64())])


def _key_fields(aggregation: Aggregation, schema: pa.Schema) -> list[pa.Field]:
    """The keys; those of ranges are their positions."""
    types = [
        pa.int64() if isinstance(by, Ranges) else by.key_type(column_of(schema, by.column).type)
        for by in aggregation.by
    ]
    return [pa.field(name, key_type) for name, key_type in zip(aggregation.keys, types, strict=True)]


def sum_type(data_type: pa.DataType) -> pa.DataType:
    """Return a type that sums without loss; floats are summed as doubles."""
    if pa.types.is_floating(data_type):
        return pa.float64()
    return pa.decimal256(SUM_DIGITS, data_type.scale if pa.types.is_decimal(data_type) else 0)
