"""Whose statement a text is: its first words decide, so that Spark's own SQL is never touched.

Whatever begins like one of our statements is ours, mistakes and all: those get our error, with the place and the
syntax, and not a general one of Spark's about something that the user never meant.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

KEYWORDS: Final = ("INDEXTABLES", "TANTIVY4SPARK")

# The second word. A slip in the number is still meant for us.
_SECOND_WORDS: Final = frozenset({*KEYWORDS, "INDEXTABLE"})
_FIRST_WORDS: Final = frozenset(
    {"CHECKPOINT", "COMPACT", "PURGE", "TRUNCATE", "DROP", "INVALIDATE", "FLUSH", "FSCK", "RESTORE"}
)
_PAIRS: Final = frozenset(
    {("MERGE", "SPLITS"), *(("REPAIR", word) for word in ("INDEXFILES", *_SECOND_WORDS))}
)

_DESCRIBE: Final = frozenset({"DESCRIBE", "DESC"})
# Spark describes a table or a schema that happens to have our name.
_AFTER_A_NAME: Final = frozenset({"", ";", ".", "PARTITION", "AS"})

_GAP: Final = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD: Final = re.compile(r"\w+")


class Word(msgspec.Struct, frozen=True):
    """A bare word in upper case, or another single character, and where it begins."""

    text: str
    start: int


def is_ours(text: str) -> bool:
    """Whether a text begins like a statement of IndexTables."""
    words = leading_words(text)
    first, second, third = (next(words, Word("", len(text))).text for _ in range(3))
    if first in _DESCRIBE:
        return second in KEYWORDS and third not in _AFTER_A_NAME
    return (first in _FIRST_WORDS and second in _SECOND_WORDS) or (first, second) in _PAIRS


def leading_words(text: str) -> Iterator[Word]:
    """The words of a text, without white space and comments, up to where it ends."""
    position = 0
    while position < len(text):
        if gap := _GAP.match(text, position):
            position = gap.end()
        elif word := _WORD.match(text, position):
            yield Word(word[0].upper(), position)
            position = word.end()
        else:
            yield Word(text[position], position)
            position += 1
