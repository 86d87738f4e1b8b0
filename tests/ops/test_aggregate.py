"""Aggregations over whole tables agree with pyarrow's results on the rows."""

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables import IndexTable
from indextables.errors import InvalidAggregationError
from indextables.search import Histogram, Metric, MetricFunction, Terms

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("body", pa.string()),
        ("level", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("ok", pa.bool_()),
        ("on", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.string()),
        ("month", pa.int32()),
    ]
)
START = datetime(2024, 1, 1, tzinfo=UTC)
NUMBERS = ["n", "x", "price"]
ORDERED = [*NUMBERS, "on", "at"]

# Predicates and their pyarrow equivalents. The index decides the second; the last two need the rows.
WHERES = {
    None: None,
    "n >= 0": pc.field("n") >= 0,
    "day = 'b'": pc.field("day") == "b",
    "day IS NULL": pc.field("day").is_null(),
    "level LIKE '%R%'": pc.match_substring(pc.field("level"), "R"),
    "day = 'a' OR n = 1": (pc.field("day") == "a") | (pc.field("n") == 1),
}


@pytest.fixture(scope="module")
def rows():
    chance = random.Random(11)

    def maybe(value):
        return chance.choice([None, value, value, value])

    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "body": chance.choice(["timeout in the lake", "all is well", "a timeout"]),
                "level": maybe(chance.choice(["ERROR", "WARN", "INFO", ""])),
                "n": maybe(chance.randrange(-5, 15)),
                "x": maybe(chance.choice([0.5, -1.25, 3.0, 1e10])),
                "price": maybe(Decimal(chance.randrange(-500, 5000)) / 100),
                "ok": maybe(chance.random() < 0.5),
                "on": maybe(date(2023, 12, 25) + timedelta(days=chance.randrange(20))),
                "at": maybe(START + timedelta(minutes=chance.randrange(-3000, 3000), microseconds=1)),
                "day": chance.choice(["a", "b", None]),
                "month": chance.choice([9, 10]),
            }
            for number in range(200)
        ],
        SCHEMA,
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("aggregate") / "table"
    created = IndexTable.create(path, SCHEMA, partition_by=["day", "month"], text=["body"])
    for start in (0, 120):
        created.append(rows.slice(start, 120))
    return created


def expected_metrics(rows):
    found = {"count": rows.num_rows, "count(level)": pc.count(rows["level"]).as_py()}
    for name in ORDERED:
        found[f"count({name})"] = pc.count(rows[name]).as_py()
        found[f"min({name})"] = pc.min(rows[name]).as_py()
        found[f"max({name})"] = pc.max(rows[name]).as_py()
    for name in NUMBERS:
        found[f"sum({name})"] = pc.sum(rows[name]).as_py()
    return found


@pytest.mark.parametrize("where", WHERES, ids=str)
def test_metrics_over_all_rows(table, rows, where):
    expected = expected_metrics(rows if where is None else rows.filter(WHERES[where]))
    (found,) = table.aggregate(list(expected), where=where).to_pylist()
    assert found == expected


def test_averages_and_their_types(table, rows):
    answer = table.aggregate(["avg(n)", "avg(x)", "avg(price)"])
    (found,) = answer.to_pylist()
    assert found["avg(n)"] == pytest.approx(pc.mean(rows["n"]).as_py())
    assert found["avg(x)"] == pytest.approx(pc.mean(rows["x"]).as_py())
    exact = sum(rows["price"].drop_null().to_pylist()) / pc.count(rows["price"]).as_py()
    assert found["avg(price)"] == exact.quantize(Decimal("0.000001"))
    assert answer.schema.field("avg(price)").type == pa.decimal128(14, 6)


def test_metrics_of_rows_that_a_query_finds(table, rows):
    in_lake = rows.filter(pc.field("body") == "timeout in the lake")
    (found,) = table.aggregate(["count", "sum(n)"], query="timeout AND lake").to_pylist()
    assert found == {"count": in_lake.num_rows, "sum(n)": pc.sum(in_lake["n"]).as_py()}
    both = in_lake.filter(pc.match_substring(pc.field("level"), "R") & (pc.field("day") == "a"))
    where = "level LIKE '%R%' AND day = 'a'"
    (found,) = table.aggregate(["count", "max(at)"], query="lake", where=where).to_pylist()
    assert found == {"count": both.num_rows, "max(at)": pc.max(both["at"]).as_py()}


def grouped(rows, name, *metrics):
    """Groups like those of Terms: the largest first, then by value, without null."""
    present = rows.filter(pc.field(name).is_valid())
    groups = present.group_by(name).aggregate([([], "count_all"), *metrics])
    return groups.sort_by([("count_all", "descending"), (name, "ascending")])


@pytest.mark.parametrize("name", ["level", "n", "ok", "on", "day", "month", "price"])
@pytest.mark.parametrize("where", [None, "n >= 0", "level LIKE '%R%'"])
def test_groups_by_the_values_of_a_column(table, rows, name, where):
    expected = grouped(
        rows if where is None else rows.filter(WHERES[where]),
        name,
        ("n", "sum"),
        ("x", "count"),
        ("at", "min"),
    )
    found = table.aggregate(["count", "sum(n)", "count(x)", "min(at)"], by=Terms(name, 1000), where=where)
    assert found.schema.names == [name, "count", "sum(n)", "count(x)", "min(at)"]
    assert found.schema.field(name).type == SCHEMA.field(name).type
    columns = [name, "count_all", "n_sum", "x_count", "at_min"]
    assert [list(row.values()) for row in found.to_pylist()] == [
        list(row.values()) for row in expected.select(columns).to_pylist()
    ]


