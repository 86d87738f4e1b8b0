"""What Spark's streaming classes do for our formats on a session that `enable` has equipped, and nowhere else.

Spark shows streams no settings of the session, and ignores `.partitionBy(…)` on those that write to a data source in
Python, without a word. Both become options here. Where rows are to be shuffled, the calls on a writer are repeated on
one for the shuffled rows.
"""

import functools
import json
import sys
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from indextables.spark.dataframe_api import is_enabled, session_settings
from indextables.spark.jobs.workers import check_workers
from indextables.spark.noted_calls import (
    flat_names,
    last_argument,
    noted_options,
    noted_partition_columns,
    noting,
    repeat_calls,
)
from indextables.spark.options import PARTITION_BY, PATH, as_options
from indextables.spark.shuffle import shuffled
from indextables.spark.source import FORMATS

_PATCHED: Final = "_indextables_stream_patched"
_NOTED: Final = (
    "format", "option", "options", "outputMode", "partitionBy", "queryName", "trigger", "foreach", "foreachBatch"
)  # fmt: skip


def patch_stream_api(spark: SparkSession) -> None:
    """Patch the classes that this kind of session uses for streams, classic or Connect; once for each kind."""
    reader_type = type(spark.readStream)
    _patch_reader(reader_type)
    # A writer comes only with a stream to write; its class stands beside that of the reader.
    _patch_writer(sys.modules[reader_type.__module__].DataStreamWriter, type(spark.range(0)))


def _patch_reader(reader_type: type[Any]) -> None:
    if _is_patched(reader_type):
        return
    reader_type.format = noting(reader_type.format)
    original = reader_type.load

    @functools.wraps(original)
    def load(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  # the name is Spark's
        schema: StructType | str | None = None,
        **options: Any,
    ) -> DataFrame:
        spark = getattr(self, "_spark", None) or self._client
        if _is_ours(self, format) and is_enabled(spark):
            check_workers(spark)
            options = {**as_options(session_settings(spark)), **options}
        frame: DataFrame = original(self, path, format, schema, **options)
        return frame

    reader_type.load = load


def _patch_writer(writer_type: type[Any], frame_type: type[Any]) -> None:
    if _is_patched(writer_type):
        return
    partition_by, start = writer_type.partitionBy, writer_type.start
    for name in _NOTED:
        setattr(writer_type, name, noting(getattr(writer_type, name)))

    @functools.wraps(start)
    def started(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  # the name is Spark's
        outputMode: str | None = None,  # noqa: N803  # the name is Spark's
        partitionBy: str | list[str] | None = None,  # noqa: N803  # the name is Spark's
        queryName: str | None = None,  # noqa: N803  # the name is Spark's
        **options: Any,
    ) -> Any:
        spark = self._session if hasattr(self, "_session") else self._spark
        if not _is_ours(self, format) or not is_enabled(spark):
            return start(self, path, format, outputMode, partitionBy, queryName, **options)
        check_workers(spark)
        columns = flat_names(partitionBy) or noted_partition_columns(self)
        settings = session_settings(spark)
        place = {} if path is None else {PATH: path}
        frame = self._df if hasattr(self, "_df") else frame_type(self._write_stream._child, spark)
        rows = shuffled(frame, columns, {**noted_options(self), **options, **place}, settings)
        writer = self if rows is frame else repeat_calls(self, rows.writeStream)
        if columns:
            partition_by(writer, [])
            writer.option(PARTITION_BY, json.dumps(columns))
        return start(writer, path, format, outputMode, None, queryName, **{**as_options(settings), **options})

    writer_type.start = started


def _is_ours(stream: Any, source: str | None) -> bool:
    name = source or last_argument(stream, "format")
    return isinstance(name, str) and name.lower() in FORMATS


def _is_patched(patched: type[Any]) -> bool:
    """Whether a class is patched already; it is from now on."""
    if _PATCHED in vars(patched):
        return True
    setattr(patched, _PATCHED, True)
    return False
