"""What differs between two versions, found by comparing them; of two states, with few manifests opened.

A state refers to manifests of the one before it. Those that both have are the same, and stay closed. Of the others, the
range of versions that a manifest's entries were added at tells more: none of one that ends at the older version can be
new. A range that ends too late, because somebody's compaction labelled entries anew, costs time and nothing else. One
that ends too early would hide changes, so that only the manifests of our own writer are believed. Others may also leave
a path in two manifests, and then to count entries says nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import VersionNotFoundError
from indextables.log.decode import Tail
from indextables.log.entries import FILE_ENTRY_SCHEMA, REMOVE_SCHEMA, empty_entries
from indextables.log.paths import SHARED_MANIFEST_PATH
from indextables.log.segment import list_log
from indextables.state.schemas import UNKNOWN_COUNT
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo
from indextables.table.load import load_snapshot
from indextables.table.log_reader import read_tail
from indextables.table.snapshot import Snapshot

# A path can be removed and added again as another file. When it was added does not count: other writers give all
# entries a new version when they compact a state.
_ENTRY_IDENTITY: Final = ("path", "size", "modificationTime")

# What somebody may want to know about a file that is gone.
_GONE_COLUMNS: Final = (*_ENTRY_IDENTITY, "dataChange", "partitionValues", "tags")


class Difference(msgspec.Struct, frozen=True):
    """Entries that only the newer version has, with all columns, and some columns of those whose path it lacks."""

    added: pa.Table
    gone: pa.Table


def difference(older: Snapshot | None, newer: Snapshot) -> Difference:
    """What the newer version has that the older one has not, and the other way round. None is the empty table."""
    if older is None:
        return _of_entries(empty_entries(), newer.entries)
    before, after = older.source, newer.source
    are_states = isinstance(before, StateSource) and isinstance(after, StateSource)
    if not are_states or older.segment.version_files or newer.segment.version_files:
        return _of_entries(older.entries, newer.entries)
    assert isinstance(before, StateSource)
    assert isinstance(after, StateSource)
    return _of_states(before, after)


def _of_entries(before: pa.Table, after: pa.Table) -> Difference:
    return Difference(_new_or_replaced(before, after), _without(before, after["path"]))


def _of_states(before: StateSource, after: StateSource) -> Difference:
    shared = _unchanged_manifests(before) & _unchanged_manifests(after)
    left, right = _outside(before, shared), _outside(after, shared)
    since = before.state.state_version
    are_ours = all(_is_ours(info) for info in (*left, *right))
    # Of these nothing is new. They are asked at most which files of the older state are still there.
    kept = [info for info in right if are_ours and info.max_added_at_version <= since]
    others = [info for info in right if not are_ours or info.max_added_at_version > since]
    found = _live(after, after.read(others, FILE_ENTRY_SCHEMA.names), FILE_ENTRY_SCHEMA.names)
    is_new = pc.greater(found["addedAtVersion"], since)
    num_old = found.num_rows - (pc.sum(is_new).as_py() or 0)
    if are_ours and _count(left) == _count(kept) + num_old:
        # As many as were there before are there still, so that none of them was removed or replaced.
        return Difference(found.filter(is_new), _live(before, [], _GONE_COLUMNS))
    tables = before.read(left, _GONE_COLUMNS)
    known = _live(before, tables, _GONE_COLUMNS)
    still_there = _paths(after, kept, dict(zip((info.path for info in left), tables, strict=True)))
    paths = pa.chunked_array([*still_there.chunks, *found["path"].chunks], pa.string())
    return Difference(_new_or_replaced(known, found), _without(known, paths))


def _paths(
    source: StateSource, infos: Sequence[ManifestInfo], at_hand: Mapping[str, pa.Table]
) -> pa.ChunkedArray:
    """The live paths of manifests. Those that are at hand, because only their tombstones differ, are not read again."""
    tables = [at_hand[info.path].select(["path"]) for info in infos if info.path in at_hand]
    tables += source.read([info for info in infos if info.path not in at_hand], ["path"])
    return _live(source, tables, ["path"])["path"]


def _is_ours(info: ManifestInfo) -> bool:
    """Whether our own writer made a manifest, which marks them, and its entries are counted."""
    return info.has_typed_bounds and info.live_entry_count != UNKNOWN_COUNT


def _count(infos: Sequence[ManifestInfo]) -> int:
    return sum(info.live_entry_count for info in infos)


def _unchanged_manifests(source: StateSource) -> frozenset[tuple[str, int, int]]:
    """What identifies a manifest and its live entries: its name, and how many are dead or alive."""
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


# What changed between two versions.


class ChangeSet(msgspec.Struct, frozen=True):
    """Adds (file entry columns) and removes of the versions after `since_version`, up to `version`.

    Every action is there, in the order of the log: a path that was added and removed in between is in both.
    """

    since_version: int
    version: int
    adds: pa.Table
    removes: pa.Table


def changes_since(snapshot: Snapshot, since_version: int) -> ChangeSet:
    """The changes from `since_version` (exclusive) to the snapshot's version.

    They come from the version files. Where those are gone, or where another writer never left any, the two
    versions are compared instead, if the older one can still be read: what was added and removed in between is
    then not there. Since version -1 means since before the first. Raises VersionNotFoundError if the range is out
    of reach.
    """
    if since_version < -1:
        raise VersionNotFoundError(
            f"{snapshot.context.url}: there is no version {since_version}; versions start at 0, and -1 stands for "
            f"the time before"
        )
    if since_version > snapshot.version:
        raise VersionNotFoundError(
            f"{snapshot.context.url}: there are no changes since version {since_version}: the newest version is "
            f"{snapshot.version}"
        )
    listing = list_log(snapshot.context.store, from_version=since_version + 1)
    wanted = range(since_version + 1, snapshot.version + 1)
    if all(version in listing.versions for version in wanted):
        tail = read_tail(snapshot.context, [listing.version_file(version) for version in wanted])
        return _from_tail(tail, since_version, snapshot.version)
    return _by_comparison(snapshot, since_version)


def _from_tail(tail: Tail, since_version: int, version: int) -> ChangeSet:
    return ChangeSet(
        since_version,
        version,
        tail.adds.drop_columns(["sequence"]),
        tail.removes.drop_columns(["sequence"]),
    )


def _by_comparison(snapshot: Snapshot, since_version: int) -> ChangeSet:
    older = None
    if since_version >= 0:
        try:
            older = load_snapshot(snapshot.context, since_version)
        except VersionNotFoundError as error:
            raise VersionNotFoundError(
                f"{snapshot.context.url}: the changes since version {since_version} are gone: {error}"
            ) from error
    found = difference(older, snapshot)
    return ChangeSet(since_version, snapshot.version, found.added, _removes(found.gone, snapshot))


def _removes(gone: pa.Table, snapshot: Snapshot) -> pa.Table:
    return pa.table(
        {
            "path": gone["path"],
            "deletionTimestamp": pa.array([snapshot.timestamp_ms] * gone.num_rows, pa.int64()),
            "dataChange": gone["dataChange"],
            "partitionValues": gone["partitionValues"],
            "size": gone["size"],
            "extendedFileMetadata": pa.nulls(gone.num_rows, pa.bool_()),
            "tags": gone["tags"],
            "version": pa.array([snapshot.version] * gone.num_rows, pa.int64()),
        },
        schema=REMOVE_SCHEMA,
    )
