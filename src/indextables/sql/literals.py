"""Quoted texts and names in statements, as Spark reads them."""

import re
from typing import Final

# What follows a backslash; any other character stands for itself.
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def unquote(token: str) -> str:
    """The text of a quoted literal, or the name in back quotes or without any.

    A quote is written twice or, in a text, after a backslash.
    """
    quote = token[0]
    if quote not in "'\"`":
        return str(token)  # not the subclass that a parser may hand over
    inner = str(token)[1:-1]
    if quote == "`":
        return inner.replace("``", "`")
    # Cut at the escapes first: a doubled quote is one only outside of them.
    parts = _ESCAPED.split(inner)
    return "".join(
        _ESCAPES.get(part, part) if index % 2 else part.replace(quote * 2, quote)
        for index, part in enumerate(parts)
    )
