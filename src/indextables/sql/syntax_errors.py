"""What is wrong with a statement, said so that a person can mend it: the word, what may stand there, the syntax."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from indextables.errors import InvalidStatementError
from indextables.search.caret import caret_lines
from indextables.sql.forms import nearest_forms

# What may stand in a place that is no word of the language.
_NAMES: Final = {
    "OURS": "INDEXTABLES",
    "STRING": "a text in quotes",
    "NAME": "a table's name",
    "INTEGER": "a whole number",
    "SIZE": "a size such as 100M",
    "UNIT": "DAYS or HOURS",
    "PIECE": "a condition",
    "TARGET_SIZE": "TARGET SIZE",
    "MAX_DEST": "MAX DEST SPLITS",
    "MAX_SOURCE": "MAX SOURCE SPLITS PER MERGE",
    "AS_OF": "AS OF",
    "$END": "the end of the statement",
}
_UNMENTIONED: Final = frozenset({"SEMICOLON", "DOT", "COMMENT", "AS_OF"})
_NEAR_ENOUGH: Final = 0.7

_WORD: Final = re.compile(r"\w+|.", re.DOTALL)


def syntax_error(text: str, error: UnexpectedInput) -> InvalidStatementError:
    """The error for a text that does not parse."""
    start = _position(text, error)
    word = _WORD.match(text, start)
    if word is None:
        return statement_error(
            text, start, start, f"the statement ends here, and {_expected(error)} must follow"
        )
    if word[0] in "'\"`":
        return statement_error(text, start, start + 1, _about_quotes(text, start, error))
    if text.startswith("/*", start):
        return statement_error(text, start, start + 2, "this comment is not closed; add */")
    near = difflib.get_close_matches(word[0].upper(), _words(error), n=1, cutoff=_NEAR_ENOUGH)
    meant = f"; did you mean {near[0]}?" if near and near[0] != _expected(error) else ""
    return statement_error(text, start, word.end(), f"expected {_expected(error)}{meant}")


def statement_error(text: str, start: int, end: int, reason: str) -> InvalidStatementError:
    """The error with a reason, the position (from 1), the place marked in the text, and the syntax."""
    syntax = "\n".join(f"  {form.syntax}" for form in nearest_forms(text))
    return InvalidStatementError(
        f"cannot read the statement at character {start + 1}: {reason}\n{caret_lines(text, start, end)}\n"
        f"the syntax is\n{syntax}",
        position=start,
    )


def _about_quotes(text: str, start: int, error: UnexpectedInput) -> str:
    if text.count(text[start], start) < 2 or isinstance(error, UnexpectedCharacters):
        return "this quote is not closed"
    return f"expected {_expected(error)}"


def _position(text: str, error: UnexpectedInput) -> int:
    end = len(text.rstrip())
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return end
    position: int | None = error.pos_in_stream  # the library leaves it out of some errors
    return end if position is None else min(position, end)


def _expected(error: UnexpectedInput) -> str:
    """What may stand there; a path and a name are one choice."""
    names = sorted(_terminals(error) - _UNMENTIONED)
    if {"STRING", "NAME"} <= set(names):
        return "a path in quotes, or a table's name"
    for name in ("PIECE", "SIZE"):
        if name in names:
            return _NAMES[name]
    spoken = [_NAMES.get(name, name) for name in names]
    return " or ".join(filter(None, [", ".join(spoken[:-1]), *spoken[-1:]]))


def _words(error: UnexpectedInput) -> list[str]:
    return [
        _NAMES.get(name, name) for name in _terminals(error) if name.isupper() and name not in _UNMENTIONED
    ]


def _terminals(error: UnexpectedInput) -> set[str]:
    found: Iterable[str] | None = None
    if isinstance(error, UnexpectedToken):
        found = error.accepts or error.expected
    elif isinstance(error, UnexpectedCharacters):
        found = error.allowed
    return set(found or ())
