"""The table that carries an aggregation's partial results from a split to where they are merged.

One row per group: its `key`, its number of `rows`, and for the metrics' columns, by their index, the `count` of
values, how many of them are `nan`, their `sum`, `min` and `max`. All of these can be merged exactly.
"""

from typing import Final

import msgspec
import pyarrow as pa

from indextables.search.aggregation import (
    Aggregation,
    Histogram,
    Terms,
    column_of,
    is_measured,
    is_number,
    is_ordered,
)

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
