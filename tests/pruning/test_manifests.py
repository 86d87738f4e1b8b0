"""Partition bounds of manifests."""

import pyarrow as pa
import pytest

from indextables.predicates import bind, parse_predicate
from indextables.pruning import Bounds, BoundsOrder, bounds_may_match, partition_bounds, prune_manifests
from indextables.schema import TableShape

STRING_MAP = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("month", pa.int32()),
        ("region", pa.string()),
        ("day", pa.date32()),
        ("ratio", pa.float64()),
        ("price", pa.decimal128(6, 2)),
        ("flag", pa.bool_()),
        ("hour", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("id", pa.int64()),
    ]
)
PARTITION_COLUMNS = ["month", "region", "day", "ratio", "price", "flag", "hour"]
SHAPE = TableShape(SCHEMA, tuple(PARTITION_COLUMNS))


def bounds_of(column, *texts):
    maps = [[] if text is None else [(column, text)] for text in texts]
    return partition_bounds(pa.array(maps, STRING_MAP), TableShape(SCHEMA, (column,)))


def may_match(where, bounds, order=BoundsOrder.TYPED):
    return bounds_may_match(bind(parse_predicate(where), SCHEMA), bounds, SHAPE, order=order)


@pytest.mark.parametrize(
    ("column", "texts", "least", "greatest"),
    [
        ("month", [str(n) for n in range(1, 13)], "1", "12"),
        ("month", ["10", "-3", "007", None], "-3", "10"),
        ("region", ["100", "25", "9"], "100", "9"),
        ("region", ["", "null", None], "", "null"),
        ("region", ["a\uffff", "a\U00010000"], "a\uffff", "a\U00010000"),
        ("day", ["2024-01-10", "2024-01-09"], "2024-01-09", "2024-01-10"),
        ("ratio", ["9.5", "10", "-0.0", "1E1"], "-0.0", "10"),
        ("ratio", ["Infinity", "NaN", "1"], "1", "NaN"),
        ("price", ["9.5", "10.00"], "9.5", "10.00"),
        ("flag", ["true", "false"], "false", "true"),
        (
            "hour",
            ["2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z"],
            "2024-01-01T00:00:00Z",
            "2024-01-01T00:00:00.5Z",
        ),
    ],
)
def test_bounds_are_computed_by_type(column, texts, least, greatest):
    assert bounds_of(column, *texts) == {column: Bounds(least, greatest)}


def test_all_null_has_the_bounds_null_and_null():
    assert bounds_of("month", None, None) == {"month": Bounds(None, None)}
    assert bounds_of("raw", None) == {"raw": Bounds(None, None)}


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("month", "Jan"),
        ("day", "2024-9"),
        ("day", "20260322"),
        ("raw", "x"),
        ("region", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_column_with_a_value_that_does_not_parse_has_no_bounds(column, text):
    good = {"month": "1", "day": "2024-01-01"}.get(column)
    assert bounds_of(column, good, text) == {}


def test_bounds_of_several_columns_in_chunks():
    maps = pa.chunked_array(
        [
            pa.array([[("month", "9"), ("region", "eu")]], STRING_MAP),
            pa.array([[("month", "10"), ("region", "us")], [("region", "us")]], STRING_MAP),
        ]
    )
    assert partition_bounds(maps, TableShape(SCHEMA, ("month", "region"))) == {
        "month": Bounds("9", "10"),
        "region": Bounds("eu", "us"),
    }


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("month = 5", True),
        ("month = 13", False),
        ("month > 9", True),
        ("month > 12", False),
        ("month >= 12", True),
        ("month < 1", False),
        ("month <= 1", True),
        ("month BETWEEN 2 AND 11", True),
        ("month BETWEEN 13 AND 20", False),
        ("month IN (0, 13)", False),
        ("month IN (0, 5, 13)", True),
        ("month NOT IN (5)", True),
        ("month <> 5", True),
        ("NOT (month BETWEEN 1 AND 12)", False),
        ("NOT (month BETWEEN 2 AND 12)", True),
        ("month IS NULL", True),
        ("month IS NOT NULL", True),
        ("NOT (month > 12)", True),
        ("month = 13 OR id = 5", True),
        ("month = 13 AND id = 5", False),
        ("id = 5", True),
        ("NOT (month = 5 OR id = 5)", True),
        ("month = NULL", False),
        ("day = '2024-01-01'", True),
    ],
)
def test_manifest_of_the_months_one_to_twelve(where, expected):
    assert may_match(where, {"month": Bounds("1", "12")}) is expected


