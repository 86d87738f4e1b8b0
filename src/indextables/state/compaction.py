"""How entries are laid out over manifests: sorted by partition, cut where partitions end. Pure.

A reader that wants one partition of a huge table should find it in few manifests, each of them small. A reader that
wants everything should not have to open too many. So a large partitioned table is cut into about
`_MANIFESTS_OF_LARGE_TABLE` pieces, and a small one is not cut at all.
"""

from collections.abc import Iterator, Sequence
from enum import Enum

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
from indextables.state.state_manifest import UNKNOWN_COUNT, ManifestInfo, StateManifest

_MANIFESTS_OF_LARGE_TABLE = 128
_SMALLEST_TARGET_ENTRIES = 4096


def target_entries(total_entries: int, entries_per_manifest: int, *, is_partitioned: bool) -> int:
    """How many entries a manifest of a table of this size should have at most."""
    if not is_partitioned:
        return entries_per_manifest
    ideal = max(_SMALLEST_TARGET_ENTRIES, -(-total_entries // _MANIFESTS_OF_LARGE_TABLE))
    return min(ideal, entries_per_manifest)


def pieces(entries: pa.Table, shape: TableShape, max_entries: int) -> Iterator[pa.Array]:
    """The rows of each manifest: in the order of the partition values, and of at most `max_entries`.

    Values are compared by the columns' types, nulls last; a column with values that do not parse is compared as
    text: the order is a matter of speed alone. Pieces end where partitions end, if that is possible.
    """
    values = [map_values(entries["partitionValues"], column) for column in shape.partition_columns]
    keys = {
        f"key{index}": _sort_key(texts, shape.type_of(column))
        for index, (column, texts) in enumerate(zip(shape.partition_columns, values, strict=True))
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
    """The rows at which another partition begins, 0 included."""
    is_start = np.zeros(rows, dtype=np.bool_)
    is_start[:1] = True
    for texts in values:
        codes = texts.dictionary_encode("encode").indices
        is_start[1:] |= np.diff(codes.to_numpy()) != 0
    return np.flatnonzero(is_start)


# When to compact a state, and which of its manifests. Pure.


class Trigger(Enum):
    """Why a state is compacted."""

    TOMBSTONE_RATIO = "tombstone ratio"
    MANIFEST_COUNT = "manifest count"
    LARGE_REMOVE = "large remove"
    AFTER_MERGE = "after a merge"
    RENORMALIZATION = "renormalization"
    FORCED = "forced"


# These concern every entry.
_OF_EVERYTHING = frozenset({Trigger.FORCED, Trigger.RENORMALIZATION})


class CompactionRules(msgspec.Struct, frozen=True):
    """The thresholds, as configured."""

    tombstone_threshold: float
    max_manifests: int
    large_remove_threshold: int
    entries_per_manifest: int

    @classmethod
    def from_settings(cls, settings: Settings) -> "CompactionRules":
        """The rules that a table's settings give."""
        return cls(
            tombstone_threshold=settings[STATE_COMPACTION_TOMBSTONE_THRESHOLD],
            max_manifests=settings[STATE_COMPACTION_MAX_MANIFESTS],
            large_remove_threshold=settings[STATE_COMPACTION_LARGE_REMOVE_THRESHOLD],
            entries_per_manifest=settings[STATE_ENTRIES_PER_MANIFEST],
        )


def compaction_trigger(
    state: StateManifest, new_removes: int, rules: CompactionRules, *, is_partitioned: bool
) -> Trigger | None:
    """Why a state should be compacted of whose tombstones so many are new, or None.

    A table that is simply large has many manifests and is not fragmented: compacting it would give as many
    again. So the number of manifests counts only once it is twice what a compaction would leave, and only if enough
    of them are small.
    """
    tombstones = len(state.tombstones)
    if tombstones and tombstones > rules.tombstone_threshold * max(state.num_files, 1):
        return Trigger.TOMBSTONE_RATIO
    if new_removes > rules.large_remove_threshold:
        return Trigger.LARGE_REMOVE
    target = _target(state, rules, is_partitioned=is_partitioned)
    compacted = _manifests_when_compact(state, rules, is_partitioned=is_partitioned)
    if len(state.manifests) > max(rules.max_manifests, 2 * compacted) and _small_ones(state, target):
        return Trigger.MANIFEST_COUNT
    return None


def would_help(state: StateManifest, rules: CompactionRules, *, is_partitioned: bool) -> bool:
    """Whether a compaction would leave a state with fewer manifests or tombstones."""
    compacted = _manifests_when_compact(state, rules, is_partitioned=is_partitioned)
    return bool(len(state.tombstones)) or len(state.manifests) > compacted


def manifests_to_rewrite(
    state: StateManifest, trigger: Trigger, rules: CompactionRules, *, is_partitioned: bool
) -> tuple[ManifestInfo, ...]:
    """The manifests that a compaction has to rewrite; the others stay as they are.

    Those with dead entries, so that no tombstone is needed any more, and the small ones, if that makes them fewer.
    Where the state does not say how many entries of a manifest are dead, it has to be looked at.
    """
    if trigger in _OF_EVERYTHING:
        return state.manifests
    small = _small_ones(state, _target(state, rules, is_partitioned=is_partitioned))
    return tuple(
        info for info in state.manifests if info.path in small or _may_have_dead_entries(info, state)
    )


def _small_ones(state: StateManifest, target: int) -> frozenset[str]:
    """The paths of the manifests of less than half the size that they should have, if to write them anew is worth it.

    As manifests end where partitions end, they may come out smaller than they should be. But two that follow each
    other are together larger than one should be, or they would be one. That limits how many come out.
    """
    small = [info for info in state.manifests if info.num_entries < target // 2]
    most = 2 * sum(info.num_entries for info in small) // target + 1
    is_worth_it = 4 * most <= 3 * len(small)
    return frozenset(info.path for info in small) if is_worth_it else frozenset()


def _target(state: StateManifest, rules: CompactionRules, *, is_partitioned: bool) -> int:
    return target_entries(state.num_files, rules.entries_per_manifest, is_partitioned=is_partitioned)


def _manifests_when_compact(state: StateManifest, rules: CompactionRules, *, is_partitioned: bool) -> int:
    return -(-state.num_files // _target(state, rules, is_partitioned=is_partitioned))


def _may_have_dead_entries(info: ManifestInfo, state: StateManifest) -> bool:
    if not len(state.tombstones):
        return False
    return info.tombstone_count > 0 or info.live_entry_count == UNKNOWN_COUNT
