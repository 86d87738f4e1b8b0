"""What is known of one column in each of many places, be they files or manifests.

A place may hold nulls, and it may hold values; the values lie between a lower and an upper key, either of
which may be unknown. Everything here errs in one direction: what is not known for certain may be there.
"""

from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.pruning.order import order_keys
from indextables.pruning.trust import trusted_statistics
from indextables.pruning.values import parse_values

Mask: TypeAlias = npt.NDArray[np.bool_]

# In a path this stands for null, and writers have stored it as a value: it may be either.
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class ColumnRange(msgspec.Struct, frozen=True):
    """One column in many places: keys of its bounds (null: unknown), and what else may occur."""

    data_type: pa.DataType
    lower: pa.Array
    upper: pa.Array
    may_be_null: Mask
    may_be_value: Mask
    # NaN may occur beside the values between the bounds: some writers leave it out of their maxima.
    may_be_nan: bool = False


def unknown_range(data_type: pa.DataType, count: int) -> ColumnRange:
    """Return the range of a column about which nothing is known."""
    no_keys = order_keys(pa.nulls(count, data_type))
    return ColumnRange(data_type, no_keys, no_keys, np.ones(count, np.bool_), np.ones(count, np.bool_))


def partition_range(texts: pa.Array, data_type: pa.DataType) -> ColumnRange:
    """Return the range of a partition column: exactly one value for each file, or null."""
    parsed = parse_values(texts, data_type)
    ambiguous = pc.fill_null(pc.equal(texts, HIVE_NULL), False)
    understood = pc.and_not(parsed.understood, ambiguous)
    keys = order_keys(pc.if_else(understood, parsed.values, pa.scalar(None, data_type)))
    unclear = ~as_mask(understood)
    is_null = as_mask(texts.is_null())
    return ColumnRange(data_type, keys, keys, is_null | unclear, ~is_null)


def statistics_range(minima: pa.Array, maxima: pa.Array, data_type: pa.DataType) -> ColumnRange:
    """Return the range of a column from the statistics of some writer; they say nothing about nulls."""
    lower, upper = trusted_statistics(minima, maxima, data_type)
    anything = np.ones(len(minima), np.bool_)
    return ColumnRange(data_type, lower, upper, anything, anything, pa.types.is_floating(data_type))


def as_mask(truths: pa.BooleanArray) -> Mask:
    """Return an array of truths without nulls as a mask."""
    mask: Mask = truths.to_numpy(zero_copy_only=False)
    return mask
