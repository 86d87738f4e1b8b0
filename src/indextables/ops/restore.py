"""RESTORE commits the content of an older version as the newest one. The history stays as it is."""

from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config.registry import READ_PARALLELISM
from indextables.errors import (
    CommitOutcomeUnknownError,
    ConcurrentMaintenanceError,
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
from indextables.table import CommitResult, Operation, Snapshot, TableContext, commit, load_snapshot
from indextables.table.intent import Restore

# Up to this many files are looked up one by one; more are found in a listing.
_MAX_LOOKUPS: Final = 1000


def restore(snapshot: Snapshot, version: int) -> CommitResult:
    """Make files, schema, partitioning and properties what they were at `version`, in one commit.

    Concurrent writes are undone, too. The protocol is never lowered. If nothing differs, nothing is committed.

    With nothing committed, raises VersionNotFoundError, SplitsMissingError that names the missing splits of that
    version, CommitConflictError if another writer changes the metadata concurrently, and what else `commit` raises.

    If a concurrent purge may have deleted splits of the restored version, the commit stands, and a SplitsMissingError
    without paths is raised; or a CommitOutcomeUnknownError, if the store failed before that could be determined.
    """
    context = snapshot.context
    content = read_for_rewrite(load_snapshot(context, version))
    assert content.header.metadata is not None  # read_for_rewrite has completed the header
    _check_present(context, content.entries, version)
    intent = Restore(content.entries, content.header.metadata)
    result = commit(snapshot, intent, Operation("RESTORE", {"version": str(version)}))
    if not result.is_committed:
        return result
    _check_still_kept(result.snapshot, version)
    return replace(result, snapshot=after_commit(result.snapshot))


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
