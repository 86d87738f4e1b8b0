"""Rebalancing before a write, for splits of the right size: `spark.indextables.write.optimizeWrite.enabled`.

A data source takes rows in the order in which they arrive, so each task writes a split for every partition value that
it has. Only a patched writer can bring the rows of a value together. Spark's REBALANCE does it by size: values with
many rows get several tasks of about the size of a split, and values with few rows share a task.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from indextables.config import Settings
from indextables.config.registry import WRITE_OPTIMIZE_ENABLED, WRITE_TARGET_SPLIT_SIZE
from indextables.errors import IndexTablesError
from indextables.spark.jobs import is_connect
from indextables.spark.options import PARTITION_BY, TablePlace, as_options, parse_names
from indextables.spark.releases import HAS_SOURCES
from indextables.spark.types import quote_name
from indextables.table import load_snapshot

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_TASK_SIZE: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
# What the task size was before the first of the writes that run now. The first one to end restores it.
_TASK_SIZE_BEFORE: Final = "indextables.advisoryPartitionSizeInBytes.before"


@contextlib.contextmanager
def rebalanced(
    frame: DataFrame, partition_by: Sequence[str], given: Mapping[str, str], session: Mapping[str, str]
) -> Iterator[DataFrame]:
    """The frame to write within the block: rebalanced if the settings ask for it, else the frame itself.

    The partition columns come from `partition_by`, from the options, or from the existing table. A frame with one
    partition is not shuffled: its only task has the rows of each value together. Raises InvalidOptionError for invalid
    settings.
    """
    settings = Settings.resolve(given, session=session)
    columns = _columns(frame, partition_by, given, session) if settings[WRITE_OPTIMIZE_ENABLED] else None
    if columns is None or _is_one_partition(frame):
        yield frame
        return
    spark = frame.sparkSession
    # The hint of Spark before 4.0 takes no columns from Python.
    if not HAS_SOURCES or spark.conf.get(_ADAPTIVE) != "true":
        yield frame.repartition(*columns) if columns else frame
        return
    size = settings[WRITE_TARGET_SPLIT_SIZE]
    if is_connect(spark):
        with _task_size(spark, size):
            yield frame.hint("rebalance", *columns)
    else:
        yield _with_task_size(frame, size).hint("rebalance", *columns)


def by_partition(
    frame: DataFrame, partition_by: Sequence[str], given: Mapping[str, str], session: Mapping[str, str]
) -> DataFrame:
    """The frame of a stream, shuffled by the partition columns if the settings ask for it; else the frame itself.

    Spark does not adapt the plans of streams, so the size of tasks is not known.
    """
    if not Settings.resolve(given, session=session)[WRITE_OPTIMIZE_ENABLED]:
        return frame
    columns = _columns(frame, partition_by, given, session)
    return frame.repartition(*columns) if columns else frame


def _columns(
    frame: DataFrame, partition_by: Sequence[str], given: Mapping[str, str], session: Mapping[str, str]
) -> list[str] | None:
    """The frame's columns that the table is partitioned by, quoted.

    None if they do not match the frame's columns: the source then reports a better error than Spark would here.
    """
    option = given.get(PARTITION_BY.lower())
    wanted = partition_by or (
        _table_partition_columns(given, session) if option is None else parse_names(option)
    )
    found = [[name for name in frame.columns if name.lower() == each.lower()] for each in wanted]
    if any(len(names) != 1 for names in found):
        return None
    return [quote_name(name) for (name,) in found]


def _table_partition_columns(options: Mapping[str, str], session: Mapping[str, str]) -> tuple[str, ...]:
    with contextlib.suppress(IndexTablesError):
        place = TablePlace.of({**options, **as_options(session)})
        return load_snapshot(place.context()).partition_columns
    return ()


def _is_one_partition(frame: DataFrame) -> bool:
    """Whether the frame ends with `coalesce(1)` or `repartition(1)`. A frame of Spark Connect does not tell."""
    java_frame = getattr(frame, "_jdf", None)
    if java_frame is None:
        return False
    plan = java_frame.queryExecution().analyzed()
    return bool(plan.nodeName() == "Repartition" and plan.numPartitions() == 1)


def _with_task_size(frame: DataFrame, size: int) -> DataFrame:
    """The frame in a copy of its session that aims at tasks of this size: other queries keep that of the session."""
    spark = frame.sparkSession
    jvm_session = spark._jsparkSession.cloneSession()
    jvm_session.conf().set(_TASK_SIZE, f"{size}b")
    jvm: Any = spark._jvm
    datasets = getattr(getattr(jvm.org.apache.spark.sql.classic, "Dataset$"), "MODULE$")
    java_frame = datasets.ofRows(jvm_session, frame._jdf.queryExecution().analyzed())
    return DataFrame(java_frame, SparkSession(spark.sparkContext, jvm_session))


@contextlib.contextmanager
def _task_size(spark: SparkSession, size: int) -> Iterator[None]:
    """Let a Connect server aim at tasks of this size. The concurrent queries of the session see the setting, too."""
    if spark.conf.get(_TASK_SIZE_BEFORE, None) is None:
        spark.conf.set(_TASK_SIZE_BEFORE, spark.conf.get(_TASK_SIZE) or "")
    spark.conf.set(_TASK_SIZE, f"{size}b")
    try:
        yield
    finally:
        before = spark.conf.get(_TASK_SIZE_BEFORE, None)
        if before is not None:
            spark.conf.set(_TASK_SIZE, before)
            spark.conf.unset(_TASK_SIZE_BEFORE)
