"""Patches to Spark's readers, writers and `spark.sql`, active for our formats on sessions that `enable` prepared.

Spark rejects `.partitionBy(…)` and most save modes for Python data sources, silently ignores `.partitionBy(…)` on
streams, and shows data sources no session settings. Patched writers therefore record the calls made on them; when one
saves in one of our formats, the calls are repeated on a new writer with options in place of what Spark would reject.
Everything else goes to Spark unchanged.
"""

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from indextables.errors import InvalidOptionError, InvalidSchemaError, SparkUnavailableError
from indextables.spark.failures import raise_own_errors
from indextables.spark.jobs import check_workers, describe_jobs
from indextables.spark.loaded import Origin, answered, note_origin, origin_of, shown_aggregates
from indextables.spark.native import load_table
from indextables.spark.option_names import (
    READER,
    STREAM_OPTIONS_OF_SPARK,
    STREAM_WRITER,
    WRITER,
    known_options,
)
from indextables.spark.options import (
    PARTITION_BY,
    PATH,
    SAVE_MODE,
    as_options,
    session_settings,
)
from indextables.spark.rebalance import by_partition, rebalanced
from indextables.spark.releases import HAS_SOURCES, HAS_STREAM_ARROW_WRITER
from indextables.spark.session import is_enabled
from indextables.spark.source import FORMATS
from indextables.spark.sql.names import insert_into, load_named, our_table, save_as_table, split_name
from indextables.spark.sql.run import run_sql
from indextables.spark.sql.tables import (
    at_version,
    options_of_view,
    remember_view,
)
from indextables.spark.statements import execute_statement
from indextables.spark.without_sources import NO_STREAM_SOURCE, load_frame, save_frame, sink

_PATCHED: Final = "_indextables_patched"

# The save modes that Spark accepts for a Python data source. The others reach the source as an option.
_NATIVE_MODES: Final = frozenset({"append", "overwrite"})
_OTHER_MODES: Final[Mapping[str, str]] = {
    "error": "errorifexists",
    "errorifexists": "errorifexists",
    "default": "errorifexists",
    "ignore": "ignore",
}

# The methods that create temporary views, and the database of the views.
_VIEW_METHODS: Final[Mapping[str, str]] = {
    "createTempView": "",
    "createOrReplaceTempView": "",
    "createGlobalTempView": "global_temp.",
    "createOrReplaceGlobalTempView": "global_temp.",
}

_RECORDED_ON_READER: Final = ("format", "option", "options", "schema")
_RECORDED_ON_WRITER: Final = ("format", "mode", "option", "options", "partitionBy")
_RECORDED_ON_STREAM_WRITER: Final = (
    "format", "option", "options", "outputMode", "partitionBy", "queryName", "trigger", "foreach", "foreachBatch"
)  # fmt: skip


# What a stream keeps if it is written with `foreachBatch`.
_KEPT_FOR_FOREACH_BATCH: Final = ("outputMode", "queryName", "trigger")
_OPTIONS_OF_SPARK: Final = frozenset(name.lower() for name in STREAM_OPTIONS_OF_SPARK)


def patch_spark(spark: SparkSession) -> None:
    """Patch the classes that this kind of session uses, classic or Connect. Patching again has no effect."""
    raise_own_errors()
    frame = spark.range(0)
    _patch_writer(type(frame.write), type(frame))
    _patch_reader(type(spark.read))
    _patch_frame(type(frame))
    _patch_sql(type(spark))
    stream_reader_type = type(spark.readStream)
    _patch_stream_reader(stream_reader_type)
    # Only a streaming DataFrame has a stream writer. The class is in the same module as the reader's.
    stream_writer_type = sys.modules[stream_reader_type.__module__].DataStreamWriter
    _patch_stream_writer(stream_writer_type, type(frame))


# Batch.


def _patch_writer(writer_type: type[Any], frame_type: type[Any]) -> None:
    if _is_patched(writer_type):
        return
    _record_calls(writer_type, _RECORDED_ON_WRITER)
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
        if not _is_ours(self, format, self._spark):
            original(self, path, format, mode, partitionBy, **options)
            return
        _activate(self._spark)
        check_workers(self._spark)
        frame = self._df if isinstance(self._df, DataFrame) else frame_type(self._df, self._spark)
        given = {**_recorded_options(self), **options, **_path_option(path)}
        known = known_options(_texts(given), WRITER)
        partition_by = _flat_names(partitionBy) or _recorded_partition_columns(self)
        settings = session_settings(self._spark)
        balanced = rebalanced(frame, partition_by, dict(known), settings)
        source = format or _last_argument(self, "format")
        if partition_by:
            known[PARTITION_BY.lower()] = json.dumps(partition_by)
        native_mode, requested = _modes(mode or _last_argument(self, "mode"))
        known |= {**as_options(settings), **requested}
        description = f"IndexTables: write to {known.get(PATH, 'a table')}"
        with balanced as frame, describe_jobs(self._spark, description):
            if HAS_SOURCES:
                original(frame.write.format(source).options(**known).mode(native_mode))
            else:
                save_frame(frame, known, overwrite=native_mode == "overwrite")

    writer_type.save = save
    _patch_named_writes(writer_type, frame_type)


