"""The parts of a query that are more than one lexeme: escapes, stars, paths, boosts and distances."""

import math
import re

from indextables.search.nodes import Place

ESCAPE = "\\"
STAR = "*"

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PIECE = re.compile(r"\\.|.", re.DOTALL)

MAX_BOOST = 1e6


def unescape(text: str) -> str:
    """The text without its backslashes."""
    return _ESCAPED.sub(r"\1", text)


def split_stars(text: str) -> tuple[str, ...]:
    """The literal texts before, between and after the stars that are not escaped."""
    return _split(text, STAR)


def split_path(text: str) -> tuple[str, ...]:
    """A field's name, cut at the dots that are not escaped."""
    return _split(text, ".")


def read_boost(place: Place) -> float:
    """The factor of `^2.5`. Fails for what is no positive number, or one that makes scores meaningless."""
    try:
        factor = float(place.written[1:])
    except ValueError as error:
        raise place.error("^ takes a number, as in title:spark^2; put a literal ^ in quotes") from error
    if not (math.isfinite(factor) and 0 < factor <= MAX_BOOST):
        raise place.error(f"a boost lies above 0 and is {MAX_BOOST:.0f} at most")
    return factor


def read_distance(place: Place, default: int, highest: int, meaning: str) -> int:
    """The whole number of `~2`, or the default for a lone `~`. Fails outside 0 to `highest`."""
    digits = place.written[1:]
    if not digits:
        return default
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(highest))):
        raise place.error(f"~ takes a whole number up to {highest}, {meaning}; put a literal ~ in quotes")
    distance = int(digits)
    if distance > highest:
        raise place.error(f"~ takes a whole number up to {highest}, {meaning}")
    return distance


def _split(text: str, separator: str) -> tuple[str, ...]:
    if ESCAPE not in text:
        return tuple(text.split(separator))
    parts = [""]
    for piece in _PIECE.findall(text):
        if piece == separator:
            parts.append("")
        else:
            parts[-1] += unescape(piece)
    return tuple(parts)
