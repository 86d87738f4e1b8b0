"""Doc mappings, stored once: entries carry the hash, the registry the JSON.

Tables of the first protocol versions carry the JSON in every entry. Other writers may have hashed the same mapping
in several spellings; above a threshold those are brought together again.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config import Settings
from indextables.config.registry import (
    STATE_COMPRESSION,
    STATE_COMPRESSION_LEVEL,
    STATE_SCHEMA_RENORMALIZE_THRESHOLD,
)
from indextables.log.paths import state_manifest_key
from indextables.log.replay import LogHeader
from indextables.log.version_file import publish
from indextables.schema import TableShape
from indextables.schema.mapping_hash import hash_or_none
from indextables.state.avro.container import Codec
from indextables.state.changes import NetChanges, locate
from indextables.state.compaction import (
    CompactionRules,
    Trigger,
    compaction_trigger,
    manifests_to_rewrite,
    pieces,
    target_entries,
)
from indextables.state.manifest_work import portions, work_elsewhere
from indextables.state.manifest_writer import (
    BLOCK_ROWS,
    ManifestForm,
    ManifestGroup,
    NewManifest,
    write_group,
)
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo, StateManifest, encode_state_manifest, no_tombstones
from indextables.storage import ObjectStore, PutOutcome


def deduplicate(entries: pa.Table, registry: Mapping[str, str]) -> tuple[pa.Table, dict[str, str]]:
    """Entries without inline doc mappings, and the registry with those that they had.

    A mapping that is no JSON stays where it is. An entry that has a reference already keeps it.
    """
    inline = entries["docMappingJson"]
    if inline.null_count == entries.num_rows:
        return entries, dict(registry)
    found: dict[str, str] = {}
    hashes: dict[str, str | None] = {}
    for mapping in pc.unique(inline.drop_null()).to_pylist():
        hashes[mapping] = hash_or_none(mapping)
        if (hash_ := hashes[mapping]) is not None:
            found[hash_] = mapping
    references = _translated(inline, hashes)
    is_moved = pc.is_valid(references)
    entries = _with_column(entries, "docMappingRef", pc.coalesce(entries["docMappingRef"], references))
    left = pc.if_else(is_moved, pa.scalar(None, pa.string()), inline)
    return _with_column(entries, "docMappingJson", left), {**found, **registry}


def is_renormalization_due(registry: Mapping[str, str], threshold: int) -> bool:
    """Whether there are more mappings than `threshold`, and some of them under another hash than the canonical one."""
    return len(registry) > threshold and any(
        hash_or_none(mapping) not in (None, hash_) for hash_, mapping in registry.items()
    )


def renormalize(
    entries: pa.Table, registry: Mapping[str, str], threshold: int
) -> tuple[pa.Table, dict[str, str]]:
    """References by canonical hash, if there are more mappings than `threshold`."""
    references = entries["docMappingRef"]
    if not is_renormalization_due(registry, threshold) or references.null_count == entries.num_rows:
        return entries, dict(registry)
    canonical: dict[str, str | None] = {}
    merged = dict(registry)
    for reference in pc.unique(references.drop_null()).to_pylist():
        mapping = registry.get(reference)
        hash_ = hash_or_none(mapping) if mapping is not None else None
        canonical[reference] = hash_ or reference
        if hash_ is not None and mapping is not None:
            merged.setdefault(hash_, mapping)
    return _with_column(entries, "docMappingRef", _translated(references, canonical)), merged


def _translated(column: pa.ChunkedArray, translation: Mapping[str, str | None]) -> pa.ChunkedArray:
    """A column through a dictionary of its few distinct values."""
    encoded = column.combine_chunks().dictionary_encode()
    values = pa.array([translation[value] for value in encoded.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([values.take(encoded.indices)])


def _with_column(entries: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    index = entries.schema.get_field_index(name)
    return entries.set_column(index, entries.schema.field(index), column)


# Writing a state: only what is new, or compacted.
#
# An incremental write adds one manifest with the new entries and a state manifest that points to the old
# ones; removes become tombstones. A path that comes back while an old entry of it lies in a manifest needs
# care, because a tombstone hides the path in every manifest: the manifest with the old entry is rewritten
# without it.
#
# A state at version v is a pure function of the versions up to v. It is written if absent; the loser's is
# thrown away and never relabelled.


# Each holds the encoded entries of one manifest; beyond a few, memory grows faster than speed.
_PARALLEL_WRITES = 4


class StateTarget(msgspec.Struct, frozen=True):
    """Where a state goes and how it is laid out.

    It is published soon after `started_ms`, or not at all; and only as long as `origin` is there, the key of the state
    whose manifests it goes on to use.
    """

    store: ObjectStore
    form: ManifestForm
    rules: CompactionRules
    renormalize_threshold: int
    started_ms: int
    origin: str | None = None

    @classmethod
    def from_settings(cls, store: ObjectStore, shape: TableShape, settings: Settings) -> "StateTarget":
        """The target that a table's settings give, of a write that starts now."""
        codec = Codec.from_option(settings[STATE_COMPRESSION], settings[STATE_COMPRESSION_LEVEL])
        return cls(
            store=store,
            form=ManifestForm(shape, codec),
            rules=CompactionRules.from_settings(settings),
            renormalize_threshold=settings[STATE_SCHEMA_RENORMALIZE_THRESHOLD],
            started_ms=store.clock.now_ms(),
        )

    @property
    def is_partitioned(self) -> bool:
        """Whether entries have partition values to sort by."""
        return self.form.shape.is_partitioned


