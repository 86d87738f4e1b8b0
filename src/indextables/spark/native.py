"""Native scans: a table as a DataFrame over Spark's own Parquet reader, on the live splits of a snapshot.

Every query of such a DataFrame has a plan of its own, with Spark's column pruning, push-down, partition pruning and
statistics; no row passes through Python. What Spark's reader cannot read right, the Python source reads, and the log
says why. See docs/decisions/0034-native-scans.md.
"""

import logging
import re
import shutil
import weakref
from collections.abc import Mapping
from functools import reduce
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own convention
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from indextables._caching import LruCache, shared_cache
from indextables.config.registry import READ_ENGINE, READ_NATIVE_MAX_FILES
from indextables.errors import InvalidOptionError, StorageError
from indextables.log.actions import SPLIT_PROTOCOL_VERSION
from indextables.predicates import NestedColumn
from indextables.spark.conditions import partition_literal, spark_condition
from indextables.spark.deleted_rows import deleted_keys, numbered, without_deleted
from indextables.spark.jobs import is_connect
from indextables.spark.loaded import LoadedTable
from indextables.spark.options import VERSION_AS_OF, ReadOptions, TablePlace
from indextables.spark.read import schema_to_read
from indextables.spark.scan_files import COLUMNS, FileGroup, NotNativeError, file_groups, write_file_list
from indextables.spark.session import FIELD_IDS
from indextables.spark.types import parquet_schema, quote_name, read_columns, table_schema
from indextables.storage import parse_root
from indextables.storage.urls import Scheme, is_absolute
from indextables.table import Snapshot
from indextables.table.field_ids import has_field_ids

logger = logging.getLogger(__name__)

PYTHON: Final = "python"
NATIVE: Final = "native"

# The session's settings for other Parquet files do not apply to splits: nothing is skipped, and every page is checked.
_PARQUET_OPTIONS: Final[Mapping[str, str]] = {
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}
_NO_PARTITION_FOLDERS: Final[Mapping[str, str]] = {"recursiveFileLookup": "true"}
_IGNORED_LISTS: Final = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
# Spark takes some characters of a path for patterns.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_SAME_MACHINE: Final = ("localhost", "127.0.0.1", "[::1]")

_LOGGED: LruCache[tuple[str, str], bool] = shared_cache(
    "spark.native.logged", "reasons why a table is not read natively, logged once", max_entries=256
)


class Loading(msgspec.Struct, frozen=True):
    """How a table is loaded: with a DataFrame, or else by the Python source, with more options.

    `table` is None if this process did not open the table.
    """

    table: LoadedTable | None = None
    frame: DataFrame | None = None
    options: dict[str, str] = {}


def load_table(spark: SparkSession, options: Mapping[str, str], requested: StructType | None) -> Loading:
    """Load a table for an enabled session, natively if that is possible and the settings allow it.

    `options` are those of the reader, with keys in lower case, and those of the session; `requested` is the schema that
    the caller wants. Raises what opening a table raises, InvalidSchemaError, InvalidPredicateError, and
    InvalidOptionError if the settings demand a native scan that is not possible.
    """
    read_options, place = ReadOptions.of(options), TablePlace.of(options)
    # An index is searched by the Python source.
    engine = PYTHON if read_options.is_search else place.settings[READ_ENGINE]
    try:
        snapshot = _open(spark, place, read_options)
        scan = None if read_options.is_search else _Scan(spark, read_options, snapshot, requested)
    except NotNativeError as error:
        _refuse(place.url, engine, error)
        return Loading()
    if scan is not None and engine != PYTHON:
        try:
            return Loading(LoadedTable(snapshot, read_options, NATIVE), scan.frame())
        except NotNativeError as error:
            _refuse(place.url, engine, error)
    # Other commits may happen before the Python source looks for the newest version.
    pinned = {VERSION_AS_OF: str(snapshot.version)} if read_options.timestamp is None else {}
    return Loading(LoadedTable(snapshot, read_options, PYTHON), options=pinned)


