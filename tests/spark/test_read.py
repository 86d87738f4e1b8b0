"""Reads: pruning, time travel, columns, search and views."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from indextables import IndexTable
from indextables.errors import IndexTablesError, InvalidQueryError, InvalidSchemaError
from support.spark_frames import TEXT, ids, load, logs
from support.spark_releases import needs_sources


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The log rows, partitioned by day, appended in two versions."""
    place = (tmp_path_factory.mktemp("read") / "table").as_posix()
    for part in ((1, 2), (3, 4, 5)):
        frame = logs(spark, *part)
        frame.write.format("indextables").partitionBy("day").options(**TEXT).mode("append").save(place)
    return place


def test_versions_and_timestamps_of_the_past_are_read(spark: SparkSession, table: str) -> None:
    first = IndexTable(table).history().to_pylist()[1]
    assert ids(load(spark, table, versionAsOf=1)) == [1, 2]
    assert ids(load(spark, table, timestampAsOf=first["timestamp"].isoformat())) == [1, 2]
    assert ids(load(spark, table, versionAsOf=0)) == []
    with pytest.raises(IndexTablesError, match="not both"):
        load(spark, table, versionAsOf=1, timestampAsOf="2026-01-01")
    with pytest.raises(IndexTablesError, match="version 9"):
        load(spark, table, versionAsOf=9)


def test_columns_and_schema_choose_what_is_read(spark: SparkSession, table: str) -> None:
    assert load(spark, table, columns="level,ID").columns == ["level", "id"]
    frame = spark.read.format("indextables").schema("message string, ID long").load(table)
    assert frame.columns == ["message", "ID"]
    assert frame.where("ID = 3").collect() == [("disk full", 3)]
    with pytest.raises(InvalidSchemaError, match="no column 'nothing'"):
        load(spark, table, columns="nothing")
    for nothing in ("", " , ", "[]"):
        with pytest.raises(IndexTablesError, match="option columns is empty"):
            load(spark, table, columns=nothing)
    with pytest.raises(InvalidSchemaError, match="cannot be read as string"):
        spark.read.format("indextables").schema("id string").load(table)


def test_the_option_where_reads_less(spark: SparkSession, table: str) -> None:
    frame = load(spark, table, where="day = '2026-01-02' AND level = 'ERROR'")
    assert ids(frame) == [3]
    assert frame.rdd.getNumPartitions() == 1
    with pytest.raises(IndexTablesError, match="there is no column 'levl'"):
        load(spark, table, where="levl = 'x'")


def test_the_option_where_prunes_the_splits_of_a_plan_in_python(spark: SparkSession, table: str) -> None:
    def num_tasks(**options: str) -> int:
        tasks = {"spark.indextables.read.taskSize": "1K", "spark.indextables.read.engine": "python"}
        return int(load(spark, table, **tasks, **options).rdd.getNumPartitions())

    assert num_tasks() == IndexTable(table).num_files == 3
    assert num_tasks(where="day = '2026-01-01'") == 1
    assert num_tasks(where="id >= 3") == 2
    assert load(spark, table, where="day = 'never'").count() == 0


def test_the_option_query_finds_rows_without_a_limit(spark: SparkSession, path: str) -> None:
    frame = spark.range(3000).select("id", functions.lit("the same words").alias("words"))
    option = "spark.indextables.indexing.typemap.words"
    frame.write.format("indextables").option(option, "text").mode("append").save(path)
    assert load(spark, path, query="words:same").count() == 3000
    assert load(spark, path, query="same", queryFields="words").where("id % 2 = 0 and id < 100").count() == 50


def test_queries_are_checked_before_any_task_runs(spark: SparkSession, table: str) -> None:
    for query in ("messge:x", "message:(x"):
        with pytest.raises(InvalidQueryError):
            load(spark, table, query=query).count()


