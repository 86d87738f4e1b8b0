"""DataFrames for the tests of the data source."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

LOGS = "id long, day string, level string, message string"

ROWS = [
    (1, "2026-01-01", "INFO", "server started on port 80"),
    (2, "2026-01-01", "ERROR", "connection timeout after 30 seconds"),
    (3, "2026-01-02", "ERROR", "disk full"),
    (4, "2026-01-02", "INFO", "connection closed"),
    (5, None, "WARN", "timeout is near"),
]

TEXT = {"spark.indextables.indexing.typemap.message": "text"}


def logs(spark: SparkSession, *ids: int) -> DataFrame:
    """The rows with these ids, or all rows."""
    rows = [row for row in ROWS if not ids or row[0] in ids]
    return spark.createDataFrame(rows, LOGS).coalesce(1)


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """The table as the data source reads it."""
    return spark.read.format("indextables").options(**options).load(path)


def ids(frame: DataFrame) -> list[int]:
    """The ids of all rows."""
    return sorted(row.id for row in frame.select("id").collect())
