"""Rules out row groups and pages of a split by the statistics of its Parquet file.

A place is a row group or a page. Whatever the statistics do not exclude may match.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.predicates import BoundPredicate, columns_of
from indextables.pruning.evaluate import evaluate
from indextables.pruning.ranges import ColumnRange, partition_range, unknown_range
from indextables.pruning.values import order_keys
from indextables.split.thrift import decode_struct

# The order keys of decimals are 128-bit two's complement with the sign bit flipped.
_KEY_BYTES: Final = 16
_SIGN_BIT: Final = 1 << 127

# The fields of a column index.
_NULL_PAGES, _MIN_VALUES, _MAX_VALUES, _NULL_COUNTS = 1, 2, 3, 5

# The values of these physical types, as a column index stores them.
_PHYSICAL: Final[dict[str, np.dtype[Any]]] = {
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FLOAT": np.dtype("<f4"),
    "DOUBLE": np.dtype("<f8"),
    "BOOLEAN": np.dtype("?"),
}


class PlaceStatistics(msgspec.Struct, frozen=True, eq=False):
    """What is known of one column in some places: physical bounds, or None, and whether nulls and values may occur."""

    minima: list[Any]
    maxima: list[Any]
    may_be_null: npt.NDArray[np.bool_]
    may_be_value: npt.NDArray[np.bool_]

    @classmethod
    def unknown(cls, count: int) -> "PlaceStatistics":
        """The statistics of places of which nothing is known."""
        ones = np.ones(count, np.bool_)
        return cls([None] * count, [None] * count, ones, ones)

    @classmethod
    def concat(cls, parts: Sequence["PlaceStatistics"]) -> "PlaceStatistics":
        """Put the statistics of more places together."""
        return cls(
            [value for part in parts for value in part.minima],
            [value for part in parts for value in part.maxima],
            np.concatenate([part.may_be_null for part in parts]),
            np.concatenate([part.may_be_value for part in parts]),
        )


class PrunedColumns(msgspec.Struct, frozen=True):
    """The columns that a predicate may use: the table's schema, the leaf of each plain column, the partition values."""

    schema: pa.Schema
    leaves: Mapping[str, int]
    partition_values: Mapping[str, str | None]

    def matching(
        self, bound: BoundPredicate, statistics: Mapping[int, PlaceStatistics], count: int
    ) -> npt.NDArray[np.int64]:
        """Return the places that may hold rows for which a bound predicate is true; `statistics` are by leaf."""
        ranges: dict[str, ColumnRange] = {}
        for name in columns_of(bound):
            data_type = self.schema.field(name).type
            if name in self.partition_values:
                texts = pa.array([self.partition_values[name]] * count, pa.string())
                ranges[name] = partition_range(texts, data_type)
            elif name in self.leaves:
                ranges[name] = _range(statistics[self.leaves[name]], data_type)
            else:
                ranges[name] = unknown_range(data_type, count)
        return np.flatnonzero(evaluate(bound, ranges, count).may_be_true)

    def leaves_of(self, bound: BoundPredicate) -> list[int]:
        """Return the leaves whose statistics `matching` needs."""
        return sorted(self.leaves[name] for name in columns_of(bound) if name in self.leaves)


def group_statistics(metadata: pq.FileMetaData, leaf: int) -> PlaceStatistics:
    """Return the statistics of a leaf in every row group."""
    count = metadata.num_row_groups
    found = PlaceStatistics(
        [None] * count, [None] * count, np.ones(count, np.bool_), np.ones(count, np.bool_)
    )
    for group in range(count):
        chunk = metadata.row_group(group).column(leaf)
        statistics = chunk.statistics
        if statistics is None:
            continue
        if statistics.has_null_count:
            found.may_be_null[group] = statistics.null_count > 0
            found.may_be_value[group] = statistics.null_count < chunk.num_values
        if statistics.has_min_max:
            found.minima[group], found.maxima[group] = statistics.min_raw, statistics.max_raw
    return found


def page_statistics(column_index: bytes, physical_type: str, count: int) -> PlaceStatistics:
    """Return the statistics of a leaf in the `count` pages of a row group. Raises ValueError for other bytes."""
    index, _ = decode_struct(column_index)
    try:
        is_null = np.array(index[_NULL_PAGES].values, np.bool_)
        minima = _physical_values(index[_MIN_VALUES].values, is_null, physical_type)
        maxima = _physical_values(index[_MAX_VALUES].values, is_null, physical_type)
        may_be_null = np.ones(count, np.bool_)
        if _NULL_COUNTS in index:
            may_be_null = np.array([number.value > 0 for number in index[_NULL_COUNTS].values], np.bool_)
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"the column index is invalid: {error!r}") from error
    if not len(is_null) == len(minima) == len(maxima) == len(may_be_null) == count:
        raise ValueError(f"the column index does not describe {count} pages")
    return PlaceStatistics(minima, maxima, may_be_null, ~is_null)


def _physical_values(values: list[bytes], is_null: npt.NDArray[np.bool_], physical_type: str) -> list[Any]:
    if physical_type not in _PHYSICAL:
        return [None if null else value for value, null in zip(values, is_null.tolist(), strict=True)]
    plain = _PHYSICAL[physical_type]
    return [
        None if null else np.frombuffer(value, plain, 1)[0].item()
        for value, null in zip(values, is_null.tolist(), strict=True)
    ]


def _range(statistics: PlaceStatistics, data_type: pa.DataType) -> ColumnRange:
    unknown = unknown_range(data_type, len(statistics.minima))
    lower, upper = _keys(statistics.minima, data_type), _keys(statistics.maxima, data_type)
    return ColumnRange(
        data_type,
        unknown.lower if lower is None else lower,
        unknown.upper if upper is None else upper,
        statistics.may_be_null,
        statistics.may_be_value,
        # Parquet statistics exclude NaN.
        bool(pa.types.is_floating(data_type)),
    )


def _keys(raw: list[Any], data_type: pa.DataType) -> pa.Array | None:
    """Return the order keys of physical values; None for types without usable statistics."""
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
    keys = [
        None if number is None else (number + _SIGN_BIT).to_bytes(_KEY_BYTES, "big") for number in numbers
    ]
    return pa.array(keys, pa.binary())
