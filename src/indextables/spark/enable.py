"""Calls on Spark's readers and writers, noted down: what they were told cannot be asked of them."""

import contextlib
import functools
import json
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from indextables.config import Settings
from indextables.config.registry import WRITE_OPTIMIZE_ENABLED
from indextables.config.setting import OLDER_PREFIX, PREFIX
from indextables.errors import IndexTablesError, InvalidOptionError, TableNotFoundError
from indextables.spark.filters import MARKER_PREFIX
from indextables.spark.jobs import SparkRunner, check_workers
from indextables.spark.options import (
    PARTITION_BY,
    PATH,
    SAVE_MODE,
    SCAN_ID,
    SESSION_OVERWRITE_MODE,
    SPECULATION,
    TablePlace,
    as_options,
    names_of,
)
from indextables.spark.source import FORMATS
from indextables.spark.types import spark_schema
from indextables.statements import Caller, TableName, parse_statement, run_statement
from indextables.table import load_snapshot

_CALLS: Final = "_indextables_calls"

Call: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a method, and its arguments."""


def noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, which also notes down how it was called."""

    @functools.wraps(original)
    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        self.__dict__.setdefault(_CALLS, []).append((original.__name__, arguments, named))
        return original(self, *arguments, **named)

    return noted


def calls(writer: Any, *names: str) -> list[Call]:
    """The calls of some methods, or of all that are noted down, in their order."""
    return [call for call in writer.__dict__.get(_CALLS, []) if not names or call[0] in names]


def repeat_calls(writer: Any, other: Any) -> Any:
    """The other writer, after it was told the same."""
    for name, arguments, named in calls(writer):
        getattr(other, name)(*arguments, **named)
    return other


def last_argument(writer: Any, name: str) -> Any:
    """The argument of the last call of a method that takes one."""
    found = calls(writer, name)
    return next(iter([*found[-1][1], *found[-1][2].values()]), None) if found else None


def noted_options(writer: Any) -> dict[str, Any]:
    """The options that were given."""
    noted: dict[str, Any] = {}
    for name, arguments, named in calls(writer, "option", "options"):
        if name == "options":
            noted |= named
        else:
            key, value = [*arguments, *(named[each] for each in ("key", "value") if each in named)]
            noted[key] = value
    return noted


def noted_partition_columns(writer: Any) -> tuple[str, ...]:
    """The arguments of the last call of `partitionBy`."""
    found = calls(writer, "partitionBy")
    return flat_names(list(found[-1][1])) if found else ()


def flat_names(columns: Any) -> tuple[str, ...]:
    """Names that were given one by one, in a list, or not at all."""
    if columns is None:
        return ()
    if isinstance(columns, str):
        return (columns,)
    return tuple(
        name for each in columns for name in (flat_names(each) if not isinstance(each, str) else (each,))
    )


# Rows by partition before they are written, where the setting asks for it: fewer and larger splits.
#
# A data source gets the rows as they come, so this is for sessions that `enable` has equipped.


def shuffled(
    frame: DataFrame, partition_by: Sequence[str], options: Mapping[str, Any], session: Mapping[str, str]
) -> DataFrame:
    """The rows by partition, or the same frame where that is not asked for, and where there are no partitions.

    Partitions are those of `partition_by`, those that the options name, or those of the table that they name. What is
    wrong with them the source says in better words than Spark would here. Raises InvalidOptionError for settings.
    """
    given = {key.lower(): _text(value) for key, value in options.items() if value is not None}
    if not Settings.resolve(given, session=session)[WRITE_OPTIMIZE_ENABLED]:
        return frame
    named = given.get(PARTITION_BY.lower())
    wanted = partition_by or (_of_table(given, session) if named is None else names_of(named))
    found = [[name for name in frame.columns if name.lower() == each.lower()] for each in wanted]
    if not found or any(len(names) != 1 for names in found):
        return frame
    return frame.repartition(*(quoted(name) for (name,) in found))


def quoted(name: str) -> str:
    """A column's name as Spark does not take it apart."""
    return f"`{name.replace('`', '``')}`"


def _of_table(options: Mapping[str, str], session: Mapping[str, str]) -> tuple[str, ...]:
    with contextlib.suppress(IndexTablesError):
        place = TablePlace.of({**options, **as_options(session)})
        return load_snapshot(place.context()).partition_columns
    return ()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# What Spark's own classes do for our formats on a session that `enable` has equipped, and nowhere else.
