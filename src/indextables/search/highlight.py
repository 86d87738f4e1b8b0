"""Highlighting: the ranges of a text that a query matches, found with the tokens that the index holds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.search.compile import DEFAULT_KINDS, SearchScope, Target
from indextables.search.parser import (
    Boolean,
    Boost,
    Bound,
    Fuzzy,
    Leaf,
    OneOf,
    Phrase,
    QueryNode,
    Range,
    Regex,
    Term,
    Wildcard,
)
from indextables.search.patterns import joker_pattern
from indextables.search.text_query import (
    NGRAMS,
    AnalyzedToken,
    normalized,
    normalized_pieces,
    regex_pattern,
    tokens,
    unstemmed_tokens,
)
from indextables.split.doc_mapping import FieldMapping

_Matcher: TypeAlias = Callable[[str], bool]


class Span(msgspec.Struct, frozen=True):
    """A range of a text, in characters."""

    start: int
    end: int


def highlight(node: QueryNode, scope: SearchScope, column: str, text: str) -> tuple[Span, ...]:
    """Return the ranges of a column's text that the query matches, in order and without overlaps.

    Clauses that exclude rows, and columns other than text and strings, have no ranges. Raises InvalidQueryError for a
    query that names unknown fields.
    """
    target = scope.find_column(column)
    if not isinstance(target, Target) or target.field.kind not in DEFAULT_KINDS:
        return ()
    found = tokens(target.field, text)
    leaves = [leaf for leaf in _leaves(node) if target in _targets(leaf, scope)]
    return _joined(span for leaf in leaves for span in _spans(leaf, target.field, found))


def _leaves(node: QueryNode) -> Iterator[Leaf]:
    match node:
        case Leaf():
            yield node
        case Boost(operand=operand):
            yield from _leaves(operand)
        case Boolean(must=must, should=should):
            for child in (*must, *should):
                yield from _leaves(child)


def _targets(leaf: Leaf, scope: SearchScope) -> Sequence[object]:
    return scope.defaults() if leaf.field is None else (scope.resolve(leaf.field),)


def _spans(leaf: Leaf, field: FieldMapping, found: Sequence[AnalyzedToken]) -> Iterable[Span]:
    match leaf:
        case Term(text=text):
            return _adjacent(tokens(field, text), field, found, slop=0)
        case Phrase(text=text, slop=slop):
            return _adjacent(tokens(field, text), field, found, slop)
        case OneOf(values=values):
            return [span for text in values for span in _adjacent(tokens(field, text), field, found, slop=0)]
        case Wildcard():
            return _wildcard(leaf, field, found)
        case Regex(pattern=pattern):
            return _matching(regex_pattern(field, pattern), found)
        case Fuzzy(text=text, distance=distance):
            wanted = [token.text for token in tokens(field, text)]
            return _each(found, lambda term: any(_is_within(term, word, distance) for word in wanted))
        case Range(lower=lower, upper=upper):
            return _each(found, _between(field, lower, upper))
    return ()


def _wildcard(leaf: Wildcard, field: FieldMapping, found: Sequence[AnalyzedToken]) -> Iterable[Span]:
    if field.tokenizer in NGRAMS:
        literals = [piece for piece in leaf.pieces if isinstance(piece, str)]
        return _adjacent([token for text in literals for token in tokens(field, text)], field, found, slop=0)
    prefix = leaf.prefix
    if prefix is None:
        return _matching(joker_pattern(normalized_pieces(field, leaf)), found)
    wanted, beginnings = tokens(field, prefix), unstemmed_tokens(field, prefix)
    if not wanted or beginnings[-1].end < len(prefix):
        return _adjacent(wanted, field, found, slop=0)
    matchers: list[_Matcher] = [token.text.__eq__ for token in wanted]
    matchers[-1] = lambda term: term.startswith(beginnings[-1].text) or term == wanted[-1].text
    return _sequences(matchers, wanted, found)


def _adjacent(
    wanted: Sequence[AnalyzedToken], field: FieldMapping, found: Sequence[AnalyzedToken], slop: int
) -> Iterable[Span]:
    if not wanted:
        return ()
    words = {token.text for token in wanted}
    if field.tokenizer in NGRAMS:
        return _each(found, words.__contains__)
    if slop:
        return _near(words, wanted[-1].position - wanted[0].position + slop, found)
    return _sequences([token.text.__eq__ for token in wanted], wanted, found)


def _sequences(
    matchers: Sequence[_Matcher], wanted: Sequence[AnalyzedToken], found: Sequence[AnalyzedToken]
) -> Iterator[Span]:
    """Yield the runs of tokens that match in sequence, at the distances of the wanted tokens."""
    at_position = {token.position: token for token in found}
    steps = [token.position - wanted[0].position for token in wanted]
    for first in found:
        run = [at_position.get(first.position + step) for step in steps]
        pairs = zip(matchers, run, strict=True)
        last = run[-1]
        if last is not None and all(token is not None and matches(token.text) for matches, token in pairs):
            yield Span(first.start, last.end)


def _near(words: set[str], reach: int, found: Sequence[AnalyzedToken]) -> Iterator[Span]:
    """Yield tokens within reach of each other that together contain all words."""
    candidates = [token for token in found if token.text in words]
    for first in candidates:
        near = [token for token in candidates if 0 <= token.position - first.position <= reach]
        if {token.text for token in near} == words:
            yield from (Span(token.start, token.end) for token in near)


def _matching(pattern: str, found: Sequence[AnalyzedToken]) -> Iterator[Span]:
    """Yield the tokens that match a pattern. Arrow's regular expressions have the syntax of Tantivy's."""
    texts = pa.array([token.text for token in found], pa.string())
    try:
        matches = pc.match_substring_regex(texts, rf"\A(?:{pattern})\z").to_pylist()
    except pa.ArrowInvalid:
        # Arrow lacks a few classes that Tantivy has; the hits are right, but nothing of them is marked.
        return iter(())
    return (Span(token.start, token.end) for token, is_match in zip(found, matches, strict=True) if is_match)


def _each(found: Sequence[AnalyzedToken], matches: _Matcher) -> Iterator[Span]:
    return (Span(token.start, token.end) for token in found if matches(token.text))


def _between(field: FieldMapping, lower: Bound | None, upper: Bound | None) -> _Matcher:
    low, high = (None if bound is None else normalized(field, bound.text) for bound in (lower, upper))

    def matches(term: str) -> bool:
        is_above = lower is None or low is None or term > low or (lower.is_inclusive and term == low)
        is_below = upper is None or high is None or term < high or (upper.is_inclusive and term == high)
        return is_above and is_below

    return matches


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if joined and span.start < joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        elif span.end > span.start:
            joined.append(span)
    return tuple(joined)


def _is_within(left: str, right: str, distance: int) -> bool:
    """Return whether two words are at most `distance` edits apart.

    Edits are insertions, deletions, substitutions, and transpositions of adjacent letters (optimal string alignment).
    """
    if abs(len(left) - len(right)) > distance:
        return False
    before: list[int] = []
    previous = list(range(len(right) + 1))
    for row, letter in enumerate(left, start=1):
        current = [row]
        for column, other in enumerate(right, start=1):
            cost = min(
                previous[column] + 1, current[column - 1] + 1, previous[column - 1] + (letter != other)
            )
            is_transposition = (
                row > 1 and column > 1 and letter == right[column - 2] and left[row - 2] == other
            )
            if is_transposition:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        if min(current) > distance:
            return False
        before, previous = previous, current
    return previous[-1] <= distance
