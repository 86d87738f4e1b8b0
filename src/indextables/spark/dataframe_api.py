"""What Spark's own classes do for our formats on a session that `enable` has equipped, and nowhere else.

Spark refuses `.partitionBy(…)` and most save modes for data sources in Python, and shows them no settings of the
session. So the calls on a writer are noted down, and when it saves in one of our formats they are repeated on a new
writer, with options in place of what Spark would refuse. Everything else goes to Spark as it always did.
"""

import functools
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from indextables.config.setting import OLDER_PREFIX, PREFIX
from indextables.errors import InvalidOptionError
from indextables.spark.filters import MARKER_PREFIX
from indextables.spark.jobs.workers import check_workers
from indextables.spark.noted_calls import (
    flat_names,
    last_argument,
    noted_options,
    noted_partition_columns,
    noting,
)
from indextables.spark.options import (
    PARTITION_BY,
    PATH,
    SAVE_MODE,
    SCAN_ID,
    SESSION_OVERWRITE_MODE,
    SPECULATION,
    as_options,
)
from indextables.spark.shuffle import quoted, shuffled
from indextables.spark.source import FORMATS

ENABLED: Final = "spark.indextables.python.enabled"

StatementHandler: TypeAlias = Callable[[SparkSession, str], DataFrame | None]
"""Executes a statement if it is one of ours; None leaves it to Spark."""

STATEMENT_HANDLERS: Final[list[StatementHandler]] = []

_PATCHED: Final = "_indextables_patched"
_KNOWN_PREFIXES: Final = (PREFIX, OLDER_PREFIX, "spark.hadoop.fs.")

# Spark accepts these for a data source in Python; the others are told to the source by an option.
_PLAIN_MODES: Final = frozenset({"append", "overwrite"})
_MODE_NAMES: Final[Mapping[str, str]] = {
    "error": "errorifexists",
    "errorifexists": "errorifexists",
    "default": "errorifexists",
    "ignore": "ignore",
}


def patch_dataframe_api(spark: SparkSession) -> None:
    """Patch the classes that this kind of session uses, classic or Connect; once for each kind."""
    frame = spark.range(0)
    _patch_writer(type(frame.write), type(frame))
    _patch_reader(type(spark.read))
    _patch_session(type(spark))


def is_enabled(spark: SparkSession) -> bool:
    """Whether `enable` has equipped this session."""
    return spark.conf.get(ENABLED, "false") == "true"


def _activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread: Spark finds data sources in Python by no other way."""
    if type(spark).getActiveSession() is None:
        spark.createDataFrame([], StructType([]))


def _patch_writer(writer_type: type[Any], frame_type: type[Any]) -> None:
    if _is_patched(writer_type):
        return
    for name in ("format", "mode", "option", "options", "partitionBy"):
        setattr(writer_type, name, noting(getattr(writer_type, name)))
    original = writer_type.save

    @functools.wraps(original)
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  # the name is Spark's
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803  # the name is Spark's
        **options: Any,
    ) -> None:
        source = format or last_argument(self, "format")
        if not _is_ours(source) or not is_enabled(self._spark):
            original(self, path, format, mode, partitionBy, **options)
            return
        _activate(self._spark)
        check_workers(self._spark)
        frame = self._df if isinstance(self._df, DataFrame) else frame_type(self._df, self._spark)
        noted = noted_options(self) | options
        partition_by = flat_names(partitionBy) or noted_partition_columns(self)
        settings = session_settings(self._spark)
        place = {} if path is None else {PATH: path}
        frame = shuffled(frame, partition_by, {**noted, **place}, settings)
        writer = frame.write.format(source).options(**noted, **as_options(settings))
        if partition_by:
            writer = writer.option(PARTITION_BY, json.dumps(list(partition_by)))
        original(_with_mode(writer, mode or last_argument(self, "mode")), path)

    writer_type.save = save


def _patch_reader(reader_type: type[Any]) -> None:
    if _is_patched(reader_type):
        return
    reader_type.format = noting(reader_type.format)
    original = reader_type.load

    @functools.wraps(original)
    def load(
        self: Any,
        path: Any = None,
        format: str | None = None,  # noqa: A002  # the name is Spark's
        schema: Any = None,
        **options: Any,
    ) -> DataFrame:
        spark = getattr(self, "_spark", None) or self._client
        if not _is_ours(format or last_argument(self, "format")) or not is_enabled(spark):
            plain: DataFrame = original(self, path, format, schema, **options)
            return plain
        _activate(spark)
        check_workers(spark)
        scan_id = uuid.uuid4().hex
        settings = {**as_options(session_settings(spark)), **options}
        frame: DataFrame = original(self, path, format, schema, **settings, **{SCAN_ID: scan_id})
        marked = _marked(frame, scan_id)
        return original(self, path, format, schema, **settings, **{SCAN_ID: ""}) if marked is None else marked

    reader_type.load = load


def _patch_session(session_type: type[Any]) -> None:
    if _is_patched(session_type):
        return
    original = session_type.sql

    @functools.wraps(original)
    def sql(self: Any, sqlQuery: str, *arguments: Any, **named: Any) -> DataFrame:  # noqa: N803  # Spark's name
        if STATEMENT_HANDLERS and is_enabled(self):
            for handler in STATEMENT_HANDLERS:
                answer = handler(self, sqlQuery)
                if answer is not None:
                    return answer
        frame: DataFrame = original(self, sqlQuery, *arguments, **named)
        return frame

    session_type.sql = sql


def _is_patched(patched: type[Any]) -> bool:
    """Whether a class is patched already; it is from now on."""
    if _PATCHED in vars(patched):
        return True
    setattr(patched, _PATCHED, True)
    return False


def _with_mode(writer: Any, mode: str | None) -> Any:
    name = (mode or "error").lower()
    if name in _PLAIN_MODES:
        return writer.mode(name)
    if name not in _MODE_NAMES:
        raise InvalidOptionError(
            f"the save mode {mode!r} does not exist; use append, overwrite, errorifexists or ignore"
        )
    return writer.mode("append").option(SAVE_MODE, _MODE_NAMES[name])


def _marked(frame: DataFrame, scan_id: str) -> DataFrame | None:
    """The same rows, with a condition that every scan of them sends to the source; None without a text column.

    See `recent_plans` for why. The condition holds for every row, null or not.
    """
    texts = [field.name for field in frame.schema if isinstance(field.dataType, StringType)]
    if not texts:
        return None
    return frame.where(f"NOT ({quoted(texts[-1])} <=> '{MARKER_PREFIX}{scan_id}')")


def _is_ours(source: Any) -> bool:
    return isinstance(source, str) and source.lower() in FORMATS


def session_settings(spark: SparkSession) -> dict[str, str]:
    """The settings of a session that a data source has to know: ours, those of Hadoop's file systems, and two more."""
    settings = spark.conf.getAll
    known = {
        key: value
        for key, value in settings.items()
        if key != ENABLED and (key.startswith(_KNOWN_PREFIXES) or key == SESSION_OVERWRITE_MODE)
    }
    return {**known, SPECULATION: settings.get(SPECULATION, "false")}
