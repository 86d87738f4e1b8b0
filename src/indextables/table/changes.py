"""What changed between two versions."""

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import VersionNotFoundError
from indextables.log.decode import Tail
from indextables.log.entries import FILE_ENTRY_SCHEMA, empty_entries
from indextables.log.paths import SHARED_MANIFEST_PATH
from indextables.log.removes import REMOVE_SCHEMA
from indextables.log.segment import list_log
from indextables.state.source import StateSource
from indextables.state.state_manifest import UNKNOWN_COUNT
from indextables.table.load import load_snapshot
from indextables.table.log_files import read_tail
from indextables.table.snapshot import Snapshot

# A path can be removed and added again as another file. When it was added does not count: other writers give all
# entries a new version when they compact a state.
_ENTRY_IDENTITY = ("path", "size", "modificationTime")


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
        tail = read_tail(snapshot.context, [(version, listing.versions[version]) for version in wanted])
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
    if since_version < 0:
        before, after = empty_entries(), snapshot.entries
    else:
        try:
            older = load_snapshot(snapshot.context, since_version)
        except VersionNotFoundError as error:
            raise VersionNotFoundError(
                f"{snapshot.context.url}: the changes since version {since_version} are gone: {error}"
            ) from error
        before, after = _different_entries(older, snapshot)
    return ChangeSet(
        since_version,
        snapshot.version,
        adds=_new_or_replaced(before, after),
        removes=_removes(before, after, snapshot),
    )


def _different_entries(older: Snapshot, newer: Snapshot) -> tuple[pa.Table, pa.Table]:
    """Entries of two versions, without those that a manifest holds which both share: they are the same.

    A state refers to the manifests of the one before it, so that little is left to read of a large table.
    """
    before, after = older.source, newer.source
    if not isinstance(before, StateSource) or not isinstance(after, StateSource):
        return older.entries, newer.entries
    if older.segment.tail or newer.segment.tail:
        return older.entries, newer.entries
    shared = _unchanged_manifests(before) & _unchanged_manifests(after)
    return _entries_outside(before, shared), _entries_outside(after, shared)


def _unchanged_manifests(source: StateSource) -> frozenset[tuple[str, int, int]]:
    """What identifies a manifest and its live entries: its name, and how many are dead or alive."""
    return frozenset(
        (info.path, info.tombstone_count, info.live_entry_count)
        for info in source.manifest.manifests
        if info.path.startswith(SHARED_MANIFEST_PATH) and info.live_entry_count != UNKNOWN_COUNT
    )


def _entries_outside(source: StateSource, shared: frozenset[tuple[str, int, int]]) -> pa.Table:
    infos = [
        info
        for info in source.manifest.manifests
        if (info.path, info.tombstone_count, info.live_entry_count) not in shared
    ]
    tables = source.read(infos, FILE_ENTRY_SCHEMA.names)
    return source.live(pa.concat_tables([empty_entries(), *tables]))


def _new_or_replaced(before: pa.Table, after: pa.Table) -> pa.Table:
    known = pa.table({name: before[name] for name in _ENTRY_IDENTITY})
    found = pa.table({name: after[name] for name in _ENTRY_IDENTITY}).append_column(
        "row", pa.array(range(after.num_rows), pa.int64())
    )
    new = found.join(known, keys=list(_ENTRY_IDENTITY), join_type="left anti")
    return after.take(new["row"].sort())


def _removes(before: pa.Table, after: pa.Table, snapshot: Snapshot) -> pa.Table:
    is_gone = pc.invert(pc.is_in(before["path"], value_set=after["path"].combine_chunks()))
    gone = before.filter(is_gone)
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
