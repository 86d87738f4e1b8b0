"""What changed between two versions."""

import msgspec
import pyarrow as pa

from indextables.errors import VersionNotFoundError
from indextables.log.decode import Tail
from indextables.log.entries import REMOVE_SCHEMA
from indextables.log.segment import list_log
from indextables.table.differences import difference
from indextables.table.load import load_snapshot
from indextables.table.log_files import read_tail
from indextables.table.snapshot import Snapshot


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
