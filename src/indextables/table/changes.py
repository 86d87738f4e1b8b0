"""The changes between two versions: from the version files, or by comparing the two versions.

The comparison of two states opens few manifests. A state refers to manifests of the state before it, and manifests that
both states share are not read. For the others, the range of versions at which entries were added helps: a manifest
whose range ends at the older version has no new entries. A range that ends too late, because a compaction relabelled
entries, only costs time. A range that ends too early would hide changes, so only manifests of our own writer are
trusted. States of other writers may also contain a path in two manifests, and then entry counts prove nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import ConcurrentMaintenanceError, ObjectNotFoundError, VersionNotFoundError
from indextables.log.entries import FILE_ENTRY_SCHEMA, REMOVE_SCHEMA, empty_entries
from indextables.log.paths import SHARED_MANIFEST_PATH
from indextables.log.replay import check_partition_values
from indextables.log.segment import VersionEntry, list_log
from indextables.state.schemas import UNKNOWN_COUNT
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo
from indextables.table.load import load_snapshot
from indextables.table.log_reader import read_tail
from indextables.table.snapshot import Snapshot

# A path can be removed and added again as another file. The version of the add is no part of the identity: some writers
# relabel all entries when they compact a state.
_ENTRY_IDENTITY: Final = ("path", "size", "modificationTime")

# The columns of removed files.
_REMOVED_COLUMNS: Final = (*_ENTRY_IDENTITY, "dataChange", "partitionValues", "tags")


class ChangeSet(msgspec.Struct, frozen=True):
    """The adds (file entry columns) and removes of the versions after `since_version`, up to `version`.

    From version files, it contains every action in log order: a path that was added and removed is in both tables.
    """

    since_version: int
    version: int
    adds: pa.Table
    removes: pa.Table


def changes_since(snapshot: Snapshot, since_version: int) -> ChangeSet:
    """The changes from `since_version` (exclusive) to the version of the snapshot; -1 includes the first version.

    They come from the version files. If cleanup removed those, or their writer writes only states, the two versions are
    compared instead. Files that were added and removed in between are then not included. Raises VersionNotFoundError if
    the older version is no longer readable either, and ConcurrentMaintenanceError.
    """
    if since_version < -1:
        raise VersionNotFoundError(
            f"{snapshot.context.url}: there is no version {since_version}; versions start at 0, and -1 means all "
            f"changes"
        )
    if since_version > snapshot.version:
        raise VersionNotFoundError(
            f"{snapshot.context.url}: there are no changes since version {since_version}: the newest version is "
            f"{snapshot.version}"
        )
    listing = list_log(snapshot.context.store, from_version=since_version + 1)
    wanted = range(since_version + 1, snapshot.version + 1)
    if all(version in listing.versions for version in wanted):
        return _read(snapshot, since_version, [listing.version_file(version) for version in wanted])
    return _compare(snapshot, since_version)


def _read(snapshot: Snapshot, since_version: int, files: Sequence[VersionEntry]) -> ChangeSet:
    try:
        tail = read_tail(snapshot.context, files)
    except ObjectNotFoundError as error:
        raise ConcurrentMaintenanceError(
            f"{snapshot.context.url}: a concurrent purge, cleanup or truncate removed a version after {since_version} "
            f"while the changes were read ({error}); open the table again"
        ) from error
    check_partition_values(tail.versions, snapshot.metadata, snapshot.context.url)
    return ChangeSet(
        since_version,
        snapshot.version,
        tail.adds.drop_columns(["sequence"]),
        tail.removes.drop_columns(["sequence"]),
    )


def _compare(snapshot: Snapshot, since_version: int) -> ChangeSet:
    older = None
    if since_version >= 0:
        try:
            older = load_snapshot(snapshot.context, since_version)
        except VersionNotFoundError as error:
            raise VersionNotFoundError(
                f"{snapshot.context.url}: the changes since version {since_version} are gone: {error}"
            ) from error
    found = difference(older, snapshot)
    return ChangeSet(since_version, snapshot.version, found.added, _removes(found.removed, snapshot))


def _removes(removed: pa.Table, snapshot: Snapshot) -> pa.Table:
    return pa.table(
        {
            "path": removed["path"],
            "deletionTimestamp": pa.array([snapshot.timestamp_ms] * removed.num_rows, pa.int64()),
            "dataChange": removed["dataChange"],
            "partitionValues": removed["partitionValues"],
            "size": removed["size"],
            "extendedFileMetadata": pa.nulls(removed.num_rows, pa.bool_()),
            "tags": removed["tags"],
            "version": pa.array([snapshot.version] * removed.num_rows, pa.int64()),
        },
        schema=REMOVE_SCHEMA,
    )


# --- comparing two versions ---------------------------------------------------------------------------


class Difference(msgspec.Struct, frozen=True):
    """The entries that only the newer version has, and some columns of the entries that only the older one has."""

    added: pa.Table
    removed: pa.Table


def difference(older: Snapshot | None, newer: Snapshot) -> Difference:
    """The files that the newer version added and removed. Without an `older` version, it added all of its files."""
    if older is None:
        return _compare_entries(empty_entries(), newer.entries)
    before, after = older.source, newer.source
    are_states = isinstance(before, StateSource) and isinstance(after, StateSource)
    if not are_states or older.segment.version_files or newer.segment.version_files:
        return _compare_entries(older.entries, newer.entries)
    assert isinstance(before, StateSource)
    assert isinstance(after, StateSource)
    return _compare_states(before, after)


def _compare_entries(before: pa.Table, after: pa.Table) -> Difference:
    return Difference(_new_or_replaced(before, after), _without(before, after["path"]))


def _compare_states(before: StateSource, after: StateSource) -> Difference:
    shared = _manifest_identities(before) & _manifest_identities(after)
    left, right = _outside(before, shared), _outside(after, shared)
    since = before.state.state_version
    are_our_own = all(_is_our_own(info) for info in (*left, *right))
    # These have no new entries. They are read at most to find which files of the older state are still live.
    kept = [info for info in right if are_our_own and info.max_added_at_version <= since]
    others = [info for info in right if not are_our_own or info.max_added_at_version > since]
    found = _live(after, after.read(others, FILE_ENTRY_SCHEMA.names), FILE_ENTRY_SCHEMA.names)
    is_new = pc.greater(found["addedAtVersion"], since)
    num_old = found.num_rows - (pc.sum(is_new).as_py() or 0)
    if are_our_own and _count(left) == _count(kept) + num_old:
        # The newer state has as many old entries as the older one, so none of them was removed or replaced.
        return Difference(found.filter(is_new), _live(before, [], _REMOVED_COLUMNS))
    tables = before.read(left, _REMOVED_COLUMNS)
    known = _live(before, tables, _REMOVED_COLUMNS)
    still_live = _paths(after, kept, dict(zip((info.path for info in left), tables, strict=True)))
    paths = pa.chunked_array([*still_live.chunks, *found["path"].chunks], pa.string())
    return Difference(_new_or_replaced(known, found), _without(known, paths))


def _paths(
    source: StateSource, infos: Sequence[ManifestInfo], loaded: Mapping[str, pa.Table]
) -> pa.ChunkedArray:
    """The live paths of manifests. Manifests in `loaded` are not read again: only their tombstones differ."""
    tables = [loaded[info.path].select(["path"]) for info in infos if info.path in loaded]
    tables += source.read([info for info in infos if info.path not in loaded], ["path"])
    return _live(source, tables, ["path"])["path"]


def _is_our_own(info: ManifestInfo) -> bool:
    """Whether our own writer wrote the manifest, which marks it with typed bounds, and counted its entries."""
    return info.has_typed_bounds and info.live_entry_count != UNKNOWN_COUNT


def _count(infos: Sequence[ManifestInfo]) -> int:
    return sum(info.live_entry_count for info in infos)


def _manifest_identities(source: StateSource) -> frozenset[tuple[str, int, int]]:
    """The identity of each shared manifest with its live entries: the path, and the tombstone and entry counts."""
    return frozenset(
        (info.path, info.tombstone_count, info.live_entry_count)
        for info in source.state.manifests
        if info.path.startswith(SHARED_MANIFEST_PATH) and info.live_entry_count != UNKNOWN_COUNT
    )


def _outside(source: StateSource, shared: frozenset[tuple[str, int, int]]) -> list[ManifestInfo]:
    return [
        info
        for info in source.state.manifests
        if (info.path, info.tombstone_count, info.live_entry_count) not in shared
    ]


def _live(source: StateSource, tables: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    return source.live(pa.concat_tables([empty_entries().select(list(columns)), *tables]))


def _new_or_replaced(before: pa.Table, after: pa.Table) -> pa.Table:
    known = pa.table({name: before[name] for name in _ENTRY_IDENTITY})
    found = pa.table({name: after[name] for name in _ENTRY_IDENTITY}).append_column(
        "row", pa.array(range(after.num_rows), pa.int64())
    )
    new = found.join(known, keys=list(_ENTRY_IDENTITY), join_type="left anti")
    return after.take(new["row"].sort())


def _without(entries: pa.Table, paths: pa.ChunkedArray) -> pa.Table:
    return entries.filter(pc.invert(pc.is_in(entries["path"], value_set=paths.combine_chunks())))
