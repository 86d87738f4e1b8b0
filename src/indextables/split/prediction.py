"""Predicts which bytes of the index files a search reads, so that only these are fetched.

All needs advance in lockstep. Round 1: dictionaries, norms and columns. Round 2: postings and positions. Terms of large
dictionaries, of which only parts are fetched, sometimes take another round.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import Final, TypeAlias

from indextables.split.cold_data import ColdData, FieldParts, SegmentParts
from indextables.split.needs import (
    ByteRange,
    ColumnNeed,
    IndexFiles,
    Need,
    Needs,
    NormsNeed,
    SpanNeed,
    TermNeed,
)
from indextables.split.tantivy_files import Section
from indextables.split.term_dictionary import PresentDictionary, TermInfo, TermWalk

_Ranges: TypeAlias = list[ByteRange]
_Lookup: TypeAlias = Generator[_Ranges, None, None]

# A walk that takes longer is lost in a damaged dictionary.
_MAX_ROUNDS: Final = 16

# The number of tokens, at the start of the postings of a field.
_POSTINGS_HEADER_BYTES: Final = 8


def rounds(files: IndexFiles, cold: ColdData, needs: Needs) -> Iterator[_Ranges]:
    """Yield what to fetch, round by round; the ranges of a round must be readable when the next one is asked for.

    Unusual but valid indexes are no error: what cannot be predicted is fetched whole, a field or all files. Damaged
    ones are no error either: Tantivy reports the damage, or finds what it finds in a complete copy.
    """
    if needs.is_whole or cold.segments is None or not _fits(files, cold.segments):
        yield [ByteRange(name, 0, size) for name, size in files.sizes().items() if size]
        return
    segments = [_SegmentNeeds(files, segment) for segment in cold.segments]
    lookups = [lookup for segment in segments for lookup in segment.lookups(needs)]
    while lookups:
        wanted: _Ranges = []
        alive = []
        for lookup in lookups:
            ranges = next(lookup, None)
            if ranges is not None:
                wanted += ranges
                alive.append(lookup)
        if wanted:
            yield merged(wanted)
        for segment in segments:
            segment.arrive()
        lookups = alive


def merged(ranges: Iterable[ByteRange]) -> _Ranges:
    """Return ranges in order, with overlapping and adjacent ones joined."""
    found: _Ranges = []
    for each in sorted(ranges):
        if each.start >= each.end:
            continue
        if found and found[-1].name == each.name and each.start <= found[-1].end:
            last = found.pop()
            found.append(ByteRange(each.name, last.start, max(last.end, each.end)))
        else:
            found.append(each)
    return found


def _fits(files: IndexFiles, segments: Iterable[SegmentParts]) -> bool:
    """Return whether all parts lie inside of the files."""
    sizes = files.sizes()

    def inside(segment: SegmentParts, suffix: str, sections: Iterable[Section | None]) -> bool:
        size = sizes.get(segment.file(suffix), -1)
        return all(each is None or 0 <= each.start <= each.end <= size for each in sections)

    return all(
        inside(segment, "term", (field.terms for field in segment.fields.values()))
        and inside(segment, "idx", (field.postings for field in segment.fields.values()))
        and inside(segment, "pos", (field.positions for field in segment.fields.values()))
        and inside(segment, "fieldnorm", (field.norms for field in segment.fields.values()))
        and inside(segment, "fast", [*segment.columns.values(), segment.column_directory])
        for segment in segments
    )


class _SegmentNeeds:
    """The lookups of one segment. Lookups in the same dictionary share what is present of it."""

    def __init__(self, files: IndexFiles, segment: SegmentParts) -> None:
        self._files = files
        self._segment = segment
        self._dictionaries: dict[str, PresentDictionary] = {}

    def lookups(self, needs: Needs) -> list[_Lookup]:
        return [self._lookup(need) for need in needs.items]

    def arrive(self) -> None:
        """Say that what the lookups of the last round asked for can be read now."""
        for dictionary in self._dictionaries.values():
            dictionary.arrive()

    def _lookup(self, need: Need) -> _Lookup:
        match need:
            case ColumnNeed(field=name):
                return self._column(name)
            case NormsNeed(field=name):
                return self._norms(name)
            case TermNeed() | SpanNeed():
                return self._terms(need)

    def _column(self, name: str) -> _Lookup:
        column = self._segment.columns.get(name)
        sections = [self._segment.column_directory, *([column] if column is not None else [])]
        yield self._ranges("fast", sections)

    def _norms(self, name: str) -> _Lookup:
        field = self._segment.fields.get(name)
        if field is not None and field.norms is not None:
            yield self._ranges("fieldnorm", [field.norms])

    def _terms(self, need: TermNeed | SpanNeed) -> _Lookup:
        field = self._segment.fields.get(need.field)
        if field is None:
            return
        try:
            if isinstance(need, TermNeed):
                yield from self._term(field, need)
            else:
                yield from self._span(field, need)
        except ValueError:
            yield self._whole(field)

    def _term(self, field: FieldParts, need: TermNeed) -> _Lookup:
        dictionary = self._dictionary(field, need.field)
        walk = TermWalk(dictionary, need.key)
        wanted = self._ranges("idx", [_postings_header(field)])
        has_postings = False
        for _ in range(_MAX_ROUNDS):
            wanted += self._ranges("term", walk.advance())
            if not has_postings and len(walk.span) == 1 and dictionary.has_info(walk.span.start):
                info = dictionary.info(walk.span.start)
                wanted += self._postings(field, info, info, with_positions=need.with_positions)
                has_postings = True
            if walk.is_done and not wanted:
                return
            yield wanted
            wanted = []
        raise ValueError("a term is not found in its dictionary in time")

    def _span(self, field: FieldParts, need: SpanNeed) -> _Lookup:
        dictionary = self._dictionary(field, need.field)
        wanted = self._ranges("term", dictionary.request_whole())
        if not need.lower and need.upper is None:
            yield wanted + self._all_postings(field, with_positions=need.with_positions)
            return
        yield wanted + self._ranges("idx", [_postings_header(field)])
        first = dictionary.lower_bound(need.lower)
        end = field.num_terms if need.upper is None else dictionary.lower_bound(need.upper)
        if first < end:
            infos = dictionary.info(first), dictionary.info(end - 1)
            yield self._postings(field, *infos, with_positions=need.with_positions)

    def _postings(
        self, field: FieldParts, first: TermInfo, last: TermInfo, *, with_positions: bool
    ) -> _Ranges:
        """Return where the postings, and the positions, of a range of terms are. Raises ValueError."""
        body = Section(field.postings.start + _POSTINGS_HEADER_BYTES, field.postings.end)
        found = self._ranges("idx", [_inside(body, first.postings.start, last.postings.end)])
        if with_positions and field.positions is not None:
            positions = _inside(field.positions, first.positions.start, last.positions.end)
            found += self._ranges("pos", [positions])
        return found

    def _all_postings(self, field: FieldParts, *, with_positions: bool) -> _Ranges:
        found = self._ranges("idx", [field.postings])
        if with_positions and field.positions is not None:
            found += self._ranges("pos", [field.positions])
        return found

    def _whole(self, field: FieldParts) -> _Ranges:
        return self._ranges("term", [field.terms]) + self._all_postings(field, with_positions=True)

    def _dictionary(self, field: FieldParts, name: str) -> PresentDictionary:
        if name not in self._dictionaries:
            self._dictionaries[name] = PresentDictionary(
                self._files, field.dictionary(self._segment.file("term"))
            )
        return self._dictionaries[name]

    def _ranges(self, suffix: str, sections: Iterable[Section]) -> _Ranges:
        name = self._segment.file(suffix)
        return [ByteRange(name, start, end) for start, end in sections]


def _postings_header(field: FieldParts) -> Section:
    return Section(
        field.postings.start, min(field.postings.start + _POSTINGS_HEADER_BYTES, field.postings.end)
    )


def _inside(whole: Section, start: int, end: int) -> Section:
    """Return the part of a section; offsets are relative to it. Raises ValueError if it does not fit."""
    if not 0 <= start <= end <= whole.end - whole.start:
        raise ValueError("the postings of a term lie outside of its field")
    return Section(whole.start + start, whole.start + end)
