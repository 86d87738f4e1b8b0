"""The query language: a lark grammar, the reader that turns parse trees into nodes, and syntax errors.

    message:timeout AND level:ERROR     title:"data lake"~2     hel*     conf?g     name:colour~1
    "disk f"*     /time(d )?out/
    status:[400 TO 499]     price:>=10.5     ts:[2024-01-01 TO *}     level:IN [ERROR WARN]
    (a OR b) AND NOT c     +must -mustnot     title:(spark flink)^2     attrs.user.id:42     field:*     *

A backslash escapes the next character. AND, OR, NOT, IN and TO are upper case.
"""

import math
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import cache
from typing import Any, Final

import msgspec
from lark import Lark, Token
from lark.exceptions import UnexpectedInput
from msgspec.structs import replace

from indextables._syntax import error_position
from indextables.errors import InvalidQueryError
from indextables.search.parser import (
    PIECE,
    Boolean,
    Boost,
    Bound,
    Everything,
    Exists,
    FieldPath,
    Fuzzy,
    Joiner,
    Joker,
    Leaf,
    OneOf,
    Phrase,
    Place,
    QueryNode,
    Range,
    Regex,
    Term,
    Wildcard,
    split_path,
    unescape,
)

# Enough for a list of some thousand values; parsing this much takes seconds at worst.
MAX_QUERY_LENGTH: Final = 32_768

# Nodes are walked recursively, here and in Tantivy, which crashes the process if the recursion is too deep.
MAX_DEPTH: Final = 50

MAX_FUZZY_DISTANCE: Final = 2
MAX_SLOP: Final = 1000
MAX_BOOST: Final = 1e6

STAR: Final = "*"
WILDCARDS: Final = "*?"

OPERATORS: Final = ("AND", "OR", "&&", "||")

# After a field, a value may contain colons and start with a sign: times, addresses, negative numbers.
GRAMMAR: Final = r"""
    start: query
    query: clause (_joined clause)*
    _joined: AND | OR |
    clause: (SIGN | NOT)* atom
    atom: operand BOOST?
    ?operand: group | bare | fielded
    group: LPAR query RPAR
    bare: (WORD | URL | QUOTED) TILDE? | BEGINNING | REGEX
    fielded: FIELD (group | value | comparison | range | one_of)
    value: (VALUE | URL | QUOTED) TILDE? | BEGINNING | REGEX
    comparison: COMPARE (VALUE | QUOTED)
    range: (LSQB | LBRACE) (BOUND | QUOTED) TO (BOUND | QUOTED) (RSQB | RBRACE)
    one_of: IN LSQB (ITEM | QUOTED) (COMMA? (ITEM | QUOTED))* RSQB

    AND.5: /(AND|&&)(?=[\s("]|$)/
    OR.5: /(OR|\|\|)(?=[\s("]|$)/
    NOT.5: /NOT(?=[\s("]|$)/
    IN.5: /IN(?=\s*\[)/
    TO.5: /TO(?=[\s"]|$)/
    COMPARE.5: />=|<=|>|</
    URL.4: /[A-Za-z][A-Za-z0-9+.\-]*:\/\/(\\.|[^\s()"\\])+/s
    BEGINNING.4: /"(\\.|[^"\\])*"\*(?=[\s)^~]|$)/s
    REGEX.4: /\/(\\.|[^\/\\])+\/(?=[\s)^~]|$)/s
    FIELD.3: /(\\.|[^\s()\[\]{}"^~:\\*+\-])(\\.|[^\s()\[\]{}"^~:\\*])*:/s
    SIGN.3: /[+\-](?=[^\s)])/
    WORD.1: /(\\.|[^\s()\[\]{}"^~:\\])+/s
    VALUE.1: /(\\.|[^\s()\[\]{}"^~\\])+/s
    BOUND.1: /(\\.|[^\s()\[\]{}"\\])+/s
    ITEM.1: /(\\.|[^\s()\[\]{}",\\])+/s
    QUOTED: /"(\\.|[^"\\])*"/s
    TILDE: /~[^\s()\[\]{}"^~]*/
    BOOST: /\^[^\s()\[\]{}"^~]*/
    LPAR: "("
    RPAR: ")"
    LSQB: "["
    RSQB: "]"
    LBRACE: "{"
    RBRACE: "}"
    COMMA: ","
    %ignore /\s+/
"""


