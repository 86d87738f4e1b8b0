"""Prunes files and manifests by partition values, partition bounds and column statistics, compared as typed values."""

from indextables.pruning.files import PruneResult, match_partitions, prune_files
from indextables.pruning.manifests import (
    Bounds,
    BoundsOrder,
    bounds_may_match,
    keys_sorted_like_text,
    manifest_ranges,
    partition_bounds,
    prune_manifests,
)
from indextables.pruning.statistics import (
    ColumnStatistics,
    StatisticsOptions,
    column_statistics,
    merge_statistics,
)
from indextables.pruning.values import Parsed, format_value, map_values, parse_values

__all__ = [
    "Bounds",
    "BoundsOrder",
    "ColumnStatistics",
    "Parsed",
    "PruneResult",
    "StatisticsOptions",
    "bounds_may_match",
    "column_statistics",
    "format_value",
    "keys_sorted_like_text",
    "manifest_ranges",
    "map_values",
    "match_partitions",
    "merge_statistics",
    "parse_values",
    "partition_bounds",
    "prune_files",
    "prune_manifests",
]
