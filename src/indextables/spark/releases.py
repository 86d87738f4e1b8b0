"""What the supported releases of Spark have, and what stands in where one lacks it.

| Release | Difference |
|---|---|
| 3.5 | no Python data sources: `without_sources` reads and writes with `mapInArrow`, and there is no stream source |
| 4.0 | no Arrow batches for stream writers: the sink runs with `foreachBatch`; `register_sources` |
| 4.1 | no limits for the batches of a stream |

Other modules import Spark's classes for data sources from here, and ask here what the release can do.
"""

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
    )
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

    HAS_SOURCES: bool
    HAS_STREAM_ARROW_WRITER: bool
else:
    try:
        from pyspark.sql.datasource import (
            DataSource,
            DataSourceArrowWriter,
            DataSourceReader,
            DataSourceStreamReader,
            InputPartition,
            WriterCommitMessage,
        )

        HAS_SOURCES = True
    except ImportError:
        HAS_SOURCES = False

        class DataSource:
            """Replaces Spark's class; `without_sources` calls our subclass."""

            def __init__(self, options: Any) -> None:
                self.options = options

        class _Replacement:
            """Replaces a class of Spark that has no code of its own."""

        DataSourceReader = DataSourceArrowWriter = DataSourceStreamReader = _Replacement
        InputPartition = WriterCommitMessage = _Replacement

    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter

        HAS_STREAM_ARROW_WRITER = True
    except ImportError:
        DataSourceStreamArrowWriter = object
        HAS_STREAM_ARROW_WRITER = False

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxBytes,
            ReadMaxFiles,
        )
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
    except ImportError:
        ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = None

        class AvailableNow:
            """Replaces Spark's class; these releases determine themselves where to stop."""


__all__ = [
    "HAS_SOURCES",
    "HAS_STREAM_ARROW_WRITER",
    "AvailableNow",
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "WriterCommitMessage",
    "arrow_schema",
    "frame_of",
    "register_sources",
    "settings_of",
]

_ALREADY_EXISTS: Final = "[DATA_SOURCE_ALREADY_EXISTS]"

# Spark before 4.2 has no parameter for the time zone and uses UTC.
_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of batches that Spark reads, with timestamps in UTC."""
    return to_arrow_schema(schema, **_IN_UTC)


def register_sources(spark: SparkSession, sources: Iterable[type[DataSource]]) -> None:
    """Register data sources by their names. Spark 4.0 refuses one that it has found by itself."""
    for source in sources:
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if _ALREADY_EXISTS not in str(error):
                raise


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """A DataFrame of these rows. Spark before 4.0 takes no Arrow table."""
    if HAS_SOURCES:
        # Spark Connect needs an explicit schema for an empty table, and takes an empty chunk for the end of it.
        return spark.createDataFrame(rows.combine_chunks(), schema)
    return spark.createDataFrame(
        [tuple(row.values()) for row in rows.to_pylist(maps_as_pydicts="strict")], schema
    )


def arrow_of(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame, in this process."""
    if HAS_SOURCES:
        return frame.toArrow()
    # Spark before 4.0 has no public way, and the batches of no rows have no schema.
    return pa.Table.from_batches(cast("Any", frame)._collect_as_arrow(), arrow_schema(frame.schema))


def settings_of(spark: SparkSession) -> dict[str, str]:
    """All settings of a session, secrets included. Spark before 4.0 offers them to the JVM alone."""
    if HAS_SOURCES:
        return dict(spark.conf.getAll)
    entries = spark._jsparkSession.conf().getAll().iterator()
    found = {}
    while entries.hasNext():
        entry = entries.next()
        found[entry._1()] = entry._2()
    return found
