"""RESTORE commits the content of an older version as the newest one. The history stays as it is."""

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
from indextables.log.version_file import find_object
from indextables.ops.after_commit import after_commit
from indextables.ops.checkpoint.operation import read_for_rewrite
from indextables.ops.references import among, first_paths, normalised_paths, stored_table
from indextables.ops.runner import parallel_map
from indextables.predicates.literals import timestamp_ms
from indextables.table import CommitResult, Operation, Snapshot, TableContext, commit, load_snapshot
from indextables.table.history import version_at
from indextables.table.intent import Restore

# Up to this many files are looked up one by one; more are found in a listing.
_MAX_LOOKUPS: Final = 1000


class RestoreRequest(msgspec.Struct, frozen=True):
    """What to restore: a version, or the version of a moment.

    Attributes:
        version: The version to restore.
        timestamp: Restore the version that was the newest one at this moment: a datetime, or ISO 8601 text.
    """

    version: int | None = None
    timestamp: str | datetime | None = None


class RestoreResult(CommitResult, frozen=True, kw_only=True):
    """What a restore committed. `restored_version` is the version that the table is like now."""

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: the table already is as it was then"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        Column("restored_version", pa.int64(), "the version that the table is like now"),
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
    """Make files, schema, partitioning and properties what they were at an older version, in one commit.

    Concurrent writes are undone, too. The protocol is never lowered. If nothing differs, nothing is committed.

    With nothing committed, raises VersionNotFoundError, SplitsMissingError that names the missing splits of that
    version, CommitConflictError if another writer changes the metadata concurrently, and what else `commit` raises.

    If a concurrent purge may have deleted splits of the restored version, the commit stands, and a SplitsMissingError
    without paths is raised; or a CommitOutcomeUnknownError, if the store failed before that could be determined.
    """
    context, version = snapshot.context, _version(snapshot, request)
    content = read_for_rewrite(load_snapshot(context, version))
    assert content.header.metadata is not None  # read_for_rewrite has completed the header
    _check_present(context, content.entries, version)
    intent = Restore(content.entries, content.header.metadata)
    result = commit(snapshot, intent, Operation("RESTORE", {"version": str(version)}))
    restored = result.snapshot
    if result.is_committed:
        _check_still_kept(restored, version)
        restored = after_commit(restored)
    return RestoreResult(restored, result.is_committed, result.tries, restored_version=version)


def _version(snapshot: Snapshot, request: RestoreRequest) -> int:
    if (request.version is None) == (request.timestamp is None):
        raise InvalidOptionError("restore needs either a version or a timestamp")
    if request.version is not None:
        return request.version
    assert request.timestamp is not None  # one of the two is given
    return version_at(snapshot.context, snapshot.version, timestamp_ms(request.timestamp))


def missing_keys(context: TableContext, entries: pa.Table) -> pa.Array:
    """The keys of file entries whose file does not exist. Raises UnsafePathError and StorageError."""
    keys = pc.unique(normalised_paths(entries["path"].combine_chunks(), context.url))
    if len(keys) > _MAX_LOOKUPS:
        present = stored_table(context.store.list(""))["path"].combine_chunks()
        return keys.filter(pc.invert(among(keys, present)))
    names = keys.to_pylist()
    found = parallel_map(partial(find_object, context.store), names, context.settings[READ_PARALLELISM])
    missing = [name for name, meta in zip(names, found, strict=True) if meta is None]
    return pa.array(missing, pa.string())


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
    """Check that no concurrent purge missed the restored splits.

    A purge checks for new commits after it has deleted expired versions, and before it deletes splits. If the older
    version is still readable, that check is yet to come, and will see the restored splits.
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
