"""Streaming queries from and to tables: each row exactly once, through any restart."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from indextables import IndexTable
from indextables.errors import CommitConflictError, InvalidOptionError, SparkUnavailableError
from indextables.spark.source import IndexTablesSource
from indextables.spark.stream_write import BatchWritten, StreamWriter
from indextables.spark.write import SplitsWritten
from support.row_tables import SCHEMA, rows, split_files
from support.row_tables import ids as ids_of
from support.spark_releases import needs_sources
from support.streams import caught_up, completed

Restart = Callable[..., Any]

# Spark before 4.2 has no limits for batches.
HAS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A table of three versions with a row each."""
    path = (tmp_path / "source").as_posix()
    table = IndexTable.create(path, SCHEMA, text=["body"])
    for number in (1, 2, 3):
        table.append(rows(number))
    return path


def follow(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.readStream.format("indextables").options(**options).load(path)


def run(frame: DataFrame, path: str, mode: str = "append", **options: Any) -> None:
    """Write all available rows, and stop."""
    checkpoint = f"{path}-checkpoint"
    writer = frame.writeStream.format("indextables").outputMode(mode).options(**options)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    completed(partial(writer.start, path))


def forget_last_commit(path: str) -> None:
    """Restore the state after a crash between the table's commit and Spark's own record of the batch."""
    commits = Path(f"{path}-checkpoint") / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()


@needs_sources
def test_every_row_comes_once_through_restarts_at_every_point(
    spark: SparkSession, source: str, path: str
) -> None:
    frame = follow(spark, source, maxFilesPerTrigger=2)
    run(frame, path, partitionBy="day")
    table = IndexTable(path)
    assert (ids_of(table), table.partition_columns) == ([1, 2, 3], ["day"])
    assert table.version == (2 if HAS_LIMITS else 1)
    # A crash after the table's commit: the batch is repeated and dropped.
    forget_last_commit(path)
    before = split_files(Path(path))
    IndexTable(source).append(rows(4))
    run(frame, path)
    if not HAS_LIMITS:
        # These releases run one batch per trigger, and that was the repeated one.
        run(frame, path)
    assert ids_of(table.refresh()) == [1, 2, 3, 4]
    assert len(split_files(Path(path))) == len(before) + 1 == table.num_files
    # A crash before the commit: the batch is repeated and committed.
    forget_last_commit(path)
    (Path(path) / "_transaction_log" / f"{table.version:020d}.json").unlink()
    run(frame, path)
    assert ids_of(IndexTable(path)) == [1, 2, 3, 4]
    assert IndexTable(path).fsck().is_clean


@needs_sources
def test_complete_mode_replaces_the_table_by_every_batch(spark: SparkSession, source: str, path: str) -> None:
    counts = follow(spark, source).groupBy("day").count()
    run(counts, path, "complete")
    assert IndexTable(path).to_arrow()["count"].to_pylist() == [3]
    forget_last_commit(path)
    run(counts, path, "complete")
    IndexTable(source).append(rows(4))
    run(counts, path, "complete")
    assert IndexTable(path).to_arrow()["count"].to_pylist() == [4]
    assert IndexTable(path).history()["operation"].to_pylist() == ["OVERWRITE", "OVERWRITE", "CREATE TABLE"]


@needs_sources
def test_complete_mode_replaces_everything_despite_the_overwrite_mode_of_the_session(
    spark: SparkSession, source: str, path: str
) -> None:
    counts = follow(spark, source).groupBy("day").count()
    run(counts, path, "complete", partitionBy="day")
    assert IndexTable(path).to_arrow()["count"].to_pylist() == [3]
    IndexTable(path).append(pa.table({"day": ["2030-01-01"], "count": [7]}))
    IndexTable(source).append(rows(4))
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        run(counts, path, "complete")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert IndexTable(path).to_arrow()["count"].to_pylist() == [4]


@needs_sources
def test_a_table_is_followed_while_it_is_written_and_merged(
    spark: SparkSession, source: str, path: str
) -> None:
    writer = follow(spark, source).writeStream.format("indextables")
    writer = writer.option("checkpointLocation", f"{path}-checkpoint")
    running = [writer.start(path)]
    table = IndexTable(source)
    for number in (4, 5, 6):
        table.append(rows(number))
        table.merge_splits()
    caught_up(lambda: running.pop() if running else writer.start(path))
    assert ids_of(IndexTable(path)) == [1, 2, 3, 4, 5, 6]


@needs_sources
def test_an_error_of_the_source_reaches_the_user(spark: SparkSession, source: str, path: str) -> None:
    IndexTable(source).overwrite(rows(9))
    with pytest.raises(PySparkException, match="version 4 replaced rows"):
        run(follow(spark, source, startingVersion=1), path)


@needs_sources
def test_spark_reports_a_wrong_option_at_the_start_and_after_a_restart(
    spark: SparkSession, source: str, path: str
) -> None:
    def reported_error() -> str:
        with pytest.raises(PySparkException) as refused:
            run(follow(spark, source, maxFilesPerTrigger="x"), path)
        return next(line for line in str(refused.value).splitlines()[::-1] if "Error:" in line)

    expected = "InvalidOptionError: option maxFilesPerTrigger is 'x', but must be a positive number"
    assert reported_error().endswith(expected)
    run(follow(spark, source), path)
    IndexTable(source).append(rows(4))
    # The last batch is done; Spark asks for a new one.
    assert reported_error().endswith(expected)
    # Spark repeats the last batch.
    forget_last_commit(path)
    assert reported_error().endswith(expected)
    run(follow(spark, source), path)
    assert set(ids_of(IndexTable(path))) >= {1, 2, 3}


@needs_sources
def test_settings_of_the_session_and_partition_by_reach_the_stream(
    spark: SparkSession, source: str, path: str
) -> None:
    spark.conf.set("spark.indextables.indexing.typemap.body", "text")
    try:
        writer = follow(spark, source).writeStream.format("indextables").partitionBy("day")
        writer = writer.option("checkpointLocation", f"{path}-checkpoint").trigger(availableNow=True)
        completed(partial(writer.start, path))
    finally:
        spark.conf.unset("spark.indextables.indexing.typemap.body")
    table = IndexTable(path)
    assert table.partition_columns == ["day"]
    assert table.count("body:row") == 3


@needs_sources
def test_optimized_write_shuffles_streams_by_partition(spark: SparkSession, source: str, path: str) -> None:
    IndexTable(source).append(rows(*range(10, 50)))
    frame = follow(spark, source).selectExpr("id", "cast(id % 4 as string) as `p.a``rt`").repartition(4)
    run(frame.where("id < 10"), path, partitionBy="p.a`rt")
    before = IndexTable(path).num_files
    # First by the table's partitions, then by those of the call: two queries to the same table.
    for number in (1, 2):
        writer = frame.where("id >= 10").writeStream.format("indextables").outputMode("append")
        writer = writer.options(**{"spark.indextables.write.optimizeWrite.enabled": True})
        writer = writer.option("checkpointLocation", f"{path}-{number}").trigger(availableNow=True)
        writer = (writer.partitionBy("p.a`rt") if number == 2 else writer).queryName(f"q{number}")
        assert completed(partial(writer.start, path)).name == f"q{number}"
        assert IndexTable(path).num_files == before + 4 * number
    assert IndexTable(path).num_rows == 3 + 2 * 40


def _stream_writer(path: str) -> StreamWriter:
    fields = [("id", "long"), ("day", "string"), ("body", "string")]
    schema = StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields
            ],
        }
    )
    return IndexTablesSource({"path": path}).batch_writer(schema, False)


