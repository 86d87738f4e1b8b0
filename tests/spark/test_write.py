"""Writes of DataFrames: modes, partitions, settings, columns and history."""

from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest
from pyspark.sql import SparkSession, functions

from indextables import IndexTable
from indextables.errors import IndexTablesError
from indextables.spark.rebalance import rebalanced
from indextables.spark.types import table_schema
from indextables.storage import open_store
from support.row_tables import split_files
from support.spark_frames import TEXT, ids, load, logs
from support.spark_releases import needs_sources
from support.tables import jvm_table

OPTIMIZED = "spark.indextables.write.optimizeWrite.enabled"
TASK_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


def test_append_adds_and_overwrite_replaces(spark: SparkSession, path: str) -> None:
    logs(spark, 1, 2).write.format("indextables").mode("append").save(path)
    logs(spark, 3).write.format("indextables").mode("append").save(path)
    assert ids(load(spark, path)) == [1, 2, 3]
    logs(spark, 4, 5).write.format("indextables").mode("overwrite").save(path)
    assert ids(load(spark, path)) == [4, 5]
    assert IndexTable(path).version == 3


def test_writes_leave_an_avro_state_that_reads_start_from(spark: SparkSession, path: str) -> None:
    each_time = {"spark.indextables.checkpoint.interval": "1"}
    logs(spark, 1, 2).write.format("indextables").options(**each_time).mode("append").save(path)
    logs(spark, 3).write.format("indextables").options(**each_time).mode("append").save(path)
    log = Path(path) / "_transaction_log"
    with (log / f"state-v{2:020d}" / "_manifest.avro").open("rb") as file:
        (state,) = fastavro.reader(file)
    assert (state["stateVersion"], state["numFiles"]) == (2, IndexTable(path).num_files)
    for version in log.glob("0*.json"):
        version.unlink()
    assert ids(load(spark, path)) == [1, 2, 3]


def test_partition_columns_by_option_and_by_partition_by_are_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, second = (tmp_path / "first").as_posix(), (tmp_path / "second").as_posix()
    logs(spark).write.format("indextables").option("partitionBy", "day,level").mode("append").save(first)
    logs(spark).write.partitionBy("day", "level").format("indextables").mode("append").save(second)
    for place in (first, second):
        table = IndexTable(place)
        assert table.partition_columns == ["day", "level"]
        assert table.num_files == 5
        assert ids(load(spark, place)) == [1, 2, 3, 4, 5]


def test_partition_by_of_other_formats_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    logs(spark).write.partitionBy("level").format("parquet").save((tmp_path / "files").as_posix())
    logs(spark).write.format("parquet").save((tmp_path / "more").as_posix(), partitionBy=["level"])
    for name in ("files", "more"):
        assert {each.name for each in (tmp_path / name).iterdir() if each.is_dir()} == {
            "level=ERROR", "level=INFO", "level=WARN"
        }  # fmt: skip


