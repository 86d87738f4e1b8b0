"""Locality: how many manifests of a state a query of one partition reads, by their partition bounds. Pure, by column.

Readers skip a manifest if its bounds exclude the query. A compaction sorts the entries, so a partition is in one
manifest, or in a few if it is large. But if every commit spans all partitions, so does every manifest, and readers skip
none.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.pruning import BoundsOrder, manifest_ranges
from indextables.schema import TableShape
from indextables.state.state_manifest import ManifestInfo

# How many places are looked at: an average needs no more, and the cost stays proportional to the manifests.
_MAX_PLACES = 256

_Ranks = npt.NDArray[np.int64]


def reads_per_partition(manifests: Sequence[ManifestInfo], shape: TableShape) -> float | None:
    """The average number of these manifests that a query of one partition reads; None if their bounds do not tell.

    The partitions are those at the lower bounds of the manifests. A manifest of a single partition does not count: a
    partition that is too large for one manifest is divided, and a query needs all of its manifests.
    """
    bounds = _Bounds.of(manifests, shape)
    if bounds is None:
        return None
    is_mixed = bounds.is_known & (bounds.lower != bounds.upper).any(axis=0)
    lower, upper = bounds.lower[:, is_mixed], bounds.upper[:, is_mixed]
    places = lower[:, :: max(1, -(-lower.shape[1] // _MAX_PLACES))]
    if not places.size:
        return 0.0
    is_read = np.ones((places.shape[1], lower.shape[1]), dtype=np.bool_)
    for least, greatest, wanted in zip(lower, upper, places[:, :, np.newaxis], strict=True):
        is_read &= (least <= wanted) & (wanted <= greatest)
    return float(is_read.sum(axis=1).mean())


def are_in_order(manifests: Sequence[ManifestInfo], shape: TableShape) -> bool:
    """Whether the manifests follow each other by the first partition column, as after a compaction.

    Manifests whose order cannot be determined by any writer count as in order.
    """
    bounds = _Bounds.of(manifests, shape)
    if bounds is None:
        return True
    lower, upper = bounds.lower[0, bounds.is_known], bounds.upper[0, bounds.is_known]
    return bool((upper[:-1] <= lower[1:]).all())


class _Bounds(msgspec.Struct, frozen=True):
    """The bounds as ranks: one row per partition column, one item per manifest.

    A manifest is not `is_known` if a column has only nulls in it.
    """

    lower: _Ranks
    upper: _Ranks
    is_known: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, manifests: Sequence[ManifestInfo], shape: TableShape) -> "_Bounds | None":
        """None without partition columns, or if a column has values that do not parse: they are sorted as text."""
        keys = shape.partition_keys.values()
        is_typed = np.array([info.has_typed_bounds for info in manifests], dtype=np.bool_)
        if not keys or any(
            info.has_typed_bounds and any(key not in info.bounds for key in keys) for info in manifests
        ):
            return None
        found = [info.bounds for info in manifests]
        typed, untyped = (manifest_ranges(found, shape, order=order) for order in BoundsOrder)
        lower, upper = [], []
        is_known = np.ones(len(manifests), dtype=np.bool_)
        for one, other in zip(typed, untyped, strict=True):
            chosen = pa.array(is_typed)
            low, high = _ranks(
                pc.if_else(chosen, one.lower, other.lower), pc.if_else(chosen, one.upper, other.upper)
            )
            lower.append(low)
            upper.append(high)
            is_known &= ~is_typed | one.lower.is_valid().to_numpy(zero_copy_only=False)
        return cls(np.array(lower), np.array(upper), is_known)


def _ranks(lower: pa.Array, upper: pa.Array) -> tuple[_Ranks, _Ranks]:
    """Replace keys by numbers in the same order. An unknown bound is below or above all others."""
    distinct = pc.unique(pa.concat_arrays([lower, upper])).drop_null()
    ordered = distinct.take(pc.array_sort_indices(distinct))
    low, high = (pc.index_in(keys, value_set=ordered) for keys in (lower, upper))
    return (
        low.fill_null(-1).to_numpy().astype(np.int64),
        high.fill_null(len(ordered)).to_numpy().astype(np.int64),
    )
