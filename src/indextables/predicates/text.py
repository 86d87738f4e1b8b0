"""Predicates as text."""

from indextables.predicates.tree import Predicate


def parse_predicate(text: str) -> Predicate:
    """Read a condition in Spark's SQL.

    Columns keep the spelling of the text, and literals are what they are written as: `bind` fits them to a
    schema. Raises InvalidPredicateError, with the position and the part of the text, for everything else:
    functions, arithmetic, columns compared with columns, text that is too long or too deeply nested.
    """
    # The library that cuts SQL takes longer to import than most tables take to open.
    from indextables.predicates.sql import read_sql

    return read_sql(text)
