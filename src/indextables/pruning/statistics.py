"""Computes the column statistics of a file: minima and maxima that are valid bounds for every reader."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Settings, registry
from indextables.errors import InvalidOptionError
from indextables.pruning.values import format_value, order_keys, parse_values
from indextables.schema import find_column

ALL_COLUMNS = -1

# The last character that can be incremented. Beyond it, the order of code points and that of UTF-16 code units differ.
LAST_RAISABLE = "\ud7fe"


class StatisticsOptions(msgspec.Struct, frozen=True):
    """Which columns have statistics, and the maximum length of their texts (None: unlimited)."""

    indexed_columns: int = 32
    named_columns: tuple[str, ...] = ()
    max_length: int | None = 32

    @classmethod
    def from_settings(cls, settings: Settings) -> "StatisticsOptions":
        """Return the options in a table's settings."""
        is_truncated = settings[registry.STATS_TRUNCATION_ENABLED]
        named_columns = settings[registry.DATA_SKIPPING_STATS_COLUMNS]
        return cls(
            settings[registry.DATA_SKIPPING_NUM_INDEXED_COLS],
            named_columns,
            settings[registry.STATS_TRUNCATION_MAX_LENGTH] if is_truncated else None,
        )


class ColumnStatistics(msgspec.Struct, frozen=True):
    """Minima and maxima as texts. A column may have both, one or none.

    `null_columns` are the columns without any value; for other columns, a missing entry means that the bound is
    unknown.
    """

    min_values: dict[str, str] = msgspec.field(default_factory=dict)
    max_values: dict[str, str] = msgspec.field(default_factory=dict)
    null_columns: frozenset[str] = frozenset()


def column_statistics(
    data: pa.Table, options: StatisticsOptions, partition_columns: Sequence[str] = ()
) -> ColumnStatistics:
    """Compute the statistics of rows that have the table's types.

    Partition columns have no statistics, because their values are in the log; neither have nested and binary columns.
    If no text can be a bound, the entry is left out: for example, readers disagree on a maximum above NaN. Raises
    InvalidOptionError if an option names a column that does not exist.
    """
    minima: dict[str, str] = {}
    maxima: dict[str, str] = {}
    null_columns: set[str] = set()
    for name in _columns_with_statistics(data.schema, options, partition_columns):
        column = data.column(name)
        if column.null_count == len(column):
            null_columns.add(name)
            continue
        least, greatest = _extremes(column)
        minimum, maximum = format_value(least), format_value(greatest)
        if pa.types.is_string(column.type) and options.max_length is not None:
            minimum, maximum = _cut(minimum, options.max_length), _raised(maximum, options.max_length)
        minima.update({name: minimum} if minimum is not None else {})
        maxima.update({name: maximum} if maximum is not None else {})
    return ColumnStatistics(minima, maxima, frozenset(null_columns))


def merge_statistics(left: ColumnStatistics, right: ColumnStatistics, schema: pa.Schema) -> ColumnStatistics:
    """Return the statistics of the rows of both sides, compared as typed values.

    Both must come from `column_statistics`. A bound that is unknown on one side is missing from the result.
    """
    return ColumnStatistics(
        _merged(left.min_values, right.min_values, left, right, schema, "min"),
        _merged(left.max_values, right.max_values, left, right, schema, "max"),
        left.null_columns & right.null_columns,
    )


def _columns_with_statistics(
    schema: pa.Schema, options: StatisticsOptions, partition_columns: Iterable[str]
) -> list[str]:
    partitions = {name.lower() for name in partition_columns}
    if options.named_columns:
        names = [_existing(schema, name) for name in options.named_columns]
        return [name for name in dict.fromkeys(names) if name.lower() not in partitions]
    names = [name for name in schema.names if name.lower() not in partitions]
    return names if options.indexed_columns == ALL_COLUMNS else names[: options.indexed_columns]


def _existing(schema: pa.Schema, name: str) -> str:
    column = find_column(schema, name)
    if column is None:
        raise InvalidOptionError(
            f"{registry.DATA_SKIPPING_STATS_COLUMNS.key} names the column {name!r}, which does not exist; "
            f"the columns are {', '.join(schema.names)}"
        )
    return str(column.name)


def _extremes(column: pa.ChunkedArray) -> tuple[pa.Scalar, pa.Scalar]:
    if pa.types.is_floating(column.type):
        return _float_extremes(column)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        return pa.scalar(None), pa.scalar(None)
    extremes = pc.min_max(column)
    return extremes["min"], extremes["max"]


def _float_extremes(column: pa.ChunkedArray) -> tuple[pa.Scalar, pa.Scalar]:
    numbers = column.drop_null().to_numpy()
    ordinary = numbers[~np.isnan(numbers)]
    nothing = pa.scalar(None, column.type)
    if not len(ordinary):
        return nothing, nothing
    # For readers that distinguish -0.0 from 0.0, record the outer one. With NaN, there is no maximum.
    least, greatest = ordinary.min(), ordinary.max()
    minimum = pa.scalar(-0.0 if least == 0 else float(least), column.type)
    maximum = pa.scalar(0.0 if greatest == 0 else float(greatest), column.type)
    return minimum, nothing if len(ordinary) < len(numbers) else maximum


def _cut(minimum: str | None, max_length: int) -> str | None:
    return None if minimum is None else minimum[:max_length]


def _raised(maximum: str | None, max_length: int) -> str | None:
    """Return a text of at most this length that is at or above the maximum; None if there is none."""
    if maximum is None or len(maximum) <= max_length:
        return maximum
    kept = maximum[:max_length]
    while kept and kept[-1] > LAST_RAISABLE:
        kept = kept[:-1]
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


def _merged(
    left_values: Mapping[str, str],
    right_values: Mapping[str, str],
    left: ColumnStatistics,
    right: ColumnStatistics,
    schema: pa.Schema,
    end: str,
) -> dict[str, str]:
    merged = {name: text for name, text in left_values.items() if name in right.null_columns}
    merged |= {name: text for name, text in right_values.items() if name in left.null_columns}
    for name in left_values.keys() & right_values.keys():
        texts = pa.array([left_values[name], right_values[name]])
        keys = order_keys(parse_values(texts, schema.field(name).type).values)
        if not keys.null_count:
            merged[name] = texts[pc.index(keys, pc.min_max(keys)[end]).as_py()].as_py()
    return merged
