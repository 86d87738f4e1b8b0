"""Translation of Spark's filters to predicates, where both select exactly the same rows."""

from collections.abc import Sequence
from decimal import Decimal, getcontext
from typing import Final

import pyarrow as pa
from pyspark.sql import datasource as spark

from indextables.errors import InvalidPredicateError, InvalidQueryError
from indextables.predicates import (
    And,
    BoundPredicate,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Operator,
    Predicate,
    StartsWith,
    all_of,
    bind,
)
from indextables.predicates.tree import MAX_PATTERN_LENGTH

QUERY_COLUMN: Final = "_query"
SCORE_COLUMN: Final = "_score"

_OPERATORS: Final[dict[type[spark.Filter], Operator]] = {
    spark.EqualTo: Operator.EQ,
    spark.GreaterThan: Operator.GT,
    spark.GreaterThanOrEqual: Operator.GE,
    spark.LessThan: Operator.LT,
    spark.LessThanOrEqual: Operator.LE,
}

_ONE_QUERY: Final = (
    f"full-text search takes one condition {QUERY_COLUMN} = '…', with any query, such as 'title:spark AND "
    f"body:fast'"
)

# `load` adds a condition with this text, true for every row, so that every scan has a filter.
MARKER_PREFIX: Final = "indextables scan "


def requested_by(
    filters: Sequence[spark.Filter], schema: pa.Schema, *, has_search_columns: bool
) -> tuple[str | None, BoundPredicate | None]:
    """The search query in the filters, and the bound predicate of all filters that can be translated.

    Other filters are left to Spark. Raises InvalidQueryError for a condition on `_query` that is not a search.
    """
    queries: dict[str, None] = {}
    predicates: list[BoundPredicate] = []
    for each in filters:
        column = _column(each)
        if _is_marker(each) or (has_search_columns and column == SCORE_COLUMN):
            continue
        if has_search_columns and column == QUERY_COLUMN:
            queries |= dict.fromkeys(_query(each))
        elif (predicate := to_predicate(each, schema)) is not None:
            predicates.append(predicate)
    if len(queries) > 1:
        raise InvalidQueryError(f"two conditions on {QUERY_COLUMN}; {_ONE_QUERY}")
    return next(iter(queries), None), all_of(predicates) if predicates else None


def to_predicate(given: spark.Filter, schema: pa.Schema) -> BoundPredicate | None:
    """Translate a filter to a predicate bound to the schema; None if there is no equivalent."""
    predicate = _predicate(given)
    if predicate is None:
        return None
    try:
        return bind(predicate, schema)
    except InvalidPredicateError:
        return None


def _predicate(given: spark.Filter) -> Predicate | None:
    if isinstance(given, spark.Not):
        operand = _predicate(given.child)
        return None if operand is None else Not(operand)
    column = _column(given)
    if column is None or _has_rounded_value(given):
        return None
    operator = _OPERATORS.get(type(given))
    if operator is not None:
        return Comparison(column, operator, given.value)  # type: ignore[attr-defined]  # every comparison has a value
    match given:
        case spark.EqualNullSafe(value=None):
            return IsNull(column)
        case spark.EqualNullSafe(value=value):
            return And(IsNotNull(column), Comparison(column, Operator.EQ, value))
        case spark.In(value=values):
            return In(column, tuple(values))
        case spark.IsNull():
            return IsNull(column)
        case spark.IsNotNull():
            return IsNotNull(column)
        case spark.StringStartsWith(value=text):
            return StartsWith(column, text)
        case spark.StringEndsWith(value=text):
            return _like(column, f"%{_escaped(text)}")
        case spark.StringContains(value=text):
            return _like(column, f"%{_escaped(text)}%")
    return None


def _has_rounded_value(given: spark.Filter) -> bool:
    """Whether a value may not be the one in the query: Spark builds decimals in Python's context, which rounds them."""
    value = getattr(given, "value", None)
    values = value if isinstance(value, tuple | list) else (value,)
    precision = getcontext().prec
    return any(isinstance(each, Decimal) and len(each.as_tuple().digits) >= precision for each in values)


def _column(given: spark.Filter) -> str | None:
    """The column of a filter; None for a nested field."""
    while isinstance(given, spark.Not):
        given = given.child
    path: tuple[str, ...] = getattr(given, "attribute", ())
    return path[0] if len(path) == 1 else None


def _like(column: str, pattern: str) -> Predicate | None:
    return Like(column, pattern) if len(pattern) <= MAX_PATTERN_LENGTH else None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _is_marker(given: spark.Filter) -> bool:
    value = getattr(given.child, "value", None) if isinstance(given, spark.Not) else None
    return isinstance(value, str) and value.startswith(MARKER_PREFIX)


def _query(given: spark.Filter) -> list[str]:
    match given:
        # Spark adds this to every comparison.
        case spark.IsNotNull():
            return []
        case spark.EqualTo(value=str(text)) | spark.EqualNullSafe(value=str(text)):
            return [text]
    raise InvalidQueryError(f"{QUERY_COLUMN} does not support {type(given).__name__}; {_ONE_QUERY}")
