"""Predicates in terms of a schema."""

import math
import pickle
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidPredicateError
from indextables.predicates import (
    Comparison,
    In,
    Not,
    Operator,
    bind,
    col,
    columns_of,
    conjuncts_of,
    parse_predicate,
)
from indextables.predicates.binding import Where, locate

SCHEMA = pa.schema(
    [
        ("i8", pa.int8()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("dec", pa.decimal128(6, 2)),
        ("big", pa.decimal128(38, 18)),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("list", pa.list_(pa.int8())),
        ("Mixed Case", pa.string()),
    ]
)


def never(column):
    return In(column, ())


def always(column):
    return Not(In(column, ()))


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("i32 = 5", col("i32") == 5),
        ("I32 = 5", col("i32") == 5),
        ("`mixed case` = 'x'", col("Mixed Case") == "x"),
        ("i32 = '5'", col("i32") == 5),
        ("i32 = ' -5 '", col("i32") == -5),
        ("i32 = 5.0", col("i32") == 5),
        ("i32 = 1.5", never("i32")),
        ("i32 <> 1.5", always("i32")),
        ("i32 > 1.5", col("i32") > 1),
        ("i32 >= 1.5", col("i32") > 1),
        ("i32 < 1.5", col("i32") <= 1),
        ("i32 <= 1.5", col("i32") <= 1),
        ("i32 > -1.5", col("i32") > -2),
        ("i32 > 1e-400", col("i32") > 0),
        ("i32 > -1e-400", col("i32") > -1),
        ("i8 = 128", never("i8")),
        ("i8 < 128", always("i8")),
        ("i8 >= 128", never("i8")),
        ("i8 > -129", always("i8")),
        ("i8 <= -129", never("i8")),
        ("i8 <> 1e300", always("i8")),
        ("i64 = 9223372036854775807", col("i64") == 2**63 - 1),
        ("i64 <= 9223372036854775808", always("i64")),
        ("i8 IN (1, 2.5, 300, 1, NULL)", In("i8", (1, None))),
        ("i8 NOT IN (300)", Not(In("i8", ()))),
        ("dec = 1.5", col("dec") == Decimal("1.50")),
        ("dec = '1.5'", col("dec") == Decimal("1.50")),
        ("dec > 1.505", col("dec") > Decimal("1.50")),
        ("dec < -1.505", col("dec") <= Decimal("-1.51")),
        ("dec < 10000", always("dec")),
        ("dec <= 9999.99", col("dec") <= Decimal("9999.99")),
        ("dec > 9999.991", never("dec")),
        ("dec >= -9999.991", always("dec")),
        ("big = 0.000000000000000001", col("big") == Decimal("0.000000000000000001")),
        (
            "big < 99999999999999999999.999999999999999999",
            col("big") < Decimal("99999999999999999999." + "9" * 18),
        ),
        ("flag = TRUE", col("flag") == True),  # noqa: E712 - the literal is what is tested
        ("flag = 'yes'", col("flag") == True),  # noqa: E712
        ("flag", col("flag") == True),  # noqa: E712
        ("text > '5'", col("text") > "5"),
        ("raw = X'ff'", col("raw") == b"\xff"),
        ("raw = 'é'", col("raw") == "é".encode()),
        ("day = '2024-01-31'", col("day") == date(2024, 1, 31)),
        ("day = TIMESTAMP '2024-01-31 00:00:00'", col("day") == date(2024, 1, 31)),
        ("day = TIMESTAMP '2024-01-31 12:00:00'", never("day")),
        ("day < TIMESTAMP '2024-01-31 12:00:00'", col("day") <= date(2024, 1, 31)),
        ("day >= TIMESTAMP '2024-01-31 12:00:00'", col("day") > date(2024, 1, 31)),
        ("ts = '2024-01-31'", col("ts") == datetime(2024, 1, 31, tzinfo=UTC)),
        ("ts = DATE '2024-01-31'", col("ts") == datetime(2024, 1, 31, tzinfo=UTC)),
        ("ts = '2024-01-31 12:00:00.123456'", col("ts") == datetime(2024, 1, 31, 12, 0, 0, 123456, UTC)),
        ("ts = '2024-01-31T12:00:00+02:00'", col("ts") == datetime(2024, 1, 31, 10, tzinfo=UTC)),
        ("local = '2024-01-31 12:00:00'", col("local") == datetime(2024, 1, 31, 12)),
        ("local = '2024-01-31T12:00:00+02:00'", col("local") == datetime(2024, 1, 31, 10)),
        ("list IS NULL", col("list").is_null()),
        ("i32 = NULL", Comparison("i32", Operator.EQ, None)),
    ],
)
def test_literal_takes_the_type_of_its_column(text, bound):
    result = bind(parse_predicate(text), SCHEMA)
    assert result == bound
    assert repr(result) == repr(bound)
    assert bind(result, SCHEMA) == result


