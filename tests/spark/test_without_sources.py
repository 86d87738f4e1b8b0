"""Reads and writes without Python data sources, as on Spark 3.5: the same rows, versions and cleanup."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from indextables import IndexTable
from indextables.errors import (
    InvalidQueryError,
    ObjectNotFoundError,
    SparkUnavailableError,
    TableAlreadyExistsError,
)
from indextables.spark.releases import HAS_SOURCES
from indextables.spark.without_sources import load_frame, save_frame, sink
from support.row_tables import split_files
from support.spark_frames import ids, logs
from support.spark_releases import SPARK_ERRORS


def test_rows_are_written_and_read(spark: SparkSession, path: str) -> None:
    options = {"path": path, "partitionBy": "day", "text": "message"}
    save_frame(logs(spark).repartition(3), options, overwrite=False)
    table = IndexTable(path)
    assert (table.version, table.num_rows, table.partition_columns) == (1, 5, ["day"])
    frame = load_frame(spark, {"path": path}, None)
    assert frame.columns == ["id", "day", "level", "message"]
    assert ids(frame) == [1, 2, 3, 4, 5]
    assert frame.where("day is null").collect() == [(5, None, "WARN", "timeout is near")]
    hits = load_frame(spark, {"path": path, "query": "timeout", "fields": "message", "search": "true"}, None)
    assert hits.where("_score > 0").count() == 2
    assert ids(load_frame(spark, {"path": path, "where": "day = '2026-01-02'"}, None)) == [3, 4]
    assert load_frame(spark, {"path": path, "where": "day = 'never'"}, None).collect() == []
    with pytest.raises(InvalidQueryError):
        load_frame(spark, {"path": path, "query": "messge:x"}, None)


def test_overwrites_replace_what_they_should(spark: SparkSession, path: str) -> None:
    save_frame(logs(spark), {"path": path, "partitionBy": "day"}, overwrite=False)
    dynamic = {"path": path, "partitionOverwriteMode": "dynamic"}
    save_frame(logs(spark, 3), dynamic, overwrite=True)
    assert ids(load_frame(spark, {"path": path}, None)) == [1, 2, 3, 5]
    save_frame(logs(spark, 4), {"path": path, "replaceWhere": "day = '2026-01-02'"}, overwrite=True)
    assert ids(load_frame(spark, {"path": path}, None)) == [1, 2, 4, 5]
    save_frame(logs(spark, 1), {"path": path, "saveMode": "ignore"}, overwrite=False)
    with pytest.raises(TableAlreadyExistsError):
        save_frame(logs(spark, 1), {"path": path, "saveMode": "errorifexists"}, overwrite=False)
    assert ids(load_frame(spark, {"path": path}, None)) == [1, 2, 4, 5]


def test_a_repeated_transaction_is_written_once(spark: SparkSession, path: str) -> None:
    for _ in range(2):
        save_frame(logs(spark), {"path": path, "txnAppId": "job", "txnVersion": "1"}, overwrite=False)
    table = IndexTable(path)
    assert (table.version, table.num_rows) == (1, 5)
    assert len(split_files(Path(path))) == table.num_files


def test_a_failed_write_leaves_no_files(spark: SparkSession, path: str) -> None:
    save_frame(logs(spark, 1), {"path": path}, overwrite=False)
    before = split_files(Path(path))
    number = "cast(if(id = 5, raise_error('broken row'), id) as long) as id"
    broken = logs(spark).repartition(2).selectExpr(number, "day", "level", "message")
    with pytest.raises(SPARK_ERRORS, match="broken row"):
        save_frame(broken, {"path": path}, overwrite=False)
    assert split_files(Path(path)) == before
    assert IndexTable(path).version == 1


def test_an_error_of_a_task_is_ours(spark: SparkSession, path: str) -> None:
    save_frame(logs(spark), {"path": path}, overwrite=False)
    frame = load_frame(spark, {"path": path}, None)
    for split in split_files(Path(path)):
        (Path(path) / split).unlink()
    with pytest.raises(ObjectNotFoundError):
        frame.collect()


def test_a_sink_refuses_the_update_mode() -> None:
    with pytest.raises(SparkUnavailableError, match="use append or complete"):
        sink({"path": "t"}, "update")


@pytest.mark.skipif(HAS_SOURCES, reason="this Spark release has Python data sources")
def test_what_spark_cannot_do_is_an_error_that_says_so(spark: SparkSession, path: str) -> None:
    with pytest.raises(SparkUnavailableError, match=r"cannot read a table as a stream.*Spark 4\.0"):
        spark.readStream.format("indextables").load(path)
    with pytest.raises(SparkUnavailableError, match="createOrReplaceTempView"):
        spark.sql(f"CREATE TEMPORARY VIEW v USING indextables OPTIONS (path '{path}')")
