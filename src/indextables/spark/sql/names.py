"""Statements and DataFrame calls that create and fill tables with names.

Spark's catalog keeps the entry of a table: its name, columns, provider and location. What is at the location is ours:
Spark would not tell the data source where that is.
"""

import functools
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from indextables.errors import (
    InvalidOptionError,
    InvalidSchemaError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from indextables.spark.catalog import CatalogTable, find_catalog_table, qualified
from indextables.spark.options import (
    OVERWRITE_MODE,
    PARTITION_BY,
    PATH,
    REPLACE_WHERE,
    TablePlace,
    as_options,
    index_settings,
    session_settings,
)
from indextables.spark.source import FORMATS
from indextables.spark.sql.tables import FORMAT
from indextables.spark.types import nullable_schema, spark_schema, table_schema
from indextables.table import Snapshot, load_snapshot
from indextables.table.create import create_table

_MODES: Final = ("append", "overwrite", "ignore")


def our_table(spark: SparkSession, parts: Sequence[str]) -> CatalogTable | None:
    """The catalog entry of a table of ours; None for other tables, for views, and for names of nothing."""
    found = find_catalog_table(spark, parts)
    is_ours = found is not None and (found.provider or "").lower() in FORMATS
    return found if is_ours else None


def location_of(table: CatalogTable, parts: Sequence[str]) -> str:
    """Where a table of ours is. Raises TableNotFoundError."""
    if table.location is None:
        raise TableNotFoundError(
            f"Spark's catalog has no location for {'.'.join(parts)}; give the table's path instead"
        )
    return table.location


def load_named(
    spark: SparkSession, table: CatalogTable, parts: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """The rows of a table of ours."""
    return spark.read.format(FORMAT).options(**options).load(location_of(table, parts))


# CREATE TABLE.


class NewTable(msgspec.Struct, frozen=True):
    """A table to create. `columns` are None if the table at the location has them, or a query."""

    parts: tuple[str, ...]
    columns: StructType | None
    partition_by: tuple[str, ...] | None
    options: dict[str, str]
    location: str | None
    is_optional: bool

    def listed(self, columns: StructType) -> str:
        """The list of columns for Spark's statement. A Hive Metastore wants the partition columns at the end."""
        last = {name.lower(): number for number, name in enumerate(self.partition_by or ())}
        ordered = sorted(columns, key=lambda field: last.get(field.name.lower(), -1))
        return f" ({StructType(ordered).toDDL()}) "

    def create(self, spark: SparkSession, statement: str, sql: Any) -> None:
        """Create the entry of the catalog with Spark's own statement, and the table itself if it does not exist.

        Raises TableNotFoundError if there are no columns and no table at the location, and InvalidSchemaError and
        InvalidOptionError if the table at the location is another one.
        """
        self._check_location()
        if find_catalog_table(spark, self.parts) is not None:
            sql(statement)  # Spark does nothing, or says that the table exists
            return
        existing = None if self.location is None else self._open(spark, self.location)
        if existing is not None:
            self._check(existing)
        elif self.columns is None:
            raise TableNotFoundError(
                f"there is no table at {self.location or 'the default location'}; give the columns of a new one: "
                f"CREATE TABLE {'.'.join(self.parts)} (id BIGINT, …) USING {FORMAT}"
            )
        sql(statement)
        if existing is None:
            self._or_drop(spark, sql, self._create_table)

    def create_and_fill(self, spark: SparkSession, statement: str, sql: Any, frame: DataFrame) -> None:
        """Create the entry of the catalog, and the table with the rows of a DataFrame.

        Raises TableAlreadyExistsError if there is a table at the location.
        """
        self._check_location()
        if find_catalog_table(spark, self.parts) is not None:
            if not self.is_optional:
                raise TableAlreadyExistsError(
                    f"the table {'.'.join(self.parts)} already exists; use INSERT INTO, or CREATE TABLE IF NOT EXISTS"
                )
            return
        if self.location is not None and self._open(spark, self.location) is not None:
            raise TableAlreadyExistsError(
                f"there is a table at {self.location} already; name it by CREATE TABLE {'.'.join(self.parts)} USING "
                f"{FORMAT} LOCATION '{self.location}', without AS"
            )
        sql(statement)

        def fill(_: SparkSession, location: str) -> None:
            writer = frame.write.format(FORMAT).options(**self.options).mode("append")
            if self.partition_by:
                writer = writer.partitionBy(*self.partition_by)
            writer.save(location)

        self._or_drop(spark, sql, fill)

    def _check_location(self) -> None:
        """Raise InvalidOptionError for a relative path: the catalog's is in the warehouse, all others are not."""
        if self.location is not None and not self.location.startswith("/") and ":" not in self.location:
            raise InvalidOptionError(
                f"the location {self.location!r} of {'.'.join(self.parts)} is relative; Spark would look for "
                f"it in its warehouse; write it in full, such as /data/logs or s3://bucket/logs"
            )

    def _or_drop(self, spark: SparkSession, sql: Any, action: Any) -> None:
        """Do something at the table's location; without success, the entry of the catalog goes again."""
        try:
            found = our_table(spark, self.parts)
            assert found is not None  # the catalog has the table since the statement before
            action(spark, location_of(found, self.parts))
        except BaseException:
            sql(f"DROP TABLE IF EXISTS {qualified(self.parts)}")
            raise

    def _create_table(self, spark: SparkSession, location: str) -> None:
        assert self.columns is not None
        options = {**self.options, PATH: location}
        place = TablePlace.of({**options, **as_options(session_settings(spark))})
        columns = nullable_schema(table_schema(self.columns))
        properties = index_settings({**options, **as_options(session_settings(spark))}, columns)
        create_table(place.context(), columns, self.partition_by or (), properties)

    def _open(self, spark: SparkSession, location: str) -> Snapshot | None:
        place = TablePlace.of({**self.options, PATH: location, **as_options(session_settings(spark))})
        try:
            return load_snapshot(place.context())
        except TableNotFoundError:
            return None

    def _check(self, existing: Snapshot) -> None:
        url = existing.context.url
        if self.columns is not None:
            given = nullable_schema(table_schema(self.columns))
            if not _is_same(given, existing.schema):
                raise InvalidSchemaError(
                    f"{url}: the table there has the columns {_shown(existing.schema)}, not {_shown(given)}; omit them"
                )
        if self.partition_by is not None and _lower(self.partition_by) != _lower(existing.partition_columns):
            raise InvalidOptionError(
                f"{url}: the table there is partitioned by {', '.join(existing.partition_columns) or 'no column'}, not "
                f"by {', '.join(self.partition_by)}; omit PARTITIONED BY"
            )


def _is_same(given: pa.Schema, existing: pa.Schema) -> bool:
    found = [(field.name.lower(), field.type) for field in nullable_schema(existing)]
    return sorted(found, key=repr) == sorted(((field.name.lower(), field.type) for field in given), key=repr)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


# INSERT, insertInto and saveAsTable.


def own_sql(spark: SparkSession) -> Any:
    """Spark's own `sql`, without the patch."""
    return functools.partial(inspect.unwrap(type(spark).sql), spark)


class Insertion(msgspec.Struct, frozen=True):
    """Where the columns of inserted rows go. `columns` are None for all columns of the table, in its order.

    `partition` has the values of PARTITION (…), as SQL; None is the value of a column that the rows have.
    """

    parts: tuple[str, ...]
    is_overwrite: bool = False
    columns: tuple[str, ...] | None = None
    is_by_name: bool = False
    partition: Mapping[str, str | None] = {}

    def insert(self, spark: SparkSession, table: CatalogTable, frame: DataFrame) -> None:
        """Write rows to the table. Raises InvalidSchemaError if their number of columns is wrong."""
        location = location_of(table, self.parts)
        place = TablePlace.of({PATH: location, **as_options(session_settings(spark))})
        schema = spark_schema(load_snapshot(place.context()).schema)
        writer = self._aligned(frame, schema).write.format(FORMAT)
        static = {name: value for name, value in self.partition.items() if value is not None}
        if self.is_overwrite and static:
            writer = writer.option(
                REPLACE_WHERE, " AND ".join(f"{name} = {value}" for name, value in static.items())
            )
        writer.mode("overwrite" if self.is_overwrite else "append").save(location)

    def _aligned(self, frame: DataFrame, schema: StructType) -> DataFrame:
        """The rows with the columns of the table, in its order and types."""
        static = {name.lower(): value for name, value in self.partition.items() if value is not None}
        names = [field.name for field in schema]
        targets = (
            list(self.columns) if self.columns is not None else [n for n in names if n.lower() not in static]
        )
        if self.is_by_name:
            targets = list(frame.columns)
        unknown = [name for name in [*targets, *self.partition] if name.lower() not in _lower(names)]
        if unknown:
            raise InvalidSchemaError(
                f"{'.'.join(self.parts)}: no column {unknown[0]!r}; the columns are {', '.join(names)}"
            )
        if len(targets) != len(frame.columns):
            raise InvalidSchemaError(
                f"{'.'.join(self.parts)}: the rows have {len(frame.columns)} columns ({', '.join(frame.columns)}) for "
                f"the {len(targets)} columns {', '.join(targets)}"
            )
        numbered = frame.toDF(*(f"c{number}" for number in range(len(targets))))
        given = {name.lower(): f"c{number}" for number, name in enumerate(targets)}
        selected = []
        for field in schema:
            key = field.name.lower()
            value = sf.col(given[key]) if key in given else sf.expr(static.get(key) or "NULL")
            selected.append(value.cast(field.dataType).alias(field.name))
        return numbered.select(*selected)


def save_as_table(
    spark: SparkSession,
    frame: DataFrame,
    parts: Sequence[str],
    mode: str,
    partition_by: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    """Do what `saveAsTable` does, for a table of ours. Rows are matched by name.

    Raises TableAlreadyExistsError if the mode is neither append, overwrite nor ignore.
    """
    found = find_catalog_table(spark, parts)
    name = ".".join(parts)
    if found is None:
        given = {
            key: str(value) for key, value in options.items() if key.lower() != PATH and value is not None
        }
        path = next((value for key, value in options.items() if key.lower() == PATH), None)
        table = NewTable(tuple(parts), None, tuple(partition_by) or None, given, path, is_optional=False)
        at = "" if path is None else f" LOCATION {json.dumps(path)}"
        statement = f"CREATE TABLE {qualified(parts)} ({frame.schema.toDDL()}) USING {FORMAT}{at}"
        table.create_and_fill(spark, statement, own_sql(spark), frame)
        return
    if mode not in _MODES:
        raise TableAlreadyExistsError(
            f"the table {name} already exists; write with mode('append') or mode('overwrite')"
        )
    if mode == "ignore":
        return
    if (found.provider or "").lower() not in FORMATS:
        raise InvalidOptionError(
            f"the table {name} has the format {found.provider or 'of a view'}, not {FORMAT}; write to another name"
        )
    writer = frame.write.format(FORMAT).mode(mode)
    writer = writer.options(**{key: value for key, value in options.items() if key.lower() != PATH})
    if partition_by:
        writer = writer.option(PARTITION_BY, json.dumps(list(partition_by)))
    if mode == "overwrite" and not any(
        key.lower() in (REPLACE_WHERE.lower(), OVERWRITE_MODE.lower()) for key in options
    ):
        # Like Spark's own tables: saveAsTable replaces the whole table, whatever the session's mode is.
        writer = writer.option(OVERWRITE_MODE, "static")
    writer.save(location_of(found, parts))


def insert_into(spark: SparkSession, frame: DataFrame, parts: Sequence[str], *, is_overwrite: bool) -> bool:
    """Do what `insertInto` does, for a table of ours; False for any other table."""
    found = our_table(spark, parts)
    if found is None:
        return False
    Insertion(tuple(parts), is_overwrite).insert(spark, found, frame)
    return True


def split_name(name: str) -> tuple[str, ...]:
    """The parts of a table's name, as Spark reads them."""
    parts: list[str] = []
    rest = name.strip()
    while rest:
        if rest.startswith("`"):
            end = 1
            while end < len(rest) and (rest[end] != "`" or rest[end : end + 2] == "``"):
                end += 2 if rest[end] == "`" else 1
            parts.append(rest[1:end].replace("``", "`"))
            rest = rest[end + 1 :].lstrip()
        else:
            part, dot, after = rest.partition(".")
            parts.append(part.strip())
            rest = dot + after
        rest = rest[1:].lstrip() if rest.startswith(".") else ""
    return tuple(parts)
