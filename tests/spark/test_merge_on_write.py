"""Merges that writes of Spark start: they run in a process of Spark, and the session lists them."""

from functools import partial

from pyspark.sql import SparkSession

from indextables import IndexTable
from support.spark_frames import ids, load, logs
from support.spark_releases import needs_sources
from support.streams import completed

# The merge is done when the write returns.
MERGING = {
    "spark.indextables.mergeOnWrite.enabled": "true",
    "spark.indextables.mergeOnWrite.async.enabled": "false",
    "spark.indextables.mergeOnWrite.batchCpuFraction": "0",
}


def merge_jobs(spark: SparkSession, path: str) -> list[tuple[str, int, str]]:
    jobs = spark.sql("DESCRIBE INDEXTABLES MERGE JOBS").collect()
    return [(job.status, job.groups, job.message) for job in jobs if job.table_path == f"file://{path}"]


def test_a_merge_that_a_batch_write_started_is_listed(spark: SparkSession, path: str) -> None:
    for number in (1, 2):
        frame = logs(spark, number).coalesce(1)
        frame.write.format("indextables").options(**MERGING).mode("append").save(path)
    assert IndexTable(path).num_files == 1
    assert merge_jobs(spark, path) == [("done", 1, "2 splits became 1 in version 3")]
    assert ids(load(spark, path)) == [1, 2]


@needs_sources
def test_a_merge_that_a_stream_started_is_listed(spark: SparkSession, path: str) -> None:
    for number in (1, 2):
        logs(spark, number).coalesce(1).write.format("indextables").mode("append").save(path)
    stream = spark.readStream.format("indextables").option("maxFilesPerTrigger", "1").load(path)
    copy = f"{path}-copy"
    writer = stream.writeStream.format("indextables").options(**MERGING)
    writer = writer.option("checkpointLocation", f"{path}-checkpoint").trigger(availableNow=True)
    completed(partial(writer.start, copy))
    assert ids(load(spark, copy)) == [1, 2]
    assert IndexTable(copy).num_files == 1
    assert [(status, groups) for status, groups, _ in merge_jobs(spark, copy)] == [("done", 1)]
