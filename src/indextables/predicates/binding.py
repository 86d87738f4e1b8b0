"""Binds a predicate to a schema: columns by their real names, literals as values of the columns' types."""

from datetime import UTC, tzinfo
from difflib import get_close_matches

import pyarrow as pa

from indextables.errors import InvalidPredicateError
from indextables.predicates.like import check_pattern
from indextables.predicates.places import Place, Where, are_values_of, is_encodable, locate
from indextables.predicates.tree import (
    AlwaysFalse,
    AlwaysTrue,
    And,
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
    check_depth,
)
from indextables.schema import find_column

UPWARD = (Operator.GT, Operator.GE)
DOWNWARD = (Operator.LT, Operator.LE)


def bind(predicate: Predicate, schema: pa.Schema, *, time_zone: tzinfo = UTC) -> Predicate:
    """Return the same predicate in terms of a schema; binding a bound predicate changes nothing.

    Columns are found without regard to case, as Spark does it. Literals become values of the column's type;
    where there is no such value (x > 1.5 for an integer, a number out of range), the comparison becomes one
    that holds for the same rows. Timestamps without a zone are read in `time_zone`.

    Raises InvalidPredicateError for unknown columns, for literals that cannot be compared with their column,
    and for trees that are too deep.
    """
    check_depth(predicate)
    return _Binder(schema, time_zone).bind(predicate)


class _Binder:
    __slots__ = ("schema", "time_zone")

    def __init__(self, schema: pa.Schema, time_zone: tzinfo) -> None:
        self.schema = schema
        self.time_zone = time_zone

    def bind(self, predicate: Predicate) -> Predicate:
        match predicate:
            case And(operands=operands):
                return And(*map(self.bind, operands))
            case Or(operands=operands):
                return Or(*map(self.bind, operands))
            case Not(operand=operand):
                return Not(self.bind(operand))
            case AlwaysTrue() | AlwaysFalse():
                return predicate
            case IsNull(column=column):
                return IsNull(self.field(column).name)
            case IsNotNull(column=column):
                return IsNotNull(self.field(column).name)
            case Comparison():
                return self.comparison(predicate)
            case In():
                return self.membership(predicate)
            case StartsWith(column=column, prefix=prefix):
                return StartsWith(self.text_field(column, prefix).name, prefix)
            case Like(column=column, pattern=pattern):
                check_pattern(column, pattern)
                return Like(self.text_field(column, pattern).name, pattern)
        raise InvalidPredicateError(f"{predicate!r} is not a predicate; use parse_predicate, or col()")

    def comparison(self, predicate: Comparison) -> Predicate:
        field = self.field(predicate.column)
        if predicate.value is None:
            return Comparison(field.name, predicate.operator, None)
        place = locate(predicate.value, field, self.time_zone)
        return _at_place(field.name, predicate.operator, place)

    def membership(self, predicate: In) -> Predicate:
        field = self.field(predicate.column)
        known = [value for value in predicate.values if value is not None]
        unknown = (None,) if len(known) < len(predicate.values) else ()
        if are_values_of(known, field.type):
            return In(field.name, (*dict.fromkeys(known), *unknown))
        places = [locate(value, field, self.time_zone) for value in known]
        values = dict.fromkeys(place.value for place in places if place.where is Where.AT)
        return In(field.name, (*values, *unknown))

    def text_field(self, column: str, text: str) -> pa.Field:
        field = self.field(column)
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            raise InvalidPredicateError(
                f"column {field.name!r} has the type {field.type}; LIKE applies to text only"
            )
        if not is_encodable(text):
            raise InvalidPredicateError(f"the pattern {text!r} for column {field.name!r} is not valid text")
        return field

    def field(self, column: str) -> pa.Field:
        field = find_column(self.schema, column)
        if field is not None:
            return field
        nearest = get_close_matches(column, self.schema.names, n=1, cutoff=0.5)
        remedy = f"did you mean {nearest[0]!r}?" if nearest else f"they are {', '.join(self.schema.names)}"
        raise InvalidPredicateError(f"there is no column {column!r}; {remedy}")


def _at_place(column: str, operator: Operator, place: Place) -> Predicate:
    if place.where is Where.AT:
        return Comparison(column, operator, place.value)
    no_value = In(column, ())  # false for every value, unknown for null
    any_value = Not(no_value)
    if operator is Operator.EQ:
        return no_value
    if operator is Operator.NE:
        return any_value
    match place.where:
        case Where.AFTER:
            # Nothing lies between the value and the literal, so the border may stand on either side of it.
            border = Operator.LE if operator in DOWNWARD else Operator.GT
            return Comparison(column, border, place.value)
        case Where.BELOW_ALL:
            return any_value if operator in UPWARD else no_value
        case _:
            return any_value if operator in DOWNWARD else no_value