def test_floats_compare_as_doubles():
    assert bind(col("f64") == 1, SCHEMA).value == 1.0
    assert bind(col("f32") == 0.1, SCHEMA).value == 0.1
    assert bind(parse_predicate("f32 = 0.1f"), SCHEMA).value == float(np.float32(0.1))
    assert math.isnan(bind(parse_predicate("f64 = 'NaN'"), SCHEMA).value)
    assert bind(parse_predicate("f64 = '-Infinity'"), SCHEMA).value == -math.inf


def test_number_beyond_every_double_keeps_its_meaning():
    assert bind(parse_predicate("f64 < 1e400"), SCHEMA) == (col("f64") <= sys.float_info.max)
    assert bind(parse_predicate("f64 > 1e400"), SCHEMA) == (col("f64") > sys.float_info.max)
    assert bind(col("f64") >= -(10**400), SCHEMA) == (col("f64") > -math.inf)
    assert bind(col("f64") == 10**400, SCHEMA) == never("f64")


@pytest.mark.parametrize("value", [math.nan, math.inf, Decimal("NaN"), Decimal("Infinity")])
def test_nan_and_infinity_are_above_every_integer_and_decimal(value):
    for column in ("i32", "dec"):
        assert bind(col(column) < value, SCHEMA) == always(column)
        assert bind(col(column) >= value, SCHEMA) == never(column)
        assert bind(col(column) == value, SCHEMA) == never(column)


def test_decimal_column_takes_a_float_for_what_it_prints():
    assert bind(col("dec") == 0.1, SCHEMA) == (col("dec") == Decimal("0.10"))


def test_python_values_of_numpy_are_accepted():
    assert bind(col("i32") == np.int64(5), SCHEMA) == (col("i32") == 5)


