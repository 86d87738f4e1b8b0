"""Entries become manifests, a few at a time: encoded together, uploaded one by one."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.paths import LOG_PREFIX
from indextables.pruning import partition_bounds
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
    """The entries of some manifests: `counts` of `table`, in its order, or that of `rows`.

    To other processes a group travels without the entries of others.
    """

    table: pa.Table
    counts: tuple[int, ...]
    rows: pa.Array | None = None

    @classmethod
    def of(cls, table: pa.Table, places: Sequence[pa.Array]) -> "ManifestGroup":
        """The group whose manifests have these rows of a table."""
        return cls(table, tuple(len(rows) for rows in places), pa.concat_arrays(places))

    def entries(self) -> pa.Table:
        """All entries of the group, those of the first manifest first."""
        return self.table if self.rows is None else self.table.take(self.rows)

    def __reduce__(self) -> tuple[object, ...]:
        return (ManifestGroup, (self.entries(), self.counts))


def write_group(store: ObjectStore, form: ManifestForm, group: ManifestGroup) -> tuple[NewManifest, ...]:
    """Upload the manifests of a group, under new names. Raises as `write_manifest`, and StorageError."""
    entries = group.entries()
    manifests = []
    start = 0
    for count, data in zip(group.counts, write_manifests(entries, group.counts, form.codec), strict=True):
        manifests.append(_put(store, form, entries.slice(start, count), data))
        start += count
    return tuple(manifests)


def _put(store: ObjectStore, form: ManifestForm, entries: pa.Table, data: bytes) -> NewManifest:
    path = new_manifest_path()
    store.put(LOG_PREFIX + path, data)
    versions = pc.min_max(entries["addedAtVersion"]).as_py()
    bounds = None
    if form.partition_columns:
        bounds = partition_bounds(entries["partitionValues"], form.partition_columns, form.schema)
    info = ManifestInfo(
        path=path,
        num_entries=entries.num_rows,
        min_added_at_version=versions["min"],
        max_added_at_version=versions["max"],
        partition_bounds=bounds,
        has_typed_bounds=bounds is not None,
        tombstone_count=0,
        live_entry_count=entries.num_rows,
    )
    return NewManifest(info, len(data))
