"""The operands of comparisons: a column, or a literal in one of Spark's notations."""

from decimal import Decimal

import msgspec
import numpy as np
from sqlglot import Token, TokenType

from indextables.predicates.literals import (
    DATE_FORM,
    MAX_NUMBER_LENGTH,
    TIMESTAMP_FORM,
    parse_date,
    parse_decimal,
    parse_integer,
    parse_timestamp,
)
from indextables.predicates.tokens import TokenStream
from indextables.predicates.tree import Value


class ColumnOperand(msgspec.Struct, frozen=True):
    """A column, and the token that names it."""

    name: str
    token: Token


class LiteralOperand(msgspec.Struct, frozen=True):
    """A literal (None is NULL), and the token it begins with."""

    value: Value | None
    token: Token


Operand = ColumnOperand | LiteralOperand

# Words that are never a column unless in backticks. All other keywords of SQL may name a column, as in Spark.
RESERVED = frozenset(
    {
        TokenType.AND,
        TokenType.OR,
        TokenType.NOT,
        TokenType.IN,
        TokenType.BETWEEN,
        TokenType.LIKE,
        TokenType.IS,
        TokenType.NULL,
        TokenType.TRUE,
        TokenType.FALSE,
    }
)

TEXT_TOKENS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)
CONSTANTS = {TokenType.TRUE: True, TokenType.FALSE: False, TokenType.NULL: None}
TYPE_WORDS = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz"})
ONLY_CASTS = "only CAST('text' AS DATE) and CAST('text' AS TIMESTAMP) are supported"
SIGNS = (TokenType.DASH, TokenType.PLUS)


def parse_operand(tokens: TokenStream) -> Operand:
    """Read one operand. Raises InvalidPredicateError for anything that is neither column nor literal."""
    token = tokens.current
    if token is None:
        tokens.fail("expected a column or a literal")
    if token.token_type in CONSTANTS:
        return LiteralOperand(CONSTANTS[tokens.take().token_type], token)
    if token.token_type in TEXT_TOKENS:
        return LiteralOperand(_text(tokens), token)
    if token.token_type in (*SIGNS, TokenType.NUMBER, TokenType.DOT):
        return LiteralOperand(_number(tokens), token)
    if token.token_type is TokenType.HEX_STRING:
        return LiteralOperand(_bytes(tokens), token)
    word = token.text.lower() if token.token_type is not TokenType.IDENTIFIER else ""
    following = tokens.following
    if word in TYPE_WORDS and following is not None and following.token_type in TEXT_TOKENS:
        tokens.take()
        return LiteralOperand(_typed_text(tokens, word), token)
    if word == "cast" and following is not None and following.token_type is TokenType.L_PAREN:
        return LiteralOperand(_cast(tokens), token)
    return _column(tokens)


def as_column(tokens: TokenStream, operand: Operand) -> ColumnOperand | None:
    """Return the operand as a column, if it is one.

    Spark reads "x" as text. Where only a column makes sense, text in double quotes is taken for its name,
    as standard SQL has it.
    """
    if isinstance(operand, ColumnOperand):
        return operand
    if isinstance(operand.value, str) and tokens.source(operand.token).startswith('"'):
        return ColumnOperand(operand.value, operand.token)
    return None


def _column(tokens: TokenStream) -> ColumnOperand:
    token = tokens.take()
    if token.token_type is TokenType.IDENTIFIER:
        name = token.text
    else:
        name = tokens.source(token)
        is_word = name.replace("_", "a").isalnum()
        if token.token_type in RESERVED or not (is_word or token.token_type is TokenType.VAR):
            tokens.fail("expected a column or a literal", token)
    if tokens.at(TokenType.DOT):
        tokens.fail("nested fields are not supported; put a name with a dot in backticks")
    if tokens.at(TokenType.L_PAREN):
        tokens.fail("functions are not supported; compare a column with a literal", token)
    return ColumnOperand(name, token)


def _text(tokens: TokenStream) -> str:
    token = tokens.take()
    parts = [token.text]
    while tokens.at(*TEXT_TOKENS):
        # 'it''s' is one text with a quote in it; 'a' 'b' is one text made of two.
        following = tokens.take()
        quote = tokens.text[token.end]
        if following.start == token.end + 1 and tokens.text[following.start] == quote:
            parts.append(quote)
        parts.append(following.text)
        token = following
    return "".join(parts)


def _number(tokens: TokenStream) -> int | float | Decimal:
    first = tokens.current
    negative = False
    while sign := tokens.take_if(*SIGNS):
        negative ^= sign.token_type is TokenType.DASH
    leading_point = "0." if tokens.take_if(TokenType.DOT) else ""
    digits = tokens.expect(TokenType.NUMBER, "a number")
    text = leading_point + digits.text
    number: int | float | Decimal | None = parse_integer(text)
    if number is None:
        number = parse_decimal(text)
    if number is None:
        tokens.fail(f"not a number, or one of more than {MAX_NUMBER_LENGTH} digits", first)
    if _suffix(tokens, digits) == "f":
        number = float(np.float32(text))
    return -number if negative else number


def _suffix(tokens: TokenStream, digits: Token) -> str:
    # 5L, 1.5BD: the tokenizer hands the suffix on as a cast at the very same place.
    if not tokens.at(TokenType.DCOLON) or tokens.current is None or tokens.current.start != digits.start:
        return ""
    tokens.take()
    return tokens.take().text.lower()


def _bytes(tokens: TokenStream) -> bytes:
    token = tokens.take()
    digits = token.text
    try:
        return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
    except ValueError:
        tokens.fail("not a hexadecimal literal such as X'1F'", token)


def _typed_text(tokens: TokenStream, word: str) -> Value:
    token = tokens.current
    return _moment(tokens, word, _text(tokens), token)


def _cast(tokens: TokenStream) -> Value:
    tokens.take()
    tokens.expect(TokenType.L_PAREN, "(")
    token = tokens.current
    if not tokens.at(*TEXT_TOKENS):
        tokens.fail(ONLY_CASTS)
    text = _text(tokens)
    tokens.expect(TokenType.ALIAS, "AS")
    word = tokens.source(tokens.take()).lower()
    if word not in TYPE_WORDS:
        tokens.fail(ONLY_CASTS, token)
    tokens.expect(TokenType.R_PAREN, ")")
    return _moment(tokens, word, text, token)


def _moment(tokens: TokenStream, word: str, text: str, token: Token | None) -> Value:
    value: Value | None = parse_date(text) if word == "date" else parse_timestamp(text)
    if value is None:
        form = DATE_FORM if word == "date" else TIMESTAMP_FORM
        tokens.fail(f"{text!r} is not a {word}; write {word.upper()} '{form}'", token)
    return value
