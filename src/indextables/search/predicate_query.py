"""Predicates as queries, where the index can answer them exactly: for the rows where they are true, or false.

Both are asked for, because of SQL's third truth value: NOT x is true where x is false, and where x is unknown
neither is. None is returned where the index cannot tell: rows then decide.
"""

import math
from collections.abc import Callable, Iterable
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from tantivy import FieldType, Occur, Query

from indextables.predicates import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BoundPredicate,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    Value,
    all_of,
    conjuncts_of,
)
from indextables.search.nodes import Bound
from indextables.search.patterns import HEXADECIMAL, range_pattern
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping, IndexTerm, index_term
from indextables.split.fields import MAX_TOKEN_BYTES, RAW

NEGATED: Final = {
    Operator.EQ: Operator.NE,
    Operator.NE: Operator.EQ,
    Operator.LT: Operator.GE,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
    Operator.LE: Operator.GT,
}

COMPARE: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQ: eq,
    Operator.NE: ne,
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
}

MIN_I64: Final = -(1 << 63)

# The values of these columns are what the index holds, and can be told from null.
_WHOLE_VALUES: Final = frozenset(FieldKind) - {
    FieldKind.TEXT,
    FieldKind.JSON,
    FieldKind.IP,
    FieldKind.NOTHING,
}
_ORDERED: Final = _WHOLE_VALUES - {FieldKind.STRING, FieldKind.BYTES}


def partition_predicate(
    predicate: BoundPredicate, mapping: DocMapping
) -> tuple[Query | None, BoundPredicate | None]:
    """Return what the index answers exactly as a query, and the rest of the predicate for the rows.

    The two together, joined by AND, are the predicate; None stands for a part that excludes nothing. The
    predicate is bound. Ranges and prefixes of strings are left to the rows, because the longest strings have
    no term; so are tokenised text, JSON, addresses, and columns that the mapping does not have.
    """
    exact = ExactQueries(mapping)
    queries: list[Query] = []
    rest: list[BoundPredicate] = []
    for conjunct in conjuncts_of(predicate):
        if isinstance(conjunct, AlwaysTrue):
            continue
        query = exact.where_true(conjunct)
        if query is None:
            rest.append(conjunct)
        else:
            queries.append(query)
    return (all_queries(queries) if queries else None, all_of(rest) if rest else None)


def filtered(query: Query, condition: Query | None) -> Query:
    """The query restricted to the rows of a condition, which does not touch the scores."""
    if condition is None:
        return query
    return Query.boolean_query([(Occur.Must, query), (Occur.Must, Query.const_score_query(condition, 0.0))])


def all_queries(queries: list[Query]) -> Query:
    """The rows that all of these have in common."""
    return (
        queries[0] if len(queries) == 1 else Query.boolean_query([(Occur.Must, query) for query in queries])
    )


def any_query(queries: list[Query]) -> Query:
    """The rows of each of these."""
    return (
        queries[0] if len(queries) == 1 else Query.boolean_query([(Occur.Should, query) for query in queries])
    )


def without(query: Query, excluded: Query) -> Query:
    """The rows of one query that another does not have."""
    return Query.boolean_query([(Occur.Must, query), (Occur.MustNot, excluded)])