def test_other_partition_columns_than_the_tables_are_refused(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").partitionBy("day").mode("append").save(path)
    logs(spark).write.format("indextables").partitionBy("DAY").mode("append").save(path)
    with pytest.raises(IndexTablesError, match="partitionBy is level, but the table is partitioned by day"):
        logs(spark).write.format("indextables").partitionBy("level").mode("append").save(path)


def test_replace_where_replaces_the_partitions_that_it_selects(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").partitionBy("day").mode("append").save(path)
    new = logs(spark, 3).withColumn("id", functions.lit(30).cast("long"))
    new.write.format("indextables").mode("overwrite").option("replaceWhere", "day = '2026-01-02'").save(path)
    assert ids(load(spark, path)) == [1, 2, 5, 30]


def test_replace_where_refuses_rows_and_columns_outside_of_it(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").partitionBy("day").mode("append").save(path)
    writer = logs(spark, 1).write.format("indextables").mode("overwrite")
    with pytest.raises(IndexTablesError, match="day = '2026-01-01', which replaceWhere does not select"):
        writer.option("replaceWhere", "day = '2026-01-02'").save(path)
    with pytest.raises(IndexTablesError, match="'level' is not a partition column"):
        writer.option("replaceWhere", "level = 'INFO'").save(path)
    with pytest.raises(IndexTablesError, match="an append replaces nothing"):
        logs(spark).write.format("indextables").mode("append").option("replaceWhere", "day = 'x'").save(path)
    assert ids(load(spark, path)) == [1, 2, 3, 4, 5]
    assert len(split_files(Path(path))) == IndexTable(path).num_files


def test_dynamic_overwrite_replaces_only_partitions_with_new_rows(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").partitionBy("day").mode("append").save(path)
    new = logs(spark, 3, 5).withColumn("id", functions.col("id") * 10)
    new.write.format("indextables").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    assert ids(load(spark, path)) == [1, 2, 30, 50]


@pytest.fixture
def dynamic(spark: SparkSession) -> Iterator[None]:
    """Overwrites in this session replace only the partitions they have rows for."""
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "Dynamic")
    yield
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


def test_the_overwrite_mode_of_the_session_applies_unless_the_call_sets_one(
    spark: SparkSession, dynamic: None, path: str
) -> None:
    logs(spark).write.format("indextables").partitionBy("day").mode("append").save(path)
    new = logs(spark, 3).withColumn("id", functions.lit(30).cast("long"))
    writer = new.write.format("indextables").mode("overwrite")
    writer.save(path)
    assert ids(load(spark, path)) == [1, 2, 5, 30]
    writer.option("replaceWhere", "day >= '2026-01-01'").save(path)
    assert ids(load(spark, path)) == [5, 30]
    logs(spark, 1).write.format("indextables").mode("overwrite").option(
        "PartitionOverwriteMode", "STATIC"
    ).save(path)
    assert ids(load(spark, path)) == [1]


def test_without_partitions_a_dynamic_overwrite_replaces_everything(
    spark: SparkSession, dynamic: None, path: str
) -> None:
    for mode, written in (("overwrite", 1), ("append", 2), ("overwrite", 3), ("ignore", 4)):
        logs(spark, written).write.format("indextables").mode(mode).save(path)
    assert ids(load(spark, path)) == [3]


def test_a_table_without_columns_is_refused(spark: SparkSession, path: str) -> None:
    with pytest.raises(IndexTablesError, match="there are no columns; a table needs at least one"):
        spark.range(1).select().write.format("indextables").mode("append").save(path)
    assert not Path(path).exists()


def test_save_modes_that_spark_does_not_offer_work_on_an_enabled_session(
    spark: SparkSession, path: str
) -> None:
    logs(spark, 1).write.format("indextables").save(path)
    with pytest.raises(IndexTablesError, match="the table already exists"):
        logs(spark, 2).write.format("indextables").save(path)
    logs(spark, 3).write.format("indextables").mode("ignore").save(path)
    assert ids(load(spark, path)) == [1]


def test_an_empty_frame_creates_the_table(spark: SparkSession, path: str) -> None:
    logs(spark).where("id < 0").write.format("indextables").options(**TEXT).mode("append").save(path)
    table = IndexTable(path)
    assert (table.version, table.num_files) == (0, 0)
    assert table.metadata.configuration["spark.indextables.indexing.typemap.message"] == "text"
    assert load(spark, path).collect() == []
    assert load(spark, path, query="message:timeout").count() == 0


def test_index_settings_stay_with_the_table_in_any_spelling(spark: SparkSession, path: str) -> None:
    frame = logs(spark).withColumnRenamed("message", "Message")
    option = "spark.tantivy4spark.Indexing.TypeMap.MESSAGE"
    frame.write.format("indextables").option(option, "text").mode("append").save(path)
    assert (
        dict(IndexTable(path).metadata.configuration)["spark.indextables.indexing.typemap.Message"] == "text"
    )
    frame.write.format("indextables").mode("append").save(path)
    assert load(spark, path, query="Message:timeout").count() == 4


def test_settings_of_the_session_reach_the_tasks(spark: SparkSession, path: str) -> None:
    spark.conf.set("spark.indextables.indexing.typemap.message", "text")
    try:
        logs(spark).write.format("indextables").mode("append").save(path)
    finally:
        spark.conf.unset("spark.indextables.indexing.typemap.message")
    assert load(spark, path, query="message:timeout").count() == 2


def test_columns_are_found_by_name(spark: SparkSession, path: str) -> None:
    logs(spark, 1).write.format("indextables").mode("append").save(path)
    reordered = logs(spark, 2).select(
        "message", functions.col("LEVEL"), functions.col("id").cast("int").alias("ID"), "day"
    )
    reordered.write.format("indextables").mode("append").save(path)
    assert load(spark, path).where("id = 2").collect() == logs(spark, 2).collect()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop("level"), "the data lacks the table's column 'level'"),
        (lambda frame: frame.withColumn("extra", functions.lit(1)), "column 'extra' is not in the table"),
        (lambda frame: frame.withColumn("id", functions.lit("one")), "column 'id' has the type string"),
        (
            lambda frame: frame.withColumn("level", functions.array("level")),
            "column 'level' has the type list",
        ),
    ],
)
def test_columns_that_do_not_fit_are_named(spark: SparkSession, path: str, change, message: str) -> None:
    IndexTable.create(path, table_schema(logs(spark).schema))
    with pytest.raises(IndexTablesError, match=message):
        change(logs(spark)).write.format("indextables").mode("append").save(path)
    assert split_files(Path(path)) == []


