"""What the parsers of predicates, queries and statements share: where a text is wrong, and how to show the place."""

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing lark takes longer than opening most tables
    from lark.exceptions import UnexpectedInput

# How much of the text is shown on each side of the place.
CONTEXT_CHARACTERS = 40
MAX_MARKS = 40

INDENT = "  "
CUT = "…"


def error_position(text: str, error: "UnexpectedInput") -> int:
    """Return the index at which lark rejected the text; the end of its last word if the text ends too early."""
    end = len(text.rstrip())
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        return end
    position: int | None = error.pos_in_stream  # lark omits it from some errors
    return end if position is None else min(position, end)


def caret_lines(text: str, start: int, end: int) -> str:
    """Return the text around `start` on one line, and a line that marks `start` to `end` with `^~~~`."""
    first = max(0, start - CONTEXT_CHARACTERS)
    last = min(len(text), max(start, end) + CONTEXT_CHARACTERS, start + MAX_MARKS + CONTEXT_CHARACTERS)
    before = _printable(text[first:start])
    marked = _printable(text[start : min(end, last)])
    after = _printable(text[max(start, min(end, last)) : last])
    left = CUT if first > 0 else ""
    right = CUT if last < len(text) else ""
    waves = "~" * (min(_width(marked), MAX_MARKS) - 1)
    return f"{INDENT}{left}{before}{marked}{after}{right}\n{INDENT}{' ' * _width(left + before)}^{waves}"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _width(text: str) -> int:
    """Return the number of columns that a terminal uses for the text."""
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
