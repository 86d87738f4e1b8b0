"""Parses the SQL text of a predicate, in Spark's notation, into a tree.

The grammar covers the part of SQL that minima and maxima can answer: comparisons of a column with literals, combined
with AND, OR and NOT.
"""

import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from itertools import pairwise
from string import hexdigits
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import msgspec
import numpy as np

from indextables._syntax import caret_lines
from indextables.errors import InvalidPredicateError
from indextables.predicates.literals import (
    DATE_FORM,
    MAX_NUMBER_LENGTH,
    TIMESTAMP_FORM,
    parse_date,
    parse_decimal,
    parse_integer,
    parse_timestamp,
)
from indextables.predicates.tree import (
    MAX_DEPTH,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    Value,
    all_of,
    like,
)

if TYPE_CHECKING:
    from lark import Lark, Token

# Enough for a list of tens of thousands of values; parsing this much takes seconds.
MAX_TEXT_LENGTH: Final = 1_000_000

SHOWN_CHARACTERS: Final = 30

OPERATORS: Final = {
    "=": Operator.EQ,
    "==": Operator.EQ,
    "<>": Operator.NE,
    "!=": Operator.NE,
    "<": Operator.LT,
    "<=": Operator.LE,
    ">": Operator.GT,
    ">=": Operator.GE,
}

NULL_SAFE: Final = "<=>"

# The terminals of keywords. Only reserved words need backticks as column names.
RESERVED: Final = {
    "AND": "_AND",
    "OR": "_OR",
    "NOT": "NOT",
    "IN": "IN",
    "BETWEEN": "BETWEEN",
    "LIKE": "LIKE",
    "IS": "IS",
    "NULL": "CONSTANT",
    "TRUE": "CONSTANT",
    "FALSE": "CONSTANT",
}
TYPES: Final = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")
TERMINALS: Final = {**RESERVED, **dict.fromkeys(TYPES, "TYPE"), "CAST": "CAST"}
COLUMN_TERMINALS: Final = ("WORD", "NAME", "TYPE", "CAST")

CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


