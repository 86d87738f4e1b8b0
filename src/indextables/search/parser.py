"""The query language: the nodes of a parsed query, and the parser.

Nodes are frozen, hashable and picklable, and every leaf has its place in the text. This module parses words and
phrases that are joined by AND and OR itself; `grammar`, which imports lark and takes longer, parses the rest.
"""

import re
from enum import Enum
from typing import Any, Final

import msgspec

from indextables._caching import lazy_property, shared_memo
from indextables._syntax import caret_lines
from indextables.errors import InvalidQueryError

ESCAPE: Final = "\\"

# A caller often parses a query several times: for the hits, their count, and the words to highlight.
_CACHED_QUERIES: Final = 128

# A word or a phrase, possibly with a field, and the space behind it.
_PLAIN_CLAUSE: Final = re.compile(
    r"""(?:(?P<field>[\w.]{1,200}):)?(?:(?P<word>\w{1,200})|"(?P<phrase>[^"\\\ud800-\udfff]{0,400})")(?:\s+|$)"""
)
_MAX_PLAIN_LENGTH: Final = 1000
_JOINERS: Final = frozenset({"AND", "OR"})
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "TO"})

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
# A character, or an escaped one with its backslash.
PIECE: Final = re.compile(r"\\.|.", re.DOTALL)


class Joiner(Enum):
    """The operator between two clauses."""

    AND = "AND"
    OR = "OR"


class Place(msgspec.Struct, frozen=True):
    """A range of the query text. Nodes that differ only in their places are equal."""

    text: str
    start: int
    end: int

    def __repr__(self) -> str:
        return f"Place({self.start}, {self.end})"

    @property
    def written(self) -> str:
        """The text of this range, as the user wrote it."""
        return self.text[self.start : self.end]

    def error(self, reason: str) -> InvalidQueryError:
        """Return an error with this reason, the position (counted from 1), and the place marked in the text."""
        return InvalidQueryError(
            f"cannot read the query at character {self.start + 1}: {reason}\n"
            f"{caret_lines(self.text, self.start, self.end)}",
            position=self.start,
        )


class _Written(msgspec.Struct, frozen=True, dict=True):
    """A part of a query, compared by everything except its place."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Written) and self._meaning() == other._meaning())

    def __hash__(self) -> int:
        # Computed once: parsed queries are keys of a cache that every search looks into.
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the hash, which differs between processes.
        return type(self), tuple(getattr(self, name) for name in self.__struct_fields__)

    @lazy_property
    def _hash(self) -> int:
        return hash(self._meaning())

    def _meaning(self) -> tuple[object, ...]:
        return (type(self), *(getattr(self, name) for name in self.__struct_fields__ if name != "place"))


class FieldPath(_Written, frozen=True):
    """A field name, split at unescaped dots."""

    parts: tuple[str, ...]
    place: Place

    def __str__(self) -> str:
        return ".".join(part.replace(".", "\\.") for part in self.parts)


class QueryNode(_Written, frozen=True):
    """The base class of all nodes."""


class Everything(QueryNode, frozen=True):
    """`*`: every row."""


class Leaf(QueryNode, frozen=True):
    """A condition on one field, or, without a field, on any of the default fields."""

    field: FieldPath | None
    place: Place


class Term(Leaf, frozen=True):
    """`timeout`, `level:ERROR`: text; if the field's analyzer splits it into several tokens, they form a phrase."""

    text: str


class Phrase(Leaf, frozen=True):
    """`"data lake"~2`: tokens in this order, moved by at most `slop` positions in total."""

    text: str
    slop: int = 0


class Joker(Enum):
    """A character of a wildcard that stands for others."""

    ANY = "*"  # any number of characters
    ONE = "?"  # exactly one


class Wildcard(Leaf, frozen=True):
    """`hel*`, `conf?g`, `"disk f"*`: literal texts and jokers; there is at least one joker, and no empty text."""

    pieces: tuple[str | Joker, ...]

    @property
    def prefix(self) -> str | None:
        """The text before the star of a prefix search; None for any other pattern."""
        match self.pieces:
            case (str(text), Joker.ANY):
                return text
        return None


