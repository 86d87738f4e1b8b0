"""Predicates as queries, where the index answers them exactly.

Every predicate has two queries: one for the rows where it is true, and one for those where it is false. Both are needed
because SQL has three truth values: NOT x is true where x is false, and neither x nor NOT x is true where x is unknown.
A query of None means that the index cannot tell; the rows must then be read.
"""

import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import pyarrow as pa
from tantivy import FieldType

from indextables.errors import InvalidPredicateError
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
    bind,
    conjuncts_of,
)
from indextables.search.index_query import (
    IndexField,
    IndexQuery,
    IndexTerm,
    TermSpan,
    all_queries,
    all_rows,
    any_query,
    no_rows,
)
from indextables.search.parser import Bound
from indextables.search.patterns import HEXADECIMAL, range_pattern
from indextables.search.text_query import span_of
from indextables.split.doc_mapping import MAX_TOKEN_BYTES, RAW, DocMapping, FieldKind, FieldMapping

_NEGATED: Final = {
    Operator.EQ: Operator.NE,
    Operator.NE: Operator.EQ,
    Operator.LT: Operator.GE,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
    Operator.LE: Operator.GT,
}

_COMPARE: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQ: eq,
    Operator.NE: ne,
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
}

_MIN_I64: Final = -(1 << 63)

# The index holds the whole values of these kinds, and tells them from null.
_WHOLE_VALUES: Final = frozenset(FieldKind) - {
    FieldKind.TEXT,
    FieldKind.JSON,
    FieldKind.IP,
    FieldKind.NOTHING,
}
_ORDERED: Final = _WHOLE_VALUES - {FieldKind.STRING, FieldKind.BYTES}


def partition_predicate(
    predicate: BoundPredicate, mapping: DocMapping, narrow_schema: pa.Schema | None = None
) -> tuple[IndexQuery | None, BoundPredicate | None]:
    """Partition a bound predicate into a query that the index answers exactly, and the rest for the rows.

    The predicate is the conjunction of both; None is a part that excludes nothing. Ranges and prefixes of strings are
    left to the rows, because the longest strings have no term; so are tokenized text, JSON, addresses, and columns
    that the mapping does not have. `narrow_schema` has the types of the columns in the index, if they are narrower.
    """
    queries_of = PredicateQueries(mapping)
    queries: list[IndexQuery] = []
    rest: list[BoundPredicate] = []
    for conjunct in conjuncts_of(predicate):
        if isinstance(conjunct, AlwaysTrue):
            continue
        query = queries_of.where_true(conjunct if narrow_schema is None else bind(conjunct, narrow_schema))
        if query is None:
            rest.append(conjunct)
        else:
            queries.append(query)
    return (all_queries(queries) if queries else None, all_of(rest) if rest else None)


class PredicateQueries:
    """Compiles predicates over the fields of one mapping."""

    __slots__ = ("mapping", "schema")

    def __init__(self, mapping: DocMapping) -> None:
        self.mapping = mapping
        self.schema = mapping.tantivy_schema()

    def where_true(self, predicate: Predicate) -> IndexQuery | None:
        """Return the query for the rows where a bound predicate is true."""
        match predicate:
            case AlwaysTrue():
                return all_rows()
            case AlwaysFalse():
                return no_rows()
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

    def where_false(self, predicate: Predicate) -> IndexQuery | None:
        """Return the query for the rows where a bound predicate is false, not unknown."""
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
                return self._compared(column, _NEGATED[operator], value)
            case In(column=column, values=values):
                if None in values:
                    return no_rows()
                return self._present_without(column, self.where_true(predicate))
        return None

    def _compared(self, column: str, operator: Operator, value: Value | None) -> IndexQuery | None:
        field = self._field(column)
        if field is None:
            return None
        if value is None:
            return no_rows()
        if operator is Operator.NE:
            return self._present_without(column, self._among(column, [value]))
        if operator is Operator.EQ:
            return self._among(column, [value])
        if field.kind not in _ORDERED:
            return None
        return self._ordered(field, operator, index_term(field, value))

    def _ordered(self, field: FieldMapping, operator: Operator, term: IndexTerm) -> IndexQuery | None:
        if isinstance(term, float) and math.isnan(term):
            return self._compared_with_nan(field, operator)
        if isinstance(term, bool):
            return self._terms(field, [each for each in (False, True) if _COMPARE[operator](each, term)])
        is_lower = operator in (Operator.GT, Operator.GE)
        is_inclusive = operator in (Operator.GE, Operator.LE)
        if isinstance(term, str):
            bound = Bound(term, is_inclusive)
            lower, upper = (bound, None) if is_lower else (None, bound)
            pattern = range_pattern(lower, upper, HEXADECIMAL)
            return self._index(field).regex(pattern, span_of(lower, upper)) if pattern else no_rows()
        assert isinstance(term, int | float)
        return self._range(field, term, is_lower=is_lower, is_inclusive=is_inclusive)

    def _compared_with_nan(self, field: FieldMapping, operator: Operator) -> IndexQuery | None:
        # As in Spark, NaN equals itself and is above every other number.
        match operator:
            case Operator.GT:
                return no_rows()
            case Operator.GE:
                return self._terms(field, [math.nan])
            case Operator.LT:
                return self._range(field, math.inf, is_lower=False, is_inclusive=True)
        return self._present(field.name)

    def _range(self, field: FieldMapping, term: float, *, is_lower: bool, is_inclusive: bool) -> IndexQuery:
        span = TermSpan(
            term if is_lower else None,
            None if is_lower else term,
            include_lower=is_inclusive or not is_lower,
            include_upper=is_inclusive or is_lower,
        )
        return self._index(field).range(span)

    def _among(self, column: str, values: list[Value]) -> IndexQuery | None:
        field = self._field(column)
        if field is None:
            return None
        terms = [index_term(field, value) for value in values]
        longest_bytes = field.max_token_bytes if field.is_analyzed else MAX_TOKEN_BYTES
        if any(_size(term) > longest_bytes for term in terms):
            return None
        return self._terms(field, terms)

    def _terms(self, field: FieldMapping, terms: list[Any]) -> IndexQuery:
        if not terms:
            return no_rows()
        if len(terms) == 1:
            return self._index(field).term(terms[0])
        return self._index(field).one_of(terms)

    def _index(self, field: FieldMapping) -> IndexField:
        return IndexField(self.schema, field)

    def _present_without(self, column: str, excluded: IndexQuery | None) -> IndexQuery | None:
        present = self._present(column)
        return None if present is None or excluded is None else present.without(excluded)

    def _present(self, column: str) -> IndexQuery | None:
        field = self._field(column)
        if field is None:
            return None
        if field.kind is FieldKind.BYTES or (
            field.kind is FieldKind.STRING and field.max_token_bytes < MAX_TOKEN_BYTES
        ):
            # The index skips the longest values, so they look like nulls.
            return None
        if field.fast:
            return self._index(field).exists()
        if field.kind is FieldKind.BOOL:
            return self._terms(field, [False, True])
        if field.field_type == FieldType.Integer:
            return self._range(field, _MIN_I64, is_lower=True, is_inclusive=True)
        if field.field_type == FieldType.Float:
            return self._range(field, -math.inf, is_lower=True, is_inclusive=True)
        return None

    def _field(self, column: str) -> FieldMapping | None:
        field = self.mapping.find(column)
        if field is None or field.kind not in _WHOLE_VALUES or field.tokenizer != RAW:
            return None
        return field


