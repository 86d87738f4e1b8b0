"""The parts of a query that are more than one lexeme: escapes, stars, paths, boosts and distances."""

import math
import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from indextables._caching import shared_memo
from indextables.search.nodes import Boolean, FieldPath, Place, QueryNode, Term

ESCAPE = "\\"
STAR = "*"

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PIECE = re.compile(r"\\.|.", re.DOTALL)

MAX_BOOST = 1e6


def unescape(text: str) -> str:
    """The text without its backslashes."""
    return _ESCAPED.sub(r"\1", text)


def split_stars(text: str) -> tuple[str, ...]:
    """The literal texts before, between and after the stars that are not escaped."""
    return _split(text, STAR)


def split_path(text: str) -> tuple[str, ...]:
    """A field's name, cut at the dots that are not escaped."""
    return _split(text, ".")


def read_boost(place: Place) -> float:
    """The factor of `^2.5`. Fails for what is no positive number, or one that makes scores meaningless."""
    try:
        factor = float(place.written[1:])
    except ValueError as error:
        raise place.error("^ takes a number, as in title:spark^2; put a literal ^ in quotes") from error
    if not (math.isfinite(factor) and 0 < factor <= MAX_BOOST):
        raise place.error(f"a boost lies above 0 and is {MAX_BOOST:.0f} at most")
    return factor


def read_distance(place: Place, default: int, highest: int, meaning: str) -> int:
    """The whole number of `~2`, or the default for a lone `~`. Fails outside 0 to `highest`."""
    digits = place.written[1:]
    if not digits:
        return default
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(highest))):
        raise place.error(f"~ takes a whole number up to {highest}, {meaning}; put a literal ~ in quotes")
    distance = int(digits)
    if distance > highest:
        raise place.error(f"~ takes a whole number up to {highest}, {meaning}")
    return distance


def _split(text: str, separator: str) -> tuple[str, ...]:
    if ESCAPE not in text:
        return tuple(text.split(separator))
    parts = [""]
    for piece in _PIECE.findall(text):
        if piece == separator:
            parts.append("")
        else:
            parts[-1] += unescape(piece)
    return tuple(parts)


# How clauses that stand side by side become one node: operators, signs, and what nothing at all means.


class Joiner(Enum):
    """What stands between two clauses."""

    AND = "AND"
    OR = "OR"


class Sign(Enum):
    """What stands before a clause: nothing, +, or - and NOT."""

    NONE = auto()
    PLUS = auto()
    MINUS = auto()


class Clause(msgspec.Struct, frozen=True):
    """One clause; `joiner` is the operator to its left, None if there is none, and `place` that of its sign."""

    node: QueryNode
    sign: Sign
    joiner: Joiner | None
    place: Place

    @property
    def as_node(self) -> QueryNode:
        """The clause by itself."""
        return Boolean(must_not=(self.node,)) if self.sign is Sign.MINUS else self.node


def combine(clauses: Sequence[Clause], default_operator: Joiner) -> QueryNode:
    """The node of a list of clauses.

    AND binds tighter than OR, and clauses that nothing joins are joined by the default operator. Where that is
    OR, signs have their own meaning: + is required, - and NOT exclude; next to a written OR, however, an
    excluded clause is an alternative of its own. Raises InvalidQueryError for + next to a written OR.
    """
    alternatives = list(_conjunctions(clauses, default_operator))
    if len(alternatives) == 1:
        return _conjunction(alternatives[0])
    must: list[QueryNode] = []
    should: list[QueryNode] = []
    must_not: list[QueryNode] = []
    for index, alternative in enumerate(alternatives):
        first = alternative[0]
        is_signed = len(alternative) == 1 and first.sign is not Sign.NONE
        if not is_signed:
            should.append(_conjunction(alternative))
        elif _is_beside_or(alternatives, index):
            _refuse_plus(first)
            should.append(first.as_node)
        else:
            (must if first.sign is Sign.PLUS else must_not).append(first.node)
    return Boolean(tuple(must), tuple(should), tuple(must_not))


def _conjunctions(clauses: Sequence[Clause], default_operator: Joiner) -> Iterable[list[Clause]]:
    """The clauses in runs that AND holds together."""
    run: list[Clause] = []
    for clause in clauses:
        if run and (clause.joiner or default_operator) is Joiner.OR:
            yield run
            run = []
        run.append(clause)
    yield run


def _conjunction(run: Sequence[Clause]) -> QueryNode:
    if len(run) == 1:
        return run[0].as_node
    must = tuple(clause.node for clause in run if clause.sign is not Sign.MINUS)
    must_not = tuple(clause.node for clause in run if clause.sign is Sign.MINUS)
    return Boolean(must=must, must_not=must_not)


def _is_beside_or(alternatives: Sequence[Sequence[Clause]], index: int) -> bool:
    neighbours = alternatives[index : index + 2]
    return any(alternative[0].joiner is Joiner.OR for alternative in neighbours)


def _refuse_plus(clause: Clause) -> None:
    if clause.sign is Sign.PLUS:
        raise clause.place.error("+ makes a clause required, and OR makes it optional; leave one of them out")


# Query text → nodes: a word by itself, everything else by the grammar.


# The same query is often asked several times: for its hits, their count, and the words to highlight.
_KEPT_QUERIES: Final = 128

_ONE_WORD: Final = re.compile(r"(?:(?P<field>[\w.]{1,200}):)?(?P<word>\w{1,200})")
_MAYBE_OPERATORS: Final = frozenset({"AND", "OR", "NOT", "IN", "TO"})


@shared_memo("search.parser.queries", "parsed queries", max_entries=_KEPT_QUERIES)
def parse_query(text: str, default_operator: Joiner = Joiner.OR) -> QueryNode:
    """Read a query. `default_operator` is what stands between two clauses that nothing joins.

    AND binds tighter than OR, and `+a b -c` requires a, prefers b and excludes c. Field names are not looked
    up. Raises InvalidQueryError, with the position and what to write instead, for everything that is no query,
    and for one that is too long or too deeply nested.
    """
    found = _ONE_WORD.fullmatch(text)
    if found and found["word"] not in _MAYBE_OPERATORS:
        return _term(text, found)
    # Here, because a process that looks for a word, as most commands do, need not wait for the grammar to be built.
    from indextables.search.grammar import parse_by_grammar

    return parse_by_grammar(text, default_operator)


def _term(text: str, found: re.Match[str]) -> Term:
    name = found["field"]
    path = None if name is None else FieldPath(split_path(name), Place(text, *found.span("field")))
    return Term(path, Place(text, *found.span("word")), found["word"])
