"""Aggregations by several groupings, intervals of the calendar and ranges, and their metrics, over splits."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from indextables import DateHistogram, Histogram, IndexTable, Metric, Range, Ranges, Terms
from indextables.errors import InvalidAggregationError
from indextables.search import MetricFunction
from indextables.search.aggregation import Aggregation, split_list
from indextables.search.groupings import parse_grouping

SCHEMA = pa.schema(
    [
        ("level", pa.string()),
        ("host", pa.string()),
        ("status", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("user", pa.struct([("name", pa.string()), ("home", pa.struct([("city", pa.string())]))])),
        ("message", pa.string()),
    ]
)


def row(number: int) -> dict[str, object]:
    city = {"city": "Köln" if number % 3 else None}
    return {
        "level": ["ERROR", "INFO", "INFO", "WARN"][number % 4],
        "host": ["a", "b", None][number % 3],
        "status": 200 + 100 * (number % 4),
        "price": Decimal(number) / 4,
        "ts": datetime(2026, 3, 28, 20, tzinfo=UTC) + timedelta(hours=2 * number),
        "day": date(2026, 1, 31) + timedelta(days=10 * number),
        "user": {"name": f"user {number % 2}", "home": city},
        "message": "disk full" if number % 2 else "disk fine",
    }


ROWS = [row(number) for number in range(24)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> IndexTable:
    """Two splits with a few deleted rows, which have values of their own."""
    path = tmp_path_factory.mktemp("groupings") / "table"
    created = IndexTable.create(path, SCHEMA, text=["message"])
    gone = {**row(0), "level": "GONE", "status": 999}
    for start in (0, 10):
        created.append(pa.Table.from_pylist([*ROWS[start : 10 if start == 0 else 24], gone], SCHEMA))
    created.delete(where="level = 'GONE'")
    return created


def test_several_columns_give_all_combinations_from_the_largest_outer_group(table: IndexTable) -> None:
    found = table.aggregate(["count"], by=["level", "host"])
    expected: dict[tuple[object, object], int] = {}
    for each in ROWS:
        if each["host"] is not None:
            key = (each["level"], each["host"])
            expected[key] = expected.get(key, 0) + 1
    assert found.column_names == ["level", "host", "count"]
    assert {(each["level"], each["host"]): each["count"] for each in found.to_pylist()} == expected
    levels = list(dict.fromkeys(found["level"].to_pylist()))
    assert levels == ["INFO", "ERROR", "WARN"]


def test_inner_terms_are_chosen_within_each_outer_group(table: IndexTable) -> None:
    by = [Terms("level", 2, order="key"), Terms("user.name", 1, order="-max(price)")]
    found = table.aggregate(["count", "max(price)"], by=by).to_pylist()
    assert [(each["level"], each["user.name"], each["max(price)"]) for each in found] == [
        ("ERROR", "user 0", Decimal("5.00")),
        ("INFO", "user 0", Decimal("5.50")),
    ]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("-count", ["INFO", "ERROR", "WARN"]),
        ("count", ["ERROR", "WARN", "INFO"]),
        ("key", ["ERROR", "INFO", "WARN"]),
        ("-key", ["WARN", "INFO", "ERROR"]),
        ("-sum(price)", ["INFO", "WARN", "ERROR"]),
        ("avg(price)", ["ERROR", "INFO", "WARN"]),
    ],
)
def test_terms_are_ordered_as_asked(table: IndexTable, order: str, expected: list[str]) -> None:
    metrics = ["count", "sum(price)", "avg(price)"]
    assert table.aggregate(metrics, by=Terms("level", order=order))["level"].to_pylist() == expected
    two = table.aggregate(metrics, by=Terms("level", 2, order))
    assert two["level"].to_pylist() == expected[:2]


def test_rare_groups_are_left_out(table: IndexTable) -> None:
    assert table.aggregate(by=Terms("level", min_doc_count=7)).to_pylist() == [{"level": "INFO", "count": 12}]
    days = table.aggregate(by=DateHistogram("ts", "1d", min_doc_count=12))
    assert days.to_pylist() == [{"ts": datetime(2026, 3, 29, tzinfo=UTC), "count": 12}]


def test_top_terms_are_those_of_the_whole_table(tmp_path, monkeypatch):
    """No split has "c" among its two most frequent values, and with more values than the index returns, rows answer."""
    created = IndexTable.create(tmp_path / "t", pa.schema([("x", pa.string())]))
    for values in ("aaabbbcc", "dddeeecc", "fffgggcc"):
        created.append(pa.table({"x": list(values)}))
    expected = [{"x": "c", "count": 6}, {"x": "a", "count": 3}]
    assert created.aggregate(by=Terms("x", 2)).to_pylist() == expected
    monkeypatch.setattr("indextables.search.split_aggregate.MAX_GROUPS", 2)
    assert created.aggregate(by=Terms("x", 2)).to_pylist() == expected


def test_members_of_structs_group_and_are_measured(table: IndexTable) -> None:
    (found,) = table.aggregate(
        ["count(user.home.city)", "cardinality(user.name)", "min(USER.name)"]
    ).to_pylist()
    assert found == {"count(user.home.city)": 16, "cardinality(user.name)": 2, "min(USER.name)": "user 0"}
    assert table.aggregate(by="user.home.city").to_pylist() == [{"user.home.city": "Köln", "count": 16}]


def test_days_of_a_time_zone_have_23_hours_when_clocks_change(table: IndexTable) -> None:
    days = table.aggregate(by=DateHistogram("ts", "1d", time_zone="Europe/Berlin")).to_pylist()
    assert [(each["ts"].astimezone(UTC), each["count"]) for each in days] == [
        (datetime(2026, 3, 27, 23, tzinfo=UTC), 2),
        (datetime(2026, 3, 28, 23, tzinfo=UTC), 11),
        (datetime(2026, 3, 29, 22, tzinfo=UTC), 11),
    ]


def test_intervals_follow_the_calendar(table: IndexTable) -> None:
    months = table.aggregate(by=DateHistogram("day", "1M"))
    assert months.schema.field("day").type == pa.date32()
    assert months["day"].to_pylist() == [date(2026, month, 1) for month in range(1, 10)]
    quarters = table.aggregate(by=DateHistogram("day", "quarter"))
    assert quarters["day"].to_pylist() == [date(2026, month, 1) for month in (1, 4, 7)]
    weeks = table.aggregate(by=DateHistogram("day", "1w"))["day"].to_pylist()
    assert {week.weekday() for week in weeks} == {0}
    from_six = table.aggregate(by=DateHistogram("ts", "1d", offset="6h"))["ts"].to_pylist()
    assert {moment.hour for moment in from_six} == {6}


def test_ranges_have_names_and_their_own_order(table: IndexTable) -> None:
    found = table.aggregate(["count", "max(status)"], by=Ranges("status", [300, 400]), query="disk")
    assert found.to_pylist() == [
        {"status": "*-300", "count": 6, "max(status)": 200},
        {"status": "300-400", "count": 6, "max(status)": 300},
        {"status": "400-*", "count": 12, "max(status)": 500},
    ]
    some = [Range("2026-03-29", None, "later"), Range(None, datetime(2026, 3, 29, tzinfo=UTC), "earlier")]
    assert table.aggregate(by=Ranges("ts", some)).to_pylist() == [
        {"ts": "later", "count": 22},
        {"ts": "earlier", "count": 2},
    ]


def test_stats_and_percentiles_are_structs(table: IndexTable) -> None:
    (found,) = table.aggregate(
        ["stats(status)", "percentiles(status, 0, 50, 99.9)"], query="full"
    ).to_pylist()
    assert found["stats(status)"] == {"count": 12, "min": 300, "max": 500, "sum": 4800, "avg": 400.0}
    assert found["percentiles(status)"] == {"p0": 300.0, "p50": 400.0, "p99.9": 500.0}
    (nothing,) = table.aggregate(["stats(status)", "percentiles(status, 50)"], query="absent").to_pylist()
    assert nothing["stats(status)"] == {"count": 0, "min": None, "max": None, "sum": None, "avg": None}
    assert nothing["percentiles(status)"] == {"p50": None}


def test_text_comes_from_the_rows(table: IndexTable) -> None:
    assert table.aggregate(["count", "cardinality(host)", "max(message)"], by="message").to_pylist() == [
        {"message": "disk fine", "count": 12, "cardinality(host)": 2, "max(message)": "disk fine"},
        {"message": "disk full", "count": 12, "cardinality(host)": 2, "max(message)": "disk full"},
    ]


def test_an_empty_table_has_the_same_columns(tmp_path) -> None:
    created = IndexTable.create(tmp_path / "t", SCHEMA, text=["message"])
    metrics = ["cardinality(host)", "percentiles(status, 50)", "stats(price)"]
    assert created.aggregate(metrics).num_rows == 1
    by = ["level", DateHistogram("ts", "1M"), Ranges("status", [300])]
    assert created.aggregate(metrics, by=by).schema.names == ["level", "ts", "status", *(
        "cardinality(host)", "percentiles(status)", "stats(price)")]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: Histogram("ts", "1d"), "DateHistogram takes texts such as '1d'"),
        (lambda: DateHistogram("ts", "fortnight"), "'fortnight' is no interval"),
        (lambda: DateHistogram("ts", "0d"), "'0d' is no interval"),
        (lambda: DateHistogram("ts", timedelta(0)), "above zero"),
        (lambda: DateHistogram("ts", "1d", offset="1M"), "must have a fixed length"),
        (lambda: DateHistogram("ts", "1d", time_zone="Berlin"), "there is no time zone 'Berlin'"),
        (lambda: DateHistogram("ts", "1h", time_zone="Europe/Berlin"), "use an offset instead"),
        (lambda: Ranges("n", []), "give the bounds"),
        (lambda: Ranges("n", [1, Range(2, 3)]), "give the bounds"),
        (lambda: Ranges("n", [Range(1, 2, "x"), Range(2, 3, "x")]), "same name"),
        (
            lambda: Terms("n", order="max(price)") and Aggregation(by=(Terms("n", order="max(price)"),)),
            "order",
        ),
        (lambda: Aggregation.of(["count"], by=["a", "A"]), "twice"),
        (lambda: Metric(MetricFunction.PERCENTILES, "x", (101,)), "from 0 to 100"),
        (lambda: Metric.parse("percentiles(x, half)"), "'half' is not a number"),
        (lambda: parse_grouping("histogram(x)"), "is not a grouping"),
    ],
)
def test_wrong_requests_are_refused_with_a_remedy(build, told: str) -> None:
    with pytest.raises(InvalidAggregationError, match=told):
        build()


@pytest.mark.parametrize(
    ("by", "told"),
    [
        (Ranges("status", [Range(1, 5), Range(4, 9)]), "overlap"),
        (Ranges("status", [Range(5, 5)]), "ends where it starts"),
        (Ranges("status", ["2026-01-01"]), "no bound for the type int32"),
        (Ranges("ts", [5]), "no bound for the type timestamp"),
        (Ranges("level", [5]), "ranges cannot group"),
        (DateHistogram("status", "1d"), "a date histogram cannot group"),
        (DateHistogram("day", "1h"), "not a multiple"),
        (DateHistogram("day", "1d", time_zone="Europe/Berlin"), "has no time zone"),
        (Terms("user"), "terms cannot group"),
        ("user.nme", "no column 'user.nme'"),
    ],
)
def test_groupings_that_do_not_fit_the_column_are_refused(table: IndexTable, by, told: str) -> None:
    with pytest.raises(InvalidAggregationError, match=told):
        table.aggregate(by=by)


def test_groupings_and_metrics_are_written_as_text() -> None:
    assert split_list("count, percentiles(x, 1, 99) ,max(y)") == ("count", "percentiles(x, 1, 99)", "max(y)")
    assert parse_grouping(" level ") == Terms("level")
    assert parse_grouping("terms(level, 3)") == Terms("level", 3)
    assert parse_grouping("histogram(price, 0.5)") == Histogram("price", Decimal("0.5"))
    assert parse_grouping("date_histogram(ts, 1M, Europe/Berlin)") == DateHistogram(
        "ts", "1M", time_zone="Europe/Berlin"
    )
    assert parse_grouping("ranges(status, 300, 400)") == Ranges("status", [300, 400])
