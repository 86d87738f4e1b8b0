"""SQL text to predicates."""

import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import indextables
from indextables import IndexTable
from indextables.errors import InvalidPredicateError
from indextables.predicates import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    col,
    parse_predicate,
)
from indextables.predicates.parser import parse_by_grammar, parse_simple

X = col("x")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("x = 1", X == 1),
        ("x == 1", X == 1),
        ("x <> 1", X != 1),
        ("x != 1", X != 1),
        ("x < 1", X < 1),
        ("x <= 1", X <= 1),
        ("x > 1", X > 1),
        ("x >= 1", X >= 1),
        ("5 < x", X > 5),
        ("5 >= x", X <= 5),
        ("5 = x", X == 5),
        ("x <=> 1", And(IsNotNull("x"), X == 1)),
        ("1 <=> x", And(IsNotNull("x"), X == 1)),
        ("x <=> NULL", IsNull("x")),
        ("x IN (1, 2, NULL)", In("x", (1, 2, None))),
        ("x NOT IN (1)", Not(In("x", (1,)))),
        ("x BETWEEN 2 AND 11", And(X >= 2, X <= 11)),
        ("x NOT BETWEEN 2 AND 11", Not(And(X >= 2, X <= 11))),
        ("x IS NULL", IsNull("x")),
        ("x is not null", IsNotNull("x")),
        ("x IS TRUE", And(IsNotNull("x"), X == True)),  # noqa: E712 - the literal is what is tested
        ("x IS NOT FALSE", Not(And(IsNotNull("x"), X == False))),  # noqa: E712
        ("x LIKE 'abc%'", X.starts_with("abc")),
        ("x LIKE '%abc'", X.like("%abc")),
        ("x NOT LIKE 'abc'", Not(X == "abc")),
        (r"x LIKE 'a\%b%'", X.starts_with("a%b")),
        ("x = 1 AND y = 2 OR z = 3", Or(And(X == 1, col("y") == 2), col("z") == 3)),
        ("x = 1 AND (y = 2 OR z = 3)", And(X == 1, Or(col("y") == 2, col("z") == 3))),
        ("NOT x = 1 AND y = 2", And(Not(X == 1), col("y") == 2)),
        ("NOT (x = 1 OR y = 2)", Not(Or(X == 1, col("y") == 2))),
        ("NOT NOT x = 1", X == 1),
        ("(x) = (1)", X == 1),
        ("((x = 1))", X == 1),
        ("x", X == True),  # noqa: E712
        ("NOT x", Not(X == True)),  # noqa: E712
        ("TRUE", AlwaysTrue()),
        ("1 = 1 AND false", And(AlwaysTrue(), AlwaysFalse())),
        ("'b' < 'a'", AlwaysFalse()),
        ("x = NULL", Comparison("x", (X == 1).operator, None)),
        ("x = 1 -- a comment", X == 1),
    ],
)
def test_text_is_read_as_spark_reads_it(text, meaning):
    assert parse_predicate(text) == meaning


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("- -5", 5),
        ("+5", 5),
        ("5L", 5),
        ("1.5", Decimal("1.5")),
        (".5", Decimal("0.5")),
        ("1e3", Decimal(1000)),
        ("1.5BD", Decimal("1.5")),
        ("2D", 2),
        ("0.1f", 0.10000000149011612),
        ("'text'", "text"),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ("'a' 'b'", "ab"),
        (r"r'a\nb'", r"a\nb"),
        ('"text"', "text"),
        ("''", ""),
        ("'é😀'", "é😀"),
        ("TRUE", True),
        ("false", False),
        ("NULL", None),
        ("X'1Fa'", b"\x01\xfa"),
        ("DATE '2024-01-31'", date(2024, 1, 31)),
        ("CAST('2024-01-31' AS DATE)", date(2024, 1, 31)),
        ("TIMESTAMP '2024-01-31 12:00:00.000001'", datetime(2024, 1, 31, 12, 0, 0, 1)),
        ("TIMESTAMP '2024-01-31T12:00:00Z'", datetime(2024, 1, 31, 12, tzinfo=UTC)),
        ("TIMESTAMP_NTZ '2024-01-31'", datetime(2024, 1, 31)),
        ("CAST('2024-01-31 01:02' AS TIMESTAMP)", datetime(2024, 1, 31, 1, 2)),
    ],
)
def test_literals_become_python_values(text, value):
    predicate = parse_predicate(f"x = {text}")
    assert predicate.value == value
    assert type(predicate.value) is type(value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("`a b` = 1", "a b"),
        ("`a``b` = 1", "a`b"),
        ("`a.b` = 1", "a.b"),
        ('"A b" = 1', "A b"),
        ('"x" = "y"', "x"),
        ("date = 1", "date"),
        ("timestamp > 1", "timestamp"),
        ("`date` = 1", "date"),
        ("end = 1", "end"),
        ("group = 1", "group"),
        ("user = 1", "user"),
        ("Größe = 1", "Größe"),
        ("_x1 = 1", "_x1"),
    ],
)
def test_names_of_columns(text, name):
    assert parse_predicate(text).column == name