def test_a_struct_of_another_shape_is_refused(spark: SparkSession, path: str) -> None:
    frame = spark.sql("select 1L as id, struct(1 as a, 'x' as b) as s")
    frame.write.format("indextables").mode("append").save(path)
    with pytest.raises(IndexTablesError, match="column 's' has the type struct"):
        spark.sql("select 1L as id, struct(1 as a) as s").write.format("indextables").mode("append").save(
            path
        )


def test_nulls_without_a_type_fit_every_column(spark: SparkSession, path: str) -> None:
    frame = spark.sql(
        "select 1L as id, struct(1 as a) as s, array(1) as l, map('k', struct(1 as a)) as m, 'x' as t"
    )
    frame.write.format("indextables").mode("append").save(path)
    empty = spark.sql("select 2L as id, null as s, null as l, null as m, null as t")
    empty.write.format("indextables").mode("append").save(path)
    assert load(spark, path).where("id = 2").collect() == [(2, None, None, None, None)]


def test_history_has_the_metrics_of_a_write(spark: SparkSession, path: str) -> None:
    frame = logs(spark).repartition(2)
    frame.write.format("indextables").partitionBy("level").mode("append").save(path)
    entry = IndexTable(path).history().to_pylist()[0]
    metrics, parameters = dict(entry["operation_metrics"]), dict(entry["operation_parameters"])
    assert parameters == {"mode": "Append", "partitionBy": "level"}
    assert metrics["numAddedRows"] == 5
    assert metrics["numAddedFiles"] == IndexTable(path).num_files
    assert metrics["numAddedBytes"] == IndexTable(path).total_bytes
    assert metrics["numTasks"] == 2
    assert {"executionTimeMs", "taskTimeMs"} <= metrics.keys()


