"""Garbage collection in the log: files that no checkpoint or state refers to any more.

Reachability is computed over every state that is there. One that cannot be read stops the collection with nothing
deleted: corrupt never means orphan. What is younger than the protected age stays, because a writer may be about
to refer to it.
"""

from collections.abc import Iterable

import msgspec

from indextables.config.registry import STATE_GC_MIN_MANIFEST_AGE_HOURS
from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.json_checkpoint import read_part_names
from indextables.log.paths import (
    LOG_PREFIX,
    JsonCheckpointPart,
    ManifestFile,
    ParquetCheckpoint,
    parquet_checkpoint_key,
    parse_log_path,
)
from indextables.log.segment import Base, BaseFormat, build_listing
from indextables.ops.cleanup import MS_PER_HOUR
from indextables.state.manifest_path import manifest_key
from indextables.state.state_file import read_state_manifest
from indextables.storage import ObjectMeta
from indextables.table import TableContext

# Whatever the setting says: a writer needs some time between writing a manifest and referring to it.
MIN_AGE_FLOOR_HOURS = 1.0


class GarbageReport(msgspec.Struct, frozen=True):
    """The orphans that were found, and whether they were deleted."""

    keys: tuple[str, ...]
    size_bytes: int
    is_dry_run: bool


def collect_garbage(context: TableContext, *, dry_run: bool) -> GarbageReport:
    """Delete, or with `dry_run` only list, the orphans of the log.

    Raises LogCorruptedError, with nothing deleted, if anything that could refer to a file cannot be read.
    """
    # The listing comes first: what is referred to later than that is then seen as referred to.
    metas = list(context.store.list(LOG_PREFIX))
    now_ms = context.store.now_ms()
    listing = build_listing(context.store.list(LOG_PREFIX))
    orphans = find_orphans(context, metas, listing.bases_newest_first(), now_ms)
    if orphans and not dry_run:
        context.store.delete_many(meta.key for meta in orphans)
    return GarbageReport(
        tuple(meta.key for meta in orphans), sum(meta.size for meta in orphans), is_dry_run=dry_run
    )


def find_orphans(
    context: TableContext, metas: Iterable[ObjectMeta], bases: Iterable[Base], now_ms: int
) -> list[ObjectMeta]:
    """The files of the log, out of those listed, that none of these checkpoints refers to and that are old enough.

    The listing must be older than what is known of the checkpoints. Raises LogCorruptedError as `collect_garbage`.
    """
    hours = max(context.settings[STATE_GC_MIN_MANIFEST_AGE_HOURS], MIN_AGE_FLOOR_HOURS)
    newest_ms = now_ms - hours * MS_PER_HOUR
    reachable = references(context, bases)
    return [
        meta
        for meta in metas
        if 0 < meta.last_modified_ms < newest_ms and is_collectable(meta) and meta.key not in reachable
    ]


def references(context: TableContext, bases: Iterable[Base]) -> frozenset[str]:
    """The keys of all files that checkpoints are made of. Raises LogCorruptedError if one cannot be read."""
    return frozenset(key for base in bases for key in _references(context, base))


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
    except ObjectNotFoundError:
        return []  # cleaned up since it was listed: it refers to nothing any more
    except LogCorruptedError as error:
        raise LogCorruptedError(
            f"{context.url}: nothing was deleted, because it cannot be told what {base.meta.key} refers to: {error}"
        ) from error