def parse_by_grammar(text: str, default_operator: Joiner) -> QueryNode:
    """Parse any query; see `parser.parse_query`."""
    if len(text) > MAX_QUERY_LENGTH:
        raise InvalidQueryError(
            f"the query has {len(text)} characters; {MAX_QUERY_LENGTH} are allowed", position=MAX_QUERY_LENGTH
        )
    if not text.strip():
        raise InvalidQueryError("the query is empty; write * to match every row", position=0)
    _check_encodable(text)
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from error
    return _Reader(text, default_operator).query(tree.children[0], depth=0)


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="contextual", maybe_placeholders=False)


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidQueryError(
            f"the query has half of a surrogate pair at character {error.start + 1}, which is not valid text",
            position=error.start,
        ) from error


class _Reader:
    """Turns the parse tree of one query into nodes."""

    __slots__ = ("default_operator", "text")

    def __init__(self, text: str, default_operator: Joiner) -> None:
        self.text = text
        self.default_operator = default_operator

    def query(self, tree: Any, depth: int) -> QueryNode:
        clauses: list[_Clause] = []
        joiner: Joiner | None = None
        for child in tree.children:
            if isinstance(child, Token):
                joiner = Joiner[child.type]
                continue
            clause = self.clause(child, joiner, depth)
            if clauses:
                _check_apart(clauses[-1].place, clause.place)
            clauses.append(clause)
            joiner = None
        return _combine(clauses, self.default_operator)

    def clause(self, tree: Any, joiner: Joiner | None, depth: int) -> "_Clause":
        *prefixes, atom = tree.children
        is_negated = sum(prefix != "+" for prefix in prefixes) % 2 == 1
        is_required = "+" in prefixes
        sign = _Sign.MINUS if is_negated else _Sign.PLUS if is_required else _Sign.NONE
        return _Clause(self.atom(atom, depth), sign, joiner, self.place(tree))

    def atom(self, tree: Any, depth: int) -> QueryNode:
        operand, *boost = tree.children
        node = self.operand(operand, depth)
        if not boost:
            return node
        return Boost(node, _read_boost(self.place(boost[0])))

    def operand(self, tree: Any, depth: int) -> QueryNode:
        match tree.data:
            case "group":
                return self.group(tree, depth)
            case "bare":
                return self.words(tree, None)
            case _:
                return self.fielded(tree, depth)

    def group(self, tree: Any, depth: int) -> QueryNode:
        opening, query, _closing = tree.children
        if depth >= MAX_DEPTH:
            raise self.place(opening).error(f"nested more than {MAX_DEPTH} levels deep; simplify the query")
        return self.query(query, depth + 1)

    def fielded(self, tree: Any, depth: int) -> QueryNode:
        name, operand = tree.children
        path = FieldPath(split_path(name[:-1]), self.place(name, without_last=1))
        place = self.place(operand)
        match operand.data:
            case "group":
                return _with_field(self.group(operand, depth), path)
            case "value":
                return self.words(operand, path)
            case "comparison":
                return self.comparison(operand, path, place)
            case "range":
                return self.range(operand, path, place)
            case _:
                values = [token for token in operand.children if token.type in ("ITEM", "QUOTED")]
                return OneOf(path, place, tuple(map(_literal, values)))

    def words(self, tree: Any, path: FieldPath | None) -> QueryNode:
        token, *tilde = tree.children
        place = self.place(tree)
        if token.type == "QUOTED":
            slop = _read_distance(self.place(tilde[0]), 0, MAX_SLOP, "of positions") if tilde else 0
            return Phrase(path, place, _literal(token), slop)
        if token.type == "REGEX":
            return Regex(path, place, token[1:-1].replace("\\/", "/"))
        if token.type == "BEGINNING":
            return _beginning(path, place, unescape(token[1:-2]))
        if path is None and token in OPERATORS:
            raise place.error(
                f'{token} joins two clauses, and one is missing; write "{token}" for the word itself'
            )
        # Addresses often have a ? in front of their parameters.
        pieces = _pieces(token, STAR if token.type == "URL" else WILDCARDS)
        text = _only_text(pieces)
        if not tilde:
            return _wildcard(path, place, pieces) if text is None else Term(path, place, text)
        if text is None:
            raise place.error("a word has either wildcards (* and ?) or a ~; leave one of them out")
        distance = _read_distance(self.place(tilde[0]), 1, MAX_FUZZY_DISTANCE, "of letters that differ")
        return Fuzzy(path, place, text, distance)

    def comparison(self, tree: Any, path: FieldPath, place: Place) -> Range:
        operator, value = tree.children
        bound = Bound(_literal(value), is_inclusive="=" in operator)
        return Range(path, place, bound, None) if ">" in operator else Range(path, place, None, bound)

    def range(self, tree: Any, path: FieldPath, place: Place) -> QueryNode:
        opening, lower, _to, upper, closing = tree.children
        low = _bound(lower, is_inclusive=opening == "[")
        high = _bound(upper, is_inclusive=closing == "]")
        return Exists(path, place) if low is None and high is None else Range(path, place, low, high)

    def place(self, found: Any, without_last: int = 0) -> Place:
        # Lark would compute the places of all parts, most of which are not asked for.
        first = last = found
        while not isinstance(first, Token):
            first = first.children[0]
        while not isinstance(last, Token):
            last = last.children[-1]
        start, end = first.start_pos, last.end_pos
        assert start is not None
        assert end is not None
        return Place(self.text, start, end - without_last)


