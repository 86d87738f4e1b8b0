"""Predicate text as a stream of tokens, cut by sqlglot as Spark's SQL, with errors that show the place."""

from typing import NoReturn

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from indextables.errors import InvalidPredicateError

# Room for a list of tens of thousands of values; reading this much takes seconds.
MAX_TEXT_LENGTH = 1_000_000

SHOWN_CHARACTERS = 30


class TokenStream:
    """The tokens of a text, one at a time: `current` is the one that is next, None at the end."""

    __slots__ = ("_index", "_tokens", "current", "text")

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT_LENGTH:
            raise InvalidPredicateError(
                f"the predicate has {len(text)} characters; {MAX_TEXT_LENGTH} are allowed"
            )
        self.text = text
        self._index = 0
        try:
            self._tokens = Spark().tokenize(text)
        except SqlglotError as error:
            raise InvalidPredicateError(
                f"cannot read the predicate: a quote or a comment is not closed in {self._shown(0)}"
            ) from error
        self.current: Token | None = self._tokens[0] if self._tokens else None

    @property
    def following(self) -> Token | None:
        """The token after the next one."""
        return self._tokens[self._index + 1] if self._index + 1 < len(self._tokens) else None

    def at(self, *types: TokenType) -> bool:
        """Say whether the next token is of one of these types."""
        return self.current is not None and self.current.token_type in types

    def take(self) -> Token:
        """Return the next token and move past it."""
        token = self.current
        if token is None:
            self.fail("the text ends too early")
        self._index += 1
        self.current = self._tokens[self._index] if self._index < len(self._tokens) else None
        return token

    def take_if(self, *types: TokenType) -> Token | None:
        """Return the next token and move past it, if it is of one of these types."""
        return self.take() if self.at(*types) else None

    def expect(self, token_type: TokenType, what: str) -> Token:
        """Return the next token, or fail saying what was expected."""
        if not self.at(token_type):
            self.fail(f"expected {what}")
        return self.take()

    def source(self, token: Token) -> str:
        """Return a token exactly as it is written."""
        return self.text[token.start : token.end + 1]

    def fail(self, reason: str, at: Token | None = None) -> NoReturn:
        """Raise InvalidPredicateError with a reason, the position (from 1) and the text there."""
        token = at or self.current
        start = token.start if token is not None else len(self.text)
        place = f"at character {start + 1}, {self._shown(start)}" if token is not None else "at its end"
        raise InvalidPredicateError(f"cannot read the predicate {place}: {reason}")

    def _shown(self, start: int) -> str:
        part = self.text[start : start + SHOWN_CHARACTERS]
        return repr(part) if start + SHOWN_CHARACTERS >= len(self.text) else f"{part!r}…"