def _patch_named_writes(writer_type: type[Any], frame_type: type[Any]) -> None:
    original, original_insert = writer_type.saveAsTable, writer_type.insertInto

    def frame_of(writer: Any) -> DataFrame:
        frame: DataFrame = (
            writer._df if isinstance(writer._df, DataFrame) else frame_type(writer._df, writer._spark)
        )
        return frame

    @functools.wraps(original)
    def save_table(
        self: Any,
        name: str,
        format: str | None = None,  # noqa: A002  # the name is Spark's
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803  # the name is Spark's
        **options: Any,
    ) -> None:
        spark, parts = self._spark, split_name(name)
        source = format or _last_argument(self, "format")
        is_named = source is None and is_enabled(spark) and our_table(spark, parts) is not None
        if not is_named and not _is_ours(self, format, spark):
            original(self, name, format, mode, partitionBy, **options)
            return
        save_as_table(
            spark,
            frame_of(self),
            parts,
            (mode or _last_argument(self, "mode") or "error").lower(),
            _flat_names(partitionBy) or _recorded_partition_columns(self),
            _recorded_options(self) | options,
        )

    @functools.wraps(original_insert)
    def insert_into_table(self: Any, tableName: str, overwrite: bool | None = None) -> None:  # noqa: N803  # Spark's
        is_overwrite = (
            (_last_argument(self, "mode") or "").lower() == "overwrite" if overwrite is None else overwrite
        )
        parts = split_name(tableName)
        is_ours = is_enabled(self._spark) and insert_into(
            self._spark, frame_of(self), parts, is_overwrite=is_overwrite
        )
        if not is_ours:
            original_insert(self, tableName, overwrite)

    writer_type.saveAsTable = save_table
    writer_type.insertInto = insert_into_table


def _patch_reader(reader_type: type[Any]) -> None:
    if _is_patched(reader_type):
        return
    _record_calls(reader_type, _RECORDED_ON_READER)
    original = reader_type.load

    @functools.wraps(original)
    def load(
        self: Any,
        path: Any = None,
        format: str | None = None,  # noqa: A002  # the name is Spark's
        schema: Any = None,
        **options: Any,
    ) -> DataFrame:
        spark = _session_of(self)
        if not _is_ours(self, format, spark):
            plain: DataFrame = original(self, path, format, schema, **options)
            return plain
        if isinstance(path, list):
            raise InvalidOptionError(f"load takes the path of one table, and got {len(path)} paths in a list")
        session = as_options(session_settings(spark))
        given = known_options(_texts({**_recorded_options(self), **options, **_path_option(path)}), READER)
        wanted = _as_struct(_last_argument(self, "schema") if schema is None else schema)
        loading = load_table(spark, {**session, **given}, wanted)
        frame = loading.frame
        if frame is None:
            _activate(spark)
            check_workers(spark)
            if HAS_SOURCES:
                frame = original(self, path, format, schema, **{**session, **options, **loading.options})
            else:
                pinned = {key.lower(): value for key, value in loading.options.items()}
                frame = load_frame(spark, {**session, **given, **pinned}, wanted)
        assert frame is not None
        again = given if loading.table is None else at_version(given, loading.table.version)
        return note_origin(frame, Origin(again if wanted is None else None, loading.table))

    reader_type.load = load
    original_table = reader_type.table

    @functools.wraps(original_table)
    def table(self: Any, tableName: str) -> DataFrame:  # noqa: N803  # the name is Spark's
        spark = _session_of(self)
        found = our_table(spark, split_name(tableName)) if is_enabled(spark) else None
        if found is None:
            frame: DataFrame = original_table(self, tableName)
            return frame
        return load_named(spark, found, split_name(tableName), _texts(_recorded_options(self)))

    reader_type.table = table


def _noting_view(original: Callable[..., Any], prefix: str) -> Callable[..., Any]:
    """A method that also notes which table a temporary view shows, so that `spark.sql` can search it."""

    @functools.wraps(original)
    def create(self: Any, name: str) -> None:
        original(self, name)
        # Spark itself makes short-lived views of the DataFrames that are arguments of `spark.sql`.
        if not name.startswith("_pyspark_"):
            remember_view(self.sparkSession, f"{prefix}{name}", self)

    return create


