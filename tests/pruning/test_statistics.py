"""Statistics that our writer leaves."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.config import Settings
from indextables.errors import InvalidOptionError
from indextables.pruning import ColumnStatistics, StatisticsOptions, column_statistics, merge_statistics

EVERYTHING = StatisticsOptions(max_length=None)


def of_column(values, data_type, options=EVERYTHING):
    found = column_statistics(pa.table({"x": pa.array(values, data_type)}), options)
    return found.min_values.get("x"), found.max_values.get("x")


@pytest.mark.parametrize(
    ("data_type", "values", "least", "greatest"),
    [
        (pa.int64(), [9, 10, None, -3], "-3", "10"),
        (pa.float64(), [1.5, -math.inf], "-Infinity", "1.5"),
        (pa.float32(), [0.1, 0.2], "0.1", "0.2"),
        (pa.decimal128(38, 10), [Decimal(0), Decimal("1.5")], "0.0000000000", "1.5000000000"),
        (pa.bool_(), [True, False], "false", "true"),
        (pa.string(), ["b", "", "é", "z"], "", "é"),
        (pa.string(), ["a\uffff", "a\U00010000"], "a\uffff", "a\U00010000"),
        (pa.date32(), [date(2024, 1, 10), date(2024, 1, 9)], "2024-01-09", "2024-01-10"),
        (
            pa.timestamp("us", "UTC"),
            [datetime(2024, 1, 1, 0, 0, 0, 1, UTC), datetime(2024, 1, 1, tzinfo=UTC)],
            "2024-01-01T00:00:00.000000Z",
            "2024-01-01T00:00:00.000001Z",
        ),
        (
            pa.timestamp("us"),
            [datetime(2024, 1, 1)],
            "2024-01-01T00:00:00.000000",
            "2024-01-01T00:00:00.000000",
        ),
    ],
)
def test_minimum_and_maximum_of_each_type(data_type, values, least, greatest):
    assert of_column(values, data_type) == (least, greatest)


def test_nan_has_a_minimum_beside_it_and_no_maximum():
    assert of_column([1.0, math.nan, 3.0], pa.float64()) == ("1.0", None)
    assert of_column([math.nan], pa.float64()) == (None, None)


def test_zeros_of_both_signs_lie_between_their_bounds():
    assert of_column([0.0, 1.0], pa.float64()) == ("-0.0", "1.0")
    assert of_column([-0.0, -1.0], pa.float64()) == ("-1.0", "0.0")


def test_all_null_and_empty_columns_have_none():
    table = pa.table({"x": pa.array([None, None], pa.int64()), "y": pa.array([None, None], pa.null())})
    for rows in (table, table[:0]):
        assert column_statistics(rows, EVERYTHING) == ColumnStatistics(null_columns=frozenset("xy"))


def test_empty_split_has_no_minimum_and_spoils_no_other():
    empty = column_statistics(pa.table({"x": pa.array([], pa.int64())}), EVERYTHING)
    full = column_statistics(pa.table({"x": [1, 2]}), EVERYTHING)
    assert (empty.min_values, empty.max_values) == ({}, {})
    assert merge_statistics(empty, full, pa.schema([("x", pa.int64())])) == full


def test_nested_and_binary_columns_have_none():
    table = pa.table({"l": [[1]], "s": [{"a": 1}], "b": [b"x"], "i": [1]})
    found = column_statistics(table, EVERYTHING)
    assert found == ColumnStatistics({"i": "1"}, {"i": "1"})


def test_date_outside_the_calendar_has_none():
    assert of_column([0, 2_932_897], pa.date32()) == ("1970-01-01", None)


def test_first_columns_are_counted_without_partition_columns():
    table = pa.table({"p": [1], "a": [1], "b": [1], "c": [1]})
    assert set(column_statistics(table, StatisticsOptions(indexed_columns=2), ["P"]).min_values) == {"a", "b"}
    assert set(column_statistics(table, StatisticsOptions(indexed_columns=0), ["p"]).min_values) == set()
    assert set(column_statistics(table, StatisticsOptions(indexed_columns=-1), ["p"]).min_values) == {
        "a",
        "b",
        "c",
    }


def test_named_columns_take_the_place_of_the_first():
    table = pa.table({"p": [1], "a": [1], "b": [1], "c": [1]})
    options = StatisticsOptions(indexed_columns=1, named_columns=("C", "b", "p", "c"))
    assert set(column_statistics(table, options, ["p"]).min_values) == {"b", "c"}
    with pytest.raises(InvalidOptionError, match=r"'zz'.*a, b, c"):
        column_statistics(table, StatisticsOptions(named_columns=("zz",)))


def test_options_come_from_settings():
    assert StatisticsOptions.from_settings(Settings.resolve()) == StatisticsOptions(32, (), 32)
    options = {
        "spark.indextables.stats.truncation.enabled": "false",
        "spark.indextables.dataSkippingNumIndexedCols": "3",
        "spark.indextables.dataSkippingStatsColumns": "a, b",
    }
    assert StatisticsOptions.from_settings(Settings.resolve(options)) == StatisticsOptions(
        3, ("a", "b"), None
    )


def test_long_texts_are_cut_and_stay_bounds():
    cut = StatisticsOptions(max_length=3)
    assert of_column(["abcd", "abcz"], pa.string(), cut) == ("abc", "abd")
    assert of_column(["abc"], pa.string(), cut) == ("abc", "abc")
    assert of_column(["ab\U0010ffffx"], pa.string(), cut) == ("ab\U0010ffff", "ac")
    assert of_column(["ab\ud7ffx"], pa.string(), cut) == ("ab\ud7ff", "ac")
    assert of_column(["\uffff" * 4], pa.string(), cut) == ("\uffff" * 3, None)
    assert of_column(["😀" * 4], pa.string(), cut) == ("😀" * 3, None)


@settings(max_examples=200)
@given(
    st.lists(st.text("aé\ud7fe\ud7ff\ue000\uffff\U00010000\U0010ffff\x00", max_size=6), min_size=1),
    st.integers(1, 4),
)
def test_cut_bounds_hold_by_code_points_and_by_utf_16(texts, max_length):
    least, greatest = of_column(texts, pa.string(), StatisticsOptions(max_length=max_length))
    assert len(least) <= max_length
    assert all(least <= text for text in texts)
    if greatest is None:
        return
    assert len(greatest) <= max_length
    assert all(text <= greatest for text in texts)
    if greatest not in texts:  # rounded up
        longest = max(texts).encode("utf-16-be")
        assert longest <= greatest.encode("utf-16-be")


def test_statistics_survive_json():
    table = pa.table(
        {
            "f": [math.inf, -math.inf, -0.0],
            "s": ['"\\\n\x00\u2028', "😀\U0010ffff", ""],
            "t": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
        }
    )
    found = column_statistics(table, EVERYTHING)
    for texts in (found.min_values, found.max_values):
        assert set(texts) == {"f", "s", "t"}
        assert json.loads(json.dumps(texts)) == texts
        assert json.loads(json.dumps(texts, ensure_ascii=False)) == texts


SCHEMA = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("s", pa.string())])


def statistics(**columns):
    length = max(map(len, columns.values()))
    arrays = {}
    for field in SCHEMA:
        values = columns.get(field.name, [])
        arrays[field.name] = pa.array([*values, *[None] * (length - len(values))], field.type)
    return column_statistics(pa.table(arrays), EVERYTHING)


def test_merged_statistics_compare_by_type():
    merged = merge_statistics(statistics(i=[9, 10], s=["9"]), statistics(i=[2], s=["10"]), SCHEMA)
    assert (merged.min_values["i"], merged.max_values["i"]) == ("2", "10")
    assert (merged.min_values["s"], merged.max_values["s"]) == ("10", "9")


def test_merging_with_all_null_rows_keeps_the_bounds():
    merged = merge_statistics(statistics(i=[9]), statistics(i=[None]), SCHEMA)
    assert (merged.min_values, merged.max_values) == ({"i": "9"}, {"i": "9"})
    assert merged.null_columns == {"f", "s"}
    assert merge_statistics(ColumnStatistics(null_columns=frozenset("ifs")), merged, SCHEMA) == merged


def test_merging_with_an_unknown_bound_forgets_it():
    with_nan = statistics(f=[5.0, math.nan])
    for pair in ((with_nan, statistics(f=[1.0])), (statistics(f=[1.0]), with_nan)):
        merged = merge_statistics(*pair, SCHEMA)
        assert merged.min_values == {"f": "1.0"}
        assert merged.max_values == {}


@settings(max_examples=100)
@given(st.lists(st.none() | st.integers(-20, 20), max_size=6), st.integers(0, 6))
def test_statistics_of_parts_merge_to_those_of_the_whole(numbers, cut):
    parts = [
        statistics(i=part, f=[None if n is None else float(n) for n in part])
        for part in (numbers[:cut], numbers[cut:])
    ]
    whole = statistics(i=numbers, f=[None if n is None else float(n) for n in numbers])
    merged = merge_statistics(*parts, SCHEMA)
    assert merged.min_values == whole.min_values
    assert merged.max_values == whole.max_values
