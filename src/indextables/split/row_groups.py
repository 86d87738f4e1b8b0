"""Which row groups of a split a predicate can do without, by the statistics of the Parquet file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.predicates import Predicate, columns_of
from indextables.pruning.evaluate import evaluate
from indextables.pruning.ranges import ColumnRange, partition_range, unknown_range
from indextables.pruning.values import order_keys

# The keys of decimals are two's complement in this many bytes with the sign flipped.
KEY_BYTES = 16
SIGN = 1 << 127


def matching_row_groups(
    metadata: pq.FileMetaData,
    bound: Predicate,
    schema: pa.Schema,
    leaves: Mapping[str, int],
    partition_values: Mapping[str, str | None],
) -> list[int]:
    """The row groups that may hold rows for which a bound predicate is true.

    `leaves` tells where the plain columns are among the leaves of the file. A column that is neither there
    nor a partition column counts as unknown.
    """
    count = metadata.num_row_groups
    ranges: dict[str, ColumnRange] = {}
    for name in columns_of(bound):
        data_type = schema.field(name).type
        if name in partition_values:
            texts = pa.array([partition_values[name]] * count, pa.string())
            ranges[name] = partition_range(texts, data_type)
        elif name in leaves:
            ranges[name] = _statistics_range(metadata, leaves[name], data_type)
        else:
            ranges[name] = unknown_range(data_type, count)
    keep = evaluate(bound, ranges, count).may_be_true
    return [int(group) for group in np.flatnonzero(keep)]


def _statistics_range(metadata: pq.FileMetaData, leaf: int, data_type: pa.DataType) -> ColumnRange:
    count = metadata.num_row_groups
    minima: list[Any] = [None] * count
    maxima: list[Any] = [None] * count
    may_be_null = np.ones(count, np.bool_)
    may_be_value = np.ones(count, np.bool_)
    for group in range(count):
        chunk = metadata.row_group(group).column(leaf)
        statistics = chunk.statistics
        if statistics is None:
            continue
        if statistics.has_null_count:
            may_be_null[group] = statistics.null_count > 0
            may_be_value[group] = statistics.null_count < chunk.num_values
        if statistics.has_min_max:
            minima[group], maxima[group] = statistics.min_raw, statistics.max_raw
    unknown = unknown_range(data_type, count)
    lower, upper = _keys(minima, data_type), _keys(maxima, data_type)
    return ColumnRange(
        data_type,
        unknown.lower if lower is None else lower,
        unknown.upper if upper is None else upper,
        may_be_null,
        may_be_value,
        # NaN is in no statistics.
        bool(pa.types.is_floating(data_type)),
    )


def _keys(raw: list[Any], data_type: pa.DataType) -> pa.Array | None:
    """Order keys of physical values; None for types whose statistics are not understood."""
    try:
        if pa.types.is_decimal128(data_type):
            return _decimal_keys(raw)
        if pa.types.is_string(data_type):
            return pa.array(raw, pa.binary())
        if pa.types.is_floating(data_type):
            return order_keys(pa.array(raw, pa.float64()))
        if _is_counted(data_type):
            return pa.array([None if value is None else int(value) for value in raw], pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return None


def _is_counted(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_signed_integer, pa.types.is_boolean, pa.types.is_date32, pa.types.is_timestamp)
    return any(test(data_type) for test in tests)


def _decimal_keys(raw: list[Any]) -> pa.Array:
    numbers = [
        int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value for value in raw
    ]
    keys = [None if number is None else (number + SIGN).to_bytes(KEY_BYTES, "big") for number in numbers]
    return pa.array(keys, pa.binary())
