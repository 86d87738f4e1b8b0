"""The query language: the meaning of each form, and a parser that survives any text."""

import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidQueryError
from indextables.search.grammar import MAX_DEPTH, MAX_QUERY_LENGTH
from indextables.search.parser import (
    Boolean,
    Boost,
    Bound,
    Everything,
    Exists,
    FieldPath,
    Fuzzy,
    Joiner,
    Joker,
    OneOf,
    Phrase,
    Place,
    Range,
    Regex,
    Term,
    Wildcard,
    parse_query,
)

PLACE = Place("", 0, 0)
ANY, ONE = Joker.ANY, Joker.ONE
A, B, C = (Term(None, PLACE, letter) for letter in "abc")


def field(*parts):
    return FieldPath(parts, PLACE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("timeout", Term(None, PLACE, "timeout")),
        ("level:ERROR", Term(field("level"), PLACE, "ERROR")),
        ("level: ERROR", Term(field("level"), PLACE, "ERROR")),
        ("attrs.user.id:42", Term(field("attrs", "user", "id"), PLACE, "42")),
        (r"attrs.a\.b:1", Term(field("attrs", "a.b"), PLACE, "1")),
        (r"my\ column:x", Term(field("my column"), PLACE, "x")),
        ('title:"data lake"', Phrase(field("title"), PLACE, "data lake")),
        ('title:"data lake"~2', Phrase(field("title"), PLACE, "data lake", 2)),
        (r'"say \"hi\" \\ now"', Phrase(None, PLACE, r'say "hi" \ now')),
        ("hel*", Wildcard(None, PLACE, ("hel", ANY))),
        ("hel**", Wildcard(None, PLACE, ("hel", ANY))),
        ("name:*son", Wildcard(field("name"), PLACE, (ANY, "son"))),
        ("a*b*c", Wildcard(None, PLACE, ("a", ANY, "b", ANY, "c"))),
        (r"a\*b", Term(None, PLACE, "a*b")),
        ("conf?g", Wildcard(None, PLACE, ("conf", ONE, "g"))),
        ("a??", Wildcard(None, PLACE, ("a", ONE, ONE))),
        ("?", Wildcard(None, PLACE, (ONE,))),
        (r"what\?", Term(None, PLACE, "what?")),
        ('"disk f"*', Wildcard(None, PLACE, ("disk f", ANY))),
        ('title:"disk f"*', Wildcard(field("title"), PLACE, ("disk f", ANY))),
        (r'"say \"h"*^2', Boost(Wildcard(None, PLACE, ('say "h', ANY)), 2.0)),
        ("/conf(ig)?/", Regex(None, PLACE, "conf(ig)?")),
        ("name:/a b|c/", Regex(field("name"), PLACE, "a b|c")),
        (r"path:/a\/b\d/", Regex(field("path"), PLACE, r"a/b\d")),
        ("(/a/)^2", Boost(Regex(None, PLACE, "a"), 2.0)),
        ("/var/log/x", Term(None, PLACE, "/var/log/x")),
        ("a/b/", Term(None, PLACE, "a/b/")),
        ("name:colour~1", Fuzzy(field("name"), PLACE, "colour", 1)),
        ("colour~", Fuzzy(None, PLACE, "colour", 1)),
        ("colour~2", Fuzzy(None, PLACE, "colour", 2)),
        ("*", Everything()),
        ("**", Everything()),
        ("name:*", Exists(field("name"), PLACE)),
        ("name:[* TO *]", Exists(field("name"), PLACE)),
        ("s:[400 TO 499]", Range(field("s"), PLACE, Bound("400", True), Bound("499", True))),
        ("s:{400 TO 499]", Range(field("s"), PLACE, Bound("400", False), Bound("499", True))),
        ("t:[2024-01-01 TO *}", Range(field("t"), PLACE, Bound("2024-01-01", True), None)),
        ('t:[* TO "a b"}', Range(field("t"), PLACE, None, Bound("a b", False))),
        (
            "t:[2024-01-01T00:00:00Z TO *]",
            Range(field("t"), PLACE, Bound("2024-01-01T00:00:00Z", True), None),
        ),
        ("x:[TO TO TO]", Range(field("x"), PLACE, Bound("TO", True), Bound("TO", True))),
        ("price:>=10.5", Range(field("price"), PLACE, Bound("10.5", True), None)),
        ("price:> 10.5", Range(field("price"), PLACE, Bound("10.5", False), None)),
        ("price:<10.5", Range(field("price"), PLACE, None, Bound("10.5", False))),
        ('name:<="a b"', Range(field("name"), PLACE, None, Bound("a b", True))),
        ('l:IN [a b "c d"]', OneOf(field("l"), PLACE, ("a", "b", "c d"))),
        ("l:IN [a, b,c]", OneOf(field("l"), PLACE, ("a", "b", "c"))),
        ("l:IN", Term(field("l"), PLACE, "IN")),
        ("title:spark^2", Boost(Term(field("title"), PLACE, "spark"), 2.0)),
        ("(a b)^0.5", Boost(Boolean(should=(A, B)), 0.5)),
    ],
)
def test_leaves(text, expected):
    assert parse_query(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a AND b", Boolean(must=(A, B))),
        ("a && b", Boolean(must=(A, B))),
        ("a OR b", Boolean(should=(A, B))),
        ("a || b", Boolean(should=(A, B))),
        ("a b", Boolean(should=(A, B))),
        ("a OR b AND c", Boolean(should=(A, Boolean(must=(B, C))))),
        ("a b AND c", Boolean(should=(A, Boolean(must=(B, C))))),
        ("(a OR b) AND c", Boolean(must=(Boolean(should=(A, B)), C))),
        ("(a)", A),
        ("NOT a", Boolean(must_not=(A,))),
        ("-a", Boolean(must_not=(A,))),
        ("NOT NOT a", A),
        ("--a", A),
        ("a AND NOT b", Boolean(must=(A,), must_not=(B,))),
        ("NOT a AND b", Boolean(must=(B,), must_not=(A,))),
        ("a NOT b", Boolean(should=(A,), must_not=(B,))),
        ("a -b", Boolean(should=(A,), must_not=(B,))),
        ("-a -b", Boolean(must_not=(A, B))),
        ("a OR NOT b", Boolean(should=(A, Boolean(must_not=(B,))))),
        ("a OR -b", Boolean(should=(A, Boolean(must_not=(B,))))),
        ("+a -b c", Boolean(must=(A,), should=(C,), must_not=(B,))),
        ("+a", A),
        ("a AND +b", Boolean(must=(A, B))),
    ],
)
def test_operators(text, expected):
    assert parse_query(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", Boolean(must=(A, B))),
        ("a b OR c", Boolean(should=(Boolean(must=(A, B)), C))),
        ("a -b", Boolean(must=(A,), must_not=(B,))),
        ("+a b", Boolean(must=(A, B))),
    ],
)
def test_operators_where_clauses_are_joined_by_and(text, expected):
    assert parse_query(text, Joiner.AND) == expected