def test_optimized_write_shuffles_by_partition(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(40).selectExpr("id", "cast(id % 4 as string) as part").repartition(4)
    counts = {}
    for setting in ("false", "true"):
        place = (tmp_path / setting).as_posix()
        writer = frame.write.format("indextables").partitionBy("part").mode("append")
        writer.option("spark.indextables.write.optimizeWrite.enabled", setting).save(place)
        counts[setting] = IndexTable(place).num_files
    assert counts == {"false": 16, "true": 4}


@needs_sources
def test_optimized_write_aims_at_the_size_of_splits(spark: SparkSession, path: str) -> None:
    """One day has nearly all rows, and 20 days have one row each."""
    frame = spark.range(0, 20_000, numPartitions=8).selectExpr(
        "id", "cast(if(id % 1000 = 0, 1 + id div 1000, 0) as string) as day", "uuid() as body"
    )
    size = spark.conf.get(TASK_SIZE)
    writer = frame.write.format("indextables").partitionBy("day").mode("append").option(OPTIMIZED, True)
    writer.option("spark.indextables.write.targetSplitSize", "200K").save(path)
    files = [dict(values)["day"] for values in IndexTable(path).files()["partitionValues"].to_pylist()]
    assert 3 <= files.count("0") <= 6
    assert sorted(day for day in files if day != "0") == sorted(str(day) for day in range(1, 21))
    assert IndexTable(path).num_rows == 20_000
    assert spark.conf.get(TASK_SIZE) == size


@needs_sources
def test_optimized_write_of_one_partition_needs_no_shuffle(spark: SparkSession, path: str) -> None:
    frame, size = logs(spark).coalesce(1), spark.conf.get(TASK_SIZE)
    given = {"path": path, OPTIMIZED.lower(): "true"}
    with rebalanced(frame, ["day"], given, {}) as balanced:
        assert balanced is frame
    with rebalanced(frame.repartition(2), ["day"], given, {}) as balanced:
        assert "REBALANCE_PARTITIONS_BY_COL" in balanced._jdf.queryExecution().toString()
        # Concurrent queries of the session keep their own size of tasks.
        assert balanced.sparkSession.conf.get(TASK_SIZE) != spark.conf.get(TASK_SIZE) == size
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        try:
            with rebalanced(frame.repartition(2), ["day"], given, {}) as shuffled:
                assert "REPARTITION_BY_COL" in shuffled._jdf.queryExecution().toString()
        finally:
            spark.conf.unset("spark.sql.adaptive.enabled")


def test_optimized_write_uses_the_partitions_of_the_table_or_of_the_option(
    spark: SparkSession, path: str
) -> None:
    frame = spark.range(40).selectExpr("id", "cast(id % 4 as string) as `p.a``rt`").repartition(4)
    spark.conf.set(OPTIMIZED, "true")
    try:
        frame.write.format("indextables").option("partitionBy", "P.a`rt").mode("append").save(path)
        assert IndexTable(path).num_files == 4
        frame.write.format("indextables").mode("append").save(path)
        assert IndexTable(path).num_files == 8
        frame.write.format("indextables").mode("overwrite").option("Path", path).save()
        assert IndexTable(path).num_files == 4
    finally:
        spark.conf.unset(OPTIMIZED)
    frame.write.format("indextables").mode("overwrite").save(path)
    assert IndexTable(path).num_files == 16


def test_optimized_write_leaves_tables_without_partitions_and_wrong_columns_to_the_source(
    spark: SparkSession, path: str
) -> None:
    for expected in (1, 2):
        logs(spark, 1).write.format("indextables").mode("append").option(OPTIMIZED, True).save(path)
        assert IndexTable(path).num_files == expected
    with pytest.raises(IndexTablesError, match="partition column 'nothing' does not exist"):
        logs(spark).write.format("indextables").partitionBy("nothing").option(OPTIMIZED, True).save(
            f"{path}2"
        )
    with pytest.raises(IndexTablesError, match="the options have no path"):
        logs(spark).write.format("indextables").mode("append").option(OPTIMIZED, True).save()


def test_without_a_path_the_error_says_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(IndexTablesError, match="the options have no path"):
        logs(spark).write.format("indextables").mode("append").save()
    with pytest.raises(IndexTablesError, match="CREATE TEMPORARY VIEW"):
        spark.read.format("indextables").load()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_of_the_jvm_is_converted_on_request_only(spark: SparkSession, path: str, mode: str) -> None:
    jvm_table(open_store(path), "a.split")
    before = sorted(Path(path).rglob("*"))
    rows = spark.createDataFrame([(1, "2024-01-01", "a b")], "id long, date string, message string")
    writer = rows.write.format("indextables").mode(mode)
    with pytest.raises(IndexTablesError, match=r"holds splits of the JVM.*protocol\.convertJvmTables"):
        writer.save(path)
    assert sorted(Path(path).rglob("*")) == before
    writer.option("spark.indextables.protocol.convertJvmTables", "true").save(path)
    table = IndexTable(path)
    assert (table.protocol.min_reader_version, table.version) == (5, 2)
    assert table.num_files == (2 if mode == "append" else 1)