# DataFrames that are a loaded table, without any further operation.


def _patch_frame(frame_type: type[Any]) -> None:
    if _is_patched(frame_type):
        return
    for method, prefix in _VIEW_METHODS.items():
        setattr(frame_type, method, _noting_view(getattr(frame_type, method), prefix))
    original_count, original_explain = frame_type.count, frame_type.explain

    @functools.wraps(original_count)
    def count(self: Any) -> int:
        table = origin_of(self).table
        # Counting the rows of a cached DataFrame fills the cache.
        num_rows = None if table is None or self.is_cached else table.num_rows()
        return int(original_count(self)) if num_rows is None else num_rows

    @functools.wraps(original_explain)
    def explain(self: Any, *args: Any, **kwargs: Any) -> None:
        table = origin_of(self).table
        if table is not None:
            print(table)  # noqa: T201  # Spark prints the plan
        original_explain(self, *args, **kwargs)

    frame_type.count = count
    frame_type.explain = explain
    for name in ("agg", "select"):
        setattr(frame_type, name, _aggregating(getattr(frame_type, name)))


def _aggregating(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """A method whose result comes from the log if it asks for nothing but aggregates that the log knows."""

    @functools.wraps(original)
    def method(self: Any, *columns: Any) -> DataFrame:
        result = original(self, *columns)
        if origin_of(self).table is None:
            return result
        aggregates = shown_aggregates(columns)
        return result if aggregates is None else answered(self, aggregates, result)

    return method


def _patch_sql(session_type: type[Any]) -> None:
    if _is_patched(session_type):
        return
    original = session_type.sql

    @functools.wraps(original)
    def sql(self: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:  # noqa: N803  # Spark's name
        if not is_enabled(self):
            frame: DataFrame = original(self, sqlQuery, *args, **kwargs)
            return frame
        result = execute_statement(self, sqlQuery)
        if result is not None:
            return result
        given = args[0] if args else kwargs.pop("args", None)
        return run_sql(self, functools.partial(original, self), sqlQuery, given, kwargs)

    session_type.sql = sql
    original_table = session_type.table

    @functools.wraps(original_table)
    def table(self: Any, tableName: str) -> DataFrame:  # noqa: N803  # the name is Spark's
        if not is_enabled(self):
            plain: DataFrame = original_table(self, tableName)
            return plain
        parts = split_name(tableName)
        found = our_table(self, parts)
        if found is not None:
            return load_named(self, found, parts, {})
        frame: DataFrame = original_table(self, tableName)
        options = options_of_view(self, ".".join(parts))
        if options is not None:
            note_origin(frame, Origin(options))
        return frame

    session_type.table = table


def _activate(spark: SparkSession) -> None:
    """Make this the thread's active session: Spark looks up Python data sources only there."""
    if type(spark).getActiveSession() is None:
        spark.createDataFrame([], StructType([]))


def _modes(mode: str | None) -> tuple[str, dict[str, str]]:
    """The mode for Spark, and an option with the requested mode if Spark rejects it. Raises InvalidOptionError."""
    name = (mode or "error").lower()
    if name in _NATIVE_MODES:
        return name, {}
    if name not in _OTHER_MODES:
        raise InvalidOptionError(
            f"unknown save mode {mode!r}; use append, overwrite, errorifexists or ignore"
        )
    return "append", {SAVE_MODE: _OTHER_MODES[name]}


# Streams.


def _patch_stream_reader(reader_type: type[Any]) -> None:
    if _is_patched(reader_type):
        return
    _record_calls(reader_type, ("format",))
    original = reader_type.load

    @functools.wraps(original)
    def load(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  # the name is Spark's
        schema: StructType | str | None = None,
        **options: Any,
    ) -> DataFrame:
        spark = _session_of(self)
        if _is_ours(self, format, spark):
            if not HAS_SOURCES:
                raise SparkUnavailableError(NO_STREAM_SOURCE)
            check_workers(spark)
            options = {**as_options(session_settings(spark)), **options}
        frame: DataFrame = original(self, path, format, schema, **options)
        return frame

    reader_type.load = load


def _patch_stream_writer(writer_type: type[Any], frame_type: type[Any]) -> None:
    if _is_patched(writer_type):
        return
    original_partition_by, original = writer_type.partitionBy, writer_type.start
    _record_calls(writer_type, _RECORDED_ON_STREAM_WRITER)

    @functools.wraps(original)
    def start(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  # the name is Spark's
        outputMode: str | None = None,  # noqa: N803  # the name is Spark's
        partitionBy: str | list[str] | None = None,  # noqa: N803  # the name is Spark's
        queryName: str | None = None,  # noqa: N803  # the name is Spark's
        **options: Any,
    ) -> Any:
        spark = self._session if hasattr(self, "_session") else self._spark
        if not _is_ours(self, format, spark):
            return original(self, path, format, outputMode, partitionBy, queryName, **options)
        check_workers(spark)
        partition_by = _flat_names(partitionBy) or _recorded_partition_columns(self)
        settings = session_settings(spark)
        given = known_options(
            _texts({**_recorded_options(self), **options, **_path_option(path)}), STREAM_WRITER
        )
        frame = self._df if hasattr(self, "_df") else frame_type(self._write_stream._child, spark)
        repartitioned = by_partition(frame, partition_by, given, settings)
        if not HAS_STREAM_ARROW_WRITER:
            if partition_by:
                given[PARTITION_BY.lower()] = json.dumps(partition_by)
            write_batch = sink(
                {**given, **as_options(settings)}, outputMode or _last_argument(self, "outputMode")
            )
            writer = _repeat_calls(self, repartitioned.writeStream, _KEPT_FOR_FOREACH_BATCH)
            writer = writer.options(**{key: given[key] for key in given if key in _OPTIONS_OF_SPARK})
            return original(writer.foreachBatch(write_batch), None, None, outputMode, None, queryName)
        writer = self if repartitioned is frame else _repeat_calls(self, repartitioned.writeStream)
        if partition_by:
            original_partition_by(writer, [])
            writer.option(PARTITION_BY, json.dumps(partition_by))
        options = {**as_options(settings), **options}
        return original(writer, path, format, outputMode, None, queryName, **options)

    writer_type.start = start


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark passes them on."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
        if value is not None
    }


# Recorded calls: a Spark reader or writer cannot be asked for its format, mode, options or partition columns.

_CALLS: Final = "_indextables_calls"


class _Call(msgspec.Struct, frozen=True):
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _record_calls(patched: type[Any], methods: Sequence[str]) -> None:
    for method in methods:
        setattr(patched, method, _recording(getattr(patched, method)))


def _recording(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def record(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.__dict__.setdefault(_CALLS, []).append(_Call(original.__name__, args, kwargs))
        return original(self, *args, **kwargs)

    return record


def _recorded(builder: Any, *methods: str) -> list[_Call]:
    """The recorded calls of some methods, or of all if none is named, in order."""
    return [call for call in builder.__dict__.get(_CALLS, []) if not methods or call.method in methods]


def _repeat_calls(builder: Any, other: Any, methods: Sequence[str] = ()) -> Any:
    """Repeat recorded calls on another builder, of some methods or of all; returns that one."""
    for call in _recorded(builder, *methods):
        getattr(other, call.method)(*call.args, **call.kwargs)
    return other


def _last_argument(builder: Any, method: str) -> Any:
    """The argument of the last call of a method that takes one."""
    found = _recorded(builder, method)
    return next(iter([*found[-1].args, *found[-1].kwargs.values()]), None) if found else None


def _recorded_options(builder: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for call in _recorded(builder, "option", "options"):
        if call.method == "options":
            options |= call.kwargs
        else:
            key, value = [
                *call.args,
                *(call.kwargs[name] for name in ("key", "value") if name in call.kwargs),
            ]
            options[key] = value
    return options


def _recorded_partition_columns(builder: Any) -> tuple[str, ...]:
    found = _recorded(builder, "partitionBy")
    return _flat_names(list(found[-1].args)) if found else ()


# What all patches share.


def _is_patched(patched: type[Any]) -> bool:
    """Whether a class is already patched. Marks it as patched."""
    if _PATCHED in vars(patched):
        return True
    setattr(patched, _PATCHED, True)
    return False


def _is_ours(builder: Any, source: str | None, spark: SparkSession) -> bool:
    """Whether a reader or writer uses one of our formats on an enabled session."""
    name = source or _last_argument(builder, "format")
    return isinstance(name, str) and name.lower() in FORMATS and is_enabled(spark)


def _session_of(reader: Any) -> SparkSession:
    spark: SparkSession = getattr(reader, "_spark", None) or reader._client
    return spark


def _as_struct(schema: StructType | str | None) -> StructType | None:
    if not isinstance(schema, str):
        return schema
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise InvalidSchemaError(
            f"the schema {schema!r} has no columns; write it as 'id long, message string'"
        )
    return parsed


def _path_option(path: str | None) -> dict[str, str]:
    return {} if path is None else {PATH: path}


def _flat_names(columns: Any) -> tuple[str, ...]:
    """Column names that were given one by one, in lists, or not at all."""
    if columns is None:
        return ()
    if isinstance(columns, str):
        return (columns,)
    return tuple(name for each in columns for name in _flat_names(each))
