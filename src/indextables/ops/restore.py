"""RESTORE commits the content of an older version as a new version. It does not change the history."""

from datetime import datetime
from functools import partial
from typing import ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import (
    CommitOutcomeUnknownError,
    ConcurrentMaintenanceError,
    InvalidOptionError,
    LogCorruptedError,
    SplitsMissingError,
    StorageError,
    VersionNotFoundError,
)
from indextables.log.file_keys import normalised_paths
from indextables.log.version_file import find_object
from indextables.ops.after_commit import after_commit
from indextables.ops.checkpoint.operation import read_for_rewrite
from indextables.ops.references import among, first_paths, referred_files, stored_table
from indextables.ops.runner import parallel_map
from indextables.predicates.literals import timestamp_ms
from indextables.table import CommitResult, Operation, Snapshot, TableContext, commit, load_snapshot
from indextables.table.history import version_at
from indextables.table.intent import Restore

# Up to this many files are looked up one by one; for more, a listing is faster.
_MAX_LOOKUPS: Final = 1000


class RestoreRequest(msgspec.Struct, frozen=True):
    """What to restore: a version, or the version at a point in time.

    Attributes:
        version: The version to restore.
        timestamp: Restore the version that was the newest at this time: a datetime, or ISO 8601 text.
    """

    version: int | None = None
    timestamp: str | datetime | None = None


class RestoreResult(CommitResult, frozen=True, kw_only=True):
    """The result of a restore. `restored_version` is the older version whose content the table now has."""

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: the table already has this content"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        Column("restored_version", pa.int64(), "the older version whose content the table now has"),
        Column("num_files", pa.int64(), "the number of live splits"),
        Column("total_bytes", pa.int64(), "the size of the live splits"),
        MESSAGE,
    )

    restored_version: int

    @property
    def message(self) -> str:
        """A one-line summary."""
        if not self.is_committed:
            return f"the table already is as it was at version {self.restored_version}; nothing was committed"
        return f"version {self.version} restores version {self.restored_version}"


def restore(snapshot: Snapshot, request: RestoreRequest) -> RestoreResult:
    """Restore the files, schema, partitioning and properties of an older version in one commit.

    Concurrent writes are undone, too. The protocol is never lowered. If nothing differs, nothing is committed.

    These errors mean that nothing was committed: VersionNotFoundError, SplitsMissingError with the paths of the missing
    splits, CommitConflictError if another writer changed the metadata concurrently, and the other errors of `commit`.

    If a concurrent purge may delete splits of the restored version, the commit stands, and SplitsMissingError without
    paths is raised, or CommitOutcomeUnknownError if the store failed before that could be determined.
    """
    context, version = snapshot.context, _version(snapshot, request)
    content = read_for_rewrite(load_snapshot(context, version))
    assert content.header.metadata is not None  # read_for_rewrite has completed the header
    _check_present(context, content.entries, version)
    intent = Restore(content.entries, content.header.metadata, content.header.doc_mappings)
    result = commit(snapshot, intent, Operation("RESTORE", {"version": str(version)}))
    restored = result.snapshot
    if result.is_committed:
        _check_still_kept(restored, version)
        restored = after_commit(restored)
    return RestoreResult(restored, result.is_committed, result.tries, restored_version=version)


def missing_keys(context: TableContext, entries: pa.Table) -> pa.Array:
    """Return the keys of splits and deletion vectors that do not exist. Raises UnsafePathError and StorageError."""
    keys = pc.unique(normalised_paths(referred_files(entries), context.url))
    if len(keys) > _MAX_LOOKUPS:
        present = stored_table(context.store.list(""))["path"].combine_chunks()
        return keys.filter(pc.invert(among(keys, present)))
    names = keys.to_pylist()
    found = parallel_map(partial(find_object, context.store), names, context.settings[READ_PARALLELISM])
    missing = [name for name, meta in zip(names, found, strict=True) if meta is None]
    return pa.array(missing, pa.string())


def _version(snapshot: Snapshot, request: RestoreRequest) -> int:
    if (request.version is None) == (request.timestamp is None):
        raise InvalidOptionError("restore needs either a version or a timestamp")
    if request.version is not None:
        return request.version
    assert request.timestamp is not None  # one of the two is given
    return version_at(snapshot.context, snapshot.version, timestamp_ms(request.timestamp))


def _check_present(context: TableContext, entries: pa.Table, version: int) -> None:
    missing = missing_keys(context, entries)
    if not len(missing):
        return
    paths = tuple(missing.to_pylist())
    raise SplitsMissingError(
        f"{context.url}: version {version} cannot be restored, because some of its splits were deleted, probably by a "
        f"purge: {first_paths(paths)}; choose a newer version",
        paths,
    )


def _check_still_kept(restored: Snapshot, version: int) -> None:
    """Check that a concurrent purge will notice that the restored splits are live again.

    A purge checks for new commits after it has deleted expired versions, and before it deletes splits. If the older
    version is still readable, the purge has not made that check yet, so it will see this commit.
    """
    try:
        load_snapshot(restored.context, version)
    except (VersionNotFoundError, ConcurrentMaintenanceError) as error:
        raise SplitsMissingError(
            f"{restored.context.url}: version {restored.version} restores version {version}, but a concurrent purge "
            f"deleted version {version} and may delete its splits; check with fsck, or restore version "
            f"{restored.version - 1}"
        ) from error
    except (StorageError, LogCorruptedError) as error:
        raise CommitOutcomeUnknownError(
            f"{restored.context.url}: version {restored.version} restores version {version}, but it is unknown whether "
            f"a concurrent purge deletes its splits ({error}); check with fsck"
        ) from error
