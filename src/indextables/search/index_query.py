"""Tantivy queries, each with what it reads of an index.

No other module builds queries, so a query and its needs cannot diverge.
"""

import re
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from typing import Final, TypeAlias

import msgspec
from tantivy import FieldType, Index, Occur, Query, Schema

from indextables.search.patterns import literal_pattern
from indextables.split.doc_mapping import ROW_FIELD, FieldKind, FieldMapping
from indextables.split.needs import (
    NOTHING,
    Needs,
    after_prefix,
    column_needs,
    norms_needs,
    prefix_needs,
    span_needs,
    term_needs,
    united,
)

IndexTerm: TypeAlias = bool | int | float | str | bytes | datetime

_ROW_NUMBERS: Final = column_needs(ROW_FIELD)

# Up to so many terms are looked up one by one, which reads little of a large dictionary; a set of terms reads it all.
_MAX_SINGLE_TERMS: Final = 16
# The postings of so many terms of a set are predicted one by one.
_MAX_PREDICTED_TERMS: Final = 256

_I64_ZERO: Final = 1 << 63
_MAX_I64: Final = (1 << 63) - 1
_MIN_I64: Final = -(1 << 63)
_MAX_U64: Final = (1 << 64) - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_IPV4_PREFIX: Final = b"\0" * 10 + b"\xff\xff"

# Terms of JSON: the keys of the path, the end of the path, the type of the value, the value.
_PATH_SEPARATOR: Final = "\x01"
_PATH_END: Final = b"\0"
_JSON_TEXT: Final = b"s"

# The characters that have a meaning in Tantivy's own query language.
_PARSED_SPECIALLY: Final = re.compile(r"""[+^`:{}"'\[\]()!\\*\s]""")


class IndexQuery(msgspec.Struct, frozen=True):
    """A query of an index, and what it reads of the index if it computes scores."""

    query: Query
    needs: Needs = NOTHING

    def boosted(self, factor: float) -> "IndexQuery":
        """Return this query with its scores multiplied."""
        return IndexQuery(Query.boost_query(self.query, factor), self.needs)

    def constant(self, score: float) -> "IndexQuery":
        """Return this query with the same score for all rows."""
        # Tantivy computes the scores of a union even if it does not use them, so norms are still needed.
        return IndexQuery(Query.const_score_query(self.query, score), self.needs)

    def filtered(self, condition: "IndexQuery | None") -> "IndexQuery":
        """Restrict this query to the rows of a condition, without changing scores."""
        return self if condition is None else boolean(must=[self, condition.constant(0.0)])

    def without(self, excluded: "IndexQuery") -> "IndexQuery":
        """Return the query for the rows of this one that another does not match."""
        return boolean(must=[self], must_not=[excluded])

    def needs_of_best_rows(self) -> Needs:
        """Return what a search for the best rows reads: scores. Documents have the numbers of their rows."""
        return self.needs

    def needs_of_all_rows(self) -> Needs:
        """Return what a search for all rows, or their number, reads: no scores, but the row numbers."""
        return self.needs.unscored() | _ROW_NUMBERS


def all_rows() -> IndexQuery:
    """Return the query that matches all rows."""
    return IndexQuery(Query.all_query())


def no_rows() -> IndexQuery:
    """Return the query that matches no rows."""
    return IndexQuery(Query.empty_query())


def boolean(
    must: Sequence[IndexQuery] = (),
    should: Sequence[IndexQuery] = (),
    must_not: Sequence[IndexQuery] = (),
) -> IndexQuery:
    """Return the combination of queries."""
    clauses = [(Occur.Must, each) for each in must]
    clauses += [(Occur.Should, each) for each in should]
    clauses += [(Occur.MustNot, each) for each in must_not]
    query = Query.boolean_query([(occur, each.query) for occur, each in clauses])
    return IndexQuery(query, united([each.needs for _, each in clauses]))


def all_queries(queries: Sequence[IndexQuery]) -> IndexQuery:
    """Return the query for the rows that match all of these."""
    return queries[0] if len(queries) == 1 else boolean(must=queries)


def any_query(queries: Sequence[IndexQuery]) -> IndexQuery:
    """Return the query for the rows that match any of these."""
    return queries[0] if len(queries) == 1 else boolean(should=queries)


def rows_between(schema: Schema, start: int, end: int) -> IndexQuery:
    """Return the query for the rows with these numbers; `end` is exclusive."""
    query = Query.range_query(
        schema, ROW_FIELD, FieldType.Integer, lower_bound=start, upper_bound=end, include_upper=False
    )
    return IndexQuery(query, _ROW_NUMBERS)


