"""Writes states: incrementally, or compacted.

An incremental write adds one manifest with the new entries, and a state manifest that also refers to the old manifests.
Removes become tombstones. A tombstone hides a path in every manifest, so if a path is re-added while a manifest still
has an old entry for it, the writer rewrites that manifest without the old entry.

A state at version v is a pure function of the versions up to v. It is written only if absent; the writer that loses the
race deletes its files and never reuses them for another version.
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
from indextables.log.checkpoint import CheckpointSize, publish_checkpoint
from indextables.log.paths import state_manifest_key
from indextables.log.replay import LogHeader
from indextables.schema import TableShape
from indextables.schema.spark_json import hash_or_none
from indextables.state.avro.container import Codec
from indextables.state.changes import NetChanges, locate
from indextables.state.compaction import (
    CompactionRules,
    Trigger,
    compaction_trigger,
    layout,
    manifests_to_rewrite,
    target_entries,
)
from indextables.state.foreign_fields import NO_FOREIGN_FIELDS, ForeignFields
from indextables.state.manifest_executor import ManifestExecutor, batches
from indextables.state.manifest_writer import (
    BLOCK_ROWS,
    ManifestForm,
    ManifestGroup,
    NewManifest,
    entries_within_target,
    write_group,
)
from indextables.state.schemas import STATE_PROTOCOL_VERSION
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo, StateManifest, encode_state_manifest, no_tombstones
from indextables.storage import ObjectStore, PutOutcome

# Each thread holds the encoded entries of one manifest: more threads cost more memory than they save time.
_PARALLEL_WRITES = 4


class StateTarget(msgspec.Struct, frozen=True):
    """Where a state is written, and its layout.

    It is published soon after `started_ms` or not at all, and only if `origin` still exists: the key of the state
    manifest whose manifests it shares. `foreign` are the fields of other writers in the previous state. With an
    `executor`, manifests may be written outside this process.
    """

    store: ObjectStore
    form: ManifestForm
    rules: CompactionRules
    renormalize_threshold: int
    started_ms: int
    origin: str | None = None
    foreign: ForeignFields = NO_FOREIGN_FIELDS
    executor: ManifestExecutor | None = None

    @classmethod
    def from_settings(
        cls,
        store: ObjectStore,
        shape: TableShape,
        settings: Settings,
        executor: ManifestExecutor | None = None,
    ) -> "StateTarget":
        """The target for a table's settings, for a write that starts now."""
        codec = Codec.from_option(settings[STATE_COMPRESSION], settings[STATE_COMPRESSION_LEVEL])
        return cls(
            store=store,
            form=ManifestForm(shape, codec),
            rules=CompactionRules.from_settings(settings),
            renormalize_threshold=settings[STATE_SCHEMA_RENORMALIZE_THRESHOLD],
            started_ms=store.clock.now_ms(),
            executor=executor,
        )

    @property
    def is_partitioned(self) -> bool:
        return self.form.shape.is_partitioned


class StateWritten(msgspec.Struct, frozen=True):
    """The result of a write. `is_written` is false if another writer published a state of this version first.

    `size` covers the new files, not the manifests that the state shares with older ones.
    """

    is_written: bool
    trigger: Trigger | None
    state: StateManifest
    size: CheckpointSize


def write_full_state(
    target: StateTarget, header: LogHeader, entries: pa.Table, trigger: Trigger | None = None
) -> StateWritten:
    """Write a state of all live entries, with new manifests only. `trigger` is the reason if it is a compaction."""
    entries, doc_mappings = deduplicate(entries, header.doc_mappings)
    entries, doc_mappings = renormalize(entries, doc_mappings, target.renormalize_threshold)
    new = _write_compact(target, entries, entries.num_rows)
    state = _state(
        target,
        replace(header, doc_mappings=referred_to(entries, doc_mappings)),
        manifests=tuple(file.info for file in new),
        tombstones=no_tombstones(),
        num_files=entries.num_rows,
        total_bytes=_bytes(entries),
    )
    return _publish(target, state, new, trigger)


