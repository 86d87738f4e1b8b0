"""The changes between two versions: the files that only one of them has.

They come from the version files after the older version, at a cost that depends on what changed, or from a comparison
of the two versions, if some of these files are missing. Both ways give the same answer. What happened in between (a
file that was added and removed again, or which version removed a file) is not part of it: two states do not tell.

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

from indextables.errors import (
    ConcurrentMaintenanceError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageTimeoutError,
    VersionNotFoundError,
)
from indextables.log.decode import Tail
from indextables.log.deletion_vectors import IDENTITY_COLUMNS, file_identities
from indextables.log.entries import FILE_ENTRY_SCHEMA, empty_entries
from indextables.log.paths import SHARED_MANIFEST_PATH
from indextables.log.replay import check_partition_values
from indextables.log.segment import list_log
from indextables.state.changes import NetChanges, is_exact, net_changes, net_changes_of_exact_tail
from indextables.state.schemas import UNKNOWN_COUNT
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo
from indextables.table.load import load_snapshot
from indextables.table.log_reader import read_tail
from indextables.table.snapshot import Snapshot

# Entries are compared by the path, the file and its deleted rows. The version of the add is no part of their identity:
# some writers relabel all entries when they compact a state.

# The columns of removed files in a change set, and those that a comparison reads.
REMOVED_COLUMNS: Final = ("path", "partitionValues", "size")
_COMPARED_COLUMNS: Final = (*IDENTITY_COLUMNS, "partitionValues")
_REMOVED_SCHEMA: Final = pa.schema([FILE_ENTRY_SCHEMA.field(name) for name in REMOVED_COLUMNS])


class ChangeSet(msgspec.Struct, frozen=True):
    """The files that `version` has and `since_version` had not, and the files that it no longer has.

    `adds` has the columns of a file entry, ordered by `addedAtVersion` and path; `removes` has `path`,
    `partitionValues` and `size`, ordered by path. Applied to the files of `since_version`, they give those of
    `version`. A path that has become another file (by size or modification time), or of which other rows are deleted
    (by its deletion vector), is in `adds` alone. Files that were
    added and removed in between are in neither table, and neither are files that were removed and came back unchanged.
    After a merge, the merged splits are in `removes`, and the new ones in `adds`, with `dataChange` false.
    """

    since_version: int
    version: int
    adds: pa.Table
    removes: pa.Table


def changes_since(snapshot: Snapshot, since_version: int) -> ChangeSet:
    """The changes from `since_version` (exclusive) to the version of the snapshot; -1 includes the first version.

    They come from the version files. If cleanup removed those, or their writer writes only states, the two versions are
    compared instead. Raises VersionNotFoundError if the older version is needed and no longer readable, and
    ConcurrentMaintenanceError.
    """
    tail = actions_since(snapshot, since_version)
    if tail is not None:
        return _from_actions(snapshot, since_version, tail)
    older = None if since_version < 0 else _load_older(snapshot, since_version)
    found = difference(older, snapshot)
    return _change_set(snapshot, since_version, found.added, found.removed)


def actions_since(snapshot: Snapshot, since_version: int) -> Tail | None:
    """Every add and remove after `since_version`, in log order; None if a version file is missing.

    Raises VersionNotFoundError for a version that cannot exist, ConcurrentMaintenanceError and LogCorruptedError.
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
    if any(version not in listing.versions for version in wanted):
        return None
    try:
        tail = read_tail(snapshot.context, [listing.version_file(version) for version in wanted])
    except ObjectNotFoundError as error:
        raise ConcurrentMaintenanceError(
            f"{snapshot.context.url}: a concurrent purge, cleanup or truncate removed a version after {since_version} "
            f"while the changes were read ({error}); open the table again"
        ) from error
    check_partition_values(tail.versions, snapshot.metadata, snapshot.context.url)
    return tail


def _load_older(snapshot: Snapshot, version: int) -> Snapshot:
    try:
        return load_snapshot(snapshot.context, version)
    except VersionNotFoundError as error:
        raise VersionNotFoundError(
            f"{snapshot.context.url}: the changes since version {version} are gone: {error}"
        ) from error


def _change_set(snapshot: Snapshot, since_version: int, added: pa.Table, removed: pa.Table) -> ChangeSet:
    removes = pa.table([removed[name] for name in REMOVED_COLUMNS], schema=_REMOVED_SCHEMA)
    return ChangeSet(
        since_version,
        snapshot.version,
        added.sort_by([("addedAtVersion", "ascending"), ("path", "ascending")]),
        removes.take(pc.sort_indices(removes["path"])),
    )


# --- from version files -------------------------------------------------------------------------------


def _from_actions(snapshot: Snapshot, since_version: int, tail: Tail) -> ChangeSet:
    """The net effect of the actions after a version.

    Actions of exact commits say which of their paths were live before. For other actions, and for paths that came back,
    the entries of the older version are read: they show whether a path was live, and whether it is the same file.
    """
    if is_exact(tail):
        net = net_changes_of_exact_tail(tail)
        removed = _first_removes(tail.removes, net.removed["path"])
        if not _may_be_the_same(net) and not removed["partitionValues"].null_count:
            return _change_set(snapshot, since_version, net.adds, removed)
    touched = pc.unique(
        pa.chunked_array([*tail.adds["path"].chunks, *tail.removes["path"].chunks], pa.string())
    )
    known = empty_entries().select(list(_COMPARED_COLUMNS))
    if since_version >= 0 and len(touched):
        known = _load_older(snapshot, since_version).select_paths(touched.to_pylist(), _COMPARED_COLUMNS)
    net = net_changes(tail, known)
    is_removed = pc.is_in(known["path"], value_set=net.removed["path"].combine_chunks())
    return _change_set(snapshot, since_version, _new_or_replaced(known, net.adds), known.filter(is_removed))


def _may_be_the_same(net: NetChanges) -> bool:
    """Whether a path came back with the same size. A remove does not record the modification time."""
    place = pc.index_in(net.replaced["path"], value_set=net.adds["path"].combine_chunks())
    sizes = net.adds["size"].combine_chunks().take(place.combine_chunks())
    return bool(pc.any(pc.equal(net.replaced["size"], sizes)).as_py())


def _first_removes(removes: pa.Table, paths: pa.ChunkedArray) -> pa.Table:
    """The first remove of each path: that of the file which was live before all of them."""
    return removes.take(pc.index_in(paths, value_set=removes["path"].combine_chunks()))


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
    try:
        return _compare_states(before, after)
    except (LogCorruptedError, ObjectNotFoundError, StorageTimeoutError):
        # A manifest is damaged, or a concurrent cleanup deleted it. The snapshots know other ways to their entries, and
        # the cause if there are none.
        return _compare_entries(older.entries, newer.entries)


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
        return Difference(found.filter(is_new), _live(before, [], _COMPARED_COLUMNS))
    tables = before.read(left, _COMPARED_COLUMNS)
    known = _live(before, tables, _COMPARED_COLUMNS)
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
    known, found = file_identities(before), file_identities(after)
    numbered = found.append_column("row", pa.array(range(after.num_rows), pa.int64()))
    new = numbered.join(known, keys=found.column_names, join_type="left anti")
    return after.take(new["row"].sort())


def _without(entries: pa.Table, paths: pa.ChunkedArray) -> pa.Table:
    return entries.filter(pc.invert(pc.is_in(entries["path"], value_set=paths.combine_chunks())))
