"""Quoted texts and names in statements, as Spark reads them, and the errors that point at a place in a statement."""

import re
from typing import Final

from indextables._syntax import caret_lines
from indextables.errors import InvalidStatementError
from indextables.statements.forms import nearest_forms

# The characters after a backslash that have a meaning; any other character stands for itself.
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def unquote(token: str) -> str:
    """The value of a quoted literal, of a name in backticks, or of a bare name.

    Within quotes, a quote is doubled or, in a literal, escaped with a backslash.
    """
    quote = token[0]
    if quote not in "'\"`":
        return str(token)  # not lark's subclass of str
    inner = str(token)[1:-1]
    if quote == "`":
        return inner.replace("``", "`")
    # Split at the escapes first: a doubled quote counts only outside of them.
    parts = _ESCAPED.split(inner)
    return "".join(
        _ESCAPES.get(part, part) if index % 2 else part.replace(quote * 2, quote)
        for index, part in enumerate(parts)
    )


def statement_error(text: str, start: int, end: int, reason: str) -> InvalidStatementError:
    """An error with a reason, the position (from 1), a caret under it, and the syntax of the nearest statements."""
    syntax = "\n".join(f"  {form.syntax}" for form in nearest_forms(text))
    return InvalidStatementError(
        f"cannot parse the statement at character {start + 1}: {reason}\n{caret_lines(text, start, end)}\n"
        f"the syntax is\n{syntax}",
        position=start,
    )