def test_sql_orders_the_rows_of_a_search_by_score(spark: SparkSession, table: str) -> None:
    load(spark, table, query="message:timeout", search="true").createOrReplaceTempView("found")
    rows = spark.sql("SELECT id, _score FROM found ORDER BY _score DESC").collect()
    assert sorted(row.id for row in rows) == [2, 5]
    assert rows[0]._score > rows[1]._score
    scores = IndexTable(table).search("message:timeout", columns=["id"])
    assert {row.id: row._score for row in rows} == pytest.approx(
        dict(zip(scores["id"].to_pylist(), scores["_score"].to_pylist(), strict=True))
    )
    other = load(spark, table, query="message:disk", search="true", where="level = 'ERROR'")
    both = spark.sql(
        "SELECT id FROM found WHERE level = 'WARN' UNION ALL SELECT id FROM {other} WHERE _score > 0",
        other=other,
    )
    assert ids(both) == [3, 5]


def test_a_score_column_of_the_table_is_not_hidden(spark: SparkSession, path: str) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "_score": [0.5], "words": ["some words"]})
    IndexTable.create(path, rows.schema, text=["words"]).append(rows)
    assert load(spark, path, query="words:some").first()._score == 0.5
    with pytest.raises(
        IndexTablesError, match="adds the column '_score', but the table has one of this name"
    ):
        load(spark, path, query="words:some", search="true")


@needs_sources
def test_a_stream_without_columns_is_refused(spark: SparkSession, table: str) -> None:
    with pytest.raises(IndexTablesError, match="option columns is empty"):
        spark.readStream.format("indextables").option("columns", " , ").load(table)


@needs_sources
def test_views_are_created_in_sql(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW logs USING indextables OPTIONS (path '{table}')")
    assert spark.sql("SELECT count(*) FROM logs").first()[0] == 5
    assert ids(spark.sql("SELECT id FROM logs WHERE day = '2026-01-02'")) == [3, 4]
    hits = f"OPTIONS (path '{table}', query 'message:timeout')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW hits USING indextables {hits}")
    assert ids(spark.sql("SELECT id FROM hits")) == [2, 5]


def test_a_frame_keeps_the_version_that_was_loaded(spark: SparkSession, path: str) -> None:
    logs(spark, 1).write.format("indextables").mode("append").save(path)
    frame = load(spark, path)
    logs(spark, 2).write.format("indextables").mode("append").save(path)
    assert ids(frame) == ids(frame.where("id > 0")) == [1]
    logs(spark, 3).write.format("indextables").mode("overwrite").save(path)
    assert ids(frame) == ids(frame.where("id > 0")) == [1]
    assert ids(load(spark, path)) == [3]


def test_a_table_without_texts_is_read(spark: SparkSession, path: str) -> None:
    numbers = pa.table({"id": pa.array([1, 2], pa.int64()), "x": [0.5, 1.5]})
    IndexTable.create(path, numbers.schema).append(numbers)
    assert ids(load(spark, path).where("x > 1").union(load(spark, path).where("x < 1"))) == [1, 2]


def test_tables_of_the_jvm_are_read(spark: SparkSession) -> None:
    fixtures = Path(__file__).parents[3] / "shared" / "fixtures"
    tables = sorted(found.parent for found in fixtures.glob("*/_transaction_log"))
    if not tables:
        pytest.skip("the tables of the reference implementation are not at ../shared/fixtures")
    place = tables[0].as_posix()
    assert load(spark, place).count() == IndexTable(place).to_arrow().num_rows


def test_deleted_rows_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    place = (tmp_path / "table").as_posix()
    logs(spark, 1, 2, 3, 4, 5).coalesce(1).write.format("indextables").options(**TEXT).mode("append").save(
        place
    )
    before = IndexTable(place)
    assert ids(load(spark, place)) == [1, 2, 3, 4, 5]
    before.delete(where="id IN (2, 5)")
    assert before.snapshot.has_deletion_vectors
    assert ids(load(spark, place)) == [1, 3, 4]
    assert load(spark, place).count() == 3
    assert ids(load(spark, place, versionAsOf=before.version - 1)) == [1, 2, 3, 4, 5]
    everything = " OR ".join(set(before.to_arrow()["message"][0].as_py().split()))
    assert set(ids(load(spark, place, query=everything))) <= {1, 3, 4}