def parse_predicate(text: str) -> Predicate:
    """Parse a condition in Spark's SQL.

    Columns keep the spelling of the text, and literals have the type of their notation, until `bind` adapts both to a
    schema.

    Args:
        text: The condition, such as `level = 'ERROR' AND day >= DATE '2026-01-31'`.

    Returns:
        The predicate, not yet bound.

    Raises:
        InvalidPredicateError: The text is not such a condition: for example, it has functions, arithmetic or a
            comparison of two columns, or it is too long or too deeply nested. The message shows the place.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidPredicateError(
            f"the predicate has {len(text)} characters; {MAX_TEXT_LENGTH} are allowed"
        )
    simple = parse_simple(text)
    return simple if simple is not None else parse_by_grammar(text)


# One `column = 'text'` or `column < 5`, up to the end or to an AND.
_SIMPLE: Final = re.compile(
    r"\s*([a-z_][a-z0-9_]*)\s*(<>|!=|==|<=(?!>)|>=|=|<|>)\s*('[^'\\]*'|[0-9]{1,18})(?:\s*\Z|\s+(and)\s+)",
    re.ASCII | re.IGNORECASE,
)


def parse_simple(text: str) -> Predicate | None:
    """Parse a conjunction of plain comparisons, which is how most queries select partitions; None for any other text.

    Importing lark and building the grammar takes longer than opening most tables. These texts need neither.
    """
    conditions: list[Predicate] = []
    position = 0
    while found := _SIMPLE.match(text, position):
        column, comparison, literal, joined = found.groups()
        if column.upper() in RESERVED:
            return None
        value = literal[1:-1] if literal.startswith("'") else int(literal)
        conditions.append(Comparison(column, OPERATORS[comparison], value))
        if joined is None:
            return all_of(conditions)
        position = found.end()
    return None


def parse_by_grammar(text: str) -> Predicate:
    """Parse any predicate; see `parse_predicate`."""
    # Imported here because of its import time; see `parse_simple`.
    from lark import Token
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    parser: Any = _lark().parse_interactive(text)  # lark has no types for it
    previous: Token | None = None
    depth = 0
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):
            depth += (token.type == "LPAR") - (token.type == "RPAR")
            is_group = token.type == "LPAR" and (previous is None or previous.type not in ("IN", "CAST"))
            if is_group and depth > MAX_DEPTH:
                _fail(f"nested more than {MAX_DEPTH} levels deep", token)
            parser.feed_token(token)
            previous = token
        return _as_predicate(parser.feed_eof(previous))
    except UnexpectedCharacters as error:
        start: Any = error.pos_in_stream
        token = Token("OTHER", text[start], start_pos=start, end_pos=start + 1)
        raise _error(text, _explain(text, parser, token, previous)) from error
    except UnexpectedToken as error:
        raise _error(text, _explain(text, parser, error.token, previous)) from error
    except _SyntaxProblem as problem:
        raise _error(text, problem) from problem.__cause__


# The characters that end a word.
_PUNCTUATION: Final = r"()\[\]{}&^:,.\-=><%!|+;\/\\*~?@#'`\"$"
_IN_WORD: Final = rf"[^\s{_PUNCTUATION}]"

MAX_COMMENT_DEPTH: Final = 8


def _nested_comment(depth: int) -> str:
    # A slash right after the opening does not start a nested comment.
    inner = _nested_comment(depth - 1) if depth > 1 else r"(?!)"
    return rf"\/\*\/?+(?:[^*\/]|\*(?!\/)|\/(?!\*)|{inner})*+\*\/"


# A word may begin with digits, and ~~ and {# #} are accepted as LIKE and as a comment.
# Quantifiers are possessive (*+), so that rejecting a text never takes long.
GRAMMAR: Final = rf"""
    ?start: disjunction
    ?disjunction: conjunction (_OR conjunction)*
    ?conjunction: negation ((_AND | _AMPERSANDS) negation)*
    ?negation: condition | negated
    negated: NOT+ condition
    ?condition: primary | comparison | is_test | negated_test | test
    comparison: primary COMPARE primary
    is_test: primary IS NOT? CONSTANT
    negated_test: primary NOT _test
    test: primary _test
    _test: IN values | BETWEEN value _AND value | LIKE text
    values: LPAR value (_COMMA value)* RPAR

    ?primary: column | literal | group
    ?value: literal | group
    group: LPAR disjunction RPAR
    column: _part (DOT _part)*
    _part: WORD | NAME | TYPE | CAST
    ?literal: text | number | single | typed | cast
    text: STRING+
    number: SIGN* DOT? NUMBER
    single: HEX | CONSTANT
    typed: TYPE text
    cast: CAST LPAR text WORD TYPE RPAR

    COMMENT.5: /--[^\n\r]*+|{_nested_comment(MAX_COMMENT_DEPTH)}|\{{\#(?:[^\#]|\#(?!\}}))*+\#\}}/
    STRING.4: /n?'[^'\\]*+(?:\\.[^'\\]*+)*+'|n?"[^"\\]*+(?:\\.[^"\\]*+)*+"|r'[^']*+'|r"[^"]*+"/is
    HEX.4: /x'[^']*+'|0x[0-9a-f]++(?!{_IN_WORD})/i
    NAME.4: /`[^`]*+(?:``[^`]*+)*+`/
    NUMBER.3: /[0-9]+(?:\.[0-9]*)?(?:e(?:[+-]?[0-9]+)?)?(?:BD|[LSYDF])?(?!{_IN_WORD})/i
    WORD.2: /(?:[0-9]++(?=[^\W\d])|(?![0-9])){_IN_WORD}++/
    COMPARE.2: /<=>|==|<>|!=|<=|>=|=|<|>/
    _AMPERSANDS.2: "&&"
    NOT.1: "!"
    LIKE.1: "~~"
    SIGN.1: /[+-]/
    DOT.1: "."
    LPAR.1: "("
    RPAR.1: ")"
    _COMMA.1: ","
    %declare _AND _OR IN BETWEEN IS CONSTANT TYPE CAST
    %ignore COMMENT
    %ignore /\s+/
"""


@cache
def _lark() -> "Lark":
    from lark import Lark

    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="basic",
        lexer_callbacks={"WORD": _keyword},
        maybe_placeholders=False,
        transformer=_Builder(),
    )


def _keyword(word: "Token") -> "Token":
    terminal = TERMINALS.get(word.upper())
    return word if terminal is None else word.update(type=terminal)


class _SyntaxProblem(Exception):  # noqa: N818 - the caller turns it into an error, with the text
    """The reason of a syntax error and its token; None means the end of the text."""

    def __init__(self, reason: str, token: "Token | None") -> None:
        super().__init__(reason)
        self.reason = reason
        self.token = token


class _Column(msgspec.Struct, frozen=True):
    name: str
    token: Any


class _Literal(msgspec.Struct, frozen=True):
    """A literal (None is NULL), and its first token."""

    value: Value | None
    token: Any


class _Group(msgspec.Struct, frozen=True):
    """A condition in parentheses. Columns and literals in parentheses stay columns and literals."""

    predicate: Predicate
    token: Any


_Operand: TypeAlias = _Column | _Literal | _Group
_Found: TypeAlias = Predicate | _Operand


class _Builder:
    """Builds the tree while lark parses; each method is named after its rule.

    A column or a literal in parentheses may still become part of a comparison, as in (x) = 5. So each rule returns what
    it found, and converts it to a predicate only where the grammar requires a condition.
    """

    def disjunction(self, operands: Sequence[_Found]) -> Predicate:
        return Or(*map(_as_predicate, operands))

    def conjunction(self, operands: Sequence[_Found]) -> Predicate:
        return And(*map(_as_predicate, operands))

    def negated(self, parts: Sequence[Any]) -> Predicate:
        *negations, condition = parts
        predicate = _as_predicate(condition)
        return Not(predicate) if len(negations) % 2 else predicate

    def group(self, parts: Sequence[Any]) -> _Operand:
        opening, found, _closing = parts
        return _Group(found, opening) if isinstance(found, Predicate) else found

    def comparison(self, parts: Sequence[Any]) -> Predicate:
        left, symbol, right = parts
        _check_is_operand(left, symbol)
        if isinstance(right, _Group):
            _fail("conditions cannot be compared with each other", right.token)
        if isinstance(left, _Column) and isinstance(right, _Column):
            _fail("columns cannot be compared with columns", right.token)
        if symbol == NULL_SAFE:
            return _null_safe(left, right)
        how = OPERATORS[symbol]
        if isinstance(right, _Column):
            return Comparison(right.name, how.mirrored, left.value)
        column = _as_column(left)
        if column is not None:
            return Comparison(column.name, how, right.value)
        return _fold(left.value, how, right.value, symbol)

    def is_test(self, parts: Sequence[Any]) -> Predicate:
        operand, symbol, *negation, constant = parts
        column = _column(operand, symbol)
        value = CONSTANTS[constant.upper()]
        if value is None:
            return IsNotNull(column.name) if negation else IsNull(column.name)
        test = And(IsNotNull(column.name), Comparison(column.name, Operator.EQ, value))
        return Not(test) if negation else test

    def negated_test(self, parts: Sequence[Any]) -> Predicate:
        operand, _negation, *test = parts
        return Not(self.test([operand, *test]))

    def test(self, parts: Sequence[Any]) -> Predicate:
        operand, kind, *arguments = parts
        name = _column(operand, kind).name
        match kind.type:
            case "IN":
                return In(name, arguments[0])
            case "BETWEEN":
                low, high = map(_value, arguments)
                return And(Comparison(name, Operator.GE, low), Comparison(name, Operator.LE, high))
            case _:
                return _like(name, arguments[0])

    def values(self, parts: Sequence[Any]) -> tuple[Value | None, ...]:
        return tuple(map(_value, parts[1:-1]))

    def column(self, parts: Sequence["Token"]) -> _Column:
        names = [
            token[1:-1].replace("``", "`") if token.type == "NAME" else str(token)
            for token in parts
            if token.type != "DOT"
        ]
        return _Column(".".join(names), parts[0])

    def text(self, tokens: Sequence["Token"]) -> _Literal:
        pieces = [_unquote(tokens[0])]
        for previous, token in pairwise(tokens):
            # 'it''s' is one text that contains a quote; 'a' 'b' is the concatenation of two texts.
            if previous.end_pos == token.start_pos and previous[-1] == token[0]:
                pieces.append(token[0])
            pieces.append(_unquote(token))
        return _Literal("".join(pieces), tokens[0])

    def number(self, tokens: Sequence["Token"]) -> _Literal:
        *before, last = tokens
        text = last.upper().rstrip("BLSYDF")
        if before and before[-1].type == "DOT":
            text = f"0.{text}"
        number: int | float | Decimal | None = parse_integer(text)
        if number is None:
            number = parse_decimal(text)
        if number is None:
            _fail(f"not a number, or one of more than {MAX_NUMBER_LENGTH} digits", tokens[0])
        if last[-1] in "fF":
            number = float(np.float32(text))
        is_negative = sum(sign == "-" for sign in before) % 2 == 1
        return _Literal(-number if is_negative else number, tokens[0])

    def single(self, tokens: Sequence["Token"]) -> _Literal:
        token = tokens[0]
        return _Literal(_bytes(token) if token.type == "HEX" else CONSTANTS[token.upper()], token)

    def typed(self, parts: Sequence[Any]) -> _Literal:
        type_name, text = parts
        return _moment(type_name, text, type_name)

    def cast(self, parts: Sequence[Any]) -> _Literal:
        first, _opening, text, as_word, type_name, _closing = parts
        if as_word.upper() != "AS":
            _fail(ONLY_CASTS, as_word)
        return _moment(type_name, text, first)


def _as_predicate(found: _Found) -> Predicate:
    match found:
        case Predicate():
            return found
        case _Group(predicate=predicate):
            return predicate
        case _Column(name=name):
            return Comparison(name, Operator.EQ, True)
        case _Literal(value=value, token=token):
            if not isinstance(value, bool):
                _fail("expected a condition", token)
            return AlwaysTrue() if value else AlwaysFalse()


def _column(operand: _Operand, symbol: "Token") -> _Column:
    _check_is_operand(operand, symbol)
    column = _as_column(operand)
    if column is None:
        _fail("expected a column", operand.token)
    return column


def _as_column(operand: _Operand) -> _Column | None:
    """Return the operand as a column, if it is one.

    In Spark, "x" is text. Where only a column makes sense, text in double quotes is a column name, as in standard SQL.
    """
    if isinstance(operand, _Column):
        return operand
    if isinstance(operand, _Literal) and isinstance(operand.value, str) and operand.token.startswith('"'):
        return _Column(operand.value, operand.token)
    return None


def _check_is_operand(left: _Operand, symbol: "Token") -> None:
    if isinstance(left, _Group):
        _fail("expected AND, OR or the end", symbol)


def _value(operand: _Operand) -> Value | None:
    if isinstance(operand, _Group):
        _fail("conditions cannot be compared with each other", operand.token)
    if isinstance(operand, _Column):
        _fail("expected a literal", operand.token)
    return operand.value


def _null_safe(left: _Operand, right: _Operand) -> Predicate:
    """Compare with <=>, which is never unknown: two nulls are equal, and null differs from every value."""
    column, other = (right, left) if isinstance(right, _Column) else (_as_column(left), right)
    if column is None:
        _fail("expected a column", left.token)
    assert isinstance(other, _Literal)
    if other.value is None:
        return IsNull(column.name)
    return And(IsNotNull(column.name), Comparison(column.name, Operator.EQ, other.value))


def _like(column: str, pattern: _Literal) -> Predicate:
    assert isinstance(pattern.value, str)
    try:
        return like(column, pattern.value)
    except InvalidPredicateError as error:
        raise _SyntaxProblem(str(error), pattern.token) from error


FOLD: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}

FOLDED_KINDS: Final = (str, int | float | Decimal)


def _fold(left: Value | None, how: Operator, right: Value | None, symbol: "Token") -> Predicate:
    """Evaluate a comparison of two literals, such as the 1 = 1 of generated SQL."""
    if not any(isinstance(left, kind) and isinstance(right, kind) for kind in FOLDED_KINDS):
        _fail("expected a column on one side", symbol)
    return AlwaysTrue() if FOLD[how](left, right) else AlwaysFalse()


def _bytes(token: "Token") -> bytes:
    digits = token[2:].rstrip("'")
    if not set(digits) <= set(hexdigits):
        _fail("not a hexadecimal literal such as X'1F'", token)
    return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))


def _moment(type_name: "Token", text: _Literal, first: "Token") -> _Literal:
    assert isinstance(text.value, str)
    word = type_name.lower()
    value: Value | None = parse_date(text.value) if word == "date" else parse_timestamp(text.value)
    if value is None:
        form = DATE_FORM if word == "date" else TIMESTAMP_FORM
        _fail(f"{text.value!r} is not a {word}; write {word.upper()} '{form}'", text.token)
    return _Literal(value, first)


_ESCAPE: Final = re.compile(
    r"\\(?:(?P<form>u|U0000)(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\(?P=form)(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})"
    r"|(?P<octal>[01][0-7]{2})|(?P<character>.))",
    re.DOTALL,
)

# Before any other character, a backslash is dropped; before % and _, it stays, for LIKE.
ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}

LONE_SURROGATE: Final = "?"


def _unquote(token: str) -> str:
    if token[0] in "rR":
        return token[2:-1]
    inner = token[1:-1] if token[0] in "'\"" else token[2:-1]
    return _ESCAPE.sub(_unescape, inner) if "\\" in inner else inner


def _unescape(escape: re.Match[str]) -> str:
    if escape["character"] is not None:
        return ESCAPES.get(escape["character"], escape["character"])
    if escape["octal"] is not None:
        return chr(int(escape["octal"], 8))
    if escape["high"] is not None:
        return chr(0x10000 + ((int(escape["high"], 16) - 0xD800) << 10) + int(escape["low"], 16) - 0xDC00)
    character = chr(int(escape["short"] or escape["long"], 16))
    return LONE_SURROGATE if "\ud800" <= character <= "\udfff" else character


# Descriptions of what the parser expects. The first whose terminals it accepts applies.
EXPECTATIONS: Final = (
    ({"WORD"}, "a column or a literal"),
    ({"HEX"}, "a literal"),
    ({"NUMBER"}, "a number"),
    ({"_OR", "RPAR"}, "AND, OR or )"),
    ({"_OR"}, "AND, OR or the end"),
    ({"CONSTANT"}, "NULL, TRUE or FALSE"),
    ({"IN"}, "IN, BETWEEN or LIKE"),
    ({"_AND"}, "AND"),
    ({"_COMMA"}, ", or )"),
    ({"LPAR"}, "("),
    ({"RPAR"}, ")"),
    ({"STRING"}, "a pattern in quotes"),
)
QUOTES: Final = ("'", '"', "`")
ONLY_CASTS: Final = "only CAST('text' AS DATE) and CAST('text' AS TIMESTAMP) are supported"


def _explain(text: str, parser: Any, token: "Token", previous: "Token | None") -> _SyntaxProblem:
    """Explain why the parser rejects a token."""
    if token.type == "OTHER" and str(token) in QUOTES:
        return _SyntaxProblem("this quote is not closed", token)
    if token.type == "OTHER" and text.startswith(("/*", "{#"), token.start_pos):
        return _SyntaxProblem("this comment is not closed", token)
    if previous is not None and previous.type in COLUMN_TERMINALS and token.type == "LPAR":
        return _SyntaxProblem("functions are not supported; compare a column with a literal", previous)
    place = None if token.type == "$END" else token
    if _is_in_cast(parser):
        return _SyntaxProblem(ONLY_CASTS, place)
    accepted = parser.accepts()
    expected = next((what for terminals, what in EXPECTATIONS if terminals <= accepted), "the end")
    return _SyntaxProblem(f"expected {expected}", place)


def _is_in_cast(parser: Any) -> bool:
    types = [getattr(value, "type", None) for value in parser.parser_state.value_stack]
    return any(pair == ("CAST", "LPAR") for pair in pairwise(types))


def _fail(reason: str, token: "Token") -> NoReturn:
    raise _SyntaxProblem(reason, token)


def _error(text: str, problem: _SyntaxProblem) -> InvalidPredicateError:
    token = problem.token
    if token is None:
        end = len(text)
        return InvalidPredicateError(
            f"cannot read the predicate at its end: {problem.reason}\n{caret_lines(text, end, end)}"
        )
    assert token.start_pos is not None
    assert token.end_pos is not None
    shown = text[token.start_pos : token.start_pos + SHOWN_CHARACTERS]
    cut = "…" if token.start_pos + SHOWN_CHARACTERS < len(text) else ""
    return InvalidPredicateError(
        f"cannot read the predicate at character {token.start_pos + 1}, {shown!r}{cut}: {problem.reason}\n"
        f"{caret_lines(text, token.start_pos, token.end_pos)}"
    )
