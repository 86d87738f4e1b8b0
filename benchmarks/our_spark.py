"""Spark: a local session, the generated rows as Parquet files and as our table, and the measured operations."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import indextables.spark
from benchmarks.rows import TEXT_COLUMN
from indextables.spark.session import require_java

CORES = os.cpu_count() or 1

_FORMAT = "indextables"
_TYPE_OF_TEXT = f"spark.indextables.indexing.typemap.{TEXT_COLUMN}"
_CACHE_PATH = "spark.indextables.cache.disk.path"
_SETTINGS = {
    "spark.master": f"local[{CORES}]",
    "spark.ui.showConsoleProgress": False,
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def running_spark() -> Iterator[SparkSession]:
    """A local session with all cores. Raises SparkUnavailableError."""
    require_java()
    # Spark starts by a fork and exec, which is harmless.
    warnings.filterwarnings("ignore", "lance is not fork-safe")
    spark = indextables.spark.session(**_SETTINGS)
    try:
        yield spark
    finally:
        spark.stop()


def write_parquet(path: Path, rows: pa.Table, files: int) -> None:
    """Write rows as Parquet files of about the same size; returns them as a DataFrame."""
    path.mkdir(parents=True)
    bounds = [rows.num_rows * number // files for number in range(files + 1)]
    for number, (start, end) in enumerate(pairwise(bounds)):
        pq.write_table(rows.slice(start, end - start), path / f"part-{number:04d}.parquet")


def append(frame: DataFrame, path: Path, *partition_by: str) -> None:
    """Write a DataFrame to our table, with the messages as text."""
    writer = frame.write.format(_FORMAT).mode("append").option(_TYPE_OF_TEXT, "text")
    writer.partitionBy(*partition_by).save(str(path))


def read_table(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    """Load our table."""
    return spark.read.format(_FORMAT).options(**options).load(str(path))


def search_table(spark: SparkSession, path: Path, cache: Path, query: str) -> DataFrame:
    """The rows of our table that match a query, with an index cache in this folder."""
    options = {_CACHE_PATH: str(cache), "query": query, "queryFields": TEXT_COLUMN}
    return read_table(spark, path, **options)


def materialize(frame: DataFrame) -> None:
    """Compute all rows and columns, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def count_tasks(frame: DataFrame) -> int:
    """Plan a DataFrame completely without reading a row; returns the number of tasks."""
    return int(frame.rdd.getNumPartitions())
