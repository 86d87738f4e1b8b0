"""Converts a bound predicate to an Arrow expression with the semantics of SQL."""

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidPredicateError
from indextables.predicates.tree import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BoundPredicate,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Like,
    NestedColumn,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Value,
)

MAX_CHAIN = 64

UNKNOWN = pa.scalar(None, pa.bool_())

COMPARE: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}


def to_arrow_filter(predicate: BoundPredicate) -> pc.Expression:
    """Return the Arrow expression of a bound predicate, for `Table.filter` and dataset scans.

    The expression is null where the predicate is unknown; filters drop those rows. As in Spark, NaN equals itself and
    is greater than any other number, and 0.0 equals -0.0. Raises InvalidPredicateError for an object that is not a
    predicate.
    """
    return _expression(predicate)


def _expression(predicate: Predicate) -> pc.Expression:
    match predicate:
        case And(operands=operands):
            return _combined(operator.and_, [_expression(operand) for operand in operands])
        case Or(operands=operands):
            return _combined(operator.or_, [_expression(operand) for operand in operands])
        case Not(operand=operand):
            return ~_expression(operand)
        case AlwaysTrue():
            return pc.scalar(True)
        case AlwaysFalse():
            return pc.scalar(False)
        case IsNull(column=column):
            return _value_of(column).is_null()
        case IsNotNull(column=column):
            return _value_of(column).is_valid()
        case Comparison(column=column, operator=how, value=value):
            return _comparison(_value_of(column), how, value)
        case In(column=column, values=values):
            return _membership(_value_of(column), values)
        case StartsWith(column=column, prefix=prefix):
            return pc.starts_with(_value_of(column), prefix)
        case Like(column=column, pattern=pattern):
            return pc.match_like(_value_of(column), pattern)
    raise InvalidPredicateError(f"{predicate!r} is not a predicate; use parse_predicate, or col()")


def _value_of(column: str) -> pc.Expression:
    if not isinstance(column, NestedColumn):
        return pc.field(column)
    value = pc.field(*column.path)
    return value if column.key is None else pc.map_lookup(value, pa.scalar(column.key), "first")


def _comparison(field: pc.Expression, how: Operator, value: Value | None) -> pc.Expression:
    if value is None:
        return pc.scalar(UNKNOWN)
    if isinstance(value, float):
        return _float_comparison(field.cast(pa.float64()), how, value)
    return COMPARE[how](field, pc.scalar(pa.scalar(value)))


def _float_comparison(field: pc.Expression, how: Operator, value: float) -> pc.Expression:
    is_nan = pc.is_nan(field)
    if math.isnan(value):
        match how:
            case Operator.EQ | Operator.GE:
                return is_nan
            case Operator.NE | Operator.LT:
                return ~is_nan
            case Operator.LE:
                return _unless_null(field, pc.scalar(True))
            case Operator.GT:
                return _unless_null(field, pc.scalar(False))
    compared = COMPARE[how](field, pc.scalar(value))
    return compared | is_nan if how in (Operator.GT, Operator.GE) else compared


def _membership(field: pc.Expression, values: tuple[Value | None, ...]) -> pc.Expression:
    known = [value for value in values if value is not None]
    if not known:
        return pc.scalar(UNKNOWN) if values else _unless_null(field, pc.scalar(False))
    if isinstance(known[0], float):
        # Adding zero turns -0.0 into 0.0: they are equal in SQL, but not in Arrow's set lookup.
        field = pc.add(field.cast(pa.float64()), 0.0)
        known = [float(value) + 0.0 for value in known]  # type: ignore[arg-type]  # bound: all are floats
    found = field.isin(pa.array(known))
    if None in values:
        return pc.if_else(found, True, UNKNOWN)
    return _unless_null(field, found)


def _unless_null(field: pc.Expression, truth: pc.Expression) -> pc.Expression:
    return pc.if_else(field.is_valid(), truth, UNKNOWN)


def _combined(combine: Callable[[Any, Any], Any], operands: list[pc.Expression]) -> pc.Expression:
    # Arrow flattens nested ANDs (or ORs) into one chain and walks it recursively; a few thousand operands crash the
    # process. A coalesce of one operand changes nothing and breaks the chain.
    while len(operands) > MAX_CHAIN:
        chains = [operands[start : start + MAX_CHAIN] for start in range(0, len(operands), MAX_CHAIN)]
        operands = [pc.coalesce(reduce(combine, chain)) for chain in chains]
    return reduce(combine, operands)
