"""Predicates written in Python: `(col("date") == "2024-01-01") & ~col("level").is_in(["DEBUG"])`."""

from collections.abc import Iterable

from indextables.predicates.tree import (
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Operator,
    Predicate,
    StartsWith,
    Value,
    like,
)


def col(name: str) -> "Column":
    """Return the column with this name, for comparisons with values."""
    return Column(name)


class Column:
    """A column's name; its comparisons are predicates."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]  # == returns a predicate, so columns cannot be in sets

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"col({self.name!r})"

    def __eq__(self, value: Value | None) -> Predicate:  # type: ignore[override]  # a predicate, not a bool
        return Comparison(self.name, Operator.EQ, value)

    def __ne__(self, value: Value | None) -> Predicate:  # type: ignore[override]  # a predicate, not a bool
        return Comparison(self.name, Operator.NE, value)

    def __lt__(self, value: Value | None) -> Predicate:
        return Comparison(self.name, Operator.LT, value)

    def __le__(self, value: Value | None) -> Predicate:
        return Comparison(self.name, Operator.LE, value)

    def __gt__(self, value: Value | None) -> Predicate:
        return Comparison(self.name, Operator.GT, value)

    def __ge__(self, value: Value | None) -> Predicate:
        return Comparison(self.name, Operator.GE, value)

    def is_in(self, values: Iterable[Value | None]) -> Predicate:
        """Return a predicate that is true if the value is one of these."""
        return In(self.name, tuple(values))

    def between(self, low: Value | None, high: Value | None) -> Predicate:
        """Return a predicate that is true if the value is between the two, inclusive."""
        return And(self >= low, self <= high)

    def is_null(self) -> Predicate:
        """Return a predicate that is true if the value is null."""
        return IsNull(self.name)

    def is_not_null(self) -> Predicate:
        """Return a predicate that is true if the value is not null."""
        return IsNotNull(self.name)

    def starts_with(self, prefix: str) -> Predicate:
        """Return a predicate that is true if the text starts with the prefix."""
        return StartsWith(self.name, prefix)

    def like(self, pattern: str) -> Predicate:
        """Return a predicate that is true if the text matches a LIKE pattern.

        Raises InvalidPredicateError for a pattern with a backslash before an ordinary character.
        """
        return like(self.name, pattern)
