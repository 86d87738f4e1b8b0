"""IndexTables on the JVM as a process: reads one command per line from stdin, as JSON, and writes one answer each.

It runs in the environment of `tools.jvm_judge`, with PySpark 3.5 and without this project. The answers go to the file
descriptor that stdout was at the start, because Spark writes to stdout itself.
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

FORMAT = "io.indextables.spark.core.IndexTables4SparkTableProvider"
EXTENSIONS = "io.indextables.spark.extensions.IndexTables4SparkExtensions"


def session(jar: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jar)
        .config("spark.driver.extraClassPath", jar)
        .config("spark.driver.memory", "2g")
        .config("spark.sql.extensions", EXTENSIONS)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def write(spark: SparkSession, command: dict[str, Any]) -> list[Any]:
    """Write the rows of a query to a table and, as the truth to compare with, to Parquet files."""
    rows: DataFrame = spark.sql(command["query"]).coalesce(1)
    rows.write.mode("append").parquet(command["truth"])
    writer = rows.write.format(FORMAT).mode("append").options(**command["options"])
    if command["partition_by"]:
        writer = writer.partitionBy(*command["partition_by"])
    writer.save(command["path"])
    return []


def read(spark: SparkSession, command: dict[str, Any]) -> list[Any]:
    """The values of one column of the rows that a filter selects."""
    frame = spark.read.format(FORMAT).options(**command["options"]).load(command["path"])
    return [row[0] for row in frame.where(command["where"]).select(command["column"]).collect()]


def sql(spark: SparkSession, command: dict[str, Any]) -> list[Any]:
    return [row.asDict(recursive=True) for row in spark.sql(command["text"]).collect()]


def main(jar: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session(jar)
    with answers:
        for line in sys.stdin:
            command = json.loads(line)
            try:
                rows = {"write": write, "read": read, "sql": sql}[command["do"]](spark, command)
                answer: dict[str, Any] = {"rows": rows}
            except Exception as error:  # noqa: BLE001  # any refusal of the JVM is an answer
                answer = {"error": str(error)}
            answers.write(json.dumps(answer, default=str) + "\n")
            answers.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