def write_next_state(
    target: StateTarget, header: LogHeader, base: StateSource, changes: NetChanges, trigger: Trigger | None
) -> StateWritten:
    """Write the state that results from applying `changes` to `base`; compact it if due, or if a `trigger` is given.

    The manifests of the base are read only if entries were removed or re-added, or for a compaction. Raises
    ManifestCorruptedError if a needed manifest cannot be read; nothing is published then.
    """
    adds, doc_mappings = deduplicate(changes.adds, header.doc_mappings)
    located = locate(base, changes)
    target = replace(target, foreign=located.state.foreign)
    # What the manifests of the base may refer to. Our states register all of it; others may leave it to the metadata.
    registered = dict(base.state.doc_mappings) if base.state.protocol is not None else header.doc_mappings
    trigger = trigger or _trigger(target, located.state, changes, registered, doc_mappings)
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
    survivors, doc_mappings = _normalized(target, survivors, doc_mappings)
    adds, doc_mappings = _normalized(target, adds, doc_mappings)
    new = [*_write_compact(target, survivors, num_files), *_write_together(target, adds)]
    kept = located.kept(rewritten)
    needed = {**referred_to(survivors, doc_mappings), **referred_to(adds, doc_mappings)}
    state = _state(
        target,
        replace(header, doc_mappings={**registered, **needed} if kept else needed),
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
    registered: Mapping[str, str],
    doc_mappings: Mapping[str, str],
) -> Trigger | None:
    """Why the new state should be compacted, or None. `registered` are the doc mappings of the base's manifests."""
    is_due = is_renormalization_due(doc_mappings, target.renormalize_threshold)
    # A renormalization drops all other hashes. From then on, writes renormalize their new entries, and those alone.
    if is_due and _have_other_hashes(registered):
        return Trigger.RENORMALIZATION
    return compaction_trigger(
        state, changes.removed.num_rows, target.rules, is_partitioned=target.is_partitioned
    )


def _normalized(
    target: StateTarget, entries: pa.Table, doc_mappings: Mapping[str, str]
) -> tuple[pa.Table, dict[str, str]]:
    entries, doc_mappings = deduplicate(entries, doc_mappings)
    return renormalize(entries, doc_mappings, target.renormalize_threshold)


def _write_compact(target: StateTarget, entries: pa.Table, num_files: int) -> list[NewManifest]:
    """Write entries to manifests of the target size for a table of `num_files` files."""
    limit = target.rules.entries_per_manifest
    return _write_manifests(
        target, entries, target_entries(num_files, limit, is_partitioned=target.is_partitioned)
    )


def _write_together(target: StateTarget, entries: pa.Table) -> list[NewManifest]:
    """Write new entries to one manifest, or to several if there are too many."""
    return _write_manifests(target, entries, target.rules.entries_per_manifest)


def _write_manifests(target: StateTarget, entries: pa.Table, limit: int) -> list[NewManifest]:
    # Entries with wide statistics would otherwise make manifests that no reader accepts.
    places = layout(entries, target.form.shape, min(limit, entries_within_target(entries)))
    groups = _groups(entries, list(places))
    written = None if target.executor is None else target.executor.write(target.form, groups)
    return _write_here(target, groups) if written is None else written


def _groups(entries: pa.Table, places: Sequence[pa.Array]) -> list[ManifestGroup]:
    """Groups of manifests; `places` has the rows of each manifest."""
    if not places:
        return []
    # One take for all manifests, because the cost of a take is proportional to the size of the whole table.
    rows = pa.concat_arrays(places)
    ordered = entries if _is_in_order(rows) else entries.take(rows)
    groups, start = [], 0
    for counts in batches(map(len, places), int, BLOCK_ROWS):
        groups.append(ManifestGroup(ordered.slice(start, sum(counts)), tuple(counts)))
        start += sum(counts)
    return groups


def _is_in_order(rows: pa.Array) -> bool:
    """Whether these are all rows in their original order."""
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
    assert header.protocol is not None  # a state is written with the protocol that it requires
    return StateManifest(
        state_version=header.version,
        created_at_ms=target.store.clock.now_ms(),
        num_files=num_files,
        total_bytes=total_bytes,
        manifests=manifests,
        tombstones=tombstones,
        doc_mappings=header.doc_mappings,
        protocol_version=max(header.protocol.min_reader_version, STATE_PROTOCOL_VERSION),
        metadata=header.metadata,
        protocol=header.protocol,
        skips=tuple(header.skips.values()),
        transactions=header.transactions,
        unknown_actions=header.unknown_actions,
        timestamp_ms=header.timestamp_ms,
        recent_commits=header.recent_commits,
        foreign=target.foreign,
        has_unlogged_protocol=header.has_unlogged_protocol,
    )