def test_zone_less_timestamps_are_read_in_the_given_zone():
    paris = ZoneInfo("Europe/Paris")
    assert bind(parse_predicate("ts = '2024-07-01 12:00:00'"), SCHEMA, time_zone=paris) == (
        col("ts") == datetime(2024, 7, 1, 10, tzinfo=UTC)
    )
    aware = datetime(2024, 7, 1, 10, tzinfo=timezone(timedelta(hours=-1)))
    assert bind(col("local") == aware, SCHEMA, time_zone=paris) == (col("local") == datetime(2024, 7, 1, 13))
    assert bind(col("day") < aware, SCHEMA, time_zone=paris) == (col("day") <= date(2024, 7, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i33 = 5", r"there is no column 'i33'; did you mean 'i32'\?"),
        ("zzzzzz = 5", "there is no column 'zzzzzz'; they are i8, i32"),
        ("day = '2024-9'", "column 'day'.*'2024-9'; write a date such as '2024-01-31'"),
        ("day = '20260322'", "column 'day'"),
        ("day = 20260322", "column 'day'"),
        ("day = '2024-02-30'", "column 'day'"),
        ("ts = 'noon'", "column 'ts'.*write a timestamp such as '2024-01-31 12:00:00'"),
        ("ts = 1704067200", "column 'ts'"),
        ("i32 = 'abc'", "column 'i32'.*write a whole number"),
        ("i32 = '5.5'", "column 'i32'"),
        ("i32 = TRUE", "column 'i32'"),
        ("i32", "column 'i32'"),
        ("f64 = 'abc'", "column 'f64'.*write a number"),
        ("dec = '1_0'", "column 'dec'"),
        ("flag = 1", "column 'flag'.*write TRUE or FALSE"),
        ("flag = 'maybe'", "column 'flag'"),
        ("text = 5", "column 'text'.*write text in quotes"),
        ("text = DATE '2024-01-01'", "column 'text'"),
        ("raw = 5", "column 'raw'.*X'1F'"),
        ("list = 5", "column 'list'.*only IS NULL"),
        ("i32 LIKE 'a%'", "column 'i32'.*LIKE"),
        ("i32 LIKE '%a'", "column 'i32'.*LIKE"),
        ("i32 IN (1, 'x')", "column 'i32'"),
        ("ts = TIMESTAMP '0001-01-01 00:00:00+10:00'", "column 'ts'"),
    ],
)
def test_literal_that_does_not_fit_names_the_column_and_the_form(text, message):
    with pytest.raises(InvalidPredicateError, match=message):
        bind(parse_predicate(text), SCHEMA)


@pytest.mark.parametrize("value", [object(), [1], Decimal("sNaN"), "\ud800"])
def test_value_that_is_no_literal_is_refused(value):
    for column in ("i32", "f64", "dec", "text", "raw", "day", "ts", "flag"):
        with pytest.raises(InvalidPredicateError, match=column):
            bind(col(column) == value, SCHEMA)


VALUES = {
    "i8": st.integers(-140, 140),
    "u64": st.integers(-2, 2) | st.integers(2**64 - 2, 2**64 + 2),
    "text": st.text(max_size=2),
}


@pytest.mark.parametrize("column", VALUES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_list_is_bound_as_its_values_are_one_by_one(column, data):
    values = data.draw(st.lists(st.none() | VALUES[column], max_size=5))
    schema = pa.schema([*SCHEMA, ("u64", pa.uint64())])
    places = [locate(value, schema.field(column), UTC) for value in values if value is not None]
    known = dict.fromkeys(place.value for place in places if place.where is Where.AT)
    unknown = (None,) if None in values else ()
    assert bind(In(column, tuple(values)), schema) == In(column, (*known, *unknown))


@pytest.mark.parametrize("values", [("a", "\ud800"), ("\ud83d", "\ude00"), ("a", 1)])
def test_one_value_that_is_no_text_spoils_a_list(values):
    with pytest.raises(InvalidPredicateError, match="'text'"):
        bind(In("text", values), SCHEMA)


def test_a_boolean_in_a_list_is_no_number():
    with pytest.raises(InvalidPredicateError, match="'i32'"):
        bind(In("i32", (1, 2, True)), SCHEMA)


def test_pattern_that_is_no_text_is_refused():
    with pytest.raises(InvalidPredicateError, match="'text'"):
        bind(col("text").starts_with("\ud800"), SCHEMA)


def test_something_that_is_no_predicate_is_refused():
    with pytest.raises(InvalidPredicateError, match="not a predicate"):
        bind("x = 1", SCHEMA)


def test_a_bound_predicate_is_hashable_and_picklable():
    schema = pa.schema([("x", pa.int32()), ("y", pa.string())])
    bound = bind(parse_predicate("X > 1.5 AND y IN ('a')"), schema)
    copy = pickle.loads(pickle.dumps(bound))
    assert copy == bound
    assert hash(copy) == hash(bound)
    assert [columns_of(each) for each in conjuncts_of(bound)] == [{"x"}, {"y"}]
