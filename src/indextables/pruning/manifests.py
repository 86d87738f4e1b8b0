"""Prunes manifests by their partition bounds, which are compared as values of the column's type.

Bounds are texts, like partition values. (None, None) means that all values are null; such a manifest is never skipped.
Bounds do not record whether there are also nulls, so IS NULL never skips a manifest.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.predicates import BoundPredicate, columns_of
from indextables.pruning.evaluate import evaluate
from indextables.pruning.ranges import HIVE_NULL, ColumnRange, text_lower_keys, text_upper_keys, unknown_range
from indextables.pruning.values import DATE, map_values, order_keys, parse_values
from indextables.schema import TableShape


class Bounds(msgspec.Struct, frozen=True):
    """The minimum and the maximum of a partition column in a manifest, as texts."""

    min: str | None = None
    max: str | None = None


class BoundsOrder(Enum):
    """The order by which the writer computed the bounds."""

    TYPED = auto()  # by the column's type, as `partition_bounds` does
    UNKNOWN = auto()  # perhaps as text, in which case the bounds of the integers 1 to 12 are 1 and 9


# Types whose texts, in this spelling, sort like their values. Strings are handled separately: the JVM sorts them
# differently.
_SORT_LIKE_TEXT = ((pa.types.is_boolean, "^(?:true|false)$"), (pa.types.is_date32, f"^{DATE}$"))

# Among these characters, code points and the UTF-16 of the JVM have different orders.
_ORDERED_DIFFERENTLY = "[\\x{E000}-\\x{10FFFF}]"


def partition_bounds(partition_values: pa.MapArray | pa.ChunkedArray, shape: TableShape) -> dict[str, Bounds]:
    """Return the bounds of each partition column, compared as typed values, in the original spelling.

    The bounds are (None, None) if all values are null. A column with a value that does not parse has no bounds and is
    left out.
    """
    maps = _combined(partition_values)
    bounds: dict[str, Bounds] = {}
    for column, key in shape.partition_keys.items():
        found = _bounds(map_values(maps, key).unique(), shape.type_of(column))
        if found is not None:
            bounds[key] = found
    return bounds


def keys_sorted_like_text(
    partition_values: pa.MapArray | pa.ChunkedArray, shape: TableShape
) -> frozenset[str]:
    """Return the keys of the partition columns whose bounds also hold for a reader that compares texts.

    That reader compares the bounds with the text of a literal, too. So it is not enough that these values sort alike:
    it would skip the bounds 10 and 12 for a value above 3.
    """
    maps = _combined(partition_values)
    return frozenset(
        key
        for column, key in shape.partition_keys.items()
        if _sorts_like_text(map_values(maps, key).unique(), shape.type_of(column))
    )


def _sorts_like_text(texts: pa.Array, data_type: pa.DataType) -> bool:
    if pa.types.is_string(data_type):
        return not pc.any(pc.match_substring_regex(texts, _ORDERED_DIFFERENTLY), min_count=0).as_py()
    spelling = _spelling_of(data_type)
    if spelling is None:
        return False
    return bool(pc.all(pc.match_substring_regex(texts, spelling), min_count=0).as_py())


def _spelling_of(data_type: pa.DataType) -> str | None:
    """Return the spelling in which texts of a type sort like its values, as a pattern."""
    return next((spelling for is_type, spelling in _SORT_LIKE_TEXT if is_type(data_type)), None)


def bounds_may_match(
    predicate: BoundPredicate,
    bounds: Mapping[str, Bounds] | None,
    shape: TableShape,
    *,
    order: BoundsOrder = BoundsOrder.UNKNOWN,
) -> bool:
    """Return whether a manifest may have files with matching rows; see `prune_manifests`."""
    return bool(prune_manifests(predicate, [bounds], shape, order=order)[0].as_py())


def prune_manifests(
    predicate: BoundPredicate,
    manifests: Sequence[Mapping[str, Bounds] | None],
    shape: TableShape,
    *,
    order: BoundsOrder = BoundsOrder.UNKNOWN,
) -> pa.BooleanArray:
    """Return, for each manifest, whether it may have files with matching rows.

    Missing bounds, and bounds that do not parse, prove nothing. Pass TYPED only for manifests whose bounds come from
    `partition_bounds`.
    """
    keys = shape.partition_keys
    ranges: dict[str, ColumnRange] = {}
    for name in columns_of(predicate):
        data_type = shape.type_of(name)
        if name in keys:
            ranges[name] = _bounds_range(manifests, keys[name], data_type, order)
        else:
            ranges[name] = unknown_range(data_type, len(manifests))
    return pa.array(evaluate(predicate, ranges, len(manifests)).may_be_true)


def manifest_ranges(
    manifests: Sequence[Mapping[str, Bounds] | None], shape: TableShape, *, order: BoundsOrder
) -> list[ColumnRange]:
    """Return the range of each partition column in each manifest, as far as its bounds prove it."""
    return [
        _bounds_range(manifests, key, shape.type_of(column), order)
        for column, key in shape.partition_keys.items()
    ]


def _combined(values: pa.MapArray | pa.ChunkedArray) -> pa.MapArray:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _bounds(texts: pa.Array, data_type: pa.DataType) -> Bounds | None:
    parsed = parse_values(texts, data_type)
    is_ambiguous = pc.any(pc.equal(texts, HIVE_NULL)).as_py()
    if is_ambiguous or pc.all(parsed.understood).as_py() is False:
        return None
    keys = order_keys(parsed.values)
    extremes = pc.min_max(keys)
    if not extremes["min"].is_valid:
        return Bounds(None, None) if texts.null_count == len(texts) else None
    least, greatest = (texts[pc.index(keys, extremes[end]).as_py()].as_py() for end in ("min", "max"))
    return Bounds(least, greatest)


def _bounds_range(
    manifests: Sequence[Mapping[str, Bounds] | None], key: str, data_type: pa.DataType, order: BoundsOrder
) -> ColumnRange:
    found = [(manifest or {}).get(key, Bounds(None, None)) for manifest in manifests]
    minima = pa.array([bounds.min for bounds in found], pa.string())
    maxima = pa.array([bounds.max for bounds in found], pa.string())
    lower = order_keys(parse_values(minima, data_type).values)
    upper = order_keys(parse_values(maxima, data_type).values)
    may_be_nan = False
    if order is BoundsOrder.UNKNOWN:
        lower, upper = _in_any_order(minima, maxima, lower, upper, data_type)
        may_be_nan = bool(pa.types.is_floating(data_type))
    nothing = pa.scalar(None, lower.type)
    inverted = pc.fill_null(pc.greater(lower, upper), False)
    anything = np.ones(len(found), np.bool_)
    return ColumnRange(
        data_type,
        pc.if_else(inverted, nothing, lower),
        pc.if_else(inverted, nothing, upper),
        anything,
        anything,
        may_be_nan,
    )


def _in_any_order(
    minima: pa.Array, maxima: pa.Array, lower: pa.Array, upper: pa.Array, data_type: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Keep only the bounds that are valid whether the writer compared values or texts."""
    if pa.types.is_string(data_type):
        return text_lower_keys(minima), text_upper_keys(maxima)
    spelling = _spelling_of(data_type)
    if spelling is not None:
        certain = pc.and_(
            pc.match_substring_regex(minima, spelling), pc.match_substring_regex(maxima, spelling)
        )
    else:
        # Equal bounds are a single value in any order. If the minimum is above the maximum as text, the writer did not
        # compare texts.
        certain = pc.or_(pc.equal(minima, maxima), pc.greater(minima, maxima))
    nothing = pa.scalar(None, lower.type)
    return pc.if_else(certain, lower, nothing), pc.if_else(certain, upper, nothing)
