"""Predicates over rows: the immutable tree, the SQL parser, binding to a schema, and Arrow filters."""

from indextables.predicates.arrow import to_arrow_filter
from indextables.predicates.binding import bind
from indextables.predicates.column import Column, col
from indextables.predicates.parser import parse_predicate
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
    all_of,
    any_of,
    columns_of,
    conjuncts_of,
    literal_prefix,
)

__all__ = [
    "AlwaysFalse",
    "AlwaysTrue",
    "And",
    "BoundPredicate",
    "Column",
    "Comparison",
    "In",
    "IsNotNull",
    "IsNull",
    "Like",
    "NestedColumn",
    "Not",
    "Operator",
    "Or",
    "Predicate",
    "StartsWith",
    "Value",
    "all_of",
    "any_of",
    "bind",
    "col",
    "columns_of",
    "conjuncts_of",
    "literal_prefix",
    "parse_predicate",
    "to_arrow_filter",
]
