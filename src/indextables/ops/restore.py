"""RESTORE: an older version becomes the newest one, as a new commit. History stays as it is."""

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
    InvalidOptionError,
    LogCorruptedError,
    SplitsMissingError,
    StorageError,
    VersionNotFoundError,
)
from indextables.log.version_file import find_object
from indextables.ops.after_commit import after_commit
from indextables.ops.checkpoint.operation import read_for_rewrite
from indextables.ops.references import among, normalised_paths, stored_table
from indextables.ops.runner import parallel_map
from indextables.predicates.literals import timestamp_ms
from indextables.table import CommitResult, Operation, Snapshot, TableContext, commit, load_snapshot
from indextables.table.history import version_at
from indextables.table.intent import Restore

# Up to so many files are asked for one by one; more are found in a listing.
_ASKED_FOR: Final = 1000

_NAMED: Final = 5


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

    What others write meanwhile is undone, too: the table is as it was. The protocol is never lowered. If nothing
    differs, nothing is committed.

    Raises VersionNotFoundError, SplitsMissingError naming the splits of that version that are gone, with nothing
    committed, CommitConflictError if others change the metadata meanwhile, and what else `commit` raises. If a purge
    may have taken splits at the same moment, the commit stands: SplitsMissingError then names no paths, and
    CommitOutcomeUnknownError says that the store stopped answering before that could be told.
    """
    context, version = snapshot.context, _version(snapshot, request)
    content = read_for_rewrite(load_snapshot(context, version))
    assert content.header.metadata is not None  # completed by the rewrite
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
    """The keys of file entries under which there is no file. Raises UnsafePathError and other storage errors."""
    keys = pc.unique(normalised_paths(entries["path"].combine_chunks(), context.url))
    if len(keys) > _ASKED_FOR:
        present = stored_table(context.store.list(""))["path"].combine_chunks()
        return keys.filter(pc.invert(among(keys, present)))
    names = keys.to_pylist()
    found = parallel_map(partial(find_object, context.store), names, context.settings[READ_PARALLELISM])
    gone = [name for name, meta in zip(names, found, strict=True) if meta is None]
    return pa.array(gone, pa.string())


def _check_present(context: TableContext, entries: pa.Table, version: int) -> None:
    gone = missing_keys(context, entries)
    if not len(gone):
        return
    paths = tuple(gone.to_pylist())
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    raise SplitsMissingError(
        f"{context.url}: version {version} cannot be restored, because splits of it were deleted, probably by a purge: "
        f"{', '.join(paths[:_NAMED])}{more}; choose a newer version",
        paths,
    )


def _check_still_kept(restored: Snapshot, version: int) -> None:
    """A purge that decided on its list before the commit looks at the log again after it has deleted versions.

    If the older version can still be read now, the purge has yet to look, and will see what was restored.
    """
    try:
        load_snapshot(restored.context, version)
    except VersionNotFoundError as error:
        raise SplitsMissingError(
            f"{restored.context.url}: version {restored.version} restores version {version}, which a purge removed at "
            f"the same time, and its splits may follow; look with fsck, or restore version {restored.version - 1}"
        ) from error
    except (StorageError, LogCorruptedError) as error:
        raise CommitOutcomeUnknownError(
            f"{restored.context.url}: version {restored.version} restores version {version}, but it cannot be told "
            f"whether a purge takes its splits at the same time ({error}); look with fsck"
        ) from error
