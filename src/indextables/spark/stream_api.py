"""What Spark's streaming classes do for our formats on a session that `enable` has equipped, and nowhere else.

Spark shows streams no settings of the session, and ignores `.partitionBy(…)` on those that write to a data source in
Python, without a word. Both become options here.
"""

import functools
import json
import sys
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from indextables.spark.dataframe_api import as_options, is_enabled, session_settings
from indextables.spark.jobs.workers import check_workers
from indextables.spark.options import PARTITION_BY
from indextables.spark.source import FORMATS

_PATCHED: Final = "_indextables_stream_patched"
_FORMAT: Final = "_indextables_format"
_PARTITION_BY: Final = "_indextables_partition_by"


def patch_stream_api(spark: SparkSession) -> None:
    """Patch the classes that this kind of session uses for streams, classic or Connect; once for each kind."""
    reader_type = type(spark.readStream)
    _patch_reader(reader_type)
    # A writer comes only with a stream to write; its class stands beside that of the reader.
    _patch_writer(sys.modules[reader_type.__module__].DataStreamWriter)


def _patch_reader(reader_type: type[Any]) -> None:
    if _is_patched(reader_type):
        return
    _note_format(reader_type)
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


def _patch_writer(writer_type: type[Any]) -> None:
    if _is_patched(writer_type):
        return
    _note_format(writer_type)
    partition_by, start = writer_type.partitionBy, writer_type.start

    @functools.wraps(partition_by)
    def noting(self: Any, *columns: Any) -> Any:
        self.__dict__[_PARTITION_BY] = columns[0] if columns and not isinstance(columns[0], str) else columns
        return partition_by(self, *columns)

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
        columns = partitionBy or self.__dict__.get(_PARTITION_BY)
        options = {**as_options(session_settings(spark)), **options}
        if columns:
            names = [columns] if isinstance(columns, str) else list(columns)
            partition_by(self, [])
            self.option(PARTITION_BY, json.dumps(names))
        return start(self, path, format, outputMode, None, queryName, **options)

    writer_type.partitionBy, writer_type.start = noting, started


def _note_format(patched: type[Any]) -> None:
    original = patched.format

    @functools.wraps(original)
    def noting(self: Any, source: str) -> Any:
        self.__dict__[_FORMAT] = source
        return original(self, source)

    patched.format = noting


def _is_ours(stream: Any, source: str | None) -> bool:
    name = source or stream.__dict__.get(_FORMAT)
    return isinstance(name, str) and name.lower() in FORMATS


def _is_patched(patched: type[Any]) -> bool:
    """Whether a class is patched already; it is from now on."""
    if _PATCHED in vars(patched):
        return True
    setattr(patched, _PATCHED, True)
    return False
