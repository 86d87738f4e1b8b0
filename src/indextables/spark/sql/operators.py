"""The search operators in a SQL text, found in its tokens, since Spark's grammar does not have them.

    message TEXTSEARCH 'a AND b'     level FIELDMATCH 'ERROR'     message indexquery 'a*'     * TEXTSEARCH 'a'
    _indexall indexquery 'a'     indexqueryall('a')     _query = 'a'

Each one is replaced by a call of a function that does not exist, so that the text can be parsed as Spark's SQL.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

import msgspec
import sqlglot
from sqlglot import Token, TokenType

from indextables._syntax import caret_lines
from indextables.errors import InvalidStatementError

MARKER: Final = "__indextables_search_"

_ALL_FIELDS_FUNCTION: Final = "indexqueryall"
_ALL_FIELDS_COLUMN: Final = "_indexall"
QUERY_COLUMN: Final = "_query"

# Words that come before an expression, and so cannot be a column in front of an operator.
_NO_COLUMNS: Final = frozenset(
    {
        "and",
        "or",
        "not",
        "where",
        "on",
        "when",
        "then",
        "else",
        "having",
        "select",
        "case",
        "if",
        "by",
        "qualify",
    }
)
_STRINGS: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING})


class Operator(Enum):
    """What a search demands of its columns."""

    TEXTSEARCH = "textsearch"  # columns that are indexed as text
    FIELDMATCH = "fieldmatch"  # columns that are not
    INDEXQUERY = "indexquery"  # any column


class SearchCall(msgspec.Struct, frozen=True):
    """One search in a SQL text.

    `target` are the parts of the column's name; for a search of all columns, those of the relation's name, if any.
    `value` is what is searched for, as it is written, and `start` to `end` is the range of the whole search.
    """

    operator: Operator
    target: tuple[str, ...]
    is_whole_row: bool
    value: str
    start: int
    end: int
    target_start: int

    def error(self, text: str, reason: str) -> InvalidStatementError:
        """An error that marks this search in the text that it is from."""
        return sql_error(text, self.start, self.end, reason)


def sql_error(text: str, start: int, end: int, reason: str) -> InvalidStatementError:
    """An error with a reason, the position (from 1), and a caret under it."""
    return InvalidStatementError(
        f"cannot run the statement at character {start + 1}: {reason}\n{caret_lines(text, start, end)}",
        position=start,
    )


def tokenize(text: str) -> list[Token]:
    """The tokens of a SQL text. Raises sqlglot.TokenError."""
    return sqlglot.Dialect.get_or_raise("spark").tokenize(text)


def find_searches(text: str, tokens: Sequence[Token]) -> list[SearchCall]:
    """All searches in a text, in order."""
    found: list[SearchCall] = []
    for index, token in enumerate(tokens):
        word = token.text.lower()
        if word in _OPERATORS and token.token_type is not TokenType.IDENTIFIER:
            call = _operator(text, tokens, index, Operator(word))
        elif word == _ALL_FIELDS_FUNCTION:
            call = _function(text, tokens, index)
        elif word == QUERY_COLUMN:
            call = _comparison(text, tokens, index)
        else:
            continue
        if call is not None and (not found or call.start >= found[-1].end):
            found.append(call)
    return found


_OPERATORS: Final = frozenset(operator.value for operator in Operator)


def _operator(text: str, tokens: Sequence[Token], index: int, operator: Operator) -> SearchCall | None:
    end = _value_end(tokens, index + 1)
    if end is None or not index:
        return None
    value = text[tokens[index + 1].start : end]
    before = tokens[index - 1]
    if before.token_type is TokenType.STAR:
        target, start = _qualifier(tokens, index - 1)
        return SearchCall(operator, target, True, value, start, end, start)
    if not is_name(before):
        return None
    target, start = _name_before(tokens, index - 1)
    is_whole_row = target[-1].lower() == _ALL_FIELDS_COLUMN and operator is Operator.INDEXQUERY
    return SearchCall(
        operator, target[:-1] if is_whole_row else target, is_whole_row, value, start, end, start
    )


def _function(text: str, tokens: Sequence[Token], index: int) -> SearchCall | None:
    if index + 1 >= len(tokens) or tokens[index + 1].token_type is not TokenType.L_PAREN:
        return None
    end = _value_end(tokens, index + 2)
    closing = next((token for token in tokens[index + 2 :] if end is not None and token.start >= end), None)
    if closing is None or closing.token_type is not TokenType.R_PAREN:
        return None
    value, start = text[tokens[index + 2].start : end], tokens[index].start
    return SearchCall(Operator.INDEXQUERY, (), True, value, start, closing.end + 1, start)


def _comparison(text: str, tokens: Sequence[Token], index: int) -> SearchCall | None:
    """`_query = 'a'`, on either side."""
    target, start = _name_before(tokens, index)
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if following is not None and following.token_type is TokenType.EQ:
        end = _value_end(tokens, index + 2)
        if end is None:
            return None
        value = text[tokens[index + 2].start : end]
        return SearchCall(Operator.INDEXQUERY, target[:-1], True, value, start, end, start)
    first = next(position for position, token in enumerate(tokens) if token.start == start)
    if first >= 2 and tokens[first - 1].token_type is TokenType.EQ:
        literal = tokens[first - 2]
        if literal.token_type in _STRINGS:
            value = text[literal.start : literal.end + 1]
            end = tokens[index].end + 1
            return SearchCall(Operator.INDEXQUERY, target[:-1], True, value, literal.start, end, start)
    return None


def is_name(token: Token) -> bool:
    """Whether a token may be a part of a name."""
    if token.token_type is TokenType.IDENTIFIER:
        return True
    return token.text.isidentifier() and token.text.lower() not in _NO_COLUMNS


def _name_before(tokens: Sequence[Token], last: int) -> tuple[tuple[str, ...], int]:
    """The parts of the name that ends with this token, and where it starts."""
    parts = [tokens[last].text]
    while last >= 2 and tokens[last - 1].token_type is TokenType.DOT and _is_quoted_or_word(tokens[last - 2]):
        last -= 2
        parts.insert(0, tokens[last].text)
    return tuple(parts), tokens[last].start


def _qualifier(tokens: Sequence[Token], star: int) -> tuple[tuple[str, ...], int]:
    """The name in front of `.*`, if any."""
    if star >= 2 and tokens[star - 1].token_type is TokenType.DOT and _is_quoted_or_word(tokens[star - 2]):
        return _name_before(tokens, star - 2)
    return (), tokens[star].start


def _is_quoted_or_word(token: Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or token.text.isidentifier()


def _value_end(tokens: Sequence[Token], index: int) -> int | None:
    """The end of the string or parameter that starts with this token; None for anything else."""
    types = [token.token_type for token in tokens[index : index + 3]]
    if not types:
        return None
    if types[0] in _STRINGS:
        # Adjacent strings are one string.
        while index + 1 < len(tokens) and tokens[index + 1].token_type in _STRINGS:
            index += 1
        return int(tokens[index].end) + 1
    if types[0] is TokenType.PLACEHOLDER:
        return int(tokens[index].end) + 1
    if types[0] is TokenType.COLON and len(types) > 1:
        return int(tokens[index + 1].end) + 1
    if types == [TokenType.L_BRACE, types[1] if len(types) > 1 else None, TokenType.R_BRACE]:
        return int(tokens[index + 2].end) + 1
    return None


class Edit(msgspec.Struct, frozen=True):
    """A replacement of a range of a text."""

    start: int
    end: int
    replacement: str


def splice(text: str, edits: Sequence[Edit], keep: Any = str) -> str:
    """Apply edits that do not overlap; `keep` is applied to what stays of the text."""
    pieces: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda each: each.start):
        pieces += [keep(text[done : edit.start]), edit.replacement]
        done = edit.end
    return "".join([*pieces, keep(text[done:])])
