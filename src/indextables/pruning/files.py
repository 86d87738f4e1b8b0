"""Prunes files, first by their partition values, then by minima and maxima."""

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa

from indextables.errors import InvalidPredicateError
from indextables.predicates import BoundPredicate, columns_of
from indextables.pruning.evaluate import evaluate
from indextables.pruning.ranges import (
    ColumnRange,
    Mask,
    partition_range,
    statistics_range,
    unknown_range,
)
from indextables.pruning.values import map_values
from indextables.schema import TableShape

PARTITION_VALUES, MIN_VALUES, MAX_VALUES = "partitionValues", "minValues", "maxValues"


class PruneResult(msgspec.Struct, frozen=True):
    """Which candidates to keep, in order, and how many each step skipped."""

    keep: pa.BooleanArray
    candidates: int
    skipped_by_partition: int
    skipped_by_statistics: int


def prune_files(entries: pa.Table, predicate: BoundPredicate, shape: TableShape) -> PruneResult:
    """Find the file entries that may have rows for which the predicate is true.

    A file is kept unless the log proves that it has no matching row. The reader must still filter the rows of the files
    that are kept.
    """
    used = columns_of(predicate)
    keys = shape.partition_keys
    candidates = entries.num_rows
    keep = np.ones(candidates, np.bool_)
    if not used or used & keys.keys():
        keep = _keep_by_partition(entries, predicate, shape)
    left_by_partition = int(np.count_nonzero(keep))
    if used - keys.keys() and left_by_partition:
        remaining = entries.select([PARTITION_VALUES, MIN_VALUES, MAX_VALUES])
        if left_by_partition < candidates:
            remaining = remaining.filter(pa.array(keep))
        keep[keep] = _keep_by_statistics(remaining, predicate, shape)
    left = int(np.count_nonzero(keep))
    return PruneResult(pa.array(keep), candidates, candidates - left_by_partition, left_by_partition - left)


def match_partitions(entries: pa.Table, predicate: BoundPredicate, shape: TableShape) -> pa.BooleanArray:
    """Evaluate a predicate over partition columns for every file entry.

    The answer is true if the predicate is true for every row of the file, and false if it is true for none. It is null
    if a partition value of the file does not parse as its column's type; an operation that drops files must keep such a
    file. Raises InvalidPredicateError if the predicate uses a column that is not a partition column.
    """
    others = sorted(columns_of(predicate) - shape.partition_keys.keys())
    if others:
        raise InvalidPredicateError(
            f"column {others[0]!r} is not a partition column; use {', '.join(shape.partition_columns) or 'none'}"
        )
    ranges = _partition_ranges(entries, columns_of(predicate), shape)
    truth = evaluate(predicate, ranges, entries.num_rows)
    return pa.array(truth.may_be_true, mask=truth.may_be_true & truth.may_be_false)


def _keep_by_partition(entries: pa.Table, predicate: BoundPredicate, shape: TableShape) -> Mask:
    ranges = _partition_ranges(entries, columns_of(predicate), shape)
    return evaluate(predicate, ranges, entries.num_rows).may_be_true.copy()


def _keep_by_statistics(entries: pa.Table, predicate: BoundPredicate, shape: TableShape) -> Mask:
    ranges = _partition_ranges(entries, columns_of(predicate), shape)
    minima = entries.column(MIN_VALUES).combine_chunks()
    maxima = entries.column(MAX_VALUES).combine_chunks()
    for name in columns_of(predicate) - shape.partition_keys.keys():
        stored = shape.stored_names[name]
        ranges[name] = statistics_range(
            map_values(minima, stored), map_values(maxima, stored), shape.type_of(name)
        )
    return evaluate(predicate, ranges, entries.num_rows).may_be_true


def _partition_ranges(entries: pa.Table, columns: Iterable[str], shape: TableShape) -> dict[str, ColumnRange]:
    values = entries.column(PARTITION_VALUES).combine_chunks()
    keys = shape.partition_keys
    ranges: dict[str, ColumnRange] = {}
    for name in columns:
        if name in keys:
            ranges[name] = partition_range(map_values(values, keys[name]), shape.type_of(name))
        else:
            ranges[name] = unknown_range(shape.type_of(name), entries.num_rows)
    return ranges