def _open(spark: SparkSession, place: TablePlace, options: ReadOptions) -> Snapshot:
    """Open the table that a server of Spark Connect would open, too. Raises NotNativeError if that is not certain."""
    if not is_connect(spark):
        return options.snapshot(place)
    is_local = parse_root(place.location.path).scheme is Scheme.LOCAL
    if is_local and not (is_absolute(place.location.path) and _is_server_here(spark)):
        raise NotNativeError(
            "the path may be that of another table for the Connect server, which is not here"
        )
    try:
        return options.snapshot(place)
    except StorageError as error:
        raise NotNativeError(f"this client of Spark Connect cannot open it: {error}") from error


def _is_server_here(spark: SparkSession) -> bool:
    return spark.client.host in _SAME_MACHINE


def _refuse(url: str, engine: str, reason: NotNativeError) -> None:
    """Raise InvalidOptionError if the settings demand a native scan; otherwise log the reason, once."""
    if engine == NATIVE:
        raise InvalidOptionError(
            f"{url}: {READ_ENGINE.key} is {NATIVE}, but the table cannot be read natively, because {reason}; set it "
            f"to auto or {PYTHON}"
        ) from reason
    if engine != PYTHON:
        _log_once(url, str(reason))


def _log_once(url: str, reason: str) -> None:
    if _LOGGED.get((url, reason)) is None:
        _LOGGED.put((url, reason), True)
        logger.warning("%s: the Python source reads the table, because %s", url, reason)