class TermSpan(msgspec.Struct, frozen=True):
    """The terms from `lower` to `upper`; None is no bound."""

    lower: IndexTerm | None = None
    upper: IndexTerm | None = None
    include_lower: bool = True
    include_upper: bool = True


class PhraseWord(msgspec.Struct, frozen=True):
    """A word of a phrase, or several: its position, a pattern for it, and the terms and prefixes that it matches."""

    position: int
    pattern: str
    terms: tuple[str, ...]
    prefixes: tuple[str, ...] = ()


class IndexField(msgspec.Struct, frozen=True):
    """A field of an index, with the path inside the values for JSON; its methods return the queries on it."""

    schema: Schema
    mapping: FieldMapping
    path: tuple[str, ...] = ()

    def term(self, value: IndexTerm) -> IndexQuery:
        """Match a term; scores depend on how often a row has it."""
        # With positions, a query would also read them.
        option = "freq" if self.mapping.record == "position" else self.mapping.record
        query = Query.term_query(self.schema, self._name, value, option)
        return IndexQuery(query, term_needs(self._field, self._key(value)))

    def one_of(self, values: Sequence[IndexTerm]) -> IndexQuery:
        """Match any of these terms; all rows have the same score."""
        if not values:
            return no_rows()
        if len(values) <= _MAX_SINGLE_TERMS:
            return any_query([self.term(value) for value in values]).constant(1.0)
        query = Query.term_set_query(self.schema, self._name, list(values))
        keys = sorted(map(self._key, values))
        if len(keys) > _MAX_PREDICTED_TERMS:
            return IndexQuery(query, span_needs(self._field, keys[0], _after(keys[-1])))
        return IndexQuery(query, united([span_needs(self._field, key, _after(key)) for key in keys]))

    def phrase(self, words: Sequence[tuple[int, str]], slop: int) -> IndexQuery:
        """Match terms at these positions relative to each other."""
        query = Query.phrase_query(self.schema, self._name, list(words), slop)
        needs = [term_needs(self._field, self._key(word), with_positions=True) for _, word in words]
        return IndexQuery(query, united(needs))

    def phrase_of_patterns(self, words: Sequence[PhraseWord]) -> IndexQuery:
        """Match regular expressions at these positions relative to each other."""
        query = Query.regex_phrase_query(
            self.schema, self._name, [(word.position, word.pattern) for word in words]
        )
        spans: list[tuple[bytes, bytes | None]] = [
            (key, _after(key)) for word in words for key in map(self._key, word.terms)
        ]
        spans += [(key, after_prefix(key)) for word in words for key in map(self._key, word.prefixes)]
        needs = [span_needs(self._field, *span, with_positions=True) for span in spans]
        return IndexQuery(query, united(needs) | norms_needs(self._field))

    def prefix(self, text: str) -> IndexQuery:
        """Match all terms that start with this text."""
        # Not a phrase prefix query, which silently stops after fifty terms.
        query = Query.fuzzy_term_query(self.schema, self._name, text, distance=0, prefix=True)
        return IndexQuery(query, prefix_needs(self._field, self._key(text)))

    def fuzzy(self, text: str, distance: int) -> IndexQuery:
        """Match all terms that at most so many edits turn into this text."""
        query = Query.fuzzy_term_query(self.schema, self._name, text, distance)
        return IndexQuery(query, prefix_needs(self._field, self._key("")))

    def regex(self, pattern: str, within: TermSpan | str) -> IndexQuery:
        """Match the terms of a pattern; all of them are in a span, or start with a text.

        Raises ValueError if the pattern is too large for Tantivy.
        """
        if self._is_json:
            # Tantivy matches whole keys of the dictionary, so the pattern starts with the path.
            path = self._key("").decode()
            pattern = f"{literal_pattern(path)}(?:{pattern})"
        query = Query.regex_query(self.schema, self._field, pattern)
        if isinstance(within, str):
            return IndexQuery(query, prefix_needs(self._field, self._key(within)))
        return IndexQuery(query, self._span_needs(within))

    def range(self, span: TermSpan) -> IndexQuery:
        """Match values in a range: by the fast values or, without them, by the terms."""
        is_fast = self.mapping.fast
        query = Query.range_query(
            self.schema,
            self._name,
            self.mapping.field_type,
            lower_bound=span.lower,
            upper_bound=span.upper,
            include_lower=span.include_lower,
            include_upper=span.include_upper,
            use_inverted_index=not is_fast,
        )
        return IndexQuery(query, column_needs(self._field) if is_fast else self._span_needs(span))

    def json_numbers(
        self,
        lower: int | float | None,
        upper: int | float | None,
        *,
        include_lower: bool,
        include_upper: bool,
    ) -> IndexQuery:
        """Match numbers inside JSON by the fast values. Both bounds are integers of 64 bits, or have fractions.

        In a column of integers, Tantivy rounds fractions to the integer next to zero.
        """
        return self._json_values(
            None if lower is None else _positional(lower),
            None if upper is None else _positional(upper),
            include_lower=include_lower,
            include_upper=include_upper,
        )

    def json_moments(
        self, lower: datetime | None, upper: datetime | None, *, include_lower: bool, include_upper: bool
    ) -> IndexQuery:
        """Match timestamps inside JSON by the fast values."""
        return self._json_values(
            None if lower is None else _rfc_3339(lower),
            None if upper is None else _rfc_3339(upper),
            include_lower=include_lower,
            include_upper=include_upper,
        )

    def _json_values(
        self, lower: str | None, upper: str | None, *, include_lower: bool, include_upper: bool
    ) -> IndexQuery:
        # The only ranges inside JSON that Tantivy's Python package has are those of its query parser. What it parses
        # is an escaped path and two values that were printed here.
        opening, closing = "[" if include_lower else "{", "]" if include_upper else "}"
        path = _PARSED_SPECIALLY.sub(r"\\\g<0>", self._name)
        text = f"{path}:{opening}{lower or '*'} TO {upper or '*'}{closing}"
        query = Index(self.schema).parse_query(text, [])
        return IndexQuery(query, column_needs(self._field))

    def exists(self) -> IndexQuery:
        """Match the rows that have a fast value."""
        query = Query.exists_query(self._name, json_subpaths=self._is_json)
        return IndexQuery(query, column_needs(self._field))

    @property
    def _is_json(self) -> bool:
        return self.mapping.kind is FieldKind.JSON

    @property
    def _field(self) -> str:
        return self.mapping.index_name

    @property
    def _name(self) -> str:
        """The field name and the path, in Tantivy's syntax."""
        if not self.path:
            return self._field
        escaped = (part.replace("\\", "\\\\").replace(".", "\\.") for part in self.path)
        return ".".join((self._field, *escaped))

    def _span_needs(self, span: TermSpan) -> Needs:
        lower = b"" if span.lower is None else self._key(span.lower)
        upper = None if span.upper is None else self._key(span.upper)
        if not span.include_lower:
            lower = _after(lower)
        if upper is not None and span.include_upper:
            upper = _after(upper)
        return span_needs(self._field, lower, upper)

    def _key(self, value: IndexTerm) -> bytes:
        """Return the key of a term in the dictionary."""
        if self._is_json:
            # Dots in keys separate keys, too.
            path = _PATH_SEPARATOR.join(part.replace(".", _PATH_SEPARATOR) for part in self.path)
            return path.encode() + _PATH_END + _json_key(value)
        if self.mapping.kind is FieldKind.IP:
            return _address_key(str(value))
        return _key(value)


