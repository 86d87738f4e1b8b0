"""Compaction of a state: when it is due, which manifests it rewrites, and how entries are laid out. Pure.

Entries are sorted by partition, and manifests end where partitions end. A reader of one partition of a huge table
should find it in a few small manifests, and a reader of the whole table should not open too many. So a large
partitioned table gets about `_MANIFESTS_OF_LARGE_TABLE` manifests, and a small one gets a single manifest.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Settings
from indextables.config.registry import (
    STATE_COMPACTION_LARGE_REMOVE_THRESHOLD,
    STATE_COMPACTION_MAX_MANIFESTS,
    STATE_COMPACTION_TOMBSTONE_THRESHOLD,
    STATE_ENTRIES_PER_MANIFEST,
)
from indextables.pruning import map_values, parse_values
from indextables.schema import TableShape
from indextables.state.locality import are_in_order, reads_per_partition
from indextables.state.schemas import UNKNOWN_COUNT
from indextables.state.state_manifest import ManifestInfo, StateManifest

_MANIFESTS_OF_LARGE_TABLE = 128
_SMALLEST_TARGET_ENTRIES = 4096

# A query of one partition may read this many large manifests before their order counts as lost.
_TOLERATED_READS = 4


def target_entries(total_entries: int, entries_per_manifest: int, *, is_partitioned: bool) -> int:
    """The maximum number of entries per manifest for a table of this size."""
    if not is_partitioned:
        return entries_per_manifest
    ideal = max(_SMALLEST_TARGET_ENTRIES, -(-total_entries // _MANIFESTS_OF_LARGE_TABLE))
    return min(ideal, entries_per_manifest)


def layout(entries: pa.Table, shape: TableShape, max_entries: int) -> Iterator[pa.Array]:
    """The rows of each new manifest, at most `max_entries`, sorted by partition values.

    Values are compared by the columns' types, nulls last. A column with invalid values is compared as text: the order
    affects only speed. Manifests end where partitions end if possible.
    """
    columns = shape.partition_keys
    values = [map_values(entries["partitionValues"], key) for key in columns.values()]
    keys = {
        f"key{index}": _sort_key(texts, shape.type_of(column))
        for index, (column, texts) in enumerate(zip(columns, values, strict=True))
    }
    order = pa.array(np.arange(entries.num_rows))
    if keys:
        order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    starts = _partition_starts([texts.take(order) for texts in values], entries.num_rows)
    start, total = 0, entries.num_rows
    while start < total:
        end = min(start + max_entries, total)
        if end < total:
            boundary = starts[np.searchsorted(starts, end, side="right") - 1]
            end = int(boundary) if boundary > start else end
        yield order.slice(start, end - start)
        start = end


def _sort_key(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    distinct = texts.dictionary_encode()
    parsed = parse_values(distinct.dictionary, data_type)
    return parsed.values.take(distinct.indices) if pc.all(parsed.understood).as_py() else texts


def _partition_starts(values: Sequence[pa.Array], rows: int) -> npt.NDArray[np.int64]:
    """The rows at which partitions begin, including 0."""
    is_start = np.zeros(rows, dtype=np.bool_)
    is_start[:1] = True
    for texts in values:
        codes = texts.dictionary_encode("encode").indices
        is_start[1:] |= np.diff(codes.to_numpy()) != 0
    return np.flatnonzero(is_start)


class Trigger(Enum):
    """Why a state is compacted."""

    TOMBSTONE_RATIO = "tombstone ratio"
    MANIFEST_COUNT = "manifest count"
    LARGE_REMOVE = "large remove"
    AFTER_MERGE = "after a merge"
    RENORMALIZATION = "renormalization"
    FORCED = "forced"


# These rewrite every manifest.
_FULL_TRIGGERS = frozenset({Trigger.FORCED, Trigger.RENORMALIZATION})


class CompactionRules(msgspec.Struct, frozen=True):
    """The configured thresholds."""

    tombstone_threshold: float
    max_manifests: int
    large_remove_threshold: int
    entries_per_manifest: int

    @classmethod
    def from_settings(cls, settings: Settings) -> "CompactionRules":
        return cls(
            tombstone_threshold=settings[STATE_COMPACTION_TOMBSTONE_THRESHOLD],
            max_manifests=settings[STATE_COMPACTION_MAX_MANIFESTS],
            large_remove_threshold=settings[STATE_COMPACTION_LARGE_REMOVE_THRESHOLD],
            entries_per_manifest=settings[STATE_ENTRIES_PER_MANIFEST],
        )


def compaction_trigger(
    state: StateManifest, new_removes: int, rules: CompactionRules, *, is_partitioned: bool
) -> Trigger | None:
    """Why a state with `new_removes` new tombstones should be compacted, or None.

    A large table has many manifests without being fragmented; a compaction would not reduce them. So the number of
    manifests is a trigger only if it is more than twice the number after a compaction, and if enough of them are small.
    """
    tombstones = len(state.tombstones)
    if tombstones and tombstones > rules.tombstone_threshold * max(state.num_files, 1):
        return Trigger.TOMBSTONE_RATIO
    if new_removes > rules.large_remove_threshold:
        return Trigger.LARGE_REMOVE
    target = _target(state, rules, is_partitioned=is_partitioned)
    compacted = _manifests_when_compact(state, rules, is_partitioned=is_partitioned)
    if len(state.manifests) > max(rules.max_manifests, 2 * compacted) and _small_manifests(state, target):
        return Trigger.MANIFEST_COUNT
    return None


def why_compaction_is_due(state: StateManifest, rules: CompactionRules, shape: TableShape) -> str | None:
    """Why a user should compact a state, as text, or None. A compaction removes the reason."""
    files, manifests = state.num_files, len(state.manifests)
    match compaction_trigger(state, 0, rules, is_partitioned=shape.is_partitioned):
        case Trigger.TOMBSTONE_RATIO:
            return (
                f"{len(state.tombstones)} tombstones for {files} files: more than "
                f"{STATE_COMPACTION_TOMBSTONE_THRESHOLD.key} allows"
            )
        case Trigger.MANIFEST_COUNT:
            return f"{manifests} manifests, and many of them are small"
    if oversized := _oversized(state, rules):
        return f"{oversized} of {manifests} manifests have more entries than {STATE_ENTRIES_PER_MANIFEST.key} allows"
    reads = _reads_if_scattered(state, rules, shape)
    if reads is not None:
        return f"the partitions of {manifests} manifests overlap: a query of one partition reads {reads:.0f} of them"
    return None


def would_help(state: StateManifest, rules: CompactionRules, shape: TableShape) -> bool:
    """Whether a compaction would improve a state. It never would right after one."""
    return (
        bool(len(state.tombstones))
        or _is_fragmented(state, rules, shape)
        or bool(_oversized(state, rules))
        or _reads_if_scattered(state, rules, shape) is not None
    )


def _is_fragmented(state: StateManifest, rules: CompactionRules, shape: TableShape) -> bool:
    """Whether a compaction would leave fewer manifests.

    Manifests end where partitions end, so there may be more than their size requires. But in the order in which a
    compaction writes them, no two neighbors fit into one.
    """
    has_more = len(state.manifests) > _manifests_when_compact(
        state, rules, is_partitioned=shape.is_partitioned
    )
    if not shape.is_partitioned or not has_more:
        return has_more
    target = _target(state, rules, is_partitioned=True)
    sizes = [info.num_entries for info in state.manifests]
    return any(one + other <= target for one, other in pairwise(sizes)) or not are_in_order(
        state.manifests, shape
    )


def _oversized(state: StateManifest, rules: CompactionRules) -> int:
    """The number of manifests above the configured limit, which may have been lowered since they were written."""
    return sum(info.num_entries > rules.entries_per_manifest for info in state.manifests)


def _reads_if_scattered(state: StateManifest, rules: CompactionRules, shape: TableShape) -> float | None:
    """How many large manifests a query of one partition reads, if these are too many, or None.

    Small manifests are fragments, which other rules count. After a compaction a partition is in at most two manifests
    per partition column that also hold other partitions: the one before and the one after each boundary.
    """
    target = _target(state, rules, is_partitioned=shape.is_partitioned)
    large = [info for info in state.manifests if info.num_entries >= target // 2]
    most = max(_TOLERATED_READS, 2 * len(shape.partition_keys))
    if len(large) <= most:
        return None
    reads = reads_per_partition(large, shape)
    return reads if reads is not None and reads > most else None


def manifests_to_rewrite(
    state: StateManifest, trigger: Trigger, rules: CompactionRules, *, is_partitioned: bool
) -> tuple[ManifestInfo, ...]:
    """The manifests that a compaction rewrites; the others stay.

    These are the manifests with dead entries, which makes all tombstones obsolete, and the small ones, if a rewrite
    reduces their number. A manifest whose count of dead entries is unknown is rewritten too.
    """
    if trigger in _FULL_TRIGGERS:
        return state.manifests
    small = _small_manifests(state, _target(state, rules, is_partitioned=is_partitioned))
    return tuple(
        info for info in state.manifests if info.path in small or _may_have_dead_entries(info, state)
    )


def _small_manifests(state: StateManifest, target: int) -> frozenset[str]:
    """The paths of the manifests of less than half the target size, if rewriting them reduces their number enough.

    New manifests end where partitions end, so they may be smaller than the target. But two consecutive ones together
    exceed the target, or they would be one. This bounds the number of new manifests.
    """
    small = [info for info in state.manifests if info.num_entries < target // 2]
    max_rewritten = 2 * sum(info.num_entries for info in small) // target + 1
    is_worth_it = 4 * max_rewritten <= 3 * len(small)
    return frozenset(info.path for info in small) if is_worth_it else frozenset()


def _target(state: StateManifest, rules: CompactionRules, *, is_partitioned: bool) -> int:
    return target_entries(state.num_files, rules.entries_per_manifest, is_partitioned=is_partitioned)


def _manifests_when_compact(state: StateManifest, rules: CompactionRules, *, is_partitioned: bool) -> int:
    return -(-state.num_files // _target(state, rules, is_partitioned=is_partitioned))


def _may_have_dead_entries(info: ManifestInfo, state: StateManifest) -> bool:
    if not len(state.tombstones):
        return False
    return info.tombstone_count > 0 or info.live_entry_count == UNKNOWN_COUNT