#
# Spark refuses `.partitionBy(…)` and most save modes for data sources in Python, and shows them no settings
# of the session. So the calls on a writer are noted down, and when it saves in one of our formats they are
# repeated on a new writer, with options in place of what Spark would refuse. Everything else goes to Spark as
# it always did.


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


# What Spark's streaming classes do for our formats on a session that `enable` has equipped, and nowhere else.
#
# Spark shows streams no settings of the session, and ignores `.partitionBy(…)` on those that write to a data
# source in Python, without a word. Both become options here. Where rows are to be shuffled, the calls on a
# writer are repeated on one for the shuffled rows.


_STREAMS_PATCHED: Final = "_indextables_stream_patched"
_NOTED: Final = (
    "format", "option", "options", "outputMode", "partitionBy", "queryName", "trigger", "foreach", "foreachBatch"
)  # fmt: skip


def patch_stream_api(spark: SparkSession) -> None:
    """Patch the classes that this kind of session uses for streams, classic or Connect; once for each kind."""
    reader_type = type(spark.readStream)
    _patch_stream_reader(reader_type)
    # A writer comes only with a stream to write; its class stands beside that of the reader.
    _patch_stream_writer(sys.modules[reader_type.__module__].DataStreamWriter, type(spark.range(0)))


def _patch_stream_reader(reader_type: type[Any]) -> None:
    if _is_stream_patched(reader_type):
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
        if _is_our_stream(self, format) and is_enabled(spark):
            check_workers(spark)
            options = {**as_options(session_settings(spark)), **options}
        frame: DataFrame = original(self, path, format, schema, **options)
        return frame

    reader_type.load = load


def _patch_stream_writer(writer_type: type[Any], frame_type: type[Any]) -> None:
    if _is_stream_patched(writer_type):
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
        if not _is_our_stream(self, format) or not is_enabled(spark):
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


def _is_our_stream(stream: Any, source: str | None) -> bool:
    name = source or last_argument(stream, "format")
    return isinstance(name, str) and name.lower() in FORMATS


def _is_stream_patched(patched: type[Any]) -> bool:
    """Whether a class is patched already; it is from now on."""
    if _STREAMS_PATCHED in vars(patched):
        return True
    setattr(patched, _STREAMS_PATCHED, True)
    return False


# The statements of IndexTables in `spark.sql`: executed here, and answered as a DataFrame.


_LOCATION: Final = "Location"
_DETAILS: Final = "# Detailed Table Information"


def execute_statement(spark: SparkSession, text: object) -> DataFrame | None:
    """Execute a statement if it is one of ours; None leaves it to Spark.

    It runs at once, as Spark's own commands do, with the session's settings; the executors do the work. Names of
    tables are looked up in the session's catalog. Raises what `parse_statement` and `run_statement` raise.
    """
    # Whoever hands over something else than a text gets Spark's own error.
    statement = parse_statement(text) if isinstance(text, str) else None
    if statement is None:
        return None
    caller = Caller(
        session=session_settings(spark),
        runner=SparkRunner(spark),
        resolve_table=lambda name: location_of(spark, name),
    )
    answer = run_statement(statement, caller)
    # Spark Connect cannot tell the schema of an answer without rows.
    # It also takes an empty chunk for the end of a table.
    return spark.createDataFrame(answer.combine_chunks(), spark_schema(answer.schema))


def location_of(spark: SparkSession, name: TableName) -> str:
    """Where the session's catalog says that a table is.

    Raises TableNotFoundError if it has no such table, or one without a place of its own, such as a view.
    """
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in name.parts)
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    except AnalysisException as error:
        raise TableNotFoundError(
            f"Spark's catalog has no table {name}; check the name, or give the path of the table in quotes"
        ) from error
    names = [row["col_name"] for row in rows]
    # Before the details stand the table's columns, which may have any name.
    details = rows[names.index(_DETAILS) :] if _DETAILS in names else []
    place = next((row["data_type"] for row in details if row["col_name"] == _LOCATION), None)
    if not place:
        raise TableNotFoundError(
            f"Spark's catalog does not say where {name} is; give the path of the table in quotes"
        )
    return str(place)
