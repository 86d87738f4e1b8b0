"""Entries become manifests, a few at a time: encoded together, uploaded one by one."""

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.paths import LOG_PREFIX
from indextables.pruning import partition_bounds
from indextables.state.arrow_stream import from_stream, to_stream
from indextables.state.avro_codec import Codec
from indextables.state.manifest_path import new_manifest_path
from indextables.state.manifest_writer import write_manifests
from indextables.state.state_manifest import ManifestInfo
from indextables.storage import ObjectStore


class ManifestForm(msgspec.Struct, frozen=True):
    """What all new manifests of a state have in common."""

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    codec: Codec


class NewManifest(msgspec.Struct, frozen=True):
    """A manifest that was uploaded, and that no state refers to yet."""

    info: ManifestInfo
    size_bytes: int

    @property
    def key(self) -> str:
        """Where it is, below the table's root."""
        return LOG_PREFIX + self.info.path


class ManifestGroup(msgspec.Struct, frozen=True):
    """The entries of some manifests, those of the first one first, and how many each of them has."""

    entries: pa.Table
    counts: tuple[int, ...]

    def __reduce__(self) -> tuple[object, ...]:
        return (_travelled, (to_stream(self.entries), self.counts))


def _travelled(stream: bytes, counts: tuple[int, ...]) -> ManifestGroup:
    return ManifestGroup(from_stream(stream), counts)


def write_group(store: ObjectStore, form: ManifestForm, group: ManifestGroup) -> tuple[NewManifest, ...]:
    """Upload the manifests of a group, under new names. Raises as `write_manifest`, and StorageError."""
    manifests = []
    start = 0
    for count, data in zip(
        group.counts, write_manifests(group.entries, group.counts, form.codec), strict=True
    ):
        manifests.append(_put(store, form, group.entries.slice(start, count), data))
        start += count
    return tuple(manifests)


def _put(store: ObjectStore, form: ManifestForm, entries: pa.Table, data: bytes) -> NewManifest:
    path = new_manifest_path()
    store.put(LOG_PREFIX + path, data)
    versions = pc.min_max(entries["addedAtVersion"]).as_py()
    paths = pc.min_max(entries["path"]).as_py()
    bounds = None
    if form.partition_columns:
        bounds = partition_bounds(entries["partitionValues"], form.partition_columns, form.schema)
    info = ManifestInfo(
        path=path,
        num_entries=entries.num_rows,
        min_added_at_version=versions["min"],
        max_added_at_version=versions["max"],
        partition_bounds=bounds,
        has_typed_bounds=True,
        tombstone_count=0,
        live_entry_count=entries.num_rows,
        first_path=paths["min"],
        last_path=paths["max"],
    )
    return NewManifest(info, len(data))
