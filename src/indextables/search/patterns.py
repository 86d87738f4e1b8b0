"""Regular expressions over whole terms, for wildcards and text ranges, which Tantivy has no queries for.

Characters from the query are written as code points, so none can act as syntax. Tantivy limits the size of a compiled
expression, and a wildcard is large, so alternatives share one where possible.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from indextables.search.parser import Bound, Joker

# Otherwise a dot does not match a line feed.
_DOT_MATCHES_ALL: Final = "(?s)"

_FIRST_SURROGATE: Final = 0xD800
_LAST_SURROGATE: Final = 0xDFFF


class Alphabet(msgspec.Struct, frozen=True):
    """The characters of terms: a pattern for any of them, and the highest code point."""

    any_character: str
    last: int


UNICODE: Final = Alphabet(".", 0x10FFFF)
HEXADECIMAL: Final = Alphabet("[0-9a-f]", ord("f"))


_JOKERS: Final = {Joker.ANY: ".*", Joker.ONE: "."}


def joker_pattern(pieces: Iterable[str | Joker]) -> str:
    """Return the pattern for these texts and jokers in order."""
    patterns = (literal_pattern(each) if isinstance(each, str) else _JOKERS[each] for each in pieces)
    return _DOT_MATCHES_ALL + "".join(patterns)


def literal_pattern(text: str) -> str:
    """Return the pattern for exactly this text."""
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)


def any_case_pattern(pattern: str) -> str:
    """Return the pattern for what another one matches, in any case."""
    return f"(?i:{pattern})"


def range_pattern(lower: Bound | None, upper: Bound | None, alphabet: Alphabet = UNICODE) -> str | None:
    """Return the pattern for the terms in a range, in code point order as in the index; None for an empty range."""
    inside = _Range(alphabet).between(lower or Bound("", is_inclusive=True), upper)
    return _DOT_MATCHES_ALL + one_of(inside) if inside else None


def one_of(alternatives: list[str]) -> str:
    """Return the alternation of patterns."""
    return alternatives[0] if len(alternatives) == 1 else f"(?:{'|'.join(alternatives)})"


class _Range:
    __slots__ = ("alphabet", "anything")

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.anything = f"{alphabet.any_character}*"

    def between(self, lower: Bound, upper: Bound | None) -> list[str]:
        """Return the alternatives for a range; none for an empty range."""
        if upper is None:
            return [self.beginnings_from(lower) + self.anything]
        if lower.text > upper.text:
            return []
        shared = _common_prefix_length(lower.text, upper.text)
        low, high = lower.text[shared:], upper.text[shared:]
        if low:
            inside = self.apart(Bound(low, lower.is_inclusive), Bound(high, upper.is_inclusive))
        else:
            inside = [""] if lower.is_inclusive and (high or upper.is_inclusive) else []
            inside += self.longer_below(high) if high else []
            inside += [literal_pattern(high)] if high and upper.is_inclusive else []
        start = literal_pattern(lower.text[:shared])
        return [start + each for each in inside]

    def apart(self, lower: Bound, upper: Bound) -> list[str]:
        """Return the alternatives between two texts with different first characters."""
        first, last = lower.text[0], upper.text[0]
        rest = Bound(lower.text[1:], lower.is_inclusive)
        openings = [literal_pattern(first) + self.beginnings_from(rest)]
        openings += self.characters(ord(first) + 1, ord(last) - 1)
        below = self.longer_below(upper.text[1:])
        below += [literal_pattern(upper.text[1:])] if upper.is_inclusive else []
        if len(upper.text) > 1:
            below.append("")
        endings = [literal_pattern(last) + one_of(below)] if below else []
        return [one_of(openings) + self.anything, *endings]

    def beginnings_from(self, bound: Bound) -> str:
        """Return the pattern for the start of all texts above the bound; anything may follow."""
        pattern = "" if bound.is_inclusive else self.alphabet.any_character
        for character in reversed(bound.text):
            above = self.characters(ord(character) + 1, self.alphabet.last)
            pattern = one_of([literal_pattern(character) + pattern, *above])
        return pattern

    def longer_below(self, text: str) -> list[str]:
        """Return the alternatives below a text, except for the empty text."""
        if not text:
            return []
        beginnings = ""
        proper = ""
        for character in reversed(text):
            below = self.characters(0, ord(character) - 1)
            deeper = [literal_pattern(character) + beginnings] if beginnings else []
            beginnings = one_of([*below, *deeper]) if below or deeper else ""
        for character in reversed(text[:-1]):
            proper = literal_pattern(character) + (f"(?:{proper})?" if proper else "")
        found = [beginnings + self.anything] if beginnings else []
        return [*found, proper] if proper else found

    def characters(self, first: int, last: int) -> list[str]:
        """Return the class of characters between two code points; none for an empty range."""
        if _FIRST_SURROGATE <= first <= _LAST_SURROGATE:
            first = _LAST_SURROGATE + 1
        if _FIRST_SURROGATE <= last <= _LAST_SURROGATE:
            last = _FIRST_SURROGATE - 1
        return [f"[\\x{{{first:x}}}-\\x{{{last:x}}}]"] if first <= last else []


def _common_prefix_length(left: str, right: str) -> int:
    """Return the length of the common prefix."""
    length = 0
    while length < len(left) and left[length] == right[length]:
        length += 1
    return length
