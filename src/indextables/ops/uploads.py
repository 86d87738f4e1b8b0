"""Splits between their upload and the commit that makes them part of the table.

An upload is deleted only when its commit provably did not land. Anything else is left for PURGE.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Final

from indextables.config.registry import READ_PARALLELISM
from indextables.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    InvalidActionError,
    InvalidPredicateError,
    InvalidValueError,
    LogCorruptedError,
    LogGapError,
    StorageError,
)
from indextables.log.segment import list_log
from indextables.log.version_file import find_object, read_version_files
from indextables.ops.runner import parallel_map
from indextables.split.split import SplitFile
from indextables.storage import ObjectStore
from indextables.table import Snapshot, TableContext
from indextables.table.commit import LONG_WAIT_MS, purge_fence_ms

# Errors that prove that the commit did not land: raised before a version file is written, or after lost races only.
_NOT_LANDED: Final = (
    CommitConflictError,
    CommitRetriesExhaustedError,
    InvalidActionError,
    InvalidPredicateError,
    InvalidValueError,
    LogGapError,
)

# Beyond this many files, searching a whole table for leftovers costs more than the leftovers.
_MAX_LISTED_FILES: Final = 100_000

# The commit of the job that a late attempt belongs to is among the newest versions.
_MAX_SEARCHED_VERSIONS: Final = 64


@contextlib.contextmanager
def deleting_unless_landed(store: ObjectStore, paths: Sequence[str]) -> Iterator[None]:
    """Delete splits after a failure that proves that their commit did not land."""
    with undoing_unless_landed(partial(delete_quietly, store, paths)):
        yield


@contextlib.contextmanager
def undoing_unless_landed(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` after a failure that proves that the commit did not land.

    After any other failure, including an interruption, the commit may have landed, and the files that it refers to
    stay.
    """
    try:
        yield
    except _NOT_LANDED:
        undo()
        raise


def delete_quietly(store: ObjectStore, paths: Sequence[str]) -> None:
    """Delete splits that no log refers to. Ignores storage errors: PURGE deletes the rest as orphans."""
    if not paths:
        return
    with contextlib.suppress(StorageError):
        store.delete_many(paths)


def delete_leftovers(
    context: TableContext, name_prefix: str, folders: Collection[str] | None, kept: Collection[str]
) -> None:
    """Delete the splits whose names start with a prefix, except those in `kept`, in the given folders or in all.

    Only the caller may use names with this prefix. Splits that cannot be found or deleted are orphans for PURGE. A
    search in all folders stops after a maximum number of files.
    """
    # Compare names, which are unique, not paths: a file system may spell a folder differently.
    kept_names = {_name(path) for path in kept}
    with contextlib.suppress(StorageError):
        if folders is None:
            metas = islice(context.store.list(""), _MAX_LISTED_FILES)
            found = [[meta.key for meta in metas if _name(meta.key).startswith(name_prefix)]]
        else:
            search = partial(_keys_in_folder, context.store, name_prefix)
            found = parallel_map(search, sorted(folders), context.settings[READ_PARALLELISM])
        delete_quietly(context.store, [key for keys in found for key in keys if _name(key) not in kept_names])


def are_late(context: TableContext, name_prefix: str, paths: Sequence[str], since_version: int) -> bool:
    """Whether splits with this name prefix were committed after `since_version`, but none of `paths` among them.

    The job deletes leftovers after its commit (`delete_leftovers`). Either it finds splits that were uploaded before,
    or a later upload finds the commit here. An unreadable log proves nothing.
    """
    store = context.store
    with contextlib.suppress(StorageError, LogCorruptedError):
        listing = list_log(store, from_version=since_version + 1)
        versions = listing.version_files[-_MAX_SEARCHED_VERSIONS:]
        files = read_version_files(store, versions, parallelism=context.settings[READ_PARALLELISM])
        committed = [file.lines for file in files if name_prefix.encode() in file.lines]
        return bool(committed) and not any(
            _name(path).encode() in lines for path in paths for lines in committed
        )
    return False


def uploads_check(files: Iterable[SplitFile]) -> Callable[[Snapshot], None]:
    """A check to run before each attempt to commit splits (`check_uploads`).

    PURGE treats splits that wait too long for their commit as leftovers of a crashed writer.
    """
    return partial(check_uploads, {file.path: file.modification_time_ms for file in files})


def check_uploads(uploaded_ms: Mapping[str, int], snapshot: Snapshot) -> None:
    """Check that splits which have waited long still exist before they are committed on top of a snapshot.

    `uploaded_ms` maps paths to creation times. Raises CommitConflictError if a split is gone, or if it is older than
    the purge fence of the snapshot: PURGE may be about to delete it. A purge whose fence the snapshot does not have yet
    commits its marker under the version number that these splits would get, so this commit conflicts with it.
    """
    context, fence_ms = snapshot.context, purge_fence_ms(snapshot)
    # Creation times come from this machine's clock, which may differ from the store's or may have stood still.
    latest_ms = max(context.store.clock.now_ms() - LONG_WAIT_MS, fence_ms + LONG_WAIT_MS)
    waiting = [path for path, created_ms in uploaded_ms.items() if created_ms < latest_ms]
    found = parallel_map(partial(find_object, context.store), waiting, context.settings[READ_PARALLELISM])
    purged = next(
        (
            path
            for path, meta in zip(waiting, found, strict=True)
            if meta is None or 0 < meta.last_modified_ms <= fence_ms
        ),
        None,
    )
    if purged is not None:
        raise CommitConflictError(
            f"{context.url}: {purged} waited so long for its commit that a purge deletes it as an orphan; write again, "
            f"and purge with a longer retention"
        )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _keys_in_folder(store: ObjectStore, name_prefix: str, folder: str) -> list[str]:
    parent = f"{folder}/" if folder else ""
    keys = (meta.key for meta in store.list(parent, start_after=parent + name_prefix))
    return list(takewhile(lambda key: key.startswith(parent + name_prefix), keys))
