"""Texts of partition values and statistics."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.pruning import format_value, parse_values
from indextables.pruning.values import DATE, FLOAT, INTEGER, NAN_KEY, TIME, ZONE, order_keys

TIMESTAMP, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("data_type", "texts"),
    [
        (pa.int32(), {"5": 5, "-5": -5, "007": 7, "2147483647": 2**31 - 1}),
        (pa.int64(), {"-9223372036854775808": -(2**63)}),
        (
            pa.float64(),
            {"1.5": 1.5, "100": 100.0, "1.0E10": 1e10, "-0.0": 0.0, "Infinity": math.inf, "-inf": -math.inf},
        ),
        (pa.float32(), {"0.1": 0.10000000149011612, "0.10000000149011612": 0.10000000149011612}),
        (pa.decimal128(6, 2), {"1.5": Decimal("1.50"), "-1.50": Decimal("-1.50"), "1.500": Decimal("1.50")}),
        (pa.bool_(), {"true": True, "FALSE": False, "True": True}),
        (pa.string(), {"": "", "null": "null", "é": "é"}),
        (pa.date32(), {"2024-02-29": date(2024, 2, 29), "0001-01-01": date.min, "9999-12-31": date.max}),
        (
            TIMESTAMP,
            {
                "2024-01-31T12:00:00.123456Z": datetime(2024, 1, 31, 12, 0, 0, 123456, UTC),
                "2024-01-31 12:00:00Z": datetime(2024, 1, 31, 12, tzinfo=UTC),
                "2024-01-31T12:00:00.5+02:00": datetime(2024, 1, 31, 10, 0, 0, 500000, UTC),
            },
        ),
        (
            LOCAL,
            {
                "2024-01-31 12:00:00": datetime(2024, 1, 31, 12),
                "2024-01-31T12:00:00.001": datetime(2024, 1, 31, 12, 0, 0, 1000),
                "2024-01-31": datetime(2024, 1, 31),
            },
        ),
    ],
)
def test_texts_that_writers_use_are_understood(data_type, texts):
    parsed = parse_values(pa.array([*texts, None]), data_type)
    assert parsed.values.to_pylist() == [*texts.values(), None]
    assert parsed.values.type == data_type
    assert parsed.understood.to_pylist() == [True] * (len(texts) + 1)


@pytest.mark.parametrize(
    ("data_type", "good", "texts"),
    [
        (
            pa.int8(),
            "5",
            ["128", "-129", "5.0", "", " 5", "0x10", "0X1", "1e3", "five", "99999999999999999999", "٣"],
        ),
        (pa.int64(), "5", ["9223372036854775808", "5L", "--5", "+-5"]),
        (pa.float64(), "1.5", ["", "1,5", "1.5d", "0x1p3", "nil", " 1"]),
        (pa.decimal128(6, 2), "1.5", ["1.505", "10000", "NaN", "", ".", "-", "1_0"]),
        (pa.decimal128(2, 2), "0.5", ["1.5", "0.555", "1"]),
        (pa.bool_(), "true", ["1", "0", "yes", "", "t"]),
        (
            pa.date32(),
            "2024-01-31",
            ["2024-9", "20260322", "2024-9-1", "2024-02-30", "2023-02-29", "1900-02-29", "19723"],
        ),
        (pa.date32(), "2024-01-31", ["2024-01-31 00:00:00", "10000-01-01", "", "31.01.2024", "2024-W05-3"]),
        (
            TIMESTAMP,
            "2024-01-31T12:00:00Z",
            ["2024-01-31 12:00:00", "1706702400000000", "2024-02-30T00:00:00Z"],
        ),
        (
            TIMESTAMP,
            "2024-01-31T12:00:00Z",
            ["2024-01-31T25:00:00Z", "2024-01-31T00:00:00.1234567Z", "2024-01-31"],
        ),
        (LOCAL, "2024-01-31 12:00:00", ["2024-01-31T12:00:00Z", "1706702400", "noon", "2024-01-31 12:60:00"]),
        (pa.binary(), None, ["abc"]),
        (pa.list_(pa.int8()), None, ["[1]"]),
    ],
)
def test_text_in_any_other_form_is_not_understood_and_spoils_no_other(data_type, good, texts):
    parsed = parse_values(pa.array([good, *texts], pa.string()), data_type)
    assert parsed.understood.to_pylist() == [True] + [False] * len(texts)
    assert parsed.values[0].is_valid is (good is not None)
    assert parsed.values.null_count == len(texts) + (good is None)


def test_nan_is_understood():
    parsed = parse_values(pa.array(["NaN", "nan", "junk"]), pa.float64())
    assert [math.isnan(v) for v in parsed.values.to_pylist()[:2]] == [True, True]
    assert parsed.understood.to_pylist() == [True, True, False]


PATTERNS = {
    pa.int64(): INTEGER,
    pa.float64(): FLOAT,
    pa.float32(): FLOAT,
    pa.date32(): DATE,
    TIMESTAMP: f"{DATE}[ T]{TIME}{ZONE}",
    LOCAL: f"{DATE}(?:[ T]{TIME})?",
    pa.decimal128(6, 2): r"[+-]?0*[0-9]{1,4}(?:\.[0-9]{0,2}0*)?",
    pa.decimal128(3, 3): r"[+-]?0+(?:\.[0-9]{0,3}0*)?",
}


@settings(max_examples=60)
@given(st.sampled_from(list(PATTERNS)), st.data())
def test_everything_that_matches_a_pattern_is_understood_beside_junk(data_type, data):
    texts = data.draw(st.lists(st.from_regex(PATTERNS[data_type], fullmatch=True), min_size=1, max_size=20))
    texts = [text for text in texts if text.isascii()]
    parsed = parse_values(pa.array([*texts, "junk"]), data_type)
    assert parsed.understood.to_pylist() == [True] * len(texts) + [False]


@settings(max_examples=200)
@given(
    st.sampled_from([*PATTERNS, pa.int8(), pa.bool_()]),
    st.lists(st.text("0123456789-+.:TZeE xNa", max_size=27), max_size=5),
)
def test_any_text_is_understood_or_not_but_never_an_error(data_type, texts):
    parsed = parse_values(pa.array(texts, pa.string()), data_type)
    alone = [parse_values(pa.array([text]), data_type).understood[0].as_py() for text in texts]
    for together, single in zip(parsed.understood.to_pylist(), alone, strict=True):
        assert single or not together  # a text that is understood among others is understood alone


VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda v: pa.scalar(v, pa.int64())),
    st.integers(-128, 127).map(lambda v: pa.scalar(v, pa.int8())),
    st.floats().map(lambda v: pa.scalar(v, pa.float64())),
    st.floats(width=32).map(lambda v: pa.scalar(v, pa.float32())),
    st.decimals(-10, 10, places=18).map(lambda v: pa.scalar(v, pa.decimal128(38, 18))),
    st.booleans().map(pa.scalar),
    st.text().map(pa.scalar),
    st.dates().map(pa.scalar),
    st.datetimes(timezones=st.just(UTC)).map(lambda v: pa.scalar(v, TIMESTAMP)),
    st.datetimes().map(lambda v: pa.scalar(v, LOCAL)),
)


@settings(max_examples=300)
@given(VALUES)
def test_text_of_a_value_is_read_back_as_the_same_value(value):
    text = format_value(value)
    assert text is not None
    read_back = parse_values(pa.array([text]), value.type).values
    assert order_keys(read_back).equals(order_keys(pa.array([value])))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (pa.scalar(datetime(2024, 1, 31, 12, 0, 0, 1, UTC), TIMESTAMP), "2024-01-31T12:00:00.000001Z"),
        (pa.scalar(datetime(2024, 1, 31), LOCAL), "2024-01-31T00:00:00.000000"),
        (pa.scalar(date(2024, 1, 31)), "2024-01-31"),
        (pa.scalar(Decimal("0E-10"), pa.decimal128(38, 10)), "0.0000000000"),
        (pa.scalar(math.nan), "NaN"),
        (pa.scalar(-math.inf), "-Infinity"),
        (pa.scalar(-0.0), "-0.0"),
        (pa.scalar(0.1, pa.float32()), "0.1"),
        (pa.scalar(True), "true"),
    ],
)
def test_forms_of_texts(value, text):
    assert format_value(value) == text


@pytest.mark.parametrize(
    "value",
    [pa.scalar(None, pa.int8()), pa.scalar(b"x"), pa.scalar([1]), pa.scalar(2_932_897, pa.date32())],
)
def test_value_without_a_text_that_reads_back_has_none(value):
    assert format_value(value) is None


@settings(max_examples=200)
@given(st.lists(st.floats() | st.sampled_from([0.0, -0.0, math.nan]), min_size=2))
def test_float_keys_order_as_spark_does(numbers):
    keys = order_keys(pa.array(numbers, pa.float64())).to_pylist()

    def rank(x):
        return (1, 0.0) if math.isnan(x) else (0, x + 0.0)

    for a, key_a in zip(numbers, keys, strict=True):
        assert (key_a == NAN_KEY) == math.isnan(a)
        for b, key_b in zip(numbers, keys, strict=True):
            assert (key_a < key_b) == (rank(a) < rank(b))
            assert (key_a == key_b) == (rank(a) == rank(b))


@settings(max_examples=200)
@given(st.lists(st.decimals(-(10**19), 10**19, places=18, allow_nan=False), min_size=2), st.integers(0, 2))
def test_decimal_keys_order_as_the_numbers(numbers, start):
    values = pa.array([*numbers, None], pa.decimal128(38, 18)).slice(start)
    kept, keys = values.to_pylist(), order_keys(values).to_pylist()
    assert [key is None for key in keys] == [value is None for value in kept]
    present = [(v, k) for v, k in zip(kept, keys, strict=True) if v is not None]
    for a, key_a in present:
        for b, key_b in present:
            assert (key_a < key_b) == (a < b)
