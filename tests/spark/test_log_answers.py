"""Minima, maxima and counts that come from the log: the splits are gone, so nothing else can answer."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from indextables import IndexTable
from support.row_tables import split_files
from support.spark_frames import load
from support.spark_releases import SPARK_ERRORS, needs_sources

AT = [dt.datetime(2026, 1, day, 12, tzinfo=dt.UTC) for day in (1, 2, 3, 4)]
ROWS = pa.table(
    {
        "id": [4, 1, 3, 2],
        "at": pa.array(AT, pa.timestamp("us", tz="UTC")),
        "born": [each.date() for each in AT],
        "name": ["d", "b", "c", "a"],
        "x": [0.0, -0.0, 1.5, float("nan")],
        "part": ["a", None, "b", "é"],
        "nothing": pa.array([None] * 4, pa.int32()),
    }
)


@pytest.fixture
def table(path: str) -> IndexTable:
    table = IndexTable.create(path, ROWS.schema, partition_by=["part", "nothing"])
    table.append(ROWS.slice(0, 3))
    table.append(ROWS.slice(3))
    return table


def lose_splits(path: str) -> None:
    for name in split_files(Path(path)):
        Path(path, name).unlink()


def test_extremes_and_counts_need_no_split_where_the_log_knows_them(
    spark: SparkSession, table: IndexTable, path: str
) -> None:
    lose_splits(path)
    frame = load(spark, path)
    asked = [
        F.min("id"),
        F.max("AT").alias("last"),
        F.max("born"),
        F.count("*"),
        F.min("part"),
        F.max("part"),
    ]
    for found in (frame.agg(*asked), frame.select(*asked)):
        assert found.columns == ["min(id)", "last", "max(born)", "count(1)", "min(part)", "max(part)"]
        assert [row.asDict() for row in found.collect()] == [
            {"min(id)": 1, "last": found.first()["last"], "max(born)": dt.date(2026, 1, 4)}
            | {"count(1)": 4, "min(part)": "a", "max(part)": "é"}
        ]
        assert found.selectExpr("unix_seconds(last) AS s").first().s == AT[3].timestamp()
    assert frame.agg(F.max("nothing"), F.max("nothing")).collect() == [(None, None)]
    assert load(spark, path, where="part > 'a'").agg(F.min("id")).collect() == [(2,)]
    assert load(spark, path, where="part = 'none'").agg(F.min("id"), F.count("*")).collect() == [(None, 0)]
    unknown = (
        *(frame.agg(F.min(name)) for name in ("name", "x")),
        frame.agg(F.min("id"), F.sum("id")),
        frame.groupBy("part").agg(F.min("id")),
        frame.where("id > 0").agg(F.min("id")),
        load(spark, path, where="id > 1").agg(F.min("id")),
    )
    for each in unknown:
        with pytest.raises(SPARK_ERRORS):
            each.collect()


def test_deleted_rows_leave_the_extremes_of_partitions_known(
    spark: SparkSession, table: IndexTable, path: str
) -> None:
    table.delete("part = 'é' OR id = 1")
    table.append(pa.table({**{name: ROWS[name] for name in ROWS.column_names}, "part": ["b"] * 4}))
    table.delete("part = 'b' AND id = 4")
    assert load(spark, path).agg(F.max("id"), F.min("id")).collect() == [(4, 1)]
    lose_splits(path)
    assert load(spark, path).agg(F.max("part"), F.count("*")).collect() == [("b", 5)]


@needs_sources
def test_sql_asks_the_log_by_path_and_by_name(spark: SparkSession, table: IndexTable, path: str) -> None:
    spark.sql(f"CREATE TABLE answered USING indextables LOCATION '{path}'")
    lose_splits(path)
    try:
        text = "SELECT max(part) AS last, count(*), min(t.id) FROM answered t"
        assert spark.sql(text).collect() == [("é", 4, 1)]
        assert spark.sql(text).columns == ["last", "count(1)", "min(id)"]
        assert spark.sql(f"SELECT max(id) FROM indextables.`{path}` VERSION AS OF 1").collect() == [(4,)]
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW latest AS SELECT max(born) AS d FROM answered")
        assert spark.sql("SELECT d FROM latest").collect() == [(dt.date(2026, 1, 4),)]
        others = (
            "max(id) FROM answered WHERE id > 1",
            "DISTINCT max(name) FROM answered",
            "max(id + 1) FROM answered",
        )
        for each in others:
            with pytest.raises(SPARK_ERRORS):
                spark.sql(f"SELECT {each}").collect()
    finally:
        spark.sql("DROP TABLE answered")
