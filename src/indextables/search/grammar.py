"""What lark found wrong with a query, said so that a person can mend it."""

from functools import cache
from typing import Any, Final

from lark import Lark, Token
from lark.exceptions import UnexpectedInput
from msgspec.structs import replace

from indextables._syntax import error_position
from indextables.errors import InvalidQueryError
from indextables.search.nodes import (
    Boolean,
    Boost,
    Bound,
    Everything,
    Exists,
    FieldPath,
    Fuzzy,
    Leaf,
    OneOf,
    Phrase,
    Place,
    QueryNode,
    Range,
    Term,
    Wildcard,
)
from indextables.search.parser import (
    STAR,
    Clause,
    Joiner,
    Sign,
    combine,
    read_boost,
    read_distance,
    split_path,
    split_stars,
    unescape,
)

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
    return place.error(REASONS.get(text[start], "expected a word, a phrase, a field or a parenthesis"))


def _at_end(text: str, inside: Token | None) -> InvalidQueryError:
    if inside is not None:
        assert inside.start_pos is not None
        opening = Place(text, inside.start_pos, inside.start_pos + 1)
        return opening.error(f"this {inside} is not closed; add {OPENING[inside.type]}, or put it in quotes")
    end = len(text.rstrip())
    last = text.split()[-1]
    return Place(text, end, end).error(f"the query ends after {last[-20:]}, and something must follow")


def _unclosed(error: UnexpectedInput) -> Token | None:
    """The innermost bracket that is open where the parser stopped."""
    parser = getattr(error, "interactive_parser", None)
    stack = parser.parser_state.value_stack if parser is not None else []
    brackets = (value for value in reversed(stack) if isinstance(value, Token) and value.type in OPENING)
    return next(brackets, None)


# The query language, cut and parsed by lark, read into nodes.
#
# message:timeout AND level:ERROR title:"data lake"~2 hel* name:colour~1 status:[400 TO 499] price:>=10.5
# ts:[2024-01-01 TO *} level:IN [ERROR WARN] (a OR b) AND NOT c +must -mustnot title:(spark flink)^2
# attrs.user.id:42 field:* *
#
# A backslash takes the next character literally. AND, OR, NOT, IN and TO are written in capitals.


# Room for a list of some thousand values; reading this much takes seconds at worst.
MAX_QUERY_LENGTH: Final = 32_768

# Nodes are walked by recursion, here and in the search library, which crashes the process when it is too deep.
MAX_DEPTH: Final = 50

MAX_FUZZY_DISTANCE: Final = 2
MAX_SLOP: Final = 1000

OPERATORS: Final = ("AND", "OR", "&&", "||")

# After a field, a value may hold colons and begin with a sign: times, addresses and negative numbers do.
GRAMMAR: Final = r"""
    start: query
    query: clause (_joined clause)*
    _joined: AND | OR |
    clause: (SIGN | NOT)* atom
    atom: operand BOOST?
    ?operand: group | bare | fielded
    group: LPAR query RPAR
    bare: (WORD | URL | QUOTED) TILDE?
    fielded: FIELD (group | value | comparison | range | one_of)
    value: (VALUE | URL | QUOTED) TILDE?
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
    """Read any query: see `parse.parse_query`."""
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
        raise syntax_error(text, error) from error
    return _Reader(text, default_operator).query(tree.children[0], depth=0)


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR, parser="lalr", lexer="contextual", maybe_placeholders=False, propagate_positions=True
    )


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidQueryError(
            f"the query has half of a surrogate pair at character {error.start + 1}, which no text can hold",
            position=error.start,
        ) from error


class _Reader:
    """Turns the parse tree of one text into nodes."""

    __slots__ = ("default_operator", "text")

    def __init__(self, text: str, default_operator: Joiner) -> None:
        self.text = text
        self.default_operator = default_operator

    def query(self, tree: Any, depth: int) -> QueryNode:
        clauses: list[Clause] = []
        joiner: Joiner | None = None
        for child in tree.children:
            if isinstance(child, Token):
                joiner = Joiner[child.type]
                continue
            clauses.append(self.clause(child, joiner, depth))
            joiner = None
        return combine(clauses, self.default_operator)

    def clause(self, tree: Any, joiner: Joiner | None, depth: int) -> Clause:
        *prefixes, atom = tree.children
        is_negated = sum(prefix != "+" for prefix in prefixes) % 2 == 1
        is_required = "+" in prefixes
        sign = Sign.MINUS if is_negated else Sign.PLUS if is_required else Sign.NONE
        return Clause(self.atom(atom, depth), sign, joiner, self.place(tree))

    def atom(self, tree: Any, depth: int) -> QueryNode:
        operand, *boost = tree.children
        node = self.operand(operand, depth)
        if not boost:
            return node
        return Boost(node, read_boost(self.place(boost[0])))

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
            slop = read_distance(self.place(tilde[0]), 0, MAX_SLOP, "of positions") if tilde else 0
            return Phrase(path, place, _literal(token), slop)
        if path is None and token in OPERATORS:
            raise place.error(
                f'{token} joins two clauses, and one is missing; write "{token}" for the word itself'
            )
        parts = split_stars(token)
        if not tilde:
            return _wildcard(path, place, parts) if len(parts) > 1 else Term(path, place, parts[0])
        if len(parts) > 1:
            raise place.error("a word has either a * or a ~; leave one of them out")
        distance = read_distance(self.place(tilde[0]), 1, MAX_FUZZY_DISTANCE, "of letters that differ")
        return Fuzzy(path, place, parts[0], distance)

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
        if isinstance(found, Token):
            start, end = found.start_pos, found.end_pos
        else:
            start, end = found.meta.start_pos, found.meta.end_pos
        assert start is not None
        assert end is not None
        return Place(self.text, start, end - without_last)


def _with_field(node: QueryNode, path: FieldPath) -> QueryNode:
    """The node with a field for those leaves that have none of their own."""
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


def _wildcard(path: FieldPath | None, place: Place, parts: tuple[str, ...]) -> QueryNode:
    if any(parts):
        return Wildcard(path, place, parts)
    return Everything() if path is None else Exists(path, place)


def _bound(token: Token, *, is_inclusive: bool) -> Bound | None:
    return None if token == STAR else Bound(_literal(token), is_inclusive)


def _literal(token: Token) -> str:
    return unescape(token[1:-1] if token.type == "QUOTED" else str(token))
