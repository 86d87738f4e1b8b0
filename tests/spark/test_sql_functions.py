"""Functions of an enabled session: table functions, and buckets in GROUP BY."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from indextables import IndexTable
from indextables.errors import InvalidQueryError


def _ask(spark, text):
    return [tuple(row) for row in spark.sql(text).collect()]


@pytest.fixture(scope="module")
def products(spark, tmp_path_factory):
    path = (tmp_path_factory.mktemp("functions") / "products").as_posix()
    table = IndexTable.create(
        path,
        pa.schema(
            [
                ("id", pa.int64()),
                ("shop", pa.string()),
                ("about", pa.string()),
                ("price", pa.float64()),
                ("sold", pa.timestamp("us", "UTC")),
                ("tags", pa.map_(pa.string(), pa.int64())),
            ]
        ),
        text=["about"],
    )
    sold = [datetime(2026, 1, 1, hour, 59, 59, tzinfo=UTC) for hour in (0, 1, 1, 23)]
    table.append(
        pa.Table.from_pydict(
            {
                "id": [1, 2, 3, 4],
                "shop": ["a", "a", "b", None],
                "about": ["red shoe", "red hat", "blue hat", None],
                "price": [10.0, 50.0, 99.5, -1.0],
                "sold": sold,
                "tags": [[("x", 1)], [], None, None],
            },
            table.schema,
        )
    )
    spark.read.format("indextables").load(path).createOrReplaceTempView("products")
    yield path
    spark.catalog.dropTempView("products")


def test_a_table_function_searches(spark, products):
    found = spark.sql(f"SELECT * FROM indextables_search('{products}', 'about:red')")
    assert found.columns == ["id", "shop", "about", "price", "sold", "tags", "_score"]
    assert {(row.id, tuple((row.tags or {}).items())) for row in found.collect()} == {
        (1, (("x", 1),)),
        (2, ()),
    }
    best = f"SELECT id FROM indextables_search('{products}', 'red OR hat', 1, 'id')"
    assert _ask(spark, best) == [(2,)]
    with pytest.raises(InvalidQueryError, match="there is no field 'abut'"):
        spark.sql(f"SELECT * FROM indextables_search('{products}', 'abut:red')")


def test_a_table_function_aggregates(spark, products):
    rows = f"SELECT * FROM indextables_aggregate('{products}', 'count, max(price)', 'shop', 'about:red OR about:hat')"
    assert _ask(spark, rows) == [("a", 2, 50.0), ("b", 1, 99.5)]
    assert _ask(spark, f"SELECT * FROM indextables_aggregate('{products}', 'count')") == [(4,)]
    other = spark.newSession()
    with pytest.raises(PySparkException, match="indextables_aggregate"):
        other.sql(rows)


def test_buckets_group_rows(spark, products):
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        hours = _ask(
            spark,
            "SELECT hour(indextables_date_histogram(sold, '1h')) AS h, count(*) FROM products "
            "GROUP BY indextables_date_histogram(sold, '1h') ORDER BY h",
        )
        shifted = _ask(
            spark, "SELECT day(indextables_date_histogram(sold, '1d', '2h')) d FROM products ORDER BY d"
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert hours == [(0, 1), (1, 2), (23, 1)]
    assert shifted == [(1,), (31,), (31,), (31,)]
    prices = (
        "SELECT indextables_histogram(price, 50.0) AS bucket, count(*) AS n, sum(id) FROM products "
        "WHERE about TEXTSEARCH 'red OR hat' GROUP BY indextables_histogram(price, 50.0) ORDER BY bucket"
    )
    assert _ask(spark, prices) == [(0.0, 1, 1), (50.0, 2, 5)]
    tiers = "indextables_range(price, 'cheap', NULL, 50.0, 'mid', 50.0, 99.5, 'expensive', 99.5, NULL)"
    rows = _ask(spark, f"SELECT {tiers} AS tier, count(*) FROM products GROUP BY {tiers} ORDER BY tier")
    assert rows == [("cheap", 2), ("expensive", 1), ("mid", 1)]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("indextables_date_histogram(timestamp'2026-01-01', '1w')", "the interval is 1w, but must be"),
        ("indextables_histogram(1, 0)", "but must be positive"),
    ],
)
def test_a_wrong_interval_is_an_error(spark, call, reason):
    with pytest.raises(PySparkException, match=reason):
        spark.sql(f"SELECT {call}").collect()
