"""The data source `indextables`, also known to Spark by the names that it has on the JVM."""

from collections.abc import Mapping, MutableMapping
from typing import Final

from msgspec.structs import replace
from pyspark.sql.types import StructType

from indextables.errors import (
    IndexTablesError,
    InvalidOptionError,
    SparkUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from indextables.log.entries import empty_entries
from indextables.predicates import bind
from indextables.pruning import match_partitions
from indextables.schema import TableShape, new_field_ids
from indextables.schema.evolution import new_columns
from indextables.spark.option_names import options_of_source
from indextables.spark.options import (
    MERGE_SCHEMA,
    OVERWRITE_MODE,
    PARTITION_BY,
    REPLACE_WHERE,
    ReadOptions,
    StreamOptions,
    TablePlace,
    WriteOptions,
    index_settings,
)
from indextables.spark.read import BatchReader, freeze_loaded_objects, schema_to_read
from indextables.spark.releases import HAS_STREAM_ARROW_WRITER, DataSource
from indextables.spark.stream_read import FailedStream, StreamReader
from indextables.spark.stream_write import StreamWriter
from indextables.spark.types import check_written, nullable_schema, table_schema
from indextables.spark.write import DiscardingWriter, Job, Replacement, TableWriter, WriteTarget
from indextables.table import Snapshot, load_snapshot
from indextables.table.schema_change import planned_snapshot
from indextables.table.split_protocol import check_accepts_splits


class IndexTablesSource(DataSource):
    """The Spark data source `indextables`, which reads and writes tables by path.

    Spark creates instances, in a separate process for each planning step. Methods raise an `IndexTablesError`, whose
    message Spark shows.

    Args:
        options: The options of the reader or writer; keys are case-insensitive. An unknown one raises
            InvalidOptionError.

    Example:
        >>> df.write.format("indextables").mode("append").save("logs")
        >>> spark.read.format("indextables").load("logs").where("level = 'ERROR'").show()
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options: Mapping[str, str] = options_of_source(options)
        # The version that `load` found. Spark pickles this object to every process that plans a scan of it.
        self._version: int | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "indextables"

    def schema(self) -> StructType:
        """The table's schema, or the columns that the options select. All scans read the version that it comes from."""
        freeze_loaded_objects()
        options = ReadOptions.of(self._options)
        snapshot = options.snapshot(TablePlace.of(self._options))
        self._version = snapshot.version
        return schema_to_read(snapshot, options)

    def reader(self, schema: StructType) -> BatchReader:
        """A reader of the version that was loaded; if Spark did not ask for the schema, of the newest version."""
        freeze_loaded_objects()
        options = ReadOptions.of(self._options)
        if self._version is not None:
            options = options.at(self._version)
        return BatchReader(TablePlace.of(self._options), options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter | DiscardingWriter:
        """A writer for rows of this schema. Raises InvalidSchemaError if it does not fit the table."""
        place, options = TablePlace.of(self._options), WriteOptions.of(self._options)
        job = Job.new(is_speculative=options.is_speculative)
        try:
            snapshot = load_snapshot(place.context())
        except TableNotFoundError:
            target = self._new_table(schema, options)
            replacement = _replacement(options, overwrite, target)
            return TableWriter(place, target, replacement, options.transaction, job)
        if options.save_mode == "ignore":
            return DiscardingWriter()
        if options.save_mode == "errorifexists":
            raise TableAlreadyExistsError(
                f"{place.url}: the table already exists; write with mode('append') or mode('overwrite')"
            )
        new = new_columns(snapshot.schema, table_schema(schema)) if options.merges_schema else []
        if new and overwrite:
            raise InvalidOptionError(
                f"{place.url}: {MERGE_SCHEMA} adds columns with mode('append'); add them before you overwrite, with "
                f"ALTER TABLE"
            )
        target = self._existing_table(schema, options, planned_snapshot(snapshot, new) if new else snapshot)
        if new:
            target = replace(target, base=snapshot.shape, new_columns=tuple(new))
        replacement = _replacement(options, overwrite, target)
        return TableWriter(place, target, replacement, options.transaction, job)

    def streamReader(self, schema: StructType) -> StreamReader | FailedStream:  # noqa: N802  # the name is Spark's
        """A reader that follows the table, or one that raises the reason why it cannot."""
        try:
            options = ReadOptions.of(self._options)
            return StreamReader(
                TablePlace.of(self._options), options, StreamOptions.of(self._options), schema
            )
        except IndexTablesError as error:
            return FailedStream(error)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  # the name is Spark's
        """A writer for the batches of a query. Raises InvalidSchemaError if their schema does not fit the table.

        Raises SparkUnavailableError before Spark 4.1, where enabled sessions write streams with `foreachBatch`.
        """
        if not HAS_STREAM_ARROW_WRITER:
            raise SparkUnavailableError(
                "this Spark release passes a stream row by row to a data source; use Spark 4.1 or newer, or enable the "
                "session with indextables.spark.enable(spark)"
            )
        return self.batch_writer(schema, overwrite)

    def batch_writer(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """The writer that `streamWriter` returns, in every release of Spark."""
        place, options = TablePlace.of(self._options), WriteOptions.of(self._options)
        try:
            target = self._existing_table(schema, options, load_snapshot(place.context()))
        except TableNotFoundError:
            target = self._new_table(schema, options)
        job = Job.new(is_speculative=options.is_speculative)
        return StreamWriter(place, target, _replacement(options, overwrite, target, is_stream=True), job)

    def _new_table(self, schema: StructType, options: WriteOptions) -> WriteTarget:
        place = TablePlace.of(self._options)
        columns = nullable_schema(table_schema(schema))
        properties = index_settings(self._options, columns)
        return WriteTarget(
            TableShape(columns, options.partition_by or (), new_field_ids(columns)).checked(),
            place.settings.with_table_properties(properties),
            properties,
            table_id=None,
            version=-1,
        )

    def _existing_table(self, schema: StructType, options: WriteOptions, snapshot: Snapshot) -> WriteTarget:
        url = snapshot.context.url
        check_accepts_splits(snapshot)
        check_written(table_schema(schema), snapshot.schema, url)
        given, partition_columns = options.partition_by, snapshot.partition_columns
        if given is not None and tuple(map(str.lower, given)) != tuple(map(str.lower, partition_columns)):
            raise InvalidOptionError(
                f"{url}: {PARTITION_BY} is {', '.join(given) or 'empty'}, but the table is partitioned by "
                f"{', '.join(partition_columns) or 'no column'}; omit the option"
            )
        return WriteTarget(
            snapshot.shape,
            snapshot.context.settings,
            properties={},
            table_id=snapshot.metadata.id,
            version=snapshot.version,
            planned=snapshot.metadata.schema_string,
        )


class IndexTablesProvider(IndexTablesSource):
    """The source under the name of the JVM's provider."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "io.indextables.provider.IndexTablesProvider"


class TableProvider(IndexTablesSource):
    """The source under the name of the JVM's table provider."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "io.indextables.spark.core.IndexTables4SparkTableProvider"


class OlderTableProvider(IndexTablesSource):
    """The source under the previous name of the JVM's table provider."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "io.indextables.spark.core.Tantivy4SparkTableProvider"


class OldestTableProvider(IndexTablesSource):
    """The source under the first name of the JVM's table provider."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "com.tantivy4spark.core.Tantivy4SparkTableProvider"


class Tantivy4SparkSource(IndexTablesSource):
    """The source under the format's first name."""

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

    In complete mode a stream writes the whole result each time: the session's overwrite mode does not apply to it.
    """
    where = options.where()
    if not overwrite:
        if where is not None or options.is_dynamic:
            name = REPLACE_WHERE if where is not None else OVERWRITE_MODE
            raise InvalidOptionError(f"{name} needs mode('overwrite'); an append replaces nothing")
        return None
    if where is not None:
        # Reject a column that is not a partition column now, not after all rows are written.
        match_partitions(empty_entries(), bind(where, target.shape.schema), target.shape)
    is_dynamic = options.is_dynamic or (options.is_session_dynamic and not is_stream)
    return Replacement(where, options.replace_where, is_dynamic)