def test_a_field_before_parentheses_applies_to_all_leaves_without_one():
    assert parse_query("t:(a OR x:b OR *)") == Boolean(
        should=(Term(field("t"), PLACE, "a"), Term(field("x"), PLACE, "b"), Exists(field("t"), PLACE))
    )


@pytest.mark.parametrize("text", ["http://example.com/x", "https://a.b/c?d=e&f=[1]#g", "s3://bucket/key"])
def test_urls_are_text(text):
    assert parse_query(text) == Term(None, PLACE, text)
    assert parse_query(f"url:{text}") == Term(field("url"), PLACE, text)
    assert parse_query(f"({text})") == Term(None, PLACE, text)


@pytest.mark.parametrize("value", ["fe80::1", "::1", "10:30", "-5", "+5", "2024-01-01T10:00:00Z", "a:b:c"])
def test_after_a_field_values_may_hold_colons_and_signs(value):
    assert parse_query(f"x:{value}") == Term(field("x"), PLACE, value)


@pytest.mark.parametrize(
    "word", ["ANDROID", "NOTE", "ORDER", "it's", "a/b", "a&b", "5%", "-", "é", "日本", "😀"]
)
def test_ordinary_words(word):
    assert parse_query(word) == Term(None, PLACE, word)


def test_nodes_pickle():
    node = parse_query('+a:"b c"~1 -d:[1 TO 2] e~^3')
    assert pickle.loads(pickle.dumps(node)) == node


def test_nesting_is_bounded():
    assert parse_query("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH) == A
    with pytest.raises(InvalidQueryError, match="levels deep"):
        parse_query("(" * 1000 + "a" + ")" * 1000)


def test_length_is_bounded():
    assert parse_query("a" * MAX_QUERY_LENGTH) == Term(None, PLACE, "a" * MAX_QUERY_LENGTH)
    with pytest.raises(InvalidQueryError, match="characters"):
        parse_query("a" * (MAX_QUERY_LENGTH + 1))


def test_many_negations_are_not_nested():
    assert parse_query("NOT " * 5000 + "a") == A


OPERATORS = [
    "AND",
    "OR",
    "NOT",
    "IN",
    "TO",
    "&&",
    "||",
    "+",
    "-",
    ">=",
    "<",
    ",",
    "~",
    "~1",
    "^",
    "^2",
    "*",
    ":",
]
BRACKETS = ["(", ")", "[", "]", "{", "}", '"', "\\"]
WORDS = ["a", "b:", "x.y:", "://", " ", "\n", "\x00", "é", "😀", "\u202e", "\ud800"]
SYNTAX = st.sampled_from([*OPERATORS, *BRACKETS, *WORDS])


@settings(max_examples=250)
@given(
    st.one_of(
        st.text(max_size=40), st.lists(SYNTAX, max_size=14).map(" ".join), st.lists(SYNTAX).map("".join)
    )
)
@example("x:[1 TO")
@example('x:IN ["')
@example("\\")
def test_any_text_is_a_query_or_an_error_with_a_position(text):
    assert 0 <= error_position(text) <= len(text)


def error_position(text):
    """Return the position of the error; 0 for a valid query."""
    try:
        parse_query(text)
    except InvalidQueryError as error:
        return error.position
    return 0


def test_a_parsed_query_travels_without_its_hash_which_differs_between_processes():
    query = parse_query('a AND b:"c d"')
    assert hash(query) == hash(parse_query('a  AND b:"c d"'))
    copy = pickle.loads(pickle.dumps(query))
    assert copy == query
    assert not vars(copy)
