"""Queries of leaves over numbers, dates, booleans and addresses: query text becomes typed values."""

from datetime import datetime, timedelta, tzinfo
from ipaddress import ip_address, ip_network
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidPredicateError, InvalidQueryError
from indextables.predicates import (
    And,
    BoundPredicate,
    Comparison,
    IsNotNull,
    Like,
    Operator,
    Predicate,
    StartsWith,
    Value,
    all_of,
    any_of,
    bind,
    to_arrow_filter,
)
from indextables.predicates.literals import parse_date, parse_decimal
from indextables.search.index_query import IndexField, IndexQuery, any_query
from indextables.search.parser import Bound, Exists, Joker, Leaf, OneOf, Phrase, Range, Regex, Term, Wildcard
from indextables.search.predicate_query import PredicateQueries
from indextables.search.text_query import span_of
from indextables.split.doc_mapping import FieldKind, FieldMapping
from indextables.split.doc_mapping_settings import kind_of_type

ARROW_TYPES: Final = {
    FieldKind.I64: pa.int64(),
    FieldKind.F64: pa.float64(),
    FieldKind.BOOL: pa.bool_(),
    FieldKind.DATE: pa.date32(),
    FieldKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldKind.TIMESTAMP_NTZ: pa.timestamp("us"),
}
DECIMAL_DIGITS: Final = {FieldKind.DECIMAL: 18, FieldKind.BIG_DECIMAL: 38}

ONE_DAY: Final = timedelta(days=1)

LOWEST_ADDRESS: Final = "::"


def arrow_type(field: FieldMapping) -> pa.DataType:
    """Return the widest Arrow type of the values in a typed field."""
    if field.kind in DECIMAL_DIGITS:
        return pa.decimal128(DECIMAL_DIGITS[field.kind], field.scale)
    return ARROW_TYPES[field.kind]


def is_narrow(field: FieldMapping, column: pa.Field) -> bool:
    """Return whether a typed field was indexed when its column had a narrower type."""
    if field.kind not in ARROW_TYPES and field.kind not in DECIMAL_DIGITS:
        return False
    is_decimal = pa.types.is_decimal(column.type)
    return kind_of_type(column) is not field.kind or (is_decimal and column.type.scale != field.scale)


def typed_query(
    leaf: Leaf, field: FieldMapping, data_type: pa.DataType, predicates: PredicateQueries, time_zone: tzinfo
) -> IndexQuery:
    """Compile a leaf over a typed field of a column that has this type in the table.

    Raises InvalidQueryError for text that is not a value of the type.
    """
    column = pa.field(field.name, data_type)
    predicate = _bound_predicate(leaf, column, time_zone)
    if is_narrow(field, column):
        predicate = bind(predicate, pa.schema([column.with_type(arrow_type(field))]))
    query = predicates.where_true(predicate)
    if query is None:
        raise leaf.place.error(
            f"column {field.name!r} is not a fast field, so only its values can be searched"
        )
    return query


def matches_value(leaf: Leaf, row: pa.Table, time_zone: tzinfo) -> bool:
    """Return whether a leaf matches the value of a one-row table. Raises InvalidQueryError like `typed_query`."""
    column = row.schema.field(0)
    if isinstance(leaf, Regex) and pa.types.is_string(column.type):
        return _matches_regex(leaf, row.column(0))
    predicate = _bound_predicate(leaf, column, time_zone)
    return bool(row.filter(to_arrow_filter(predicate)).num_rows)


def address_query(leaf: Leaf, field: IndexField) -> IndexQuery:
    """Compile a leaf over IP addresses; 10.0.0.0/8 matches the whole network."""
    match leaf:
        case Term(text=text) | Phrase(text=text, slop=0):
            return _network(text, leaf, field)
        case OneOf(values=values):
            return any_query([_network(text, leaf, field) for text in values])
        case Range(lower=lower, upper=upper):
            return _addresses(lower, upper, leaf, field)
        case Exists():
            return _addresses(Bound(LOWEST_ADDRESS, is_inclusive=True), None, leaf, field)
    raise leaf.place.error(
        f"column {field.mapping.name!r} holds addresses; write a network, as in {field.mapping.name}:10.0.0.0/8"
    )


def _bound_predicate(leaf: Leaf, column: pa.Field, time_zone: tzinfo) -> BoundPredicate:
    try:
        return bind(_predicate(leaf, column), pa.schema([column]), time_zone=time_zone)
    except InvalidPredicateError as error:
        raise leaf.place.error(str(error)) from error