class Regex(Leaf, frozen=True):
    """`/conf(ig)?/`: a regular expression that a whole term must match."""

    pattern: str


class Fuzzy(Leaf, frozen=True):
    """`colour~1`: at most `distance` insertions, deletions, substitutions or transpositions away."""

    text: str
    distance: int


class Bound(msgspec.Struct, frozen=True):
    """One end of a range."""

    text: str
    is_inclusive: bool


class Range(Leaf, frozen=True):
    """`status:[400 TO 499]`, `price:>=10.5`; None is an open end."""

    lower: Bound | None
    upper: Bound | None


class OneOf(Leaf, frozen=True):
    """`level:IN [ERROR WARN]`: any of these values."""

    values: tuple[str, ...]


class Exists(Leaf, frozen=True):
    """`field:*`: the field has a value."""


class Boolean(QueryNode, frozen=True):
    """All of `must`, none of `must_not`, and, if `must` is empty, at least one of `should`, if there are any.

    If `must` is not empty, `should` only adds to the score. `must_not` alone matches all other rows.
    """

    must: tuple[QueryNode, ...] = ()
    should: tuple[QueryNode, ...] = ()
    must_not: tuple[QueryNode, ...] = ()


class Boost(QueryNode, frozen=True):
    """`title:spark^2`: the rows of the operand, with scores multiplied by `factor`."""

    operand: QueryNode
    factor: float


@shared_memo("search.parser.queries", "parsed queries", max_entries=_CACHED_QUERIES)
def parse_query(text: str, default_operator: Joiner = Joiner.OR) -> QueryNode:
    """Parse a query. `default_operator` joins clauses that have no operator between them.

    AND binds tighter than OR, and `+a b -c` requires a, prefers b and excludes c. Field names are not resolved.
    Raises InvalidQueryError, with the position and a remedy, for invalid syntax and for a query that is too long
    or too deeply nested.
    """
    plain = _parse_plain(text, default_operator) if len(text) <= _MAX_PLAIN_LENGTH else None
    if plain is not None:
        return plain
    # Imported here because most searches are for some words and need not import lark and build the grammar.
    from indextables.search.grammar import parse_by_grammar

    return parse_by_grammar(text, default_operator)


def split_path(text: str) -> tuple[str, ...]:
    """Split a field name at unescaped dots, and unescape the parts."""
    if ESCAPE not in text:
        return tuple(text.split("."))
    parts = [""]
    for piece in PIECE.findall(text):
        if piece == ".":
            parts.append("")
        else:
            parts[-1] += unescape(piece)
    return tuple(parts)


def unescape(text: str) -> str:
    """Remove the escaping backslashes."""
    return _ESCAPED.sub(r"\1", text)


def _parse_plain(text: str, default_operator: Joiner) -> QueryNode | None:
    """Parse words and phrases that are joined by AND, OR, or nothing; None for any other text."""
    position = len(text) - len(text.lstrip())
    alternatives: list[list[QueryNode]] = []
    joiner: Joiner | None = None
    while position < len(text):
        found = _PLAIN_CLAUSE.match(text, position)
        if found is None:
            return None
        position = found.end()
        word = found["word"]
        if word in _KEYWORDS:
            if word not in _JOINERS or found["field"] is not None or joiner is not None or not alternatives:
                return None
            joiner = Joiner[word]
            continue
        if alternatives and (joiner or default_operator) is Joiner.AND:
            alternatives[-1].append(_leaf(text, found))
        else:
            alternatives.append([_leaf(text, found)])
        joiner = None
    if joiner is not None or not alternatives:
        return None
    # AND binds tighter than OR.
    nodes = tuple(each[0] if len(each) == 1 else Boolean(must=tuple(each)) for each in alternatives)
    return nodes[0] if len(nodes) == 1 else Boolean(should=nodes)


def _leaf(text: str, found: re.Match[str]) -> Leaf:
    name = found["field"]
    path = None if name is None else FieldPath(split_path(name), Place(text, *found.span("field")))
    word = found["word"]
    if word is not None:
        return Term(path, Place(text, *found.span("word")), word)
    start, end = found.span("phrase")
    return Phrase(path, Place(text, start - 1, end + 1), found["phrase"])
