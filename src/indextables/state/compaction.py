"""When to compact a state, and which of its manifests. Pure."""

from enum import Enum

import msgspec

from indextables.config import Settings
from indextables.config.registry import (
    STATE_COMPACTION_LARGE_REMOVE_THRESHOLD,
    STATE_COMPACTION_MAX_MANIFESTS,
    STATE_COMPACTION_TOMBSTONE_THRESHOLD,
    STATE_ENTRIES_PER_MANIFEST,
)
from indextables.state.layout import target_entries
from indextables.state.state_manifest import UNKNOWN_COUNT, ManifestInfo, StateManifest


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
