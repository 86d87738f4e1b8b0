"""Garbage collection in the log: files that no checkpoint or state refers to any more.

Reachability is computed over every state that is there. One that cannot be read stops the collection with nothing
deleted: corrupt never means orphan. What is younger than the protected age stays, because a writer may be about
to refer to it.
"""

import contextlib
from collections.abc import Iterable, Set
from typing import Final

import msgspec

from indextables.config.registry import STATE_GC_MIN_MANIFEST_AGE_HOURS
from indextables.errors import LogCorruptedError, ObjectNotFoundError, VersionNotFoundError
from indextables.log.legacy_checkpoint import read_part_names
from indextables.log.paths import (
    LOG_PREFIX,
    JsonCheckpointPart,
    ManifestFile,
    ParquetCheckpoint,
    parquet_checkpoint_key,
    parse_log_path,
)
from indextables.log.segment import Base, BaseFormat, list_log
from indextables.ops.cleanup import MS_PER_HOUR
from indextables.state.state_manifest import manifest_key, read_state_manifest
from indextables.storage import ObjectMeta
from indextables.table import TableContext

# Whatever the setting says: a writer needs some time between writing a manifest and referring to it.
MIN_AGE_FLOOR_HOURS = 1.0

_LOOKS: Final = 5


class GarbageReport(msgspec.Struct, frozen=True):
    """The orphans that were found, and whether they were deleted."""

    keys: tuple[str, ...]
    size_bytes: int
    is_dry_run: bool


def collect_garbage(context: TableContext, *, dry_run: bool) -> GarbageReport:
    """Delete, or with `dry_run` only list, the orphans of the log.

    Raises LogCorruptedError, with nothing deleted, if anything that could refer to a file cannot be read, and
    VersionNotFoundError if others clean up at the same time.
    """
    # The listing comes first: what is referred to later than that is then seen as referred to.
    metas = list(context.store.list(LOG_PREFIX))
    now_ms = context.store.now_ms()
    orphans = find_orphans(context, metas, checkpoint_files_in_use(context), now_ms)
    if orphans and not dry_run:
        context.store.delete_many(meta.key for meta in orphans)
    return GarbageReport(
        tuple(meta.key for meta in orphans), sum(meta.size for meta in orphans), is_dry_run=dry_run
    )


def find_orphans(
    context: TableContext, metas: Iterable[ObjectMeta], reachable: Set[str], now_ms: int
) -> list[ObjectMeta]:
    """The files of the log, out of those listed, that are not among those in use and that are old enough.

    The listing must be older than what is known of those in use.
    """
    hours = max(context.settings[STATE_GC_MIN_MANIFEST_AGE_HOURS], MIN_AGE_FLOOR_HOURS)
    newest_ms = now_ms - hours * MS_PER_HOUR
    return [
        meta
        for meta in metas
        if 0 < meta.last_modified_ms < newest_ms and is_collectable(meta) and meta.key not in reachable
    ]


def checkpoint_files(context: TableContext, bases: Iterable[Base]) -> frozenset[str]:
    """The keys of all files that checkpoints are made of. Raises LogCorruptedError if one cannot be read.

    One that was cleaned up since it was listed refers to nothing any more.
    """
    found: set[str] = set()
    for base in bases:
        with contextlib.suppress(ObjectNotFoundError):
            found.update(_references(context, base))
    return frozenset(found)


def checkpoint_files_in_use(context: TableContext) -> frozenset[str]:
    """The keys of all files that any checkpoint is made of: for those who are about to delete the others.

    Raises LogCorruptedError as `checkpoint_files` does, and VersionNotFoundError if checkpoints keep vanishing.
    """
    for _ in range(_LOOKS):
        # Another checkpoint may have been made from one that vanishes while it is to be read, and use its files.
        with contextlib.suppress(ObjectNotFoundError):
            bases = list_log(context.store).bases_newest_first()
            return frozenset(key for base in bases for key in _references(context, base))
    raise VersionNotFoundError(
        f"{context.url}: no file was deleted that checkpoints may be made of, because these vanished while they were "
        f"read; is somebody else cleaning up at the same time?"
    )


def is_collectable(meta: ObjectMeta) -> bool:
    """Only files of kinds that something else has to refer to; a Parquet checkpoint's rows by their JSON."""
    return isinstance(parse_log_path(meta.key), ManifestFile | JsonCheckpointPart | ParquetCheckpoint)


def _references(context: TableContext, base: Base) -> Iterable[str]:
    try:
        match base.format:
            case BaseFormat.AVRO_STATE:
                state = read_state_manifest(context.store, base)
                return [manifest_key(info.path, base.version) for info in state.manifests]
            case BaseFormat.JSON:
                return [LOG_PREFIX + name for name in read_part_names(context.store, base.meta)]
            case BaseFormat.PARQUET:
                return [parquet_checkpoint_key(base.version)]
    except LogCorruptedError as error:
        raise LogCorruptedError(
            f"{context.url}: nothing was deleted, because it cannot be told what {base.meta.key} refers to: {error}"
        ) from error