def test_absent_bounds_never_skip():
    for where in ("month = 5", "NOT (month = 5)", "month IS NULL", "region LIKE 'x%'"):
        assert may_match(where, None)
        assert may_match(where, {})
        assert may_match(where, {"month": Bounds(None, None)})


def test_all_null_is_never_skipped():
    for where in ("month = 5", "month IS NOT NULL", "month IS NULL", "NOT (month > 3)"):
        assert may_match(where, {"month": Bounds(None, None)})


def test_bounds_that_do_not_parse_never_skip():
    for order in BoundsOrder:
        assert may_match("day > '2030-01-01'", {"day": Bounds("2024-1", "2024-9")}, order)
        assert may_match("month = 99", {"month": Bounds("a", "b")}, order)


def test_one_side_alone_skips():
    assert not may_match("month > 5", {"month": Bounds(None, "5")})
    assert may_match("month < 5", {"month": Bounds(None, "5")})


def test_single_value_excludes_its_negation():
    one = {"region": Bounds("eu", "eu")}
    assert not may_match("region <> 'eu'", one)
    assert not may_match("region NOT IN ('us', 'eu')", one)
    assert not may_match("region NOT LIKE 'e%'", one)
    assert not may_match("region LIKE '%x'", one)
    assert may_match("region LIKE '_u'", one)


def test_bounds_that_a_writer_compared_as_text_lose_no_manifest():
    by_text = {"month": Bounds("1", "9")}  # of the months 1 to 12, as texts
    assert may_match("month = 12", by_text, BoundsOrder.UNKNOWN)
    assert may_match("month BETWEEN 10 AND 11", by_text, BoundsOrder.UNKNOWN)
    assert not may_match("month = 12", by_text, BoundsOrder.TYPED)


def test_bounds_of_unknown_order_still_skip_where_all_orders_agree():
    unknown = BoundsOrder.UNKNOWN
    assert not may_match(
        "month = 13", {"month": Bounds("9", "12")}, unknown
    )  # "9" > "12": not compared as text
    assert not may_match("month = 13", {"month": Bounds("12", "12")}, unknown)
    assert not may_match("day = '2024-02-01'", {"day": Bounds("2024-01-01", "2024-01-31")}, unknown)
    assert not may_match("region = 'zz'", {"region": Bounds("a", "m")}, unknown)
    assert not may_match("flag", {"flag": Bounds("false", "false")}, unknown)


def test_text_bounds_in_the_order_of_the_jvm_lose_no_manifest():
    jvm = {"region": Bounds("a\U00010000", "a\uffff")}
    for text in ("a\U00010000", "a\ue000", "a\uffff", "a\U0010ffff"):
        assert may_match(f"region = '{text}'", jvm, BoundsOrder.UNKNOWN)
    assert not may_match("region = 'b'", jvm, BoundsOrder.UNKNOWN)


@pytest.mark.parametrize(
    ("where", "column", "texts"),
    [
        ("flag", "flag", ["True", "false", "FALSE"]),
        ("flag = true", "flag", ["TRUE", "FALSE"]),
        ("day < '2024-01-01'", "day", ["2024-01-05", "20240322"]),
        ("day > '2024-01-01'", "day", ["+10000-01-01", "2024-01-01"]),
    ],
)
def test_bounds_by_text_hold_only_for_values_in_the_one_spelling_that_sorts_like_them(where, column, texts):
    by_text = {column: Bounds(min(texts), max(texts))}
    assert may_match(where, by_text, BoundsOrder.UNKNOWN)


def test_bounds_by_text_of_booleans_and_dates_in_their_one_spelling_prune():
    for where, column, least, greatest in (
        ("flag", "flag", "false", "false"),
        ("day > '2024-03-22'", "day", "2024-01-05", "2024-03-22"),
    ):
        assert not may_match(where, {column: Bounds(least, greatest)}, BoundsOrder.UNKNOWN)


def test_many_manifests_are_answered_at_once():
    manifests = [{"month": Bounds(str(n), str(n))} for n in range(1, 13)] + [None, {}]
    kept = prune_manifests(bind(parse_predicate("month > 9"), SCHEMA), manifests, SHAPE)
    assert kept.to_pylist() == [False] * 9 + [True] * 5
    assert prune_manifests(bind(parse_predicate("month > 9"), SCHEMA), [], SHAPE).to_pylist() == []
