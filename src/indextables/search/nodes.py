"""A query as a tree: frozen, hashable, picklable. Every leaf knows where in the text it stands."""

import msgspec

from indextables._syntax import caret_lines
from indextables.errors import InvalidQueryError


class Place(msgspec.Struct, frozen=True):
    """A part of a query's text. Nodes compare without it: equal meaning is equality."""

    text: str
    start: int
    end: int

    def __repr__(self) -> str:
        return f"Place({self.start}, {self.end})"

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


class _Written(msgspec.Struct, frozen=True):
    """Something that was written in a query, compared by everything but its place."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Written) and self._meaning() == other._meaning()

    def __hash__(self) -> int:
        return hash(self._meaning())

    def _meaning(self) -> tuple[object, ...]:
        return (type(self), *(getattr(self, name) for name in self.__struct_fields__ if name != "place"))


class FieldPath(_Written, frozen=True):
    """A field as it is written: its name, cut at the dots that are not escaped."""

    parts: tuple[str, ...]
    place: Place

    def __str__(self) -> str:
        return ".".join(part.replace(".", "\\.") for part in self.parts)


class QueryNode(_Written, frozen=True):
    """The root of all nodes."""


class Everything(QueryNode, frozen=True):
    """`*`: every row."""


class Leaf(QueryNode, frozen=True):
    """A condition on one field, or, without a field, on any of the default fields."""

    field: FieldPath | None
    place: Place


class Term(Leaf, frozen=True):
    """`timeout`, `level:ERROR`: text that, where the field cuts it into several tokens, stands together."""

    text: str


class Phrase(Leaf, frozen=True):
    """`"data lake"~2`: tokens in this order, moved by `slop` positions at most."""

    text: str
    slop: int = 0


class Wildcard(Leaf, frozen=True):
    """`hel*`: the literal texts around the stars, in order; a prefix is ("hel", "")."""

    parts: tuple[str, ...]


class Fuzzy(Leaf, frozen=True):
    """`colour~1`: at most `distance` insertions, deletions, substitutions or swaps of neighbours away."""

    text: str
    distance: int


class Bound(msgspec.Struct, frozen=True):
    """One end of a range."""

    text: str
    is_inclusive: bool


class Range(Leaf, frozen=True):
    """`status:[400 TO 499]`, `price:>=10.5`; an end that is None is open."""

    lower: Bound | None
    upper: Bound | None


class OneOf(Leaf, frozen=True):
    """`level:IN [ERROR WARN]`: exactly one of these values."""

    values: tuple[str, ...]


class Exists(Leaf, frozen=True):
    """`field:*`: there is a value."""


class Boolean(QueryNode, frozen=True):
    """All of `must`, none of `must_not`; and, where `must` is empty, one of `should`, if there are any.

    Next to a `must`, `should` adds to the score only. With `must_not` alone, every other row matches.
    """

    must: tuple[QueryNode, ...] = ()
    should: tuple[QueryNode, ...] = ()
    must_not: tuple[QueryNode, ...] = ()


class Boost(QueryNode, frozen=True):
    """`title:spark^2`: the same rows, with the score multiplied."""

    operand: QueryNode
    factor: float
