"""What a query reads of an index: terms, spans of terms, whole fields, field norms and fast columns.

Needs are recorded where queries are built, and `prediction.rounds` turns them into byte ranges of the index files.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec


class ByteRange(NamedTuple):
    """Some bytes of one index file; `end` is exclusive."""

    name: str
    start: int
    end: int


class IndexFiles(Protocol):
    """The files of one index, of which some bytes may be absent."""

    def sizes(self) -> Mapping[str, int]:
        """Return the length of every file."""

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return bytes that are present: of the cold data, or of a range that a round asked for."""


class TermNeed(msgspec.Struct, frozen=True):
    """One term of a field: its path in the dictionary, its postings and, for phrases, its positions."""

    field: str
    key: bytes
    with_positions: bool = False


class SpanNeed(msgspec.Struct, frozen=True):
    """The terms from `lower` to `upper` (exclusive; None: to the last): the field's dictionary, and their postings."""

    field: str
    lower: bytes = b""
    upper: bytes | None = None
    with_positions: bool = False


class NormsNeed(msgspec.Struct, frozen=True):
    """The lengths of a field's values, which scores depend on."""

    field: str


class ColumnNeed(msgspec.Struct, frozen=True):
    """The fast column of a field; for JSON, those of all its paths."""

    field: str


Need: TypeAlias = TermNeed | SpanNeed | NormsNeed | ColumnNeed


class Needs(msgspec.Struct, frozen=True):
    """A set of needs; `|` unites two. An index that `is_whole` needs is read completely."""

    items: frozenset[Need] = frozenset()
    is_whole: bool = False

    def __or__(self, other: "Needs") -> "Needs":
        return EVERYTHING if self.is_whole or other.is_whole else Needs(self.items | other.items)

    def unscored(self) -> "Needs":
        """Return the needs of the same query when it computes no scores."""
        return Needs(frozenset(item for item in self.items if not isinstance(item, NormsNeed)), self.is_whole)


NOTHING: Final = Needs()
EVERYTHING: Final = Needs(is_whole=True)


def united(needs: Sequence[Needs]) -> Needs:
    """Return the union of many needs."""
    if any(each.is_whole for each in needs):
        return EVERYTHING
    return Needs(frozenset().union(*(each.items for each in needs)))


def term_needs(field: str, key: bytes, *, with_positions: bool = False) -> Needs:
    """Return the needs of one term, with which the index may also score it."""
    return Needs(frozenset({TermNeed(field, key, with_positions), NormsNeed(field)}))


def prefix_needs(field: str, key: bytes) -> Needs:
    """Return the needs of all terms that start with these bytes."""
    return span_needs(field, key, after_prefix(key))


def span_needs(field: str, lower: bytes, upper: bytes | None, *, with_positions: bool = False) -> Needs:
    """Return the needs of the terms from `lower` to `upper`, which is exclusive; None means to the last one."""
    return Needs(frozenset({SpanNeed(field, lower, upper, with_positions)}))


def field_needs(field: str, *, with_positions: bool = False) -> Needs:
    """Return the needs of a query that may read any term of a field, and score it."""
    return Needs(frozenset({SpanNeed(field, with_positions=with_positions), NormsNeed(field)}))


def norms_needs(field: str) -> Needs:
    """Return the needs of scores over a field."""
    return Needs(frozenset({NormsNeed(field)}))


def column_needs(field: str) -> Needs:
    """Return the needs of the fast values of a field."""
    return Needs(frozenset({ColumnNeed(field)}))


def after_prefix(key: bytes) -> bytes | None:
    """Return the first key after all that start with this prefix; None if none can follow."""
    kept = key.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