def _publish(
    target: StateTarget, state: StateManifest, new: Sequence[NewManifest], trigger: Trigger | None
) -> StateWritten:
    """Write the state manifest if absent; otherwise delete the new manifests. Raises as `publish_checkpoint`."""
    data = encode_state_manifest(state, target.form.codec)
    version = state.state_version
    outcome = publish_checkpoint(
        target.store, state_manifest_key(version), data, version, target.started_ms, target.origin
    )
    is_written = outcome is PutOutcome.WRITTEN
    if not is_written:
        target.store.delete_many(file.key for file in new)
    return StateWritten(
        is_written=is_written,
        trigger=trigger,
        state=state,
        size=_size(data, new),
    )


def _size(state_manifest: bytes, new: Sequence[NewManifest]) -> CheckpointSize:
    compressed = sum(file.size_bytes for file in new)
    uncompressed = sum(file.uncompressed_bytes for file in new)
    return CheckpointSize(len(state_manifest) + compressed, uncompressed / compressed if new else None)


def _bytes(entries: pa.Table) -> int:
    return pc.sum(entries["size"]).as_py() or 0


# Doc mappings, stored once: entries carry the hash, the doc-mapping registry has the JSON
#
# Tables of the first protocol versions carry the JSON in every entry. Other writers may have hashed the same mapping in
# several spellings; above a threshold, the writer renormalizes the references to the canonical hash. Mappings that
# nothing refers to any more are dropped as soon as no old manifest is left that might.


def deduplicate(entries: pa.Table, doc_mappings: Mapping[str, str]) -> tuple[pa.Table, dict[str, str]]:
    """The entries without inline doc mappings, and the registry with these mappings added.

    A mapping that is not valid JSON stays inline. An entry that already has a reference keeps it.
    """
    inline = entries["docMappingJson"]
    if inline.null_count == entries.num_rows:
        return entries, dict(doc_mappings)
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
    return _with_column(entries, "docMappingJson", left), {**found, **doc_mappings}


def is_renormalization_due(doc_mappings: Mapping[str, str], threshold: int) -> bool:
    """Whether there are more than `threshold` mappings, and some of them have a hash that is not the canonical one."""
    return len(doc_mappings) > threshold and _have_other_hashes(doc_mappings)


def _have_other_hashes(doc_mappings: Mapping[str, str]) -> bool:
    return any(hash_or_none(mapping) not in (None, hash_) for hash_, mapping in doc_mappings.items())


def referred_to(entries: pa.Table, doc_mappings: Mapping[str, str]) -> dict[str, str]:
    """The doc mappings that entries refer to.

    A state whose manifests are all new registers no others. They stay in the metadata if a commit registered them
    there: a concurrent writer may rely on that.
    """
    references = pc.unique(entries["docMappingRef"]).to_pylist()
    return {hash_: doc_mappings[hash_] for hash_ in references if hash_ in doc_mappings}


def renormalize(
    entries: pa.Table, doc_mappings: Mapping[str, str], threshold: int
) -> tuple[pa.Table, dict[str, str]]:
    """The entries with references by canonical hash if that is due, and the registry with these hashes added."""
    references = entries["docMappingRef"]
    if not is_renormalization_due(doc_mappings, threshold) or references.null_count == entries.num_rows:
        return entries, dict(doc_mappings)
    canonical: dict[str, str | None] = {}
    merged = dict(doc_mappings)
    for reference in pc.unique(references.drop_null()).to_pylist():
        mapping = doc_mappings.get(reference)
        hash_ = hash_or_none(mapping) if mapping is not None else None
        canonical[reference] = hash_ or reference
        if hash_ is not None and mapping is not None:
            merged.setdefault(hash_, mapping)
    return _with_column(entries, "docMappingRef", _translated(references, canonical)), merged


def _translated(column: pa.ChunkedArray, translation: Mapping[str, str | None]) -> pa.ChunkedArray:
    """Translate a column with few distinct values."""
    encoded = column.combine_chunks().dictionary_encode()
    values = pa.array([translation[value] for value in encoded.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([values.take(encoded.indices)])


def _with_column(entries: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    index = entries.schema.get_field_index(name)
    return entries.set_column(index, entries.schema.field(index), column)