def _written(path: str, *numbers: int, query: str = "q") -> BatchWritten:
    """The message of a task, without Spark."""
    writer = IndexTablesSource({"path": path})
    target = _stream_writer(path)._target
    batch_writer = writer.writer(_schema_of(path), False)
    splits = batch_writer.write(iter(rows(*numbers).to_batches()))
    assert isinstance(splits, SplitsWritten)
    return BatchWritten(query, target, splits, batch_writer._job)


def _schema_of(path: str) -> StructType:
    schema = IndexTablesSource({"path": path}).schema()
    assert isinstance(schema, StructType)
    return schema


def test_files_of_others_are_written_once_through_a_restart(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    """In every release of Spark, which may write with foreachBatch."""
    files = (tmp_path / "files").as_posix()
    frame = spark.range(4, numPartitions=2).selectExpr("id", "cast(id % 2 as string) as day", "'a b' as body")
    frame.write.parquet(files)
    stream = spark.readStream.schema(frame.schema).parquet(files)
    writer = (
        stream.writeStream.format("indextables").partitionBy("day").queryName("files").option("text", "body")
    )
    writer = writer.option("checkpointLocation", f"{path}-checkpoint").trigger(availableNow=True)
    completed(partial(writer.start, path))
    forget_last_commit(path)
    completed(partial(writer.start, path))
    table = IndexTable(path)
    assert (table.num_rows, table.version, table.partition_columns) == (4, 1, ["day"])
    assert table.count("body:b") == 4
    assert len(split_files(Path(path))) == table.num_files
    frame.write.mode("append").parquet(files)
    completed(partial(writer.start, path))
    assert IndexTable(path).num_rows == 8
    counts = stream.groupBy("day").count().writeStream.format("indextables").outputMode("complete")
    counts = counts.option("checkpointLocation", f"{path}-counts-checkpoint").trigger(availableNow=True)
    completed(partial(counts.start, f"{path}-counts"))
    counted = IndexTable(f"{path}-counts").to_arrow().to_pylist()
    assert sorted((row["day"], row["count"]) for row in counted) == [("0", 4), ("1", 4)]


def test_a_batch_that_was_committed_is_dropped_with_its_files(path: str) -> None:
    table = IndexTable.create(path, SCHEMA)
    _stream_writer(path).commit([_written(path, 1)], 0)
    _stream_writer(path).commit([_written(path, 2)], 1)
    for repeated in (0, 1):
        _stream_writer(path).commit([_written(path, 7)], repeated)
    assert (ids_of(table.refresh()), table.version) == ([1, 2], 2)
    assert len(split_files(Path(path))) == 2
    # Batch ids of another query are independent.
    _stream_writer(path).commit([_written(path, 3, query="other")], 0)
    assert ids_of(table.refresh()) == [1, 2, 3]


def test_checkpoints_keep_the_last_batch_id(path: str) -> None:
    table = IndexTable.create(path, SCHEMA)
    _stream_writer(path).commit([_written(path, 1)], 5)
    table.checkpoint()
    table.truncate_time_travel(dry_run=False)
    _stream_writer(path).commit([_written(path, 1)], 5)
    assert ids_of(table.refresh()) == [1]


def test_a_batch_without_rows_makes_no_version(path: str) -> None:
    table = IndexTable.create(path, SCHEMA)
    _stream_writer(path).commit([_written(path)], 0)
    _stream_writer(path).commit([], 1)
    assert table.refresh().version == 0


def test_abort_deletes_what_a_failed_batch_uploaded(path: str) -> None:
    IndexTable.create(path, SCHEMA)
    done = _written(path, 1)
    _stream_writer(path).abort([done, None], 0)
    assert split_files(Path(path)) == []


def test_abort_after_a_commit_deletes_nothing(path: str) -> None:
    table = IndexTable.create(path, SCHEMA)
    done = _written(path, 1)
    _stream_writer(path).commit([done], 0)
    _stream_writer(path).abort([done], 0)
    assert ids_of(table.refresh()) == [1]


def test_a_batch_fails_if_the_table_was_recreated_before_the_commit(path: str) -> None:
    IndexTable.create(path, SCHEMA)
    done = _written(path, 1)
    for file in (Path(path) / "_transaction_log").iterdir():
        file.unlink()
    IndexTable.create(path, SCHEMA)
    with pytest.raises(CommitConflictError, match="dropped and recreated"):
        _stream_writer(path).commit([done], 0)
    assert split_files(Path(path)) == []


def test_a_task_without_a_query_id_writes_nothing(path: str) -> None:
    IndexTable.create(path, SCHEMA)
    with pytest.raises(SparkUnavailableError, match="foreachBatch"):
        _stream_writer(path).write(iter(rows(1).to_batches()))
    assert split_files(Path(path)) == []


def test_a_repeated_batch_write_with_a_transaction_is_a_no_op(spark: SparkSession, path: str) -> None:
    frame = spark.range(3).selectExpr("id", "'d' as day", "'b' as body")
    for version in (7, 7, 6):
        frame.write.format("indextables").mode("append").options(txnAppId="job", txnVersion=version).save(
            path
        )
    table = IndexTable(path)
    assert (table.num_rows, table.version, len(split_files(Path(path)))) == (3, 1, table.num_files)
    with pytest.raises(InvalidOptionError, match="give both txnAppId and txnVersion"):
        frame.write.format("indextables").mode("append").option("txnAppId", "job").save(path)