def _after(key: bytes) -> bytes:
    """Return the first key after this one."""
    return key + b"\0"


# Keys of terms, which sort like the values.


def _key(value: IndexTerm) -> bytes:
    match value:
        case str():
            return value.encode()
        case bytes():
            return value
        case bool():
            return int(value).to_bytes(8, "big")
        case int():
            return (value + _I64_ZERO).to_bytes(8, "big")
        case float():
            return _float_key(value)
        case datetime():
            return _date_key(value)


def _float_key(value: float) -> bytes:
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    return int(bits ^ (_MAX_U64 if bits >> 63 else _I64_ZERO)).to_bytes(8, "big")


def _date_key(value: datetime) -> bytes:
    # Terms have whole seconds, in nanoseconds.
    seconds = (value - _EPOCH) // timedelta(seconds=1)
    return (seconds * 10**9 + _I64_ZERO).to_bytes(8, "big")


def _address_key(text: str) -> bytes:
    packed = ip_address(text).packed
    return packed if len(packed) == 16 else _IPV4_PREFIX + packed


def _positional(number: int | float) -> str:
    return format(Decimal(repr(number)), "f")


def _rfc_3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _json_key(value: IndexTerm) -> bytes:
    match value:
        case str():
            return _JSON_TEXT + value.encode()
        case bool():
            return b"o" + _key(value)
        case datetime():
            return b"d" + _date_key(value)
        case float() if not (value.is_integer() and _MIN_I64 <= value <= _MAX_U64):
            return b"f" + _float_key(value)
    number = int(value)
    return b"i" + _key(number) if number <= _MAX_I64 else b"u" + number.to_bytes(8, "big")