class StateWritten(msgspec.Struct, frozen=True):
    """What a write did. `is_written` is false if another writer's state of this version was there first."""

    is_written: bool
    trigger: Trigger | None
    state: StateManifest
    manifests_written: int
    bytes_written: int


def write_full_state(
    target: StateTarget, header: LogHeader, entries: pa.Table, trigger: Trigger | None = None
) -> StateWritten:
    """Write a state of all these live entries, with new manifests only; `trigger` is why, if it is a compaction."""
    entries, registry = deduplicate(entries, header.schema_registry)
    entries, registry = renormalize(entries, registry, target.renormalize_threshold)
    new = _write_compact(target, entries, entries.num_rows)
    state = _state(
        target,
        replace(header, schema_registry=registry),
        manifests=tuple(file.info for file in new),
        tombstones=no_tombstones(),
        num_files=entries.num_rows,
        total_bytes=_bytes(entries),
    )
    return _publish(target, state, new, trigger)


def write_next_state(
    target: StateTarget, header: LogHeader, base: StateSource, changes: NetChanges, trigger: Trigger | None
) -> StateWritten:
    """Write the state that `changes` make of `base`, compacting it if that is due or a `trigger` is given.

    Nothing of the base is read unless something was removed or came back, or it is compacted. Raises
    ManifestCorruptedError if a manifest that is needed cannot be read; nothing is published then.
    """
    adds, registry = deduplicate(changes.adds, header.schema_registry)
    located = locate(base, changes)
    trigger = trigger or _trigger(target, located.state, changes, base.manifest, registry)
    rewritten = {info.path for info in located.with_outdated_entries}
    if trigger is not None:
        chosen = manifests_to_rewrite(
            located.state, trigger, target.rules, is_partitioned=target.is_partitioned
        )
        rewritten |= {info.path for info in chosen}
    num_files = base.num_files + adds.num_rows - changes.removed.num_rows - changes.replaced.num_rows
    survivors = located.survivors(rewritten)
    if trigger is not None:
        survivors, adds = pa.concat_tables([survivors, adds], promote_options="default"), adds.slice(0, 0)
    survivors, registry = _normalized(target, survivors, registry)
    adds, registry = _normalized(target, adds, registry)
    new = [*_write_compact(target, survivors, num_files), *_write_together(target, adds)]
    kept = located.kept(rewritten)
    state = _state(
        target,
        replace(header, schema_registry=registry),
        manifests=(*kept, *(file.info for file in new)),
        tombstones=located.tombstones_of(kept),
        num_files=num_files,
        total_bytes=base.total_bytes
        + _bytes(changes.adds)
        - _bytes(changes.removed)
        - _bytes(changes.replaced),
    )
    return _publish(target, state, new, trigger)


def _trigger(
    target: StateTarget,
    state: StateManifest,
    changes: NetChanges,
    base: StateManifest,
    registry: Mapping[str, str],
) -> Trigger | None:
    """Why the state should be compacted that `changes` make of `base`, or None."""
    threshold = target.renormalize_threshold
    # Once it was done, what is added later is brought into the same form, and no old entry is touched again. States of
    # other writers, which do not note down the protocol, may hold anything.
    was_due = base.protocol is not None and is_renormalization_due(base.schema_registry, threshold)
    if is_renormalization_due(registry, threshold) and not was_due:
        return Trigger.RENORMALIZATION
    return compaction_trigger(
        state, changes.removed.num_rows, target.rules, is_partitioned=target.is_partitioned
    )