class ExactQueries:
    """The queries of predicates over the fields of one mapping."""

    __slots__ = ("mapping", "schema")

    def __init__(self, mapping: DocMapping) -> None:
        self.mapping = mapping
        self.schema = mapping.tantivy_schema()

    def where_true(self, predicate: Predicate) -> Query | None:
        """The rows for which a bound predicate is true."""
        match predicate:
            case AlwaysTrue():
                return Query.all_query()
            case AlwaysFalse():
                return Query.empty_query()
            case And(operands=operands):
                return _combined(all_queries, map(self.where_true, operands))
            case Or(operands=operands):
                return _combined(any_query, map(self.where_true, operands))
            case Not(operand=operand):
                return self.where_false(operand)
            case IsNull(column=column):
                return _complement(self._present(column))
            case IsNotNull(column=column):
                return self._present(column)
            case Comparison(column=column, operator=operator, value=value):
                return self._compared(column, operator, value)
            case In(column=column, values=values):
                return self._among(column, [value for value in values if value is not None])
        return None

    def where_false(self, predicate: Predicate) -> Query | None:
        """The rows for which a bound predicate is false, and not unknown."""
        match predicate:
            case AlwaysTrue() | AlwaysFalse() | IsNull() | IsNotNull():
                return _complement(self.where_true(predicate))
            case And(operands=operands):
                return _combined(any_query, map(self.where_false, operands))
            case Or(operands=operands):
                return _combined(all_queries, map(self.where_false, operands))
            case Not(operand=operand):
                return self.where_true(operand)
            case Comparison(column=column, operator=operator, value=value):
                return self._compared(column, NEGATED[operator], value)
            case In(column=column, values=values):
                if None in values:
                    return Query.empty_query()
                return self._but(column, self.where_true(predicate))
        return None

    def _compared(self, column: str, operator: Operator, value: Value | None) -> Query | None:
        field = self._field(column)
        if field is None:
            return None
        if value is None:
            return Query.empty_query()
        if operator is Operator.NE:
            return self._but(column, self._among(column, [value]))
        if operator is Operator.EQ:
            return self._among(column, [value])
        if field.kind not in _ORDERED:
            return None
        return self._ordered(field, operator, index_term(field, value))

    def _ordered(self, field: FieldMapping, operator: Operator, term: IndexTerm) -> Query | None:
        if isinstance(term, float) and math.isnan(term):
            return self._beside_nan(field, operator)
        if isinstance(term, bool):
            return self._terms(field, [each for each in (False, True) if COMPARE[operator](each, term)])
        is_lower = operator in (Operator.GT, Operator.GE)
        is_inclusive = operator in (Operator.GE, Operator.LE)
        if isinstance(term, str):
            bound = Bound(term, is_inclusive)
            lower, upper = (bound, None) if is_lower else (None, bound)
            pattern = range_pattern(lower, upper, HEXADECIMAL)
            return (
                Query.regex_query(self.schema, field.index_name, pattern) if pattern else Query.empty_query()
            )
        assert isinstance(term, int | float)
        return self._range(field, term, is_lower=is_lower, is_inclusive=is_inclusive)

    def _beside_nan(self, field: FieldMapping, operator: Operator) -> Query | None:
        # NaN equals itself and is above every other number, as in Spark.
        match operator:
            case Operator.GT:
                return Query.empty_query()
            case Operator.GE:
                return self._terms(field, [math.nan])
            case Operator.LT:
                return self._range(field, math.inf, is_lower=False, is_inclusive=True)
        return self._present(field.name)

    def _range(self, field: FieldMapping, term: float, *, is_lower: bool, is_inclusive: bool) -> Query:
        return Query.range_query(
            self.schema,
            field.index_name,
            field.field_type,
            lower_bound=term if is_lower else None,
            upper_bound=None if is_lower else term,
            include_lower=is_inclusive or not is_lower,
            include_upper=is_inclusive or is_lower,
            use_inverted_index=not field.fast,
        )

    def _among(self, column: str, values: list[Value]) -> Query | None:
        field = self._field(column)
        if field is None:
            return None
        terms = [index_term(field, value) for value in values]
        longest_bytes = field.max_token_bytes if field.is_analyzed else MAX_TOKEN_BYTES
        if any(_size(term) > longest_bytes for term in terms):
            return None
        return self._terms(field, terms)

    def _terms(self, field: FieldMapping, terms: list[Any]) -> Query:
        if not terms:
            return Query.empty_query()
        if len(terms) == 1:
            return Query.term_query(self.schema, field.index_name, terms[0], index_option="basic")
        return Query.term_set_query(self.schema, field.index_name, terms)

    def _but(self, column: str, excluded: Query | None) -> Query | None:
        present = self._present(column)
        return None if present is None or excluded is None else without(present, excluded)

    def _present(self, column: str) -> Query | None:
        field = self._field(column)
        if field is None:
            return None
        if field.kind is FieldKind.BYTES or (
            field.kind is FieldKind.STRING and field.max_token_bytes < MAX_TOKEN_BYTES
        ):
            # The longest values are missing from the index, like nulls.
            return None
        if field.fast:
            return Query.exists_query(field.index_name)
        if field.kind is FieldKind.BOOL:
            return self._terms(field, [False, True])
        if field.field_type == FieldType.Integer:
            return self._range(field, MIN_I64, is_lower=True, is_inclusive=True)
        if field.field_type == FieldType.Float:
            return self._range(field, -math.inf, is_lower=True, is_inclusive=True)
        return None

    def _field(self, column: str) -> FieldMapping | None:
        field = self.mapping.find(column)
        if field is None or field.kind not in _WHOLE_VALUES or field.tokenizer != RAW:
            return None
        return field


def _combined(combine: Callable[[list[Query]], Query], queries: Iterable[Query | None]) -> Query | None:
    known: list[Query] = []
    for query in queries:
        if query is None:
            return None
        known.append(query)
    return combine(known)


def _complement(query: Query | None) -> Query | None:
    return None if query is None else without(Query.all_query(), query)


def _size(term: IndexTerm) -> int:
    return len(term.encode() if isinstance(term, str) else term) if isinstance(term, str | bytes) else 0
