"""Spark's filters as predicates, where both mean the same for every row."""

from collections.abc import Sequence
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
    f"full-text search takes one condition {QUERY_COLUMN} = '…', which may hold any query, such as 'title:spark AND "
    f"body:fast'"
)


# A condition with this text in it holds for every row. It is there so that every scan has a filter.
MARKER_PREFIX: Final = "indextables scan "


def asked_by(
    filters: Sequence[spark.Filter], schema: pa.Schema, *, has_search_columns: bool
) -> tuple[str | None, BoundPredicate | None]:
    """The query of filters, and the bound predicate of all those that have one; the others exclude nothing.

    Raises InvalidQueryError for conditions on the column of the query that are no search.
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
        raise InvalidQueryError(f"there are two conditions on {QUERY_COLUMN}; {_ONE_QUERY}")
    return next(iter(queries), None), all_of(predicates) if predicates else None


def to_predicate(given: spark.Filter, schema: pa.Schema) -> BoundPredicate | None:
    """The same condition as a predicate, bound to the schema; None if there is none."""
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
    if column is None:
        return None
    operator = _OPERATORS.get(type(given))
    if operator is not None:
        return Comparison(column, operator, given.value)  # type: ignore[attr-defined]  # comparisons have one
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


def _column(given: spark.Filter) -> str | None:
    """The column that a filter is about; None for a field inside of one."""
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
        # Spark puts this beside every comparison.
        case spark.IsNotNull():
            return []
        case spark.EqualTo(value=str(text)) | spark.EqualNullSafe(value=str(text)):
            return [text]
    raise InvalidQueryError(f"{type(given).__name__} cannot be asked of {QUERY_COLUMN}; {_ONE_QUERY}")
