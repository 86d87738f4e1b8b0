"""A stream that cannot be read, and says why where Spark listens."""

import sys
import uuid
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from indextables.errors import (
    IndexTablesError,
    InvalidOptionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from indextables.log.entries import empty_entries
from indextables.log.protocol import check_writable
from indextables.predicates import bind
from indextables.pruning import match_partitions
from indextables.schema import check_partition_columns
from indextables.spark.options import (
    OVERWRITE_MODE,
    PARTITION_BY,
    REPLACE_WHERE,
    ReadOptions,
    StreamOptions,
    TablePlace,
    WriteOptions,
    index_settings,
)
from indextables.spark.read import (
    BatchReader,
    PushDownReader,
    schema_to_read,
    skip_garbage_collection_after_tasks,
)
from indextables.spark.stream_read import StreamReader
from indextables.spark.stream_write import StreamWriter
from indextables.spark.types import check_written, nullable_schema, table_schema
from indextables.spark.write import Job, NothingWritten, Replacement, TableWriter, WriteTarget
from indextables.table import Snapshot, load_snapshot


class RefusedStream(DataSourceStreamReader):
    """Raises an error as soon as Spark asks it for anything.

    An error of the method that makes a reader gets lost: Spark goes on to stop the reader that it does not have, and
    reports that instead. A new query asks for the first offset, one with a checkpoint for the newest one, or for the
    tasks of the batch that it has to repeat.
    """

    def __init__(self, error: IndexTablesError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802  # the name is Spark's
        """Raise the error."""
        raise self._error

    def latestOffset(self) -> NoReturn:  # type: ignore[override]  # noqa: N802  # the name is Spark's
        """Raise the error. Spark tells readers with another signature about limits, and asks for theirs first."""
        raise self._error

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> NoReturn:
        """Raise the error."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error."""
        del partition
        raise self._error


# The data source: what Spark finds under `indextables`, and under the names that it has on the JVM.


# Spark refuses a reader with push-down where the setting for it is off, and tells readers nothing about settings.
# But only the processes that it pushes filters in have loaded this module.
_PUSHING_MODULE: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class IndexTablesSource(DataSource):
    """Reads and writes tables by their path: `spark.read.format("indextables").load(path)`.

    Made by Spark, in a process of its own for each step of planning.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given: Mapping[str, str] = {key.lower(): value for key, value in options.items()}
        # One for all scans that Spark plans with this object, which is sent to every process that plans one.
        self._scan_id = uuid.uuid4().hex

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "indextables"

    def schema(self) -> StructType:
        """The table's schema, or the part of it that the options ask for."""
        skip_garbage_collection_after_tasks()
        return schema_to_read(TablePlace.of(self._given), ReadOptions.of(self._given, self._scan_id))

    def reader(self, schema: StructType) -> BatchReader:
        """A reader of the table as it is now, or as it was at the version that the options name."""
        skip_garbage_collection_after_tasks()
        options = ReadOptions.of(self._given, self._scan_id)
        # Without filters there is no search: then Spark has to say that they do not come.
        has_filters = options.has_search_columns or _PUSHING_MODULE in sys.modules
        kind = PushDownReader if has_filters else BatchReader
        return kind(TablePlace.of(self._given), options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter | NothingWritten:
        """A writer for rows of this schema. Raises InvalidSchemaError if they do not fit the table."""
        place, options = TablePlace.of(self._given), WriteOptions.of(self._given)
        job = Job.new(is_speculative=options.is_speculative)
        try:
            snapshot = load_snapshot(place.context())
        except TableNotFoundError:
            target = self._new_table(schema, options)
            replacement = _replacement(options, overwrite, target)
            return TableWriter(place, target, replacement, options.transaction, job)
        if options.save_mode == "ignore":
            return NothingWritten()
        if options.save_mode == "errorifexists":
            raise TableAlreadyExistsError(
                f"{place.url}: a table exists here already; write with mode('append') or mode('overwrite')"
            )
        target = self._existing_table(schema, options, snapshot)
        replacement = _replacement(options, overwrite, target)
        return TableWriter(place, target, replacement, options.transaction, job)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:  # noqa: N802  # the name is Spark's
        """A reader that follows the table, or one that says why it cannot."""
        try:
            options = ReadOptions.of(self._given, self._scan_id)
            return StreamReader(TablePlace.of(self._given), options, StreamOptions.of(self._given), schema)
        except IndexTablesError as error:
            return RefusedStream(error)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  # the name is Spark's
        """A writer for the batches of a query. Raises InvalidSchemaError if its rows do not fit the table."""
        place, options = TablePlace.of(self._given), WriteOptions.of(self._given)
        try:
            target = self._existing_table(schema, options, load_snapshot(place.context()))
        except TableNotFoundError:
            target = self._new_table(schema, options)
        job = Job.new(is_speculative=options.is_speculative)
        return StreamWriter(place, target, _replacement(options, overwrite, target, is_stream=True), job)

    def _new_table(self, schema: StructType, options: WriteOptions) -> WriteTarget:
        place = TablePlace.of(self._given)
        columns = nullable_schema(table_schema(schema))
        properties = index_settings(self._given, columns)
        return WriteTarget(
            columns,
            check_partition_columns(columns, options.partition_by or ()),
            place.settings.with_table_properties(properties),
            properties,
            table_id=None,
            version=-1,
        )

    def _existing_table(self, schema: StructType, options: WriteOptions, snapshot: Snapshot) -> WriteTarget:
        url = snapshot.context.url
        check_writable(snapshot.protocol, url)
        check_written(table_schema(schema), snapshot.schema, url)
        asked, partition_columns = options.partition_by, snapshot.partition_columns
        if asked is not None and tuple(map(str.lower, asked)) != tuple(map(str.lower, partition_columns)):
            raise InvalidOptionError(
                f"{url}: {PARTITION_BY} is {', '.join(asked) or 'empty'}, and the table is partitioned by "
                f"{', '.join(partition_columns) or 'nothing'}; leave the option out"
            )
        return WriteTarget(
            snapshot.schema,
            partition_columns,
            snapshot.context.settings,
            properties={},
            table_id=snapshot.metadata.id,
            version=snapshot.version,
        )


class IndexTablesProvider(IndexTablesSource):
    """The source under the name of its provider on the JVM."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "io.indextables.provider.IndexTablesProvider"


class TableProvider(IndexTablesSource):
    """The source under the name of the class that provides it on the JVM."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "io.indextables.spark.core.IndexTables4SparkTableProvider"


class OlderTableProvider(IndexTablesSource):
    """The source under the name that the class on the JVM had before."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "io.indextables.spark.core.Tantivy4SparkTableProvider"


class OldestTableProvider(IndexTablesSource):
    """The source under the first name of the class on the JVM."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "com.tantivy4spark.core.Tantivy4SparkTableProvider"


class Tantivy4SparkSource(IndexTablesSource):
    """The source under the first name of the format."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tantivy4spark"


SOURCES: Final[tuple[type[IndexTablesSource], ...]] = (
    IndexTablesSource,
    IndexTablesProvider,
    TableProvider,
    OlderTableProvider,
    OldestTableProvider,
    Tantivy4SparkSource,
)

FORMATS: Final = frozenset(source.name().lower() for source in SOURCES)


def _replacement(
    options: WriteOptions, overwrite: bool, target: WriteTarget, *, is_stream: bool = False
) -> Replacement | None:
    """What a write replaces; None for an append.

    In its complete mode a stream hands over the whole result each time: what a session says about overwrites is not
    meant for it.
    """
    where = options.where()
    if not overwrite:
        if where is not None or options.is_dynamic:
            name = REPLACE_WHERE if where is not None else OVERWRITE_MODE
            raise InvalidOptionError(f"{name} is for mode('overwrite'); an append replaces nothing")
        return None
    if where is not None:
        # Complains about other columns than those of partitions now, and not when all rows are written.
        match_partitions(empty_entries(), bind(where, target.schema), target.shape)
    is_dynamic = options.is_dynamic or (options.is_session_dynamic and not is_stream)
    return Replacement(where, options.replace_where, is_dynamic)