def _combined(
    combine: Callable[[list[IndexQuery]], IndexQuery], queries: Iterable[IndexQuery | None]
) -> IndexQuery | None:
    known: list[IndexQuery] = []
    for query in queries:
        if query is None:
            return None
        known.append(query)
    return combine(known)


def _complement(query: IndexQuery | None) -> IndexQuery | None:
    return None if query is None else all_rows().without(query)


def _size(term: IndexTerm) -> int:
    return len(term.encode() if isinstance(term, str) else term) if isinstance(term, str | bytes) else 0


# Values as the index stores them. `split.documents` encodes whole columns the same way.

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# 128-bit two's complement with the sign bit flipped: its hexadecimal digits sort like the numbers.
_BIG_DECIMAL_DIGITS = 32
_BIG_DECIMAL_ZERO = 1 << 127


def index_term(field: FieldMapping, value: Value) -> IndexTerm:
    """Return the term of a value in this field. Text is not analyzed: it is the term itself.

    `value` has the column's type, as `predicates.bind` returns it. Raises InvalidPredicateError for a value of another
    type, for a field without terms of whole values (JSON), and for one that is not indexed.
    """
    try:
        return _term(field, value)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InvalidPredicateError(
            f"column {field.name!r} is indexed as {field.kind.value}, which has no term for {value!r}"
        ) from error


def _term(field: FieldMapping, value: Value) -> IndexTerm:
    match field.kind, value:
        case (FieldKind.TEXT | FieldKind.STRING, str()):
            return value
        case FieldKind.IP, str():
            return str(ip_address(value))
        case FieldKind.BOOL, bool():
            return value
        case FieldKind.I64, int() if not isinstance(value, bool):
            return value
        case FieldKind.F64, float() | int() if not isinstance(value, bool):
            return float(value) + 0.0  # -0.0 becomes 0.0
        case ((FieldKind.TIMESTAMP | FieldKind.TIMESTAMP_NTZ), datetime()):
            return _microseconds(value)
        case FieldKind.DATE, date() if not isinstance(value, datetime):
            return (value - _EPOCH_DAY).days
        case FieldKind.DECIMAL, Decimal() | int():
            return _unscaled(Decimal(value), field.scale)
        case FieldKind.BIG_DECIMAL, Decimal() | int():
            key = _unscaled(Decimal(value), field.scale) + _BIG_DECIMAL_ZERO
            return f"{key:0{_BIG_DECIMAL_DIGITS}x}"
        case FieldKind.BYTES, bytes():
            return value
    raise TypeError("no term")


def _microseconds(value: datetime) -> int:
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _unscaled(value: Decimal, scale: int) -> int:
    # Decimal arithmetic rounds to the precision of a context; integer arithmetic is exact.
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError("not a finite number")
    number = int("".join(map(str, digits)))
    shift = exponent + scale
    power: int = 10 ** abs(shift)
    unscaled, lost = (number * power, 0) if shift >= 0 else divmod(number, power)
    if lost:
        raise ValueError("more digits than the column has")
    return -unscaled if sign else unscaled
