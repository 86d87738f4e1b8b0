"""Splits between their upload and the commit that makes them part of the table."""

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

# Raised before a version file is written, or when every attempt has lost its race.
_NOT_LANDED: Final = (
    CommitConflictError,
    CommitRetriesExhaustedError,
    InvalidActionError,
    InvalidPredicateError,
    InvalidValueError,
    LogGapError,
)

# Beyond so many files, looking for leftovers in all of a table would cost more than they do.
_MOST_FILES: Final = 100_000

# The commit of the job that a late attempt belonged to is among the newest versions.
_MOST_VERSIONS: Final = 64


@contextlib.contextmanager
def deleting_unless_landed(store: ObjectStore, paths: Sequence[str]) -> Iterator[None]:
    """Delete splits after a failure that proves that no log will ever refer to them."""
    with undoing_unless_landed(partial(delete_quietly, store, paths)):
        yield


@contextlib.contextmanager
def undoing_unless_landed(undo: Callable[[], None]) -> Iterator[None]:
    """Undo what was done for a commit after a failure that proves that it did not land.

    After any other one, an interruption included, the commit may stand: what it refers to stays.
    """
    try:
        yield
    except _NOT_LANDED:
        undo()
        raise


def delete_quietly(store: ObjectStore, paths: Sequence[str]) -> None:
    """Delete splits that no log refers to. What cannot be deleted now is an orphan for the purge."""
    if not paths:
        return
    with contextlib.suppress(StorageError):
        store.delete_many(paths)


def delete_leftovers(
    context: TableContext, name_prefix: str, folders: Collection[str] | None, kept: Collection[str]
) -> None:
    """Delete the splits whose names begin like this, but for those that were kept: in some folders, or in all.

    Others than the caller must not use such names. What cannot be found or deleted now is an orphan for the purge;
    all folders are looked through up to a number of files.
    """
    # Names alone, which are unique: a file system may have other ideas than we of how a folder is spelled.
    known = {_name(path) for path in kept}
    with contextlib.suppress(StorageError):
        if folders is None:
            everything = islice(context.store.list(""), _MOST_FILES)
            found = [[meta.key for meta in everything if _name(meta.key).startswith(name_prefix)]]
        else:
            search = partial(_keys_below, context.store, name_prefix)
            found = parallel_map(search, sorted(folders), context.settings[READ_PARALLELISM])
        delete_quietly(context.store, [key for keys in found for key in keys if _name(key) not in known])


def are_late(context: TableContext, name_prefix: str, paths: Sequence[str], since_version: int) -> bool:
    """Whether splits whose names begin like this have been committed since a version, and these were not.

    Whoever looks for leftovers does so after the commit. So either it finds splits that came before, or those who
    upload them later find the commit here. What cannot be read is no proof.
    """
    store = context.store
    with contextlib.suppress(StorageError, LogCorruptedError):
        versions = list_log(store, from_version=since_version + 1).version_files[-_MOST_VERSIONS:]
        files = read_version_files(store, versions, parallelism=context.settings[READ_PARALLELISM])
        committed = [file.lines for file in files if name_prefix.encode() in file.lines]
        return bool(committed) and not any(
            _name(path).encode() in lines for path in paths for lines in committed
        )
    return False


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _keys_below(store: ObjectStore, name_prefix: str, folder: str) -> list[str]:
    parent = f"{folder}/" if folder else ""
    keys = (meta.key for meta in store.list(parent, start_after=parent + name_prefix))
    return list(takewhile(lambda key: key.startswith(parent + name_prefix), keys))


def uploads_check(files: Iterable[SplitFile]) -> Callable[[Snapshot], None]:
    """A function to be called before every try to commit splits, which raises CommitConflictError if one may not be.

    A purge takes splits that wait too long for their commit for what a crash has left.
    """
    return partial(check_uploads, {file.path: file.modification_time_ms for file in files})


def check_uploads(uploaded_ms: Mapping[str, int], snapshot: Snapshot) -> None:
    """Look for splits that have been waiting for long before they are committed upon a snapshot.

    `uploaded_ms` are their paths, and when they were made. Raises CommitConflictError if one is gone, or if it is from
    before the time up to which a purge that the snapshot knows of deletes what nobody has committed: it may be about
    to go. A purge that the snapshot does not know of yet takes the version which these splits were to be committed as.
    """
    context, fence_ms = snapshot.context, purge_fence_ms(snapshot)
    # By the clock of this machine, which may differ from the store's, or may have stood still.
    latest_ms = max(context.store.clock.now_ms() - LONG_WAIT_MS, fence_ms + LONG_WAIT_MS)
    waiting = [path for path, made_ms in uploaded_ms.items() if made_ms < latest_ms]
    found = parallel_map(partial(find_object, context.store), waiting, context.settings[READ_PARALLELISM])
    gone = next(
        (
            path
            for path, meta in zip(waiting, found, strict=True)
            if meta is None or 0 < meta.last_modified_ms <= fence_ms
        ),
        None,
    )
    if gone is not None:
        raise CommitConflictError(
            f"{context.url}: {gone} waited so long for its commit that a purge deletes it; write again, and purge "
            f"with a longer retention"
        )