def test_double_quotes_are_text_beside_a_column_and_a_name_beside_a_literal():
    assert parse_predicate('x = "y"') == (X == "y")
    assert parse_predicate("\"x\" IN ('y')") == X.is_in(["y"])
    assert parse_predicate("\"x\" LIKE 'y%'") == X.starts_with("y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at its end: expected a column"),
        ("x =", "at its end"),
        ("x = 5 5", "at character 7, '5': expected AND, OR or the end"),
        ("y = 1 AND lower(x) = 'a'", "at character 11, .lower.*functions are not supported"),
        ("x + 1 = 3", "at character 3"),
        ("x = y", "at character 5, 'y': columns cannot be compared"),
        ("a. = 1", "at character 4"),
        (".a = 1", "at character 2"),
        ("x IN ()", "at character 7"),
        ("x IN (SELECT 1)", "at character 7"),
        ("x BETWEEN 1", "expected AND"),
        ("x LIKE 5", "pattern in quotes"),
        (r"x LIKE 'a\\b'", "at character 8.*backslash"),
        ("x RLIKE 'a'", "at character 3"),
        ("x = DATE '2024-9'", "at character 10.*'2024-9' is not a date; write DATE '2024-01-31'"),
        ("x = DATE '20260322'", "is not a date"),
        ("x = TIMESTAMP 'noon'", "is not a timestamp"),
        ("x = CAST(5 AS DATE)", "only CAST"),
        ("x = CAST('5' AS INT)", "only CAST"),
        ("x = 1; DROP TABLE y", "at character 6"),
        ("5", "expected a condition"),
        ("NULL", "expected a condition"),
        ("1 = NULL", "expected a column"),
        ("1 = 'a'", "expected a column"),
        ("(x = 1) = (y = 1)", "expected AND, OR"),
        ("x = (y = 1)", "conditions cannot be compared"),
        ("x = 'open", "not closed"),
        ("`open", "not closed"),
        ("x = $1", "at character 5"),
        ("x = " + "9" * 2000, "digits"),
        ("x = 1e99999999999999999999", "not a number"),
    ],
)
def test_text_outside_the_grammar_is_refused_with_its_place(text, message):
    with pytest.raises(InvalidPredicateError, match=message):
        parse_predicate(text)


@pytest.mark.parametrize("text", ["(" * 50_000 + "x" + ")" * 50_000, "x = 1 AND (" * 3000, "x = (" * 5000])
def test_deep_nesting_is_a_typed_error_and_does_not_exhaust_the_stack(text):
    with pytest.raises(InvalidPredicateError, match="nested"):
        parse_predicate(text)


def test_long_chains_are_wide_and_not_deep():
    chain = parse_predicate(" AND ".join(f"x <> {i}" for i in range(3000)))
    assert len(chain.operands) == 3000
    assert parse_predicate("NOT " * 5000 + "x = 1") == (X == 1)


def test_text_over_the_limit_is_refused_before_it_is_read():
    with pytest.raises(InvalidPredicateError, match="characters"):
        parse_predicate("x = 1 " + " " * 1_000_000)


WORDS = "AND OR NOT IN BETWEEN LIKE IS NULL TRUE FALSE DATE TIMESTAMP CAST AS ORDER BY CASE WHEN INTERVAL"
SYMBOLS = "( ) , . = == <> != <=> < <= > >= ! && || ; :: -- /* */ { } [ ] @ $ ? : ~ ^ % * / + | & {{ }} {% %}"
OPERANDS = (
    "x y `a_b` 1 -5 2.5 1e3 .5 5L 1.5BD 0x1F X'1F' 'a' 'a%' '' '2024-01-31' \"s\" é 😀 \x00 'open `open 1e 1a"
)
FRAGMENTS = st.sampled_from([*WORDS.split(), *SYMBOLS.split(), *OPERANDS.split(" "), "\\"])


@settings(max_examples=400)
@given(st.lists(FRAGMENTS, max_size=12).map(" ".join) | st.text(max_size=30))
@example("\ud800 = '\udfff'")
@example("x = '\\ud800'")
@example("x = 'a\x00b'")
@example("{% x %}")
@example("/*+ x */")
def test_any_text_is_a_predicate_or_a_typed_error(text):
    try:
        predicate = parse_predicate(text)
    except InvalidPredicateError:
        return
    assert isinstance(predicate, Predicate)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1",
        "x='a'",
        " x >= 10 AND day <> '2024-01-31' and y<5 ",
        "x == 'it' AND y != 2",
        "x <= '' AND z > 007",
    ],
)
def test_plain_comparisons_mean_the_same_to_both_parsers(text):
    simple = parse_simple(text)
    assert simple is not None
    assert simple == parse_by_grammar(text)


@pytest.mark.parametrize(
    "text", ["x = 'a' 'b'", "x = 'it''s'", "x = 1L", "x <=> 1", "not = 1", "x = 1 OR y = 2", "x = 1AND y = 2"]
)
def test_everything_else_is_left_to_the_grammar(text):
    assert parse_simple(text) is None


def test_comments_are_ignored_nested_ones_as_well():
    assert parse_predicate("/* a /* b */ c */ x -- d\n = /**/ 1") == (X == 1)
    with pytest.raises(InvalidPredicateError, match="comment is not closed"):
        parse_predicate("x = 1 /* a /* b */")


def test_an_error_marks_its_place_with_a_caret():
    with pytest.raises(InvalidPredicateError) as caught:
        parse_predicate("y = 1 AND lower(x) = 'a'")
    assert str(caught.value).splitlines()[1:] == ["  y = 1 AND lower(x) = 'a'", "            ^~~~~"]


def test_choosing_files_of_a_partition_loads_no_parser_library(tmp_path):
    IndexTable.create(
        str(tmp_path / "t"), pa.schema([("day", pa.string()), ("x", pa.int64())]), partition_by=["day"]
    )
    code = (
        "import sys, indextables\n"
        "indextables.IndexTable(sys.argv[1]).files(where=\"day = '2024-01-31' AND x > 5\")\n"
        "sys.exit('lark' in sys.modules or 'sqlglot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], check=False).returncode == 0


def test_only_the_sql_of_spark_imports_sqlglot():
    package = Path(indextables.__file__).parent
    for module in package.rglob("*.py"):
        assert "sqlglot" not in module.read_text() or module.is_relative_to(package / "spark" / "sql"), module