def _normalized(
    target: StateTarget, entries: pa.Table, registry: Mapping[str, str]
) -> tuple[pa.Table, dict[str, str]]:
    entries, registry = deduplicate(entries, registry)
    return renormalize(entries, registry, target.renormalize_threshold)


def _write_compact(target: StateTarget, entries: pa.Table, num_files: int) -> list[NewManifest]:
    """Entries as manifests of the size that is right for a table of so many files."""
    limit = target.rules.entries_per_manifest
    return _write_manifests(
        target, entries, target_entries(num_files, limit, is_partitioned=target.is_partitioned)
    )


def _write_together(target: StateTarget, entries: pa.Table) -> list[NewManifest]:
    """New entries as one manifest, unless they are too many for one."""
    return _write_manifests(target, entries, target.rules.entries_per_manifest)


def _write_manifests(target: StateTarget, entries: pa.Table, limit: int) -> list[NewManifest]:
    places = pieces(entries, target.form.shape, limit)
    groups = _groups(entries, list(places))
    work = work_elsewhere()
    written = None if work is None else work.write(target.store, target.form, groups)
    return _write_here(target, groups) if written is None else written


def _groups(entries: pa.Table, places: Sequence[pa.Array]) -> list[ManifestGroup]:
    """The entries at these places, a manifest for each place, and a few of them at a time."""
    if not places:
        return []
    # All at once, because to take a few costs in proportion to what they are taken from.
    rows = pa.concat_arrays(places)
    ordered = entries if _is_in_order(rows) else entries.take(rows)
    groups, start = [], 0
    for portion in portions(map(len, places), int, BLOCK_ROWS):
        groups.append(ManifestGroup(ordered.slice(start, sum(portion)), tuple(portion)))
        start += sum(portion)
    return groups


def _is_in_order(rows: pa.Array) -> bool:
    """Whether these are all rows, one after the other."""
    return bool(np.array_equal(rows.to_numpy(), np.arange(len(rows))))


def _write_here(target: StateTarget, groups: Sequence[ManifestGroup]) -> list[NewManifest]:
    write = partial(write_group, target.store, target.form)
    if len(groups) <= 1:
        return [manifest for group in groups for manifest in write(group)]
    with ThreadPoolExecutor(_PARALLEL_WRITES, thread_name_prefix="indextables-manifests") as pool:
        return [manifest for group in pool.map(write, groups) for manifest in group]


def _state(
    target: StateTarget,
    header: LogHeader,
    *,
    manifests: tuple[ManifestInfo, ...],
    tombstones: pa.StringArray,
    num_files: int,
    total_bytes: int,
) -> StateManifest:
    return StateManifest(
        state_version=header.version,
        created_at_ms=target.store.clock.now_ms(),
        num_files=num_files,
        total_bytes=total_bytes,
        manifests=manifests,
        tombstones=tombstones,
        schema_registry=header.schema_registry,
        metadata=header.metadata,
        protocol=header.protocol,
        skips=tuple(header.skips.values()),
        transactions=header.transactions,
        unknown_actions=header.unknown_actions,
        timestamp_ms=header.timestamp_ms,
        recent_commits=header.recent_commits,
    )


def _publish(
    target: StateTarget, state: StateManifest, new: Sequence[NewManifest], trigger: Trigger | None
) -> StateWritten:
    """Write the state manifest if absent. Manifests that only the loser would have used are deleted.

    Raises StorageError if the write took so long that the manifests may be gone, and VersionNotFoundError if the state
    that it goes on from was cleaned up: its manifests go next.
    """
    data = encode_state_manifest(state, target.form.codec)
    version = state.state_version
    outcome = publish(
        target.store, state_manifest_key(version), data, version, target.started_ms, target.origin
    )
    is_written = outcome is PutOutcome.WRITTEN
    if not is_written:
        target.store.delete_many(file.key for file in new)
    return StateWritten(
        is_written=is_written,
        trigger=trigger,
        state=state,
        manifests_written=len(new),
        bytes_written=len(data) + sum(file.size_bytes for file in new),
    )


def _bytes(entries: pa.Table) -> int:
    return pc.sum(entries["size"]).as_py() or 0
