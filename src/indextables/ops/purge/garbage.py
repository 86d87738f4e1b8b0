"""Deleting many objects: in batches, a bounded number of them at once, patiently."""

import contextlib
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables._results import TABLE_PATH, Column, Columns, Result, Status
from indextables.config.registry import PURGE_DELETE_RETRIES, STATE_GC_MIN_MANIFEST_AGE_HOURS
from indextables.errors import LogCorruptedError, ObjectNotFoundError, StorageError, VersionNotFoundError
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
from indextables.ops.checkpoint.cleanup import MS_PER_HOUR
from indextables.ops.runner import Failed, Interruption, Runner, Task, TaskStore
from indextables.state.state_manifest import manifest_key, read_state_manifest
from indextables.storage import ObjectMeta, RetryingStore, RetryPolicy
from indextables.table import Snapshot, TableContext

# What the stores take in one request.
BATCH_KEYS: Final = 1000

# A store that asks for fewer requests wants seconds, not milliseconds.
_BASE_SECONDS: Final = 0.5
_CAP_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class DeleteBatch(Task[None]):
    """Deletes objects. An absent one is no error, so that it may run again."""

    store: TaskStore
    keys: tuple[str, ...]
    retries: int

    def run(self, interruption: Interruption) -> None:
        """Delete all of them, or raise a StorageError: then some may be gone."""
        interruption.check()
        policy = RetryPolicy(1 + self.retries, _BASE_SECONDS, _CAP_SECONDS)
        RetryingStore(self.store.store, policy).delete_many(self.keys)


class Deletion(msgspec.Struct, frozen=True):
    """What became of a sequence of keys: which are gone for certain, and why others may not be."""

    is_deleted: npt.NDArray[np.bool_]
    errors: tuple[str | None, ...]

    @property
    def first_error(self) -> str | None:
        """Why a key could not be deleted, if there is one."""
        return next((error for error in self.errors if error is not None), None)


def delete_keys(context: TableContext, keys: Sequence[str], runner: Runner, description: str) -> Deletion:
    """Delete objects, going on after a batch that fails in spite of all retries.

    Raises what is no failure of the store.
    """
    store, retries = TaskStore.of(context), context.settings[PURGE_DELETE_RETRIES]
    starts = range(0, len(keys), BATCH_KEYS)
    tasks = [DeleteBatch(store, tuple(keys[start : start + BATCH_KEYS]), retries) for start in starts]
    is_deleted = np.zeros(len(keys), dtype=np.bool_)
    errors: list[str | None] = [None] * len(keys)
    for outcome in runner.run(description, tasks):
        start, count = starts[outcome.index], len(tasks[outcome.index].keys)
        if not isinstance(outcome, Failed):
            is_deleted[start : start + count] = True
        elif isinstance(outcome.error, StorageError):
            errors[start : start + count] = [str(outcome.error)] * count
        else:
            raise outcome.error
    return Deletion(is_deleted, tuple(errors))


# Garbage collection in the log: files that no checkpoint or state refers to any more.
#
# Reachability is computed over every state that is there. One that cannot be read stops the collection with
# nothing deleted: corrupt never means orphan. What is younger than the protected age stays, because a writer
# may be about to refer to it.


# Whatever the setting says: a writer needs some time between writing a manifest and referring to it.
MIN_AGE_FLOOR_HOURS = 1.0

_LOOKS: Final = 5


class GarbageResult(Result, frozen=True):
    """What `IndexTable.collect_garbage` found and deleted.

    Attributes:
        table_path: The URL of the table.
        paths: The log files that no checkpoint refers to.
        size_bytes: The size of these files.
        is_dry_run: Whether they were only listed.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, `NO_ACTION`: nothing to delete, or `DRY_RUN`"),
        Column("num_files", pa.int64(), "the log files that no checkpoint refers to"),
        Column("size_bytes", pa.int64(), "the size of these files"),
        Column("paths", pa.list_(pa.string()), "their paths, relative to the table"),
    )

    table_path: str
    paths: tuple[str, ...]
    size_bytes: int
    is_dry_run: bool

    @property
    def status(self) -> Status:
        """NO_ACTION if there was nothing to delete."""
        if self.is_dry_run:
            return Status.DRY_RUN
        return Status.SUCCESS if self.paths else Status.NO_ACTION

    @property
    def num_files(self) -> int:
        """The number of files."""
        return len(self.paths)


def collect_garbage(snapshot: Snapshot, *, dry_run: bool) -> GarbageResult:
    """Delete, or with `dry_run` only list, the orphans of the log.

    Raises LogCorruptedError, with nothing deleted, if anything that could refer to a file cannot be read, and
    VersionNotFoundError if others clean up at the same time.
    """
    context = snapshot.context
    # The listing comes first: what is referred to later than that is then seen as referred to.
    metas = list(context.store.list(LOG_PREFIX))
    now_ms = context.store.now_ms()
    orphans = find_orphans(context, metas, checkpoint_files_in_use(context), now_ms)
    if orphans and not dry_run:
        context.store.delete_many(meta.key for meta in orphans)
    return GarbageResult(
        table_path=context.url,
        paths=tuple(meta.key for meta in orphans),
        size_bytes=sum(meta.size for meta in orphans),
        is_dry_run=dry_run,
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
