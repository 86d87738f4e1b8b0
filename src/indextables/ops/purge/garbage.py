"""Garbage collection in the log, and the deletion of many objects in batches.

Garbage are manifests and checkpoint parts that no checkpoint refers to. An unreadable checkpoint stops the collection
with nothing deleted: corrupt never means orphan. Young files stay, because a writer may be about to refer to them.
"""

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
from indextables.errors import (
    ConcurrentMaintenanceError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
)
from indextables.log.legacy_checkpoint import read_part_names, read_row_keys
from indextables.log.paths import (
    LOG_PREFIX,
    STATE_PREFIX,
    JsonCheckpointPart,
    ManifestFile,
    ParquetCheckpoint,
    ParquetCheckpointPart,
    parse_log_path,
)
from indextables.log.segment import Base, BaseFormat, list_log
from indextables.ops.checkpoint.cleanup import MS_PER_HOUR
from indextables.ops.runner import Failed, Interruption, Runner, Task, TaskStore
from indextables.state.state_manifest import manifest_key, read_state_manifest
from indextables.storage import ObjectMeta, RetryingStore, RetryPolicy
from indextables.table import Snapshot, TableContext

# The most keys that stores accept in one delete request.
BATCH_KEYS: Final = 1000

# A throttling store needs seconds to recover, not milliseconds.
_BASE_SECONDS: Final = 0.5
_CAP_SECONDS: Final = 20.0

# A lower bound for the setting: a writer needs time between writing a manifest and referring to it.
MIN_AGE_FLOOR_HOURS: Final = 1.0

_LISTING_ATTEMPTS: Final = 5


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
    """Delete, or with `dry_run` only list, the garbage of the log.

    Raises LogCorruptedError, with nothing deleted, if a checkpoint cannot be read, and ConcurrentMaintenanceError if a
    concurrent cleanup interferes.
    """
    context = snapshot.context
    # List the files first: a file that comes into use after the listing is then seen as in use.
    metas = list(context.store.list(LOG_PREFIX))
    now_ms = context.store.now_ms()
    orphans = find_orphans(context, metas, checkpoint_files_in_use(context), now_ms)
    if orphans and not dry_run:
        context.store.delete_many(meta.key for meta in orphans)
    if not dry_run:
        context.store.remove_empty_folders(STATE_PREFIX)
    return GarbageResult(
        table_path=context.url,
        paths=tuple(meta.key for meta in orphans),
        size_bytes=sum(meta.size for meta in orphans),
        is_dry_run=dry_run,
    )


def find_orphans(
    context: TableContext, metas: Iterable[ObjectMeta], reachable: Set[str], now_ms: int
) -> list[ObjectMeta]:
    """The listed manifests and checkpoint parts that are old enough and not in use (`reachable`).

    The listing must be older than the knowledge of what is in use.
    """
    hours = max(context.settings[STATE_GC_MIN_MANIFEST_AGE_HOURS], MIN_AGE_FLOOR_HOURS)
    newest_ms = now_ms - hours * MS_PER_HOUR
    return [
        meta
        for meta in metas
        if 0 < meta.last_modified_ms < newest_ms and is_collectable(meta) and meta.key not in reachable
    ]


def is_collectable(meta: ObjectMeta) -> bool:
    """Whether a file is of a kind that is in use only if a checkpoint refers to it."""
    return isinstance(
        parse_log_path(meta.key),
        ManifestFile | JsonCheckpointPart | ParquetCheckpoint | ParquetCheckpointPart,
    )


def checkpoint_files(context: TableContext, bases: Iterable[Base]) -> frozenset[str]:
    """The keys of all files that checkpoints refer to. Raises LogCorruptedError if one cannot be read.

    A checkpoint that was cleaned up after it was listed refers to nothing.
    """
    found: set[str] = set()
    for base in bases:
        with contextlib.suppress(ObjectNotFoundError):
            found.update(_references(context, base))
    return frozenset(found)


def checkpoint_files_in_use(context: TableContext) -> frozenset[str]:
    """The keys of all files that any checkpoint refers to: all other manifests and parts may be deleted.

    Raises LogCorruptedError as `checkpoint_files` does, and ConcurrentMaintenanceError if checkpoints keep
    disappearing.
    """
    for _ in range(_LISTING_ATTEMPTS):
        # If a checkpoint disappears, start over: a newer one may be built on it and use its files.
        with contextlib.suppress(ObjectNotFoundError):
            bases = list_log(context.store).bases_newest_first()
            return frozenset(key for base in bases for key in _references(context, base))
    raise ConcurrentMaintenanceError(
        f"{context.url}: no manifest was deleted, because checkpoints disappeared while they were read; another "
        f"cleanup is probably running: try again when it is done"
    )


@dataclass(frozen=True, slots=True)
class DeleteBatch(Task[None]):
    """Deletes objects. Absent objects are not an error, so the task may run again."""

    store: TaskStore
    keys: tuple[str, ...]
    retries: int

    def run(self, interruption: Interruption) -> None:
        """Delete all objects. After a StorageError, some of them may be gone."""
        interruption.check()
        policy = RetryPolicy(1 + self.retries, _BASE_SECONDS, _CAP_SECONDS)
        RetryingStore(self.store.store, policy).delete_many(self.keys)


class Deletion(msgspec.Struct, frozen=True):
    """The outcome for each key of a sequence: whether it is certainly gone, or the error."""

    is_deleted: npt.NDArray[np.bool_]
    errors: tuple[str | None, ...]

    @property
    def first_error(self) -> str | None:
        return next((error for error in self.errors if error is not None), None)


def delete_keys(context: TableContext, keys: Sequence[str], runner: Runner, description: str) -> Deletion:
    """Delete objects in batches. A batch that fails in spite of all retries does not stop the others.

    Raises errors other than StorageError.
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


def _references(context: TableContext, base: Base) -> Iterable[str]:
    try:
        match base.format:
            case BaseFormat.AVRO_STATE:
                state = read_state_manifest(context.store, base)
                return [manifest_key(info.path, base.version) for info in state.manifests]
            case BaseFormat.JSON:
                return [LOG_PREFIX + name for name in read_part_names(context.store, base.meta)]
            case BaseFormat.PARQUET:
                return read_row_keys(context.store, base.meta, base.version)
    except LogCorruptedError as error:
        raise LogCorruptedError(
            f"{context.url}: nothing was deleted, because the files that {base.meta.key} refers to are unknown: {error}"
        ) from error