def _with_field(node: QueryNode, path: FieldPath) -> QueryNode:
    """Give a field to the leaves that have none."""
    match node:
        case Leaf(field=None):
            return replace(node, field=path)
        case Boost(operand=operand):
            return replace(node, operand=_with_field(operand, path))
        case Boolean(must=must, should=should, must_not=must_not):
            return Boolean(
                *(tuple(_with_field(child, path) for child in kind) for kind in (must, should, must_not))
            )
        case Everything():
            return Exists(path, path.place)
    return node


def _check_apart(before: Place, after: Place) -> None:
    """Reject clauses that touch, such as "a"b: one of them would be something else than it looks like."""
    between = f"{before.text[before.end - 1]}{after.text[after.start]}"
    if before.end == after.start and not set(between) & set("()"):
        raise after.error(
            f"{after.written[:20]} directly follows {before.written[-20:]}; put a space between them, or quotes around "
            f"both"
        )


def _pieces(token: str, wildcards: str) -> tuple[str | Joker, ...]:
    """Split a word at its wildcards, and unescape the texts; several stars in a row are one."""
    pieces: list[str | Joker] = []
    for character in PIECE.findall(token):
        last = pieces[-1] if pieces else None
        if character in wildcards:
            if last is not Joker.ANY or character != STAR:
                pieces.append(Joker(character))
        elif isinstance(last, str):
            pieces[-1] = last + unescape(character)
        else:
            pieces.append(unescape(character))
    return tuple(pieces)


def _only_text(pieces: tuple[str | Joker, ...]) -> str | None:
    return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], str) else None


def _wildcard(path: FieldPath | None, place: Place, pieces: tuple[str | Joker, ...]) -> QueryNode:
    if pieces != (Joker.ANY,):
        return Wildcard(path, place, pieces)
    return Everything() if path is None else Exists(path, place)


def _beginning(path: FieldPath | None, place: Place, text: str) -> Wildcard:
    if not text:
        raise place.error("there is no text in front of this *; write * alone to match every row")
    return Wildcard(path, place, (text, Joker.ANY))


def _bound(token: Token, *, is_inclusive: bool) -> Bound | None:
    return None if token == STAR else Bound(_literal(token), is_inclusive)


def _literal(token: Token) -> str:
    return unescape(token[1:-1] if token.type == "QUOTED" else str(token))


# Boosts and distances.


def _read_boost(place: Place) -> float:
    """Return the factor of `^2.5`. Rejects factors that are not positive or would make scores meaningless."""
    try:
        factor = float(place.written[1:])
    except ValueError as error:
        raise place.error("^ takes a number, as in title:spark^2; put a literal ^ in quotes") from error
    if not (math.isfinite(factor) and 0 < factor <= MAX_BOOST):
        raise place.error(f"a boost must be above 0 and at most {MAX_BOOST:.0f}")
    return factor


def _read_distance(place: Place, default: int, highest: int, meaning: str) -> int:
    """Return the number of `~2`, or the default for `~`. Rejects numbers above `highest`."""
    digits = place.written[1:]
    if not digits:
        return default
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(highest))):
        raise place.error(f"~ takes a whole number up to {highest}, {meaning}; put a literal ~ in quotes")
    distance = int(digits)
    if distance > highest:
        raise place.error(f"~ takes a whole number up to {highest}, {meaning}")
    return distance


# Clauses: operators, signs, and the default operator combine them into one node.


class _Sign(Enum):
    """The prefix of a clause: none, +, or - and NOT."""

    NONE = auto()
    PLUS = auto()
    MINUS = auto()


class _Clause(msgspec.Struct, frozen=True):
    """One clause; `joiner` is the operator to its left, if any, and `place` starts at its sign."""

    node: QueryNode
    sign: _Sign
    joiner: Joiner | None
    place: Place

    @property
    def as_node(self) -> QueryNode:
        """The node of the clause alone."""
        return Boolean(must_not=(self.node,)) if self.sign is _Sign.MINUS else self.node


