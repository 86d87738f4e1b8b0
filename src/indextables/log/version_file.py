"""Writing and reading version files: the commits of the log."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from indextables.errors import (
    CommitOutcomeUnknownError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
)
from indextables.log.codec import decompress
from indextables.log.decode import LogFile
from indextables.log.paths import version_key
from indextables.storage import ObjectMeta, ObjectStore, PutOutcome


class Written(msgspec.Struct, frozen=True):
    """The version is ours."""

    version: int


class Conflict(msgspec.Struct, frozen=True):
    """Somebody else's commit stands under this version."""

    version: int


def write_version_file(store: ObjectStore, version: int, data: bytes) -> Written | Conflict:
    """Commit `data` as `version`, if that version does not exist yet.

    `data` must be unique to this commit (it carries a commit id, or a new table's id), because a write whose
    answer was lost is recognised by reading it back. Raises CommitOutcomeUnknownError if the store stops
    answering before that is known; the caller must then not delete anything that the commit refers to.
    """
    try:
        outcome = store.put_if_absent(version_key(version), data)
    except TransientStorageError as error:
        return _resolve_by_reading(store, version, data, error)
    if outcome is PutOutcome.WRITTEN:
        return Written(version)
    # A client that repeats a write of its own, because the answer was lost, finds its own file there.
    return _resolve_by_reading(store, version, data, None)


def _resolve_by_reading(
    store: ObjectStore, version: int, data: bytes, cause: TransientStorageError | None
) -> Written | Conflict:
    try:
        found = store.get(version_key(version))
    except StorageError as error:
        # Absent is not final either: a delayed request may still arrive.
        raise CommitOutcomeUnknownError(
            f"{store.url}: the store stopped answering while version {version} was being committed, so it may "
            f"or may not have landed ({cause or error}); read the history again before you retry"
        ) from error
    return Written(version) if found == data else Conflict(version)


def read_version_file(store: ObjectStore, meta: ObjectMeta, version: int) -> LogFile:
    """The lines of one version file. Raises LogCorruptedError or a StorageError."""
    lines = decompress(store.get(meta.key), f"{store.url}/{meta.key}")
    if not lines.strip():
        raise LogCorruptedError(
            f"{store.url}/{meta.key}: the version file is empty; restore it from a backup, or rebuild the "
            f"log with REPAIR INDEXFILES TRANSACTION LOG"
        )
    return LogFile(version, f"{store.url}/{meta.key}", lines, meta.last_modified_ms)


def read_version_files(
    store: ObjectStore, files: Iterable[tuple[int, ObjectMeta]], *, parallelism: int
) -> list[LogFile]:
    """Several version files, in the order given, fetched by up to `parallelism` threads."""
    wanted = list(files)
    if len(wanted) <= 1 or parallelism <= 1:
        return [read_version_file(store, meta, version) for version, meta in wanted]
    with ThreadPoolExecutor(min(parallelism, len(wanted)), thread_name_prefix="indextables-log") as pool:
        return list(pool.map(lambda item: read_version_file(store, item[1], item[0]), wanted))


def find_version_file(store: ObjectStore, version: int) -> ObjectMeta | None:
    """Where a version file stands, or None if there is none."""
    return find_object(store, version_key(version))


def find_object(store: ObjectStore, key: str) -> ObjectMeta | None:
    """What stands under a key, or None if there is nothing."""
    try:
        return store.head(key)
    except ObjectNotFoundError:
        return None
