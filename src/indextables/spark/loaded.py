"""What a DataFrame was loaded from, noted on the DataFrame itself, and what the log alone says of its rows."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from indextables.log.deletion_vectors import live_counts
from indextables.predicates import columns_of
from indextables.pruning import map_values, match_partitions, parse_values
from indextables.schema import find_column
from indextables.spark.options import ReadOptions
from indextables.spark.releases import frame_of
from indextables.storage import NULL_PARTITION
from indextables.table import Snapshot

_ORIGIN: Final = "_indextables_origin"

_ENTRY_COLUMNS: Final = ("partitionValues", "minValues", "maxValues", "numRecords", "deletionVector")

# How Spark shows an aggregate, such as Column<'min(id) AS first'>.
_SHOWN: Final = re.compile(r"Column<'(?:(min|max)\((\w+)\)|count\((?:1|\*)\))(?: AS \w+)?'>")
_SIX_DIGITS: Final = r"\.[0-9]{6}(\D|$)"


class Aggregate(msgspec.Struct, frozen=True):
    """The function `min` or `max` of a column, or `count` of all rows, which has no column."""

    function: str
    column: str = ""


class LoadedTable:
    """A table that this process opened for a DataFrame."""

    def __init__(self, snapshot: Snapshot, options: ReadOptions, engine: str) -> None:
        self.engine = engine
        self._snapshot = snapshot
        self._options = options

    def __str__(self) -> str:
        options, snapshot = self._options, self._snapshot
        where = "" if options.where is None else f", where {options.where}"
        columns = "" if options.columns is None else f", columns {', '.join(options.columns)}"
        query = f", {self._searched()}" if options.is_search else ""
        url = snapshot.context.url
        return f"IndexTables {url}, version {snapshot.version}{query}{where}{columns}, engine {self.engine}"

    @property
    def version(self) -> int:
        """The version of the table."""
        return self._snapshot.version

    def _searched(self) -> str:
        options = self._options
        return f"condition {options.condition}" if options.query is None else f"query {options.query}"

    def num_rows(self) -> int | None:
        """The number of rows of the DataFrame if the log alone knows it, else None."""
        entries = self._entries()
        return None if entries is None else pc.sum(live_counts(entries)).as_py() or 0

    def answer(self, aggregates: Sequence[Aggregate]) -> list[pa.Scalar] | None:
        """The values of aggregates over the DataFrame if the log alone knows all of them, else None."""
        entries = self._entries()
        if entries is None:
            return None
        found = [self._value(entries, aggregate) for aggregate in aggregates]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    def _entries(self) -> pa.Table | None:
        """The files that have exactly the rows of the DataFrame; None unless the log knows them and their rows."""
        snapshot, shape = self._snapshot, self._snapshot.shape
        if self._options.is_search:
            return None
        where = self._options.predicate(snapshot.schema)
        if where is not None and not columns_of(where) <= shape.partition_keys.keys():
            return None
        entries = snapshot.select(where, _ENTRY_COLUMNS).entries
        if where is not None:
            matches = match_partitions(entries, where, shape)
            if matches.null_count:
                return None
            entries = entries.filter(matches)
        return None if live_counts(entries).null_count else entries

    def _value(self, entries: pa.Table, aggregate: Aggregate) -> pa.Scalar | None:
        counts = live_counts(entries)
        if not aggregate.column:
            return pa.scalar(pc.sum(counts).as_py() or 0, pa.int64())
        field = find_column(self._snapshot.schema, aggregate.column)
        if field is None:
            return None
        texts = self._bounds(entries.filter(pc.greater(counts, 0)), field, aggregate.function)
        if texts is None:
            return None
        parsed = parse_values(texts, field.type)
        if not pc.all(parsed.understood, min_count=0).as_py():
            return None
        return pc.min_max(parsed.values)[aggregate.function]

    def _bounds(self, entries: pa.Table, field: pa.Field, function: str) -> pa.Array | None:
        """A text for each file, whose extreme is that of all rows; None if the log does not know it."""
        key = self._snapshot.shape.partition_keys.get(field.name)
        if key is not None:
            texts = map_values(entries["partitionValues"].combine_chunks(), key)
            # Spark's order of NaN and of zeros is its own, and a null may have been written as a text.
            is_clear = not pc.any(pc.equal(texts, NULL_PARTITION)).as_py()
            return texts if is_clear and not pa.types.is_floating(field.type) else None
        stored = self._snapshot.shape.stored_names[field.name]
        texts = map_values(entries[f"{function}Values"].combine_chunks(), stored)
        # A file without a bound may have any values, and one with deleted rows may have lost the extreme.
        if texts.null_count or entries["deletionVector"].null_count < entries.num_rows:
            return None
        return texts if _is_exact(texts, field.type) else None


def _is_exact(texts: pa.Array, data_type: pa.DataType) -> bool:
    """Whether bounds in the log are values of the column: other bounds may be rounded, by us or by other writers."""
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return bool(pc.all(pc.match_substring_regex(texts, _SIX_DIGITS), min_count=0).as_py())
    return data_type in (pa.int32(), pa.int64(), pa.date32())


# The note on a DataFrame.


class Origin(msgspec.Struct, frozen=True):
    """What a DataFrame shows.

    `options` are those of a reader that finds the same rows again, so that SQL can search them; None if a schema
    was given. `table` is None if this process did not open the table.
    """

    options: dict[str, str] | None = None
    table: LoadedTable | None = None


def note_origin(frame: DataFrame, origin: Origin) -> DataFrame:
    """Note on a DataFrame what it shows; returns the DataFrame."""
    setattr(frame, _ORIGIN, origin)
    return frame


def origin_of(frame: Any) -> Origin:
    """What a DataFrame shows; nothing for other DataFrames, and for results of transformations."""
    return vars(frame).get(_ORIGIN) or Origin()


# Aggregates.


def shown_aggregates(columns: Sequence[Any]) -> list[Aggregate] | None:
    """The aggregates that some columns of Spark are; None unless all of them are aggregates that a log may know."""
    found = [_SHOWN.fullmatch(str(column)) for column in columns]
    if not found or None in found:
        return None
    return [Aggregate(each[1] or "count", each[2] or "") for each in found if each is not None]


def answered(frame: DataFrame, aggregates: Sequence[Aggregate], result: DataFrame) -> DataFrame:
    """The result of aggregates over a DataFrame as rows if the log knows them, else the result itself."""
    table = origin_of(frame).table
    # Aggregating a cached DataFrame fills the cache. A column with a name like that of a function hides the function.
    if table is None or frame.is_cached or any("(" in name or name == "1" for name in frame.columns):
        return result
    values = table.answer(aggregates)
    if values is None:
        return result
    return _one_row(frame.sparkSession, values, result.schema)


def _one_row(spark: SparkSession, values: Sequence[pa.Scalar], schema: StructType) -> DataFrame:
    # Spark allows several results of the same name, and a table does not.
    names = [f"c{number}" for number in range(len(values))]
    arrays = [pa.array([value.as_py()], value.type) for value in values]
    numbered = [StructField(name, field.dataType) for name, field in zip(names, schema, strict=True)]
    row = frame_of(spark, pa.Table.from_arrays(arrays, names=names), StructType(numbered))
    return row.toDF(*schema.names)