class _Scan:
    """One load of a table. The constructor raises InvalidSchemaError and InvalidPredicateError."""

    def __init__(
        self, spark: SparkSession, options: ReadOptions, snapshot: Snapshot, requested: StructType | None
    ) -> None:
        self._spark = spark
        self._snapshot = snapshot
        self._shape = snapshot.shape
        self._where = options.predicate(snapshot.schema)
        self._schema = schema_to_read(snapshot, options) if requested is None else requested
        self._columns = read_columns(table_schema(self._schema), snapshot.schema, (), snapshot.context.url)

    def frame(self) -> DataFrame:
        """The table as Spark's own reader reads it. Raises NotNativeError."""
        entries = self._entries()
        if not entries.num_rows:
            return self._spark.createDataFrame([], self._schema)
        self._check_session()
        self._check_table()
        relations = [self._read(group) for group in file_groups(self._snapshot, entries)]
        frame: DataFrame = reduce(lambda above, below: above.unionAll(below), relations)
        try:
            schema = frame.schema
        except PySparkException as error:
            raise NotNativeError(f"Spark cannot read its files: {str(error).splitlines()[0]}") from error
        if schema != self._schema:
            raise NotNativeError(f"Spark's Parquet reader gives it another schema, {schema.simpleString()}")
        return frame

    def _entries(self) -> pa.Table:
        limit = self._snapshot.context.settings[READ_NATIVE_MAX_FILES]
        # A huge table is not read for its number of files.
        count = self._snapshot.source.num_files if self._where is None else 0
        if count <= limit:
            entries = self._snapshot.select(self._where, COLUMNS).entries
            count = entries.num_rows
        if count > limit:
            raise NotNativeError(
                f"it is about {count} files, and {READ_NATIVE_MAX_FILES.key} is {limit}; the option where reads fewer"
            )
        return entries

    def _check_session(self) -> None:
        conf = self._spark.conf
        if conf.get(FIELD_IDS, "false") != "true":
            raise NotNativeError(
                f"{FIELD_IDS} is not true in this session, and columns are found by their ids"
            )
        if conf.get(_IGNORED_LISTS, "false") == "true":
            raise NotNativeError(
                f"{_IGNORED_LISTS} is true in this session, and Spark is given a list of files"
            )
        if is_connect(self._spark) and not _is_server_here(self._spark):
            raise NotNativeError(
                "the Connect server is another machine, which cannot read a list of files from here"
            )

    def _check_table(self) -> None:
        scheme = parse_root(self._snapshot.context.url).scheme
        if scheme is not Scheme.LOCAL:
            raise NotNativeError(
                f"Spark's reader is given local files only, not those of {scheme.value}: URLs"
            )
        if self._snapshot.protocol.min_reader_version < SPLIT_PROTOCOL_VERSION:
            raise NotNativeError("its splits were written on the JVM")
        if not has_field_ids(self._snapshot.metadata):
            raise NotNativeError("its columns have no field ids")
        changed = sorted({*self._shape.defaults, *self._shape.widened})
        if changed:
            raise NotNativeError(
                f"column {changed[0]!r} has a default or another type in older splits, which Spark's reader does not "
                f"know"
            )
        voids = [field.name for field in parquet_schema(self._shape) if _holds_void(field.dataType)]
        if voids:
            raise NotNativeError(f"Parquet has no type for column {voids[0]!r}, which holds nulls only")

    # Relations.

    def _read(self, group: FileGroup) -> DataFrame:
        """The rows of a group that `where` selects, with the columns of the result."""
        partition_columns = tuple(self._shape.partition_keys)
        constants = {} if group.values is None else dict(zip(partition_columns, group.values, strict=True))
        # Spark reads columns by id, but pushes conditions down by name: no two columns have the same stored name.
        names = self._shape.stored_names

        def column(name: str) -> Column:
            if isinstance(name, NestedColumn):
                return self._value_inside(column(name.path[0]), name)
            if name in constants:
                return partition_literal(constants[name], self._shape.type_of(name))
            return F.col(quote_name(names[name]))

        relation = self._relation(group)
        if self._where is not None:
            relation = relation.where(spark_condition(self._where, self._shape.schema, column))
        outputs = zip(self._schema, self._columns, strict=True)
        return relation.select(*(_output(field, column(name)) for field, name in outputs))

    def _value_inside(self, value: Column, name: NestedColumn) -> Column:
        """A value inside a column of the files, where members of structs have their stored names."""
        first, *members = name.path
        here, in_file = (
            self._shape.type_of(first),
            self._shape.stored.type_of(self._shape.stored_names[first]),
        )
        for member in members:
            index = here.get_field_index(member)
            here, in_file = here.field(index).type, in_file.field(index)
            value, in_file = value.getField(in_file.name), in_file.type
        return value if name.key is None else value.getItem(name.key)

    def _relation(self, group: FileGroup) -> DataFrame:
        context, version = self._snapshot.context, self._snapshot.version
        reader = self._spark.read.format("parquet").options(**_PARQUET_OPTIONS)
        if group.values is not None:
            reader = reader.options(**_NO_PARTITION_FOLDERS)
        fields = [
            field
            for field in parquet_schema(self._shape.stored)
            if group.values is None or field.name not in self._shape.partition_keys
        ]
        # Spark's plans show the name of the folder.
        name = f"{_UNUSUAL.sub('_', context.url.rpartition('/')[2])}@v{version}"
        keys = deleted_keys(self._snapshot, group.files) if group.has_deleted else None
        folder = write_file_list(name, context.url, group.files if keys is None else numbered(group.files))
        relation = reader.schema(StructType(fields)).load(f"file:{folder}")
        if is_connect(self._spark):
            # The server reads the list for each query. Plans of other DataFrames hold this plan, not this DataFrame.
            weakref.finalize(relation._plan, shutil.rmtree, folder.parent, ignore_errors=True)
        else:
            shutil.rmtree(folder.parent)
        return relation if keys is None else without_deleted(self._spark, relation, keys)


def _output(field: StructField, column: Column) -> Column:
    """A column of the result, without field ids: Spark would write them into files that are not the table's."""
    # A cast removes the metadata of nested fields, and before 4.1 that of the column, too. Others are optimized away.
    return column.cast(field.dataType).alias(field.name, metadata=field.metadata or {})


def _holds_void(data_type: DataType) -> bool:
    return isinstance(data_type, NullType) or any(map(_holds_void, _members(data_type)))


def _members(data_type: DataType) -> list[DataType]:
    if isinstance(data_type, StructType):
        return [field.dataType for field in data_type]
    if isinstance(data_type, MapType):
        return [data_type.keyType, data_type.valueType]
    return [data_type.elementType] if isinstance(data_type, ArrayType) else []