def _combine(clauses: Sequence[_Clause], default_operator: Joiner) -> QueryNode:
    """Combine clauses into one node.

    AND binds tighter than OR, and the default operator joins clauses without an operator. If that is OR, a signed
    clause is required (+) or excluded (-, NOT) as a whole; next to an explicit OR, however, an excluded clause is one
    of the alternatives. Raises InvalidQueryError for + next to an explicit OR.
    """
    alternatives = list(_conjunctions(clauses, default_operator))
    if len(alternatives) == 1:
        return _conjunction(alternatives[0])
    must: list[QueryNode] = []
    should: list[QueryNode] = []
    must_not: list[QueryNode] = []
    for index, alternative in enumerate(alternatives):
        first = alternative[0]
        is_signed = len(alternative) == 1 and first.sign is not _Sign.NONE
        if not is_signed:
            should.append(_conjunction(alternative))
        elif _is_beside_or(alternatives, index):
            _reject_plus(first)
            should.append(first.as_node)
        else:
            (must if first.sign is _Sign.PLUS else must_not).append(first.node)
    return Boolean(tuple(must), tuple(should), tuple(must_not))


def _conjunctions(clauses: Sequence[_Clause], default_operator: Joiner) -> Iterable[list[_Clause]]:
    """Yield the runs of clauses that AND joins."""
    run: list[_Clause] = []
    for clause in clauses:
        if run and (clause.joiner or default_operator) is Joiner.OR:
            yield run
            run = []
        run.append(clause)
    yield run


def _conjunction(run: Sequence[_Clause]) -> QueryNode:
    if len(run) == 1:
        return run[0].as_node
    must = tuple(clause.node for clause in run if clause.sign is not _Sign.MINUS)
    must_not = tuple(clause.node for clause in run if clause.sign is _Sign.MINUS)
    return Boolean(must=must, must_not=must_not)


def _is_beside_or(alternatives: Sequence[Sequence[_Clause]], index: int) -> bool:
    neighbours = alternatives[index : index + 2]
    return any(alternative[0].joiner is Joiner.OR for alternative in neighbours)


def _reject_plus(clause: _Clause) -> None:
    if clause.sign is _Sign.PLUS:
        raise clause.place.error("+ makes a clause required, and OR makes it optional; leave one of them out")


# Syntax errors: where lark stopped, and how to fix the query.

_CLOSING_OF: Final = {"LPAR": ")", "LSQB": "]", "LBRACE": "} or ]"}

# By the character where parsing stopped.
_REASONS: Final = {
    '"': 'this quote is not closed; write \\" for a literal one',
    ")": "unmatched ); remove it, or put it in quotes",
    "]": "unmatched ]; put it in quotes",
    "}": "unmatched }; put it in quotes",
    "[": "a range needs a field, as in status:[400 TO 499]; put a literal [ in quotes",
    "{": "a range needs a field, as in status:{400 TO 499}; put a literal { in quotes",
    ":": "there is no field name before this colon; put the text in quotes",
    "~": "~ follows a word or a phrase, as in colour~1; put a literal ~ in quotes",
    "^": "^ follows a clause, as in title:spark^2; put a literal ^ in quotes",
    "\\": "a backslash takes the next character literally, and there is none; write \\\\ for the backslash itself",
}


def _syntax_error(text: str, error: UnexpectedInput) -> InvalidQueryError:
    """Return the error for a query that does not parse."""
    start = error_position(text, error)
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
    return place.error(_REASONS.get(text[start], "expected a word, a phrase, a field or a parenthesis"))


def _at_end(text: str, inside: Token | None) -> InvalidQueryError:
    if inside is not None:
        assert inside.start_pos is not None
        opening = Place(text, inside.start_pos, inside.start_pos + 1)
        return opening.error(
            f"this {inside} is not closed; add {_CLOSING_OF[inside.type]}, or put it in quotes"
        )
    end = len(text.rstrip())
    last = text.split()[-1]
    return Place(text, end, end).error(f"the query ends after {last[-20:]}, and something must follow")


def _unclosed(error: UnexpectedInput) -> Token | None:
    """Return the innermost bracket that is still open where the parser stopped."""
    parser = getattr(error, "interactive_parser", None)
    stack = parser.parser_state.value_stack if parser is not None else []
    brackets = (value for value in reversed(stack) if isinstance(value, Token) and value.type in _CLOSING_OF)
    return next(brackets, None)
