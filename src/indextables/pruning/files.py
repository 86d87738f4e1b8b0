"""Which files a predicate can do without: exactly by partition value, then by minimum and maximum."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from indextables.errors import InvalidPredicateError
from indextables.predicates import Predicate, bind, columns_of
from indextables.pruning.evaluate import evaluate
from indextables.pruning.ranges import (
    ColumnRange,
    Mask,
    partition_range,
    statistics_range,
    unknown_range,
)
from indextables.pruning.values import map_values
from indextables.schema import find_column

PARTITION_VALUES, MIN_VALUES, MAX_VALUES = "partitionValues", "minValues", "maxValues"


class PruneResult(msgspec.Struct, frozen=True):
    """What is left of the candidates: one truth for each, in their order, and why the others went."""

    keep: pa.BooleanArray
    candidates: int
    skipped_by_partition: int
    skipped_by_statistics: int


def prune_files(
    entries: pa.Table, predicate: Predicate, schema: pa.Schema, partition_columns: Sequence[str]
) -> PruneResult:
    """Find the file entries that may hold rows for which the predicate is true.

    No matching row is ever lost: what is not known for certain is kept. The reader still has to filter the
    rows of the files that are left. Raises InvalidPredicateError if the predicate does not fit the schema.
    """
    bound = bind(predicate, schema)
    used = columns_of(bound)
    keys = partition_keys(schema, partition_columns)
    candidates = entries.num_rows
    keep = np.ones(candidates, np.bool_)
    if not used or used & keys.keys():
        keep = _keep_by_partition(entries, bound, schema, keys)
    left_by_partition = int(np.count_nonzero(keep))
    if used - keys.keys() and left_by_partition:
        remaining = entries.select([PARTITION_VALUES, MIN_VALUES, MAX_VALUES])
        if left_by_partition < candidates:
            remaining = remaining.filter(pa.array(keep))
        keep[keep] = _keep_by_statistics(remaining, bound, schema, keys)
    left = int(np.count_nonzero(keep))
    return PruneResult(pa.array(keep), candidates, candidates - left_by_partition, left_by_partition - left)


def match_partitions(
    entries: pa.Table, predicate: Predicate, schema: pa.Schema, partition_columns: Sequence[str]
) -> pa.BooleanArray:
    """Decide a predicate over partition columns for every file entry.

    True: it holds for every row of the file. False: for none. Null: the file has a partition value that its
    column's type does not explain, so that nobody can tell; whoever drops files must not drop this one.
    Raises InvalidPredicateError if the predicate names a column that is no partition column.
    """
    bound = bind(predicate, schema)
    keys = partition_keys(schema, partition_columns)
    others = sorted(columns_of(bound) - keys.keys())
    if others:
        raise InvalidPredicateError(
            f"column {others[0]!r} is not a partition column; use {', '.join(partition_columns) or 'none'}"
        )
    ranges = _partition_ranges(entries, columns_of(bound), schema, keys)
    truth = evaluate(bound, ranges, entries.num_rows)
    return pa.array(truth.may_be_true, mask=truth.may_be_true & truth.may_be_false)


def partition_keys(schema: pa.Schema, partition_columns: Iterable[str]) -> dict[str, str]:
    """Return, for each partition column as the schema spells it, the key of its values in the log."""
    fields = {name: find_column(schema, name) for name in partition_columns}
    return {field.name: name for name, field in fields.items() if field is not None}


def _keep_by_partition(
    entries: pa.Table, bound: Predicate, schema: pa.Schema, keys: Mapping[str, str]
) -> Mask:
    ranges = _partition_ranges(entries, columns_of(bound), schema, keys)
    return evaluate(bound, ranges, entries.num_rows).may_be_true.copy()


def _keep_by_statistics(
    entries: pa.Table, bound: Predicate, schema: pa.Schema, keys: Mapping[str, str]
) -> Mask:
    ranges = _partition_ranges(entries, columns_of(bound), schema, keys)
    minima = entries.column(MIN_VALUES).combine_chunks()
    maxima = entries.column(MAX_VALUES).combine_chunks()
    for name in columns_of(bound) - keys.keys():
        data_type = schema.field(name).type
        ranges[name] = statistics_range(map_values(minima, name), map_values(maxima, name), data_type)
    return evaluate(bound, ranges, entries.num_rows).may_be_true


def _partition_ranges(
    entries: pa.Table, columns: Iterable[str], schema: pa.Schema, keys: Mapping[str, str]
) -> dict[str, ColumnRange]:
    values = entries.column(PARTITION_VALUES).combine_chunks()
    ranges: dict[str, ColumnRange] = {}
    for name in columns:
        data_type = schema.field(name).type
        if name in keys:
            ranges[name] = partition_range(map_values(values, keys[name]), data_type)
        else:
            ranges[name] = unknown_range(data_type, entries.num_rows)
    return ranges
