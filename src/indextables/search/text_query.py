"""Queries of leaves over text, strings and JSON: query text becomes the terms that the index holds."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from indextables._caching import shared_memo
from indextables.predicates.literals import parse_decimal, parse_integer, parse_timestamp
from indextables.search.index_query import (
    IndexField,
    IndexQuery,
    PhraseWord,
    TermSpan,
    all_queries,
    any_query,
    no_rows,
)
from indextables.search.json_range import json_range
from indextables.search.parser import (
    Bound,
    Exists,
    Fuzzy,
    Joker,
    Leaf,
    OneOf,
    Phrase,
    Place,
    Range,
    Regex,
    Term,
    Wildcard,
)
from indextables.search.patterns import (
    any_case_pattern,
    joker_pattern,
    literal_pattern,
    one_of,
    range_pattern,
)
from indextables.split.doc_mapping import STEMMED_LANGUAGES, FieldKind, FieldMapping, build_analyzer

# Their tokens are parts of words, all at the same position.
NGRAMS: Final = frozenset({"ngram", "edge_ngram"})

_KEEPS_CASE: Final = frozenset({"raw", "simple", "whitespace"})

# Tantivy stores a JSON integer as i64 or u64, and any other number as f64.
MIN_I64: Final = -(1 << 63)
MAX_U64: Final = (1 << 64) - 1

# Tantivy stores a JSON timestamp as 64-bit nanoseconds since 1970, and one out of range as text.
FIRST_TIMESTAMP: Final = datetime(1678, 1, 1, tzinfo=UTC)
LAST_TIMESTAMP: Final = datetime(2262, 1, 1, tzinfo=UTC)

JSON_BOOLEANS: Final = {"true": True, "false": False}

JsonValue = bool | int | float | datetime


class TextQueries:
    """Compiles leaves over one field of kind TEXT, STRING or JSON.

    None means that the leaf has no tokens in this field, so there is nothing to search for.
    """

    __slots__ = ("field", "index", "is_json")

    def __init__(self, index: IndexField) -> None:
        self.index = index
        self.field = index.mapping
        self.is_json = self.field.kind is FieldKind.JSON

    def query(self, leaf: Leaf) -> IndexQuery | None:
        """Compile a leaf. Raises InvalidQueryError if this field cannot answer it."""
        match leaf:
            case Term(text=text):
                return self._value(text, leaf.place, _json_values(text) if self.is_json else [])
            case Phrase(text=text, slop=slop):
                return self._quoted(text, leaf.place, slop)
            case Wildcard():
                return self._wildcard(leaf)
            case Regex(pattern=pattern):
                return self._regular_expression(pattern, leaf.place)
            case Fuzzy(text=text, distance=distance):
                found = [self.index.fuzzy(token.text, distance) for token in tokens(self.field, text)]
                return all_queries(found) if found else None
            case Range(lower=lower, upper=upper):
                return self._range(lower, upper, leaf.place)
            case OneOf(values=values):
                return self._one_of(values, leaf.place)
            case Exists():
                return self._exists(leaf.place)
        raise TypeError(f"{leaf!r} is not a leaf of a query")

    def _quoted(self, text: str, place: Place, slop: int) -> IndexQuery | None:
        timestamps = (
            [value for value in _json_values(text) if isinstance(value, datetime)] if self.is_json else []
        )
        return self._value(text, place, timestamps, slop)

    def _value(
        self, text: str, place: Place, values: Sequence[JsonValue], slop: int = 0
    ) -> IndexQuery | None:
        """Match text or, inside JSON, a value with the same spelling."""
        as_text = self._adjacent(tokens(self.field, text), place, slop)
        found = [self.index.term(value) for value in values]
        found += [as_text] if as_text is not None else []
        return any_query(found) if found else None

    def _adjacent(self, found: list["AnalyzedToken"], place: Place, slop: int) -> IndexQuery | None:
        """Match tokens next to each other, as in the text."""
        if not found:
            return None
        if len(found) == 1 or self.field.tokenizer in NGRAMS:
            return all_queries([self.index.term(token.text) for token in found])
        self._check_positions(place)
        first = found[0].position
        return self.index.phrase([(token.position - first, token.text) for token in found], slop)

    def _wildcard(self, leaf: Wildcard) -> IndexQuery | None:
        place, literals = leaf.place, [piece for piece in leaf.pieces if isinstance(piece, str)]
        if self.field.tokenizer in NGRAMS:
            if Joker.ONE in leaf.pieces:
                raise place.error(
                    f"column {self.field.name!r} holds parts of words, and ? applies to words; write a *"
                )
            # The index already holds parts of words, so the stars add nothing.
            found = [token for text in literals for token in tokens(self.field, text)]
            return self._adjacent(found, place, slop=0)
        if leaf.prefix is not None:
            return self._prefix(leaf.prefix, place)
        if not all(self._is_single_word(text) for text in literals):
            raise place.error(
                "a ?, and a * in the middle or in front, applies to a single word; remove the separators"
            )
        pieces = normalized_pieces(self.field, leaf)
        first = pieces[0]
        return self._regex(joker_pattern(pieces), first if isinstance(first, str) else "", place)

    def _is_single_word(self, text: str) -> bool:
        found = unstemmed_tokens(self.field, text)
        return len(found) == 1 and (found[0].start, found[0].end) == (0, len(text))

    def _prefix(self, text: str, place: Place) -> IndexQuery | None:
        found = unstemmed_tokens(self.field, text)
        if not found:
            return None
        last = found[-1]
        if last.end < len(text):
            # The star follows a separator: any word may come next.
            return self._adjacent(tokens(self.field, text), place, slop=0)
        if len(found) > 1:
            return self._phrase_prefix(text, last.text, place)
        prefix = self.index.prefix(last.text)
        stem = tokens(self.field, text)[0].text
        return prefix if stem == last.text else any_query([prefix, self.index.term(stem)])

    def _phrase_prefix(self, text: str, last: str, place: Place) -> IndexQuery:
        if self.is_json:
            raise place.error("inside JSON, a * applies to a single word; remove the separators")
        self._check_positions(place)
        *before, stem = tokens(self.field, text)
        first = before[0].position
        words = [
            PhraseWord(token.position - first, literal_pattern(token.text), (token.text,)) for token in before
        ]
        ending = one_of([joker_pattern((last, Joker.ANY)), literal_pattern(stem.text)])
        words.append(PhraseWord(stem.position - first, ending, (stem.text,), (last,)))
        return self.index.phrase_of_patterns(words)

    def _range(self, lower: Bound | None, upper: Bound | None, place: Place) -> IndexQuery:
        values = json_range(self.index, lower, upper, place) if self.is_json else None
        if values is not None:
            return values
        lower, upper = self._normalized(lower), self._normalized(upper)
        pattern = range_pattern(lower, upper)
        return no_rows() if pattern is None else self._regex(pattern, span_of(lower, upper), place)

    def _normalized(self, bound: Bound | None) -> Bound | None:
        return bound and Bound(normalized(self.field, bound.text), bound.is_inclusive)

    def _one_of(self, values: tuple[str, ...], place: Place) -> IndexQuery | None:
        if self.field.kind is FieldKind.STRING:
            return self.index.one_of(values)
        queries = [self._value(text, place, _json_values(text) if self.is_json else []) for text in values]
        found = [query for query in queries if query is not None]
        return any_query(found) if found else None

    def _exists(self, place: Place) -> IndexQuery:
        if self.field.fast:
            return self.index.exists()
        if self.is_json:
            raise place.error(
                f"column {self.field.name!r} is not a fast field, so only its values can be searched"
            )
        return self.index.prefix("")

    def _regex(self, pattern: str, within: TermSpan | str, place: Place) -> IndexQuery:
        try:
            return self.index.regex(pattern, within)
        except ValueError as error:
            raise place.error("the text is too long for a range or a wildcard; shorten it") from error

    def _regular_expression(self, pattern: str, place: Place) -> IndexQuery:
        try:
            return self.index.regex(regex_pattern(self.field, pattern), "")
        except ValueError as error:
            # The last line says it; the ones before show the pattern.
            reason = str(error).strip("'").splitlines()[-1].partition("RegexQueryError: ")
            raise place.error(
                f"this is not a regular expression that the index can search for: "
                f"{(reason[2] or reason[0]).removeprefix('error: ')}; put a literal / in quotes"
            ) from error

    def _check_positions(self, place: Place) -> None:
        if self.field.record != "position":
            raise place.error(
                f"column {self.field.name!r} is indexed without positions, so phrases cannot be searched; "
                f"join the words with AND"
            )


def span_of(lower: Bound | None, upper: Bound | None) -> TermSpan:
    """Return the span of terms between bounds; None is no bound."""
    return TermSpan(
        None if lower is None else lower.text,
        None if upper is None else upper.text,
        include_lower=lower is None or lower.is_inclusive,
        include_upper=upper is None or upper.is_inclusive,
    )


def _json_values(text: str) -> list[JsonValue]:
    """Return the JSON values, other than text, that an unquoted text may stand for."""
    if text in JSON_BOOLEANS:
        return [JSON_BOOLEANS[text]]
    timestamp = parse_timestamp(text)
    if timestamp is not None and timestamp.tzinfo is not None:
        return [timestamp] if FIRST_TIMESTAMP <= timestamp <= LAST_TIMESTAMP else []
    integer = parse_integer(text)
    if integer is not None and MIN_I64 <= integer <= MAX_U64:
        return [integer]
    number = parse_decimal(text)
    nearest = math.nan if number is None else float(number)
    return [nearest] if math.isfinite(nearest) else []


# Analysis: query text passes through the analyzers of the index, so both produce the same tokens.


class AnalyzedToken(msgspec.Struct, frozen=True):
    """A term of the index, its position, and its range in the source text."""

    text: str
    position: int
    start: int
    end: int


def tokens(field: FieldMapping, text: str) -> list[AnalyzedToken]:
    """Return the terms that the index stores for a text in this field."""
    return _tokens(_analyzer(field.tokenizer, field.max_token_bytes), text)


def unstemmed_tokens(field: FieldMapping, text: str) -> list[AnalyzedToken]:
    """Return the tokens without stemming, for prefix searches: a stemmer changes the prefixes of words."""
    if not _is_stemmed(field):
        return tokens(field, text)
    return _tokens(_analyzer("default", field.max_token_bytes), text)


def normalized(field: FieldMapping, text: str) -> str:
    """Normalize a part of a token as the index does (case, accents), without tokenizing it."""
    normalizer = _normalizer(field.tokenizer)
    if normalizer is None or not text:
        return text
    return "".join(normalizer.analyze(text))


def normalized_pieces(field: FieldMapping, leaf: Wildcard) -> list[str | Joker]:
    """Return the pieces of a wildcard with normalized texts."""
    return [normalized(field, piece) if isinstance(piece, str) else piece for piece in leaf.pieces]


def regex_pattern(field: FieldMapping, pattern: str) -> str:
    """Return the pattern for a regular expression from a query: it ignores case if the index does."""
    return pattern if field.tokenizer in _KEEPS_CASE else any_case_pattern(pattern)


def _is_stemmed(field: FieldMapping) -> bool:
    return field.tokenizer in STEMMED_LANGUAGES


def _tokens(analyzer: TextAnalyzer, text: str) -> list[AnalyzedToken]:
    return [
        AnalyzedToken(token.text, token.position, token.char_offset_from, token.char_offset_to)
        for token in analyzer.pre_tokenize(text).tokens
    ]


@shared_memo("search.text_query.analyzers", "text analyzers", max_entries=64)
def _analyzer(tokenizer: str, max_token_bytes: int) -> TextAnalyzer:
    return build_analyzer(tokenizer, max_token_bytes)


@shared_memo("search.text_query.normalizers", "text normalizers", max_entries=64)
def _normalizer(tokenizer: str) -> TextAnalyzer | None:
    if tokenizer in _KEEPS_CASE:
        return None
    builder = TextAnalyzerBuilder(Tokenizer.raw()).filter(Filter.lowercase())
    return (builder.filter(Filter.ascii_fold()) if tokenizer == "ascii_fold" else builder).build()
