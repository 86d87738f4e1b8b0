"""The program that the tests of a cluster run on it: writes, reads, searches, merges and follows a table.

Settings of Spark come first, as key=value; then, after each --, what to do, the table, and the options that reach it.
Prints a JSON array of answers.
"""

import json
import sys
from itertools import groupby
from typing import Any

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
    """One table, everything that people do with it."""
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
    """MERGE SPLITS alone, as a statement."""
    del options
    (merged,) = spark.sql(f"MERGE SPLITS '{path}'").collect()
    return {
        "version": merged.version,
        "status": merged.status,
        "groups": merged.merged_groups,
        "sources": merged.source_splits,
        "skipped": sorted(skip.path for skip in merged.skipped),
    }


def refused(spark: SparkSession, path: str, options: dict[str, str]) -> dict[str, Any]:
    """What somebody hears whose executors lack the package, at the first thing that they do."""
    del options
    heard = []
    for attempt in (
        lambda: spark.range(3).write.format("indextables").mode("append").save(path),
        lambda: spark.read.format("indextables").load(path),
        lambda: spark.sql(f"MERGE SPLITS '{path}'"),
    ):
        try:
            attempt()
        except SparkUnavailableError as error:
            heard.append(str(error))
    return {"heard": heard}


STEPS = {"tour": tour, "merge": merge, "refused": refused}

if __name__ == "__main__":
    main()
