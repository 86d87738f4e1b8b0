"""Query errors: the position, a caret below the mistake, and a remedy."""

import pickle
import re

import pyarrow as pa
import pytest

from indextables.errors import IndexTablesError, InvalidQueryError
from indextables.search.compile import SearchScope, compile_query
from indextables.search.parser import parse_query
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from support.search_indexes import json_field, string_field, text_field

MAPPING = DocMapping(
    (
        text_field("message"),
        text_field("frequencies", record="freq"),
        string_field("level"),
        FieldMapping("status", FieldKind.I64),
        FieldMapping("day", FieldKind.DATE),
        FieldMapping("address", FieldKind.IP),
        FieldMapping("blob", FieldKind.BYTES),
        FieldMapping("kept", FieldKind.NOTHING, fast=False),
        json_field("attrs", fast=False),
    )
)


def error_of(text, **scope):
    with pytest.raises(InvalidQueryError) as caught:
        compile_query(parse_query(text), SearchScope(MAPPING, **scope))
    return caught.value


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("(a OR b", 0, "is not closed"),
        ("a OR b)", 6, "unmatched \\)"),
        ('say "hello', 4, "quote is not closed"),
        ("()", 1, "missing before"),
        ("(a AND )", 7, "missing before"),
        ("a AND", 5, "ends after AND"),
        ("AND a", 0, "one is missing"),
        ("a OR OR b", 5, "one is missing"),
        ("NOT", 3, "ends after NOT"),
        ("level:", 6, "ends after level:"),
        ("[1 TO 2]", 0, "needs a field"),
        ("status:[1 2]", 10, "low TO high"),
        ("status:[1 TO 2", 7, "is not closed"),
        ("status:IN [1", 10, "is not closed"),
        ("a^x", 1, "takes a number"),
        ("a^0", 1, "boost must be above 0"),
        ("a^1e999", 1, "boost must be above 0"),
        ("a~3", 1, "up to 2"),
        ("a*~1", 0, "either wildcards"),
        ("a?~1", 0, "either wildcards"),
        ('"disk"x', 6, "directly follows"),
        ('x"disk"', 1, "directly follows"),
        ('"a" "b"c', 7, "directly follows"),
        ('message:"a"*b', 11, "directly follows"),
        ('""*', 0, "no text in front"),
        ('"a b"*~2', 6, "follows a word"),
        ("/a(/", 0, "unclosed group"),
        ("message:/(?=a)/", 8, "look-around"),
        ("/a/~1", 3, "follows a word"),
        ("status:4?", 7, "write a range"),
        ("status:/4/", 7, "write a range"),
        ("address:/1/", 8, "write a network"),
        (":a", 0, "no field name"),
        ("a\\", 1, "backslash"),
        ("+a OR b", 0, "required"),
        ("\ud800", 0, "surrogate"),
        ("", 0, "write \\* to match every row"),
        ("  \n", 0, "write \\* to match every row"),
        ("12:30", 0, "put the text in quotes"),
        ("levle:ERROR", 0, "did you mean level\\?"),
        ("a AND LEVLE:ERROR", 6, "did you mean level\\?"),
        ("zzz:1", 0, "the fields are message, frequencies, level"),
        ("status:abc", 7, "write a whole number"),
        ("status:4*", 7, "write a range"),
        ("status:404~1", 7, "write a range"),
        ("day:2024-9", 4, "write a date such as '2024-01-31'"),
        ("day:20240901", 4, "write a date such as '2024-01-31'"),
        ("address:banana", 8, "write one such as 10.0.0.1"),
        ("address:10.*", 8, "write a network"),
        ("address:10.0.0.0/99", 8, "write one such as 10.0.0.1"),
        ("address:fe80::1%eth0", 8, "write one such as 10.0.0.1"),
        ("blob:x", 0, "filter it with where"),
        ("kept:x", 0, "filter it with where"),
        ("attrs:x", 0, "name a key"),
        ("attrs.n:>5", 8, "json.mode = minimal"),
        ("attrs.n:[1 TO b]", 8, "different types"),
        ("attrs.n:>1e30", 8, "up to 9223372036854775807"),
        ("attrs.n:*", 8, "not a fast field"),
        ("attrs.n:a-?", 8, "a single word"),
        ("attrs.n:a-b*", 8, "a single word"),
        ('frequencies:"a b"', 12, "without positions"),
        ("message:a-b*c", 8, "a single word"),
        ("level:>" + "é" * 500, 6, "too long"),
    ],
)
def test_errors_have_a_position_and_a_reason(text, position, reason):
    error = error_of(text)
    assert error.position == position
    assert re.search(reason, str(error))


def test_the_place_is_marked_below_the_text():
    assert str(error_of("timeout AND levle:ERROR")).splitlines()[1:] == [
        "  timeout AND levle:ERROR",
        "              ^~~~~",
    ]


def test_the_mark_is_right_below_wide_and_combining_characters():
    lines = str(error_of("日本 e\u0301 (a")).splitlines()
    assert lines[1:] == ["  日本 e\u0301 (a", "         ^"]


def test_a_long_text_is_shown_around_the_place():
    lines = str(error_of("a " * 100 + "levle:x" + " b" * 100)).splitlines()
    assert lines[1].startswith("  …a a")
    assert lines[1].endswith("b b…")
    assert lines[1][lines[2].index("^") :].startswith("levle:x")


def test_line_breaks_do_not_break_the_mark():
    lines = str(error_of("a\n\tb (c")).splitlines()
    assert lines[1:] == ["  a  b (c", "       ^"]


def test_words_without_a_field_need_a_text_column():
    numbers = DocMapping((FieldMapping("status", FieldKind.I64),))
    with pytest.raises(InvalidQueryError, match="name a field, as in status:404"):
        compile_query(parse_query("404"), SearchScope(numbers))


def test_an_unknown_default_field_is_reported():
    with pytest.raises(InvalidQueryError, match="'mesage' to search by default: did you mean message"):
        compile_query(parse_query("x"), SearchScope(MAPPING, default_fields=("mesage",)))


def test_partition_columns_are_among_the_suggestions():
    partition = pa.table({"region": ["eu"]})
    assert "did you mean region?" in str(error_of("regoin:eu", partition=partition))


def test_errors_pickle_with_their_position():
    error = pickle.loads(pickle.dumps(error_of("a)")))
    assert isinstance(error, IndexTablesError)
    assert isinstance(error, ValueError)
    assert error.position == 1
