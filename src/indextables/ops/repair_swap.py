"""The old log makes room for the new one, and nothing of it is lost.

1. Every file of the old log is copied to a folder beside it. Until here nothing has changed.
2. The new version is written if it is absent; it has a number that was never used, so that no file is overwritten.
   Then its state: with that one write the new log is what everybody reads. Before it, everybody reads the old one.
3. The hint is replaced, and the files of the old log, which nobody needs any more, are deleted.

A crash leaves the old log or the new one in force, and at least one copy of everything. The next repair finishes it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from indextables.config.registry import READ_PARALLELISM
from indextables.errors import ObjectNotFoundError, StorageError
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, VersionFile, parse_log_path
from indextables.log.segment import build_listing
from indextables.ops.ordered_parallel import parallel_map
from indextables.storage import ObjectMeta, ObjectStore
from indextables.table import TableContext

_CHECKSUM_SUFFIX: Final = ".crc"


def set_aside(context: TableContext, metas: Sequence[ObjectMeta]) -> str:
    """Copy all files of the log; returns the folder. Raises StorageError, with at most a part of the copy left."""
    folder = _new_folder(context.store)
    copy = partial(_copy, context.store, folder)
    parallel_map(copy, metas, context.settings[READ_PARALLELISM])
    there = {meta.key: meta.size for meta in context.store.list(folder)}
    for meta in metas:
        if there.get(_aside(meta.key, folder)) != meta.size and _exists(context.store, meta.key):
            raise StorageError(
                f"{context.url}: {meta.key} was copied to {folder}, and is not there as it was; nothing was changed"
            )
    return folder


def remove_old(context: TableContext, metas: Sequence[ObjectMeta]) -> None:
    """Delete the files of the old log: what points at others goes first. Files that are none of a log stay."""
    bases = {base.meta.key for base in build_listing(metas).bases_newest_first()}
    old = [meta.key for meta in metas if _is_of_log(meta.key) and meta.key != LAST_CHECKPOINT_KEY]
    context.store.delete_many(sorted(old, key=lambda key: _rank(key, bases)))
    context.cache.invalidate(context.store)


def _is_of_log(key: str) -> bool:
    """A file of the log, or the checksum that Hadoop keeps beside one: wrong as soon as that one is replaced."""
    folder, _, name = key.rpartition("/")
    is_checksum = name.startswith(".") and name.endswith(_CHECKSUM_SUFFIX)
    named = f"{folder}/{name.removeprefix('.').removesuffix(_CHECKSUM_SUFFIX)}" if is_checksum else key
    return parse_log_path(named) is not None


def _rank(key: str, bases: set[str]) -> int:
    if key in bases:
        return 0
    return 1 if isinstance(parse_log_path(key), VersionFile) else 2


def _new_folder(store: ObjectStore) -> str:
    moment = datetime.fromtimestamp(store.clock.now_ms() / 1000, UTC)
    name = f"{LOG_PREFIX.rstrip('/')}.damaged-{moment:%Y%m%dT%H%M%S}Z"
    number = 1
    folder = f"{name}/"
    while next(iter(store.list(folder)), None) is not None:
        number += 1
        folder = f"{name}-{number}/"
    return folder


def _aside(key: str, folder: str) -> str:
    return folder + key.removeprefix(LOG_PREFIX)


def _copy(store: ObjectStore, folder: str, meta: ObjectMeta) -> None:
    try:
        store.put(_aside(meta.key, folder), store.get(meta.key))
    except ObjectNotFoundError:
        return  # cleaned up since it was listed


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except ObjectNotFoundError:
        return False
    return True
