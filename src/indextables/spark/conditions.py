"""Bound predicates as conditions of Spark, with the same answer for every row.

A bound predicate has literals of its columns' types, so no condition depends on Spark's coercion of types, on ANSI mode
or on the session's time zone.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # Spark's own convention

from indextables.predicates import (
    AlwaysTrue,
    And,
    BoundPredicate,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Value,
    type_inside,
)

_COMPARE: Final[Mapping[Operator, Callable[[Any, Any], Any]]] = {
    Operator.EQ: eq,
    Operator.NE: ne,
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
}


def spark_condition(predicate: BoundPredicate, schema: pa.Schema, column: Callable[[str], Column]) -> Column:
    """The condition of Spark that is true, false or null exactly where the predicate is true, false or unknown.

    `column` returns Spark's column for a column of the table, or a value inside one. The table's schema is `schema`.
    """
    return _Translation(schema, column).condition(predicate)


class _Translation:
    def __init__(self, schema: pa.Schema, column: Callable[[str], Column]) -> None:
        self._schema = schema
        self._column = column

    def condition(self, predicate: Predicate) -> Column:
        match predicate:
            case And(operands=operands):
                return _combined(and_, [self.condition(operand) for operand in operands])
            case Or(operands=operands):
                return _combined(or_, [self.condition(operand) for operand in operands])
            case Not(operand=operand):
                return ~self.condition(operand)
            case IsNull(column=name):
                return self._column(name).isNull()
            case IsNotNull(column=name):
                return self._column(name).isNotNull()
            case Comparison(column=name, operator=operator, value=value):
                condition: Column = _COMPARE[operator](self._column(name), self._literal(name, value))
                return condition
            case In(column=name, values=()):
                return F.when(self._column(name).isNotNull(), F.lit(False))
            case In(column=name, values=values):
                return self._column(name).isin([self._literal(name, value) for value in values])
            case StartsWith(column=name, prefix=prefix):
                return self._column(name).startswith(F.lit(prefix))
            case Like(column=name, pattern=pattern):
                return self._column(name).like(pattern)
        return F.lit(isinstance(predicate, AlwaysTrue))

    def _literal(self, name: str, value: Value | None) -> Column:
        data_type = type_inside(self._schema, name)
        # As in Spark, values are compared as doubles, even if the column has 32-bit floats.
        wanted = "double" if pa.types.is_floating(data_type) else _type_name(data_type)
        if value is None:
            return F.lit(None).cast(wanted)
        if isinstance(value, bytes):
            return F.lit(bytearray(value))
        if isinstance(value, str | bool):
            return F.lit(value)
        return F.lit(_text(value)).cast(wanted)


def partition_literal(text: str | None, data_type: pa.DataType) -> Column:
    """A constant partition column, nullable for Spark, from the text that `format_value` gives to its value."""
    value = F.lit(text) if pa.types.is_string(data_type) else F.lit(text).cast(_type_name(data_type))
    return F.nullif(value, F.lit(None))


def _combined(combine: Callable[[Column, Column], Column], operands: list[Column]) -> Column:
    """Combine operands in a balanced tree: Spark walks conditions recursively, and a long chain would be too deep."""
    while len(operands) > 1:
        pairs = zip(operands[::2], operands[1::2], strict=False)
        rest = operands[-1:] if len(operands) % 2 else []
        operands = [combine(left, right) for left, right in pairs] + rest
    return operands[0]


def _text(value: Value) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    # All digits of a decimal, without an exponent.
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _type_name(data_type: pa.DataType) -> str:
    for is_type, name in _TYPE_NAMES:
        if is_type(data_type):
            return name
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    assert pa.types.is_decimal(data_type)  # binding rejects literals for the other types
    return f"decimal({data_type.precision},{data_type.scale})"


_TYPE_NAMES: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_date32, "date"),
)
