"""Decides which splits to merge with each other: bin packing by partition and size. Pure.

Splits of a partition are packed in the order in which they were written, so that the statistics of the new splits
stay narrow. Splits without a partner are packed again by size. Splits that an earlier merge could not read are left
out until their cooldown is over.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config.registry import SKIPPED_FILES_COOLDOWN_HOURS, SKIPPED_FILES_TRACKING_ENABLED
from indextables.errors import UnsafePathError
from indextables.log.actions import SkipAction
from indextables.log.deletion_vectors import deleted_counts
from indextables.ops.merge.task import BadSource, MergeSource
from indextables.pruning.values import map_values
from indextables.storage import relative_key
from indextables.table import Snapshot

Positions: TypeAlias = npt.NDArray[np.int64]

# The columns of file entries that `plan_groups` needs.
PLANNING_COLUMNS = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "numRecords",
    "deletionVector",
)

_SKIP_OPERATION: Final = "merge"
_MS_PER_HOUR: Final = 3_600_000


class MergeRules(msgspec.Struct, frozen=True):
    """The limits of a group: at most `max_sources` sources, with a total size of at most `target_bytes`.

    `max_groups` limits the plan; the groups with the most sources come first. A source that makes up more than
    `max_share_of_largest` of its group is left out. Otherwise, a table that is merged after every small write would
    rewrite the same large split each time. A split of which more than `max_deleted_share` of the rows are deleted is
    rewritten, alone if it has no partner.
    """

    target_bytes: int
    max_sources: int
    max_groups: int | None = None
    max_share_of_largest: float = 1.0
    max_deleted_share: float = 1.0


def plan_groups(
    entries: pa.Table, partition_columns: Sequence[str], rules: MergeRules, resting: frozenset[str]
) -> list[Positions]:
    """The groups to merge, as positions in `entries`, which needs only the PLANNING_COLUMNS.

    A split is in at most one group. Splits that have reached the target size, and those in `resting`, are in none,
    except for those with many deleted rows.
    """
    groups = _groups_of_small(entries, partition_columns, rules, resting)
    grouped = np.concatenate([np.empty(0, np.int64), *groups])
    thinned = np.setdiff1d(_thinned_splits(entries, rules.max_deleted_share, resting), grouped)
    return [*groups, *thinned[:, None]][: rules.max_groups]


def _thinned_splits(entries: pa.Table, max_deleted_share: float, resting: frozenset[str]) -> Positions:
    """The positions in `entries` of the splits with too many deleted rows, without those in `resting`."""
    deleted = deleted_counts(entries["deletionVector"]).to_numpy()
    counts = pc.fill_null(entries["numRecords"], 0).to_numpy()
    is_resting = pc.is_in(entries["path"], value_set=pa.array(sorted(resting), pa.string())).to_numpy()
    return np.flatnonzero((deleted > max_deleted_share * counts) & ~is_resting)


def _groups_of_small(
    entries: pa.Table, partition_columns: Sequence[str], rules: MergeRules, resting: frozenset[str]
) -> list[Positions]:
    candidates = small_splits(entries, rules.target_bytes, resting)
    if len(candidates) < 2:
        return []
    small = entries.take(candidates)
    partitions = _partition_numbers(small["partitionValues"], partition_columns)
    sizes = small["size"].to_numpy()
    by_time = _sorted_by_time(partitions, small["modificationTime"], small["path"])
    packed = list(_pack(by_time, partitions, sizes, rules))
    singles = np.concatenate([np.empty(0, np.int64), *(group for group in packed if len(group) == 1)])
    by_size = singles[np.lexsort((sizes[singles], partitions[singles]))]
    groups = [group for group in packed if len(group) > 1] + list(_pack(by_size, partitions, sizes, rules))
    balanced = [_without_dominant(group, sizes, rules.max_share_of_largest) for group in groups]
    worthwhile = sorted((group for group in balanced if len(group) > 1), key=len, reverse=True)
    return [candidates[group] for group in worthwhile[: rules.max_groups]]


def small_splits(entries: pa.Table, target_bytes: int, resting: frozenset[str]) -> Positions:
    """The positions in `entries` of the splits below the target size, without those in `resting`."""
    is_resting = pc.is_in(entries["path"], value_set=pa.array(sorted(resting), pa.string()))
    is_small = pc.less(entries["size"], target_bytes)
    return np.flatnonzero(pc.and_not(is_small, is_resting).to_numpy(zero_copy_only=False))


def resting_paths(snapshot: Snapshot) -> frozenset[str]:
    """The paths, as in the log, of splits whose cooldown after a failed merge is not over."""
    if not snapshot.context.settings[SKIPPED_FILES_TRACKING_ENABLED]:
        return frozenset()
    now_ms = snapshot.context.store.clock.now_ms()
    cooldown_hours = snapshot.context.settings[SKIPPED_FILES_COOLDOWN_HOURS]
    return frozenset(
        spelling
        for path, skip in snapshot.header.skips.items()
        if skip.operation.lower() == _SKIP_OPERATION and now_ms < skip.retried_from_ms(cooldown_hours)
        for spelling in _spellings(path, snapshot)
    )


def skip_actions(
    snapshot: Snapshot, bad_sources: Sequence[BadSource], sources: Mapping[str, MergeSource]
) -> tuple[SkipAction, ...]:
    """The skip actions for sources that could not be merged; none if the tracking of skipped files is off."""
    if not snapshot.context.settings[SKIPPED_FILES_TRACKING_ENABLED]:
        return ()
    now_ms = snapshot.context.store.clock.now_ms()
    counts = {
        spelling: skip.skip_count
        for path, skip in snapshot.header.skips.items()
        for spelling in _spellings(path, snapshot)
    }
    return tuple(
        SkipAction(
            path=bad.path,
            skip_timestamp=now_ms,
            reason=bad.reason,
            operation=_SKIP_OPERATION,
            skip_count=counts.get(bad.path, 0) + 1,
            retry_after=now_ms + _cooldown_ms(snapshot),
            partition_values=dict(sources[bad.path].ref.partition_values),
            size=sources[bad.path].ref.size,
        )
        for bad in bad_sources
    )


def _pack(
    order: Positions, partitions: Positions, sizes: Positions, rules: MergeRules
) -> Iterator[Positions]:
    """Cut `order`, which is sorted by partition, into consecutive runs within the limits."""
    totals = np.cumsum(sizes[order])
    sorted_partitions = partitions[order]
    start = 0
    while start < len(order):
        before = totals[start - 1] if start else 0
        full = int(np.searchsorted(totals, before + rules.target_bytes, side="right"))
        partition_end = int(np.searchsorted(sorted_partitions, sorted_partitions[start], side="right"))
        end = max(start + 1, min(full, start + rules.max_sources, partition_end))
        yield order[start:end]
        start = end


def _without_dominant(group: Positions, sizes: Positions, max_share: float) -> Positions:
    """The group without its largest sources while the largest one exceeds the maximum share."""
    kept = group[np.argsort(sizes[group], kind="stable")]
    while len(kept) > 1 and sizes[kept[-1]] > max_share * sizes[kept].sum():
        kept = kept[:-1]
    return group if len(kept) == len(group) else group[np.isin(group, kept)]


def _partition_numbers(values: pa.ChunkedArray, partition_columns: Sequence[str]) -> Positions:
    """A number for each combination of partition values, which are compared as strings."""
    numbers = np.zeros(len(values), np.int64)
    for name in partition_columns:
        codes = map_values(values, name).dictionary_encode(null_encoding="encode")
        numbers = numbers * len(codes.dictionary) + codes.indices.to_numpy().astype(np.int64)
        # Renumber after each column, so that many columns cannot overflow.
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers


def _sorted_by_time(partitions: Positions, times: pa.ChunkedArray, paths: pa.ChunkedArray) -> Positions:
    table = pa.table({"partition": partitions, "time": times, "path": paths})
    keys = [(name, "ascending") for name in table.column_names]
    order: Positions = pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)
    return order


def _cooldown_ms(snapshot: Snapshot) -> int:
    return int(snapshot.context.settings[SKIPPED_FILES_COOLDOWN_HOURS] * _MS_PER_HOUR)


def _spellings(path: str, snapshot: Snapshot) -> Iterator[str]:
    """A path as it is and relative to the table: older writers recorded absolute paths."""
    yield path
    try:
        yield relative_key(path, snapshot.context.url)
    except UnsafePathError:
        return
