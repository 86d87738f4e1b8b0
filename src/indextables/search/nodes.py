"""A query as a tree: frozen, hashable, picklable. Every leaf knows where in the text it stands."""

import dataclasses
from dataclasses import dataclass

from indextables.errors import InvalidQueryError
from indextables.search.caret import caret_lines


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a query's text. Nodes compare without it: equal meaning is equality."""

    text: str = dataclasses.field(repr=False)
    start: int
    end: int

    @property
    def written(self) -> str:
        """The part itself, as the user wrote it."""
        return self.text[self.start : self.end]

    def error(self, reason: str) -> InvalidQueryError:
        """The error with this reason, the position (from 1), and the place marked in the text."""
        return InvalidQueryError(
            f"cannot read the query at character {self.start + 1}: {reason}\n"
            f"{caret_lines(self.text, self.start, self.end)}",
            position=self.start,
        )


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field as it is written: its name, cut at the dots that are not escaped."""

    parts: tuple[str, ...]
    place: Place = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return ".".join(part.replace(".", "\\.") for part in self.parts)


class QueryNode:
    """The root of all nodes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Everything(QueryNode):
    """`*`: every row."""


@dataclass(frozen=True, slots=True)
class Leaf(QueryNode):
    """A condition on one field, or, without a field, on any of the default fields."""

    field: FieldPath | None
    place: Place = dataclasses.field(compare=False)


@dataclass(frozen=True, slots=True)
class Term(Leaf):
    """`timeout`, `level:ERROR`: text that, where the field cuts it into several tokens, stands together."""

    text: str


@dataclass(frozen=True, slots=True)
class Phrase(Leaf):
    """`"data lake"~2`: tokens in this order, moved by `slop` positions at most."""

    text: str
    slop: int = 0


@dataclass(frozen=True, slots=True)
class Wildcard(Leaf):
    """`hel*`: the literal texts around the stars, in order; a prefix is ("hel", "")."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fuzzy(Leaf):
    """`colour~1`: at most `distance` insertions, deletions, substitutions or swaps of neighbours away."""

    text: str
    distance: int


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range."""

    text: str
    is_inclusive: bool


@dataclass(frozen=True, slots=True)
class Range(Leaf):
    """`status:[400 TO 499]`, `price:>=10.5`; an end that is None is open."""

    lower: Bound | None
    upper: Bound | None


@dataclass(frozen=True, slots=True)
class OneOf(Leaf):
    """`level:IN [ERROR WARN]`: exactly one of these values."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exists(Leaf):
    """`field:*`: there is a value."""


@dataclass(frozen=True, slots=True)
class Boolean(QueryNode):
    """All of `must`, none of `must_not`; and, where `must` is empty, one of `should`, if there are any.

    Next to a `must`, `should` adds to the score only. With `must_not` alone, every other row matches.
    """

    must: tuple[QueryNode, ...] = ()
    should: tuple[QueryNode, ...] = ()
    must_not: tuple[QueryNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Boost(QueryNode):
    """`title:spark^2`: the same rows, with the score multiplied."""

    operand: QueryNode
    factor: float