def _predicate(leaf: Leaf, column: pa.Field) -> Predicate:
    match leaf:
        case Term(text=text) | Phrase(text=text, slop=0):
            return _equal(column, text)
        case OneOf(values=values):
            return any_of(_equal(column, text) for text in values)
        case Range(lower=lower, upper=upper):
            bounds = [_above(column, lower)] if lower is not None else []
            bounds += [_below(column, upper)] if upper is not None else []
            return all_of(bounds)
        case Exists():
            return IsNotNull(column.name)
        case Wildcard() if pa.types.is_string(column.type):
            return _like(column.name, leaf)
    raise _not_text(leaf, column)


def _not_text(leaf: Leaf, column: pa.Field) -> InvalidQueryError:
    return leaf.place.error(
        f"column {column.name!r} has the type {column.type}, and wildcards, ~ and regular expressions "
        f"apply to text; "
        f"write a range, as in {column.name}:[low TO high]"
    )


# A date compared with timestamps means the whole day: ts:2024-01-31 matches that day, and ts:<=2024-01-31 includes it.


def _equal(column: pa.Field, text: str) -> Predicate:
    day = _day(column, text)
    if day is None:
        return Comparison(column.name, Operator.EQ, _literal(column, text))
    return And(Comparison(column.name, Operator.GE, day), Comparison(column.name, Operator.LT, day + ONE_DAY))


def _above(column: pa.Field, bound: Bound) -> Predicate:
    day = _day(column, bound.text)
    if day is not None and not bound.is_inclusive:
        return Comparison(column.name, Operator.GE, day + ONE_DAY)
    return Comparison(
        column.name, Operator.GE if bound.is_inclusive else Operator.GT, _literal(column, bound.text)
    )


def _below(column: pa.Field, bound: Bound) -> Predicate:
    day = _day(column, bound.text)
    if day is not None and bound.is_inclusive:
        return Comparison(column.name, Operator.LT, day + ONE_DAY)
    return Comparison(
        column.name, Operator.LE if bound.is_inclusive else Operator.LT, _literal(column, bound.text)
    )


def _literal(column: pa.Field, text: str) -> Value:
    # Binding rejects text that is not an integer, but accepts a decimal that lies between two integers.
    number = parse_decimal(text) if pa.types.is_integer(column.type) else None
    return text if number is None else number


def _day(column: pa.Field, text: str) -> datetime | None:
    day = parse_date(text) if pa.types.is_timestamp(column.type) else None
    if day is None or day == day.max:
        return None
    return datetime(day.year, day.month, day.day)  # binding applies the time zone


_LIKE: Final = {Joker.ANY: "%", Joker.ONE: "_"}


def _like(name: str, leaf: Wildcard) -> Predicate:
    if leaf.prefix is not None:
        return StartsWith(name, leaf.prefix)
    return Like(
        name, "".join(_LIKE[piece] if isinstance(piece, Joker) else _escaped(piece) for piece in leaf.pieces)
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _matches_regex(leaf: Regex, value: pa.ChunkedArray) -> bool:
    try:
        return bool(pc.match_substring_regex(value, rf"\A(?:{leaf.pattern})\z")[0].as_py())
    except pa.ArrowInvalid as error:
        raise leaf.place.error(f"the regular expression is not valid: {error}") from error


def _network(text: str, leaf: Leaf, field: IndexField) -> IndexQuery:
    if "/" not in text:
        return field.term(_address(text, leaf, field))
    try:
        network = ip_network(text, strict=False)
    except ValueError as error:
        raise _no_address(text, leaf, field) from error
    lower, upper = str(network[0]), str(network[-1])
    return _addresses(Bound(lower, is_inclusive=True), Bound(upper, is_inclusive=True), leaf, field)


def _addresses(lower: Bound | None, upper: Bound | None, leaf: Leaf, field: IndexField) -> IndexQuery:
    bounds = (
        bound and Bound(_address(bound.text, leaf, field), bound.is_inclusive) for bound in (lower, upper)
    )
    return field.range(span_of(*bounds))


def _address(text: str, leaf: Leaf, field: IndexField) -> str:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise _no_address(text, leaf, field) from error
    if getattr(address, "scope_id", None):
        raise _no_address(text, leaf, field)
    return str(address)


def _no_address(text: str, leaf: Leaf, field: IndexField) -> InvalidQueryError:
    return leaf.place.error(
        f"column {field.mapping.name!r} holds addresses, and {text[:40]!r} is not an address; "
        f"write one such as 10.0.0.1 or 2001:db8::1, or a network such as 10.0.0.0/8"
    )