def test_the_largest_groups_come_first_and_ten_by_default(table, rows):
    expected = grouped(rows, "n")["n"].to_pylist()
    assert table.aggregate(by="n")["n"].to_pylist() == expected[:10]
    assert table.aggregate(by=Terms("n", 3))["n"].to_pylist() == expected[:3]


def histogram(rows, name, bucket):
    """Counts grouped by a function of the value, lowest first."""
    counts = {}
    for value in rows[name].drop_null().to_pylist():
        counts[bucket(value)] = counts.get(bucket(value), 0) + 1
    return [{name: key, "count": counts[key]} for key in sorted(counts)]


def test_histograms_of_numbers(table, rows):
    assert table.aggregate(by=Histogram("n", 4)).to_pylist() == histogram(rows, "n", lambda v: v // 4 * 4)
    shifted = table.aggregate(by=Histogram("n", 4, offset=1)).to_pylist()
    assert shifted == histogram(rows, "n", lambda v: (v - 1) // 4 * 4 + 1)
    floats = table.aggregate(by=Histogram("x", 2.5)).to_pylist()
    assert floats == histogram(rows, "x", lambda v: math.floor(v / 2.5) * 2.5)
    decimals = table.aggregate(by=Histogram("price", 10)).to_pylist()
    assert decimals == histogram(rows, "price", lambda v: Decimal(math.floor(v / 10) * 10))


def test_histograms_of_dates_and_moments(table, rows):
    epoch = date(1970, 1, 1)
    weeks = table.aggregate(by=Histogram("on", timedelta(days=7))).to_pylist()
    assert weeks == histogram(rows, "on", lambda v: epoch + (v - epoch) // timedelta(7) * timedelta(7))
    hours = table.aggregate(["count", "sum(n)"], by=Histogram("at", timedelta(hours=6)), where="n >= 0")
    zero, step = datetime(1970, 1, 1, tzinfo=UTC), timedelta(hours=6)
    kept = rows.filter(pc.field("n") >= 0)
    expected = histogram(kept, "at", lambda v: zero + (v - zero) // step * step)
    assert hours.select(["at", "count"]).to_pylist() == expected
    assert sum(hours["sum(n)"].to_pylist()) == pc.sum(kept.filter(pc.field("at").is_valid())["n"]).as_py()


def test_count_is_the_default_metric(table):
    assert table.aggregate().to_pylist() == [{"count": 200}]
    assert table.aggregate([Metric(MetricFunction.COUNT)], query="timeout").to_pylist() == [
        {"count": table.count("timeout")}
    ]


def test_no_matching_row_gives_empty_metrics_and_no_groups(table):
    for where in ("n > 1000", "day = 'z'", "level LIKE '%nowhere%'"):
        (found,) = table.aggregate(
            ["count", "count(n)", "sum(n)", "avg(x)", "min(on)"], where=where
        ).to_pylist()
        assert found == {"count": 0, "count(n)": 0, "sum(n)": None, "avg(x)": None, "min(on)": None}
        assert table.aggregate(by="level", where=where).num_rows == 0
        assert table.aggregate(by=Histogram("n", 5), where=where).num_rows == 0


def test_nan_is_above_all_numbers(tmp_path):
    table = IndexTable.create(tmp_path / "table", pa.schema([("x", pa.float64())]))
    table.append(pa.table({"x": [1.0, math.nan]}))
    table.append(pa.table({"x": [2.0, -math.inf]}))
    (found,) = table.aggregate(["min(x)", "max(x)"]).to_pylist()
    assert found["min(x)"] == -math.inf
    assert math.isnan(found["max(x)"])
    (found,) = table.aggregate(["max(x)"], where="x < 1.5").to_pylist()
    assert found["max(x)"] == 1.0


def test_whole_numbers_stay_exact_beyond_doubles(tmp_path):
    table = IndexTable.create(tmp_path / "table", pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": [2**62, 1]}))
    table.append(pa.table({"n": [2**61 + 1, -5]}))
    (found,) = table.aggregate(["sum(n)", "min(n)", "max(n)"]).to_pylist()
    assert found == {"sum(n)": 2**62 + 2**61 - 3, "min(n)": -5, "max(n)": 2**62}


@pytest.mark.parametrize(
    ("metrics", "by", "match"),
    [
        (["sum(level)"], None, "level"),
        (["sum(nope)"], None, "'nope'"),
        (["median(n)"], None, "median"),
        (["sum"], None, "column"),
        ([], None, "metric"),
        (["count"], "nope", "'nope'"),
        (["count"], Histogram("level", 3), "level"),
        (["count"], Histogram("on", 3), "timedelta"),
        (["count"], Histogram("n", timedelta(days=1)), "number"),
    ],
    ids=str,
)
def test_invalid_aggregations_are_rejected_by_name(table, metrics, by, match):
    with pytest.raises(InvalidAggregationError, match=match):
        table.aggregate(metrics, by=by)


def test_an_empty_table_rejects_invalid_aggregations_and_counts_nothing(tmp_path):
    table = IndexTable.create(tmp_path / "table", SCHEMA)
    with pytest.raises(InvalidAggregationError, match="level"):
        table.aggregate(["sum(level)"])
    with pytest.raises(InvalidAggregationError, match="'nope'"):
        table.aggregate(by="nope")
    assert table.aggregate(["count", "sum(n)", "max(at)"]).to_pylist() == [
        {"count": 0, "sum(n)": None, "max(at)": None}
    ]
