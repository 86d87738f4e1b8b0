"""Showing a place in a text to a person: the text around it, and a line of marks below."""

import unicodedata

# How much of the text is shown on each side of the place.
CONTEXT_CHARACTERS = 40
MAX_MARKS = 40

INDENT = "  "
CUT = "…"


def caret_lines(text: str, start: int, end: int) -> str:
    """The text around `start` on one line, and below it a caret, with waves up to `end`."""
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
    """How many columns a terminal gives to a text."""
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
