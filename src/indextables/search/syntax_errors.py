"""What lark found wrong with a query, said so that a person can mend it."""

from typing import Final

from lark import Token
from lark.exceptions import UnexpectedInput, UnexpectedToken

from indextables.errors import InvalidQueryError
from indextables.search.nodes import Place

OPENING: Final = {"LPAR": ")", "LSQB": "]", "LBRACE": "} or ]"}

# By the character at the place; the first that fits.
REASONS: Final = {
    '"': 'this quote is not closed; write \\" for a literal one',
    ")": "this ) closes nothing; leave it out, or put it in quotes",
    "]": "this ] closes nothing; put it in quotes",
    "}": "this } closes nothing; put it in quotes",
    "[": "a range needs a field, as in status:[400 TO 499]; put a literal [ in quotes",
    "{": "a range needs a field, as in status:{400 TO 499}; put a literal { in quotes",
    ":": "there is no field name before this colon; put the text in quotes",
    "~": "~ follows a word or a phrase, as in colour~1; put a literal ~ in quotes",
    "^": "^ follows a clause, as in title:spark^2; put a literal ^ in quotes",
    "\\": "a backslash takes the next character literally, and there is none; write \\\\ for the backslash itself",
}


def syntax_error(text: str, error: UnexpectedInput) -> InvalidQueryError:
    """The error for a text that does not parse."""
    start = _position(text, error)
    inside = _unclosed(error)
    if start >= len(text.rstrip()):
        return _at_end(text, inside)
    place = Place(text, start, start + 1)
    if inside is not None and inside.type in ("LSQB", "LBRACE"):
        return place.error(
            "expected [low TO high], or IN [a b c]; put text with brackets or spaces in quotes"
        )
    if inside is not None and text[start] == ")":
        return place.error("something is missing before this )")
    return place.error(REASONS.get(text[start], "expected a word, a phrase, a field or a parenthesis"))


def _at_end(text: str, inside: Token | None) -> InvalidQueryError:
    if inside is not None:
        assert inside.start_pos is not None
        opening = Place(text, inside.start_pos, inside.start_pos + 1)
        return opening.error(f"this {inside} is not closed; add {OPENING[inside.type]}, or put it in quotes")
    end = len(text.rstrip())
    last = text.split()[-1]
    return Place(text, end, end).error(f"the query ends after {last[-20:]}, and something must follow")


def _position(text: str, error: UnexpectedInput) -> int:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return len(text)
    position: int | None = error.pos_in_stream  # the library leaves it out of some errors
    return len(text) if position is None else position


def _unclosed(error: UnexpectedInput) -> Token | None:
    """The innermost bracket that is open where the parser stopped."""
    parser = getattr(error, "interactive_parser", None)
    stack = parser.parser_state.value_stack if parser is not None else []
    brackets = (value for value in reversed(stack) if isinstance(value, Token) and value.type in OPENING)
    return next(brackets, None)
