"""The tables that SQL searches: by path, and behind the temporary views of a session."""

from collections.abc import Mapping
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from indextables._caching import LruCache, lazy_property, shared_cache
from indextables.ops.search import known_mappings
from indextables.search.compile import SearchScope
from indextables.search.conditions import AllOf, Condition, condition_to_json
from indextables.spark.loaded import origin_of
from indextables.spark.options import (
    CONDITION,
    PATH,
    TIMESTAMP_AS_OF,
    VERSION_AS_OF,
    ReadOptions,
    TablePlace,
    as_options,
    session_settings,
)
from indextables.split.doc_mapping import DocMapping
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.table import Snapshot

FORMAT: Final = "indextables"

_VIEWS: LruCache[tuple[str, str], "dict[str, str]"] = shared_cache(
    "spark.sql.views", "the options of tables behind temporary views", max_entries=100_000
)


_DEFINITIONS: LruCache[tuple[str, str], "Definition"] = shared_cache(
    "spark.sql.definitions", "the texts of temporary views", max_entries=100_000
)


class Definition(msgspec.Struct, frozen=True):
    """The query of a temporary view, with names of our own for the tables, and the names of its columns."""

    text: str
    columns: tuple[str, ...]


class SearchableTable(msgspec.Struct, frozen=True, dict=True):
    """A table at one version: the options of its reader, and its snapshot."""

    options: dict[str, str]
    snapshot: Snapshot

    @classmethod
    def of(cls, spark: SparkSession, options: Mapping[str, str]) -> "SearchableTable":
        """Open the table of some reader options. Raises what opening a table raises."""
        lowered = {key.lower(): value for key, value in options.items()}
        read = ReadOptions.of(lowered)
        snapshot = read.snapshot(TablePlace.of({**lowered, **as_options(session_settings(spark))}))
        return cls(at_version(lowered, snapshot.version), snapshot)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.snapshot.schema

    @property
    def columns(self) -> list[str]:
        """The columns that the relation has."""
        columns = ReadOptions.of(self.options).columns
        return list(self.schema.names if columns is None else columns)

    @lazy_property
    def mapping(self) -> DocMapping:
        """How the columns are indexed: as in the newest splits, and, for columns without any, as new splits will."""
        newest = known_mappings(self.snapshot)[-1]
        current = mapping_from_settings(self.snapshot.shape, self.snapshot.context.settings)
        return DocMapping(tuple(newest.find(field.name) or field for field in current))

    @lazy_property
    def scope(self) -> SearchScope:
        """The fields that a query may name."""
        columns = [self.schema.field(name) for name in self.snapshot.shape.partition_keys]
        partition = pa.table([pa.nulls(1, column.type) for column in columns], schema=pa.schema(columns))
        return SearchScope(self.mapping, self.schema, partition)

    def load(self, spark: SparkSession, conditions: list[Condition]) -> DataFrame:
        """The rows that match all conditions, as a relation of its own."""
        options = {key: value for key, value in self.options.items() if key != PATH}
        if conditions:
            options[CONDITION] = condition_to_json(AllOf(tuple(conditions)))
        return spark.read.format(FORMAT).options(**options).load(self.options[PATH])


# DataFrames and views.


def at_version(options: Mapping[str, str], version: int) -> dict[str, str]:
    """The options of a reader, with the version that it found, so that a search later reads the same one."""
    others = {key: value for key, value in options.items() if key != TIMESTAMP_AS_OF.lower()}
    return {**others, VERSION_AS_OF.lower(): str(version)}


def remember_view(spark: SparkSession, name: str, frame: DataFrame) -> None:
    """Note which table a temporary view shows, if any."""
    options = origin_of(frame).options
    forget_view(spark, name)
    if options is not None:
        remember_options_of_view(spark, name, options)


def forget_view(spark: SparkSession, name: str) -> None:
    """Forget what a temporary view shows, because another one has its name now."""
    key = (session_key(spark), name.lower())
    _VIEWS.discard(key)
    _DEFINITIONS.discard(key)


def remember_options_of_view(spark: SparkSession, name: str, options: dict[str, str]) -> None:
    """Note what the table behind a view was loaded with."""
    _VIEWS.put((session_key(spark), name.lower()), options)


def options_of_view(spark: SparkSession, name: str) -> dict[str, str] | None:
    """What the table behind a temporary view was loaded with; None for other views."""
    return _VIEWS.get((session_key(spark), name.lower()))


def remember_definition(spark: SparkSession, name: str, definition: Definition) -> None:
    """Note the text of a temporary view."""
    _DEFINITIONS.put((session_key(spark), name.lower()), definition)


def definition_of(spark: SparkSession, name: str) -> Definition | None:
    """The text of a temporary view; None for views that do not show tables of ours."""
    return _DEFINITIONS.get((session_key(spark), name.lower()))


def session_key(spark: SparkSession) -> str:
    """The id of a session, which all its Python objects share."""
    jvm_session = getattr(spark, "_jsparkSession", None)
    return str(jvm_session.sessionUUID() if jvm_session is not None else spark.session_id)  # type: ignore[attr-defined]
