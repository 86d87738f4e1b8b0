"""TRUNCATE TIME TRAVEL deletes all versions of the log except the newest one.

It deletes no data: PURGE deletes the splits that only older versions referred to. A stalled writer cannot reuse the
number of a deleted version, because the remaining checkpoint records which commit had it.
"""

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns, Status
from indextables.errors import (
    CheckpointCorruptionError,
    ConcurrentMaintenanceError,
    LogGapError,
    StorageError,
)
from indextables.log.actions import check_writable
from indextables.log.paths import LOG_PREFIX, STATE_PREFIX
from indextables.log.segment import Base, build_listing, list_log
from indextables.ops.checkpoint.cleanup import has_whole_checkpoint
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.purge.garbage import checkpoint_files, checkpoint_files_in_use, delete_keys, find_orphans
from indextables.ops.purge.report import (
    FILES,
    DeletedFiles,
    PurgeKind,
    doomed_files,
    store_now_ms,
    with_outcome,
)
from indextables.ops.runner import Runner
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, load_snapshot


class TruncateResult(DeletedFiles, frozen=True):
    """The result of `IndexTable.truncate_time_travel`.

    Attributes:
        table_path: The URL of the table.
        version: The version that remains.
        is_dry_run: Whether files were only listed.
        files: The files as an Arrow table, with the columns path, kind, size, age_hours, is_deleted and error.
        writes_checkpoint: Whether the remaining version had no checkpoint before.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, `NO_ACTION`: there were no older versions, or `DRY_RUN`"),
        Column("version", pa.int64(), "the version that remains"),
        Column("writes_checkpoint", pa.bool_(), "whether the remaining version had no checkpoint before"),
        Column("num_versions", pa.int64(), "older version files"),
        Column("num_checkpoints", pa.int64(), "older checkpoints"),
        Column("num_manifests", pa.int64(), "log files that no remaining checkpoint refers to"),
        Column("num_files", pa.int64(), "all of these files"),
        Column("size_bytes", pa.int64(), "the size of these files"),
        MESSAGE,
        FILES,
    )

    writes_checkpoint: bool

    @property
    def status(self) -> Status:
        """NO_ACTION if there was nothing to delete."""
        if self.is_dry_run:
            return Status.DRY_RUN
        return Status.SUCCESS if self.num_files else Status.NO_ACTION

    @property
    def message(self) -> str:
        """A one-line summary."""
        verb = "would be deleted" if self.is_dry_run else "deleted"
        return f"{self.num_versions} older versions {verb}; version {self.version} remains"


def truncate_time_travel(snapshot: Snapshot, runner: Runner, *, dry_run: bool) -> TruncateResult:
    """Delete, or with `dry_run` only list, all versions before the newest one, and their checkpoints.

    First, it writes a checkpoint of the newest version, if there is none, and reads it to the last entry. Unreferenced
    manifests are deleted unless they are recent. Concurrent commits are not affected.

    These errors mean that nothing was deleted: LogGapError, UnsupportedProtocolError, ClockSkewError,
    LogCorruptedError, and ConcurrentMaintenanceError if a concurrent cleanup deleted the newest version. Raises
    StorageError if a file could not be deleted; the newest version stays readable.
    """
    context = snapshot.context
    now_ms = store_now_ms(context)
    # List before reading the log: files that are written later are not in the listing and stay.
    metas = list(context.store.list(LOG_PREFIX))
    head = load_snapshot(context)
    _check_may_truncate(head)
    files = _doomed(head, metas, now_ms)
    deleted = _execute(head, files, runner) if not dry_run else []
    is_deleted = pc.is_in(files["path"], value_set=pa.array(deleted, pa.string())).to_numpy()
    return TruncateResult(
        table_path=context.url,
        version=head.version,
        is_dry_run=dry_run,
        files=with_outcome(files, is_deleted, [None] * files.num_rows),
        writes_checkpoint=head.version not in build_listing(metas).bases,
    )


def _check_may_truncate(head: Snapshot) -> None:
    check_writable(head.protocol, head.context.url)
    if head.gap is not None:
        raise LogGapError(
            f"{head.context.url}: nothing was deleted, because version {head.gap.first_missing} is missing or "
            f"unreadable although version {head.gap.newest} exists; restore the file, or rebuild the log with "
            f"REPAIR INDEXFILES TRANSACTION LOG"
        )


def _doomed(head: Snapshot, metas: Sequence[ObjectMeta], now_ms: int) -> pa.Table:
    """Return the older checkpoints and versions, and the manifests that no remaining or new checkpoint needs."""
    listing = build_listing(metas)
    older_bases = [base.meta for base in listing.bases_newest_first() if base.version < head.version]
    older_versions = [meta for version, meta in listing.versions.items() if version < head.version]
    orphans = find_orphans(
        head.context, metas, checkpoint_files(head.context, _remaining_bases(head)), now_ms
    )
    return pa.concat_tables(
        [
            doomed_files(PurgeKind.CHECKPOINT, older_bases, now_ms),
            doomed_files(PurgeKind.VERSION, older_versions, now_ms),
            doomed_files(PurgeKind.MANIFEST, orphans, now_ms),
        ]
    )


def _remaining_bases(head: Snapshot) -> list[Base]:
    """Return the checkpoints that stay, and the one that a new checkpoint of the newest version builds on."""
    listing = list_log(head.context.store, from_version=head.version)
    origin = [head.segment.base] if head.segment.base is not None else []
    return [*listing.bases_newest_first(), *origin]


def _execute(head: Snapshot, files: pa.Table, runner: Runner) -> list[str]:
    """Delete the files, except for manifests that turn out to be in use. Returns the keys of those that are gone."""
    context = head.context
    deleted: list[str] = []
    write_checkpoint(head)
    listing = list_log(context.store, from_version=head.version)
    if not has_whole_checkpoint(context, listing.bases.get(head.version, ())):
        raise _unusable_checkpoint(head)
    for kind in (PurgeKind.CHECKPOINT, PurgeKind.VERSION, PurgeKind.MANIFEST):
        if kind is PurgeKind.MANIFEST:
            # Checkpoints that were written since the listing may refer to some of them.
            used = pa.array(sorted(checkpoint_files_in_use(context)), pa.string())
            files = files.filter(pc.invert(pc.is_in(files["path"], value_set=used)))
        keys = files.filter(pc.equal(files["kind"], kind.value))["path"].to_pylist()
        deletion = delete_keys(context, keys, runner, f"deleting old {kind.value}s")
        if deletion.first_error is not None:
            raise StorageError(
                f"{context.url}: a log file could not be deleted: {deletion.first_error}; version {head.version} is "
                f"intact: truncate again to delete the rest"
            )
        deleted += keys
    context.store.remove_empty_folders(STATE_PREFIX)
    context.cache.invalidate(context.store)
    return deleted


def _unusable_checkpoint(head: Snapshot) -> CheckpointCorruptionError | ConcurrentMaintenanceError:
    """Return the error for a checkpoint of the newest version that is damaged or was deleted."""
    context, version = head.context, head.version
    if version not in list_log(context.store, from_version=version).bases:
        return ConcurrentMaintenanceError(
            f"{context.url}: nothing was deleted, because a concurrent cleanup deleted version {version}; truncate "
            f"again"
        )
    return CheckpointCorruptionError(
        f"{context.url}: nothing was deleted, because the checkpoint of version {version} cannot be read to the last "
        f"entry; write a new one with CHECKPOINT"
    )
