"""The driver program of the cluster tests: writes, reads, searches and merges a table.

Arguments: Spark settings as key=value, then after each -- a step, the table's path, and options as key=value. Prints a
JSON array with the result of each step.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import indextables.spark
from indextables import IndexTable
from indextables.errors import SparkUnavailableError
from indextables.spark.jobs import SparkRunner


def main() -> None:
    settings, *steps = [
        list(group) for is_separator, group in groupby(sys.argv[1:], "--".__eq__) if not is_separator
    ]
    spark = indextables.spark.session(**dict(pair.split("=", 1) for pair in settings))
    answers = []
    for name, path, *options in steps:
        answers.append(STEPS[name](spark, path, dict(pair.split("=", 1) for pair in options)))
    spark.stop()
    sys.stdout.write(json.dumps(answers) + "\n")


def tour(spark: SparkSession, path: str, options: dict[str, str]) -> dict[str, Any]:
    """Write, read, search and merge one table."""
    rows = spark.range(0, 1000, numPartitions=4).selectExpr(
        "id", "cast(id % 2 as string) as part", "concat('row number ', id) as body"
    )
    text = {"spark.indextables.indexing.typemap.body": "text"}
    rows.write.format("indextables").options(**options, **text).partitionBy("part").mode("append").save(path)
    frame = spark.read.format("indextables").options(**options).load(path)
    found = spark.read.format("indextables").options(**options, query="body:777").load(path)
    merged = IndexTable(path, options=options).merge_splits(runner=SparkRunner(spark))
    again = spark.read.format("indextables").options(**options).load(path)
    return {
        "rows": frame.count(),
        "sum": frame.where("part = '1'").selectExpr("sum(id) as s").collect()[0].s,
        "found": [row.id for row in found.collect()],
        "merge": [merged.source_splits, merged.new_splits],
        "after": again.count(),
        "parallelism": spark.sparkContext.defaultParallelism,
    }


def merge(spark: SparkSession, path: str, options: dict[str, str]) -> dict[str, Any]:
    """MERGE SPLITS as a statement."""
    del options
    (merged,) = spark.sql(f"MERGE SPLITS '{path}'").collect()
    return {
        "version": merged.version,
        "status": merged.status,
        "groups": merged.merged_groups,
        "sources": merged.source_splits,
        "skipped": sorted(skip.path for skip in merged.skipped),
    }


def missing_package(spark: SparkSession, path: str, options: dict[str, str]) -> dict[str, Any]:
    """The errors of operations whose executors lack the package, and the rows that Spark reads without it."""
    del options
    errors, reader = [], spark.read.format("indextables")
    rows = [row.id for row in reader.load(path).collect()]
    for attempt in (
        lambda: spark.range(3).write.format("indextables").mode("append").save(path),
        lambda: reader.option("spark.indextables.read.engine", "python").load(path),
        lambda: spark.sql(f"MERGE SPLITS '{path}'"),
    ):
        try:
            attempt()
        except SparkUnavailableError as error:
            errors.append(str(error))
    return {"errors": errors, "rows": rows}


def lose_executor(spark: SparkSession, path: str, options: dict[str, str]) -> dict[str, Any]:
    """An append during which an executor dies, with everything that its tasks have written."""
    marker = options["marker"]

    def with_death(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if _partition() == 0 and not os.path.exists(marker):  # noqa: PTH110  # this runs where there is no Path
            open(marker, "x").close()  # noqa: PTH123
            # Spark forks task processes from a daemon, whose parent is the executor.
            with open(f"/proc/{os.getppid()}/status") as status:  # noqa: PTH123
                executor = next(line.split()[1] for line in status if line.startswith("PPid:"))
            os.kill(int(executor), signal.SIGKILL)

    return _appended(spark, path, with_death, is_shuffled="shuffled" in options)


def speculate(spark: SparkSession, path: str, options: dict[str, str]) -> dict[str, Any]:
    """An append with a task so slow that Spark starts it twice; both attempts end at the same time."""
    pipe = options["pipe"]

    def with_straggler(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if _partition() == 0:
            attempt = TaskContext.get().attemptNumber()
            # Opening one end of a pipe blocks until the other end is opened.
            open(pipe, "wb" if attempt else "rb").close()  # noqa: PTH123

    return _appended(spark, path, with_straggler)


def _partition() -> int:
    return TaskContext.get().partitionId()


def _appended(
    spark: SparkSession, path: str, work: Callable[..., Any], *, is_shuffled: bool = False
) -> dict[str, Any]:
    numbers = spark.range(0, 2000, numPartitions=4)
    frame = numbers.repartition(4, "id") if is_shuffled else numbers
    frame = frame.mapInArrow(work, "id long")
    frame.write.format("indextables").mode("append").save(path)
    return {"rows": spark.read.format("indextables").load(path).count()}


def prewarm(spark: SparkSession, path: str, options: dict[str, str]) -> dict[str, Any]:
    """PREWARM as a statement, and the caches of all hosts, empty at first, before and after a flush."""
    del options
    spark.sql("FLUSH INDEXTABLES DISK CACHE").collect()
    warmed = [row.asDict(recursive=True) for row in spark.sql(f"PREWARM INDEXTABLES '{path}'").collect()]
    again = spark.sql(f"PREWARM INDEXTABLES '{path}' FOR FIELDS (body)").collect()
    described = [row.asDict() for row in spark.sql("DESCRIBE INDEXTABLES DISK CACHE").collect()]
    flushed = [row.asDict() for row in spark.sql("FLUSH INDEXTABLES DISK CACHE").collect()]
    empty = spark.sql("DESCRIBE INDEXTABLES DISK CACHE").collect()
    return {
        "warmed": {row["cache_path"]: [row["status"], row["cached_splits"]] for row in warmed},
        "again": [row.status for row in again],
        "described": {row["cache_path"]: row["num_entries"] for row in described},
        "flushed": {row["cache_path"]: row["freed_bytes"] for row in flushed},
        "empty": [row.num_entries for row in empty],
    }


STEPS = {
    "prewarm": prewarm,
    "tour": tour,
    "merge": merge,
    "missing_package": missing_package,
    "lose_executor": lose_executor,
    "speculate": speculate,
}

if __name__ == "__main__":
    main()
