"""TRUNCATE TIME TRAVEL makes the newest version the only one that can be read.

It deletes no data: splits that only older versions refer to are left for PURGE. A writer that stalled since an older
version cannot reuse its number: the remaining checkpoint records which commit had it.
"""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config.registry import PURGE_PARALLELISM
from indextables.errors import (
    CheckpointCorruptionError,
    ConcurrentMaintenanceError,
    LogGapError,
    StorageError,
)
from indextables.log.paths import LOG_PREFIX
from indextables.log.protocol import check_writable
from indextables.log.segment import Base, build_listing, list_log
from indextables.ops.checkpoint.cleanup import has_whole_checkpoint
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.purge.garbage import checkpoint_files, checkpoint_files_in_use, delete_keys, find_orphans
from indextables.ops.purge.report import PurgeKind, doomed_files, store_now_ms
from indextables.ops.runner import LocalRunner, Runner
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, TableContext, load_snapshot


class TruncateReport(msgspec.Struct, frozen=True):
    """What a truncation deleted or, in a dry run, would delete: `files` has the columns of `DOOMED_SCHEMA`.

    `version` is the one that is left. `writes_checkpoint` says that there was none of it yet.
    """

    url: str
    version: int
    is_dry_run: bool
    writes_checkpoint: bool
    files: pa.Table

    def to_arrow(self) -> pa.Table:
        """One row for each file of the log that goes."""
        return self.files

    def count(self, kind: PurgeKind) -> int:
        """How many files of a kind go."""
        return pc.sum(pc.equal(self.files["kind"], kind.value)).as_py() or 0

    @property
    def size_bytes(self) -> int:
        """The size of all of them."""
        return pc.sum(self.files["size"]).as_py() or 0


def truncate_time_travel(
    context: TableContext, *, dry_run: bool, runner: Runner | None = None
) -> TruncateReport:
    """Delete, or with `dry_run` only list, all versions before the newest one, and their checkpoints.

    First, a checkpoint of the newest version is written, if there is none, and read to the last entry. Unreferenced
    manifests are deleted unless they are young. Concurrent commits are not affected.

    With nothing deleted, raises LogGapError, UnsupportedProtocolError, ClockSkewError, LogCorruptedError, and
    ConcurrentMaintenanceError if a concurrent cleanup deleted the newest version. Raises StorageError if a file could
    not be deleted; the newest version stays readable.
    """
    now_ms = store_now_ms(context)
    # List before reading the log: files that are written later are not in the listing and stay.
    metas = list(context.store.list(LOG_PREFIX))
    head = load_snapshot(context)
    _check_may_truncate(head)
    files = _doomed(head, metas, now_ms)
    report = TruncateReport(
        url=context.url,
        version=head.version,
        is_dry_run=dry_run,
        writes_checkpoint=head.version not in build_listing(metas).bases,
        files=files,
    )
    if not dry_run:
        _execute(head, files, runner or LocalRunner(context.settings[PURGE_PARALLELISM]))
    return report


def _check_may_truncate(head: Snapshot) -> None:
    check_writable(head.protocol, head.context.url)
    if head.gap is not None:
        raise LogGapError(
            f"{head.context.url}: nothing was deleted, because version {head.gap.first_missing} is missing or "
            f"unreadable although version {head.gap.newest} exists; restore the file, or rebuild the log with "
            f"REPAIR INDEXFILES TRANSACTION LOG"
        )


def _doomed(head: Snapshot, metas: Sequence[ObjectMeta], now_ms: int) -> pa.Table:
    """Older checkpoints and versions, and manifests that neither the newest checkpoint nor the next one refers to."""
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
    """The checkpoints that stay, and the one that a new checkpoint of the newest version builds on."""
    listing = list_log(head.context.store, from_version=head.version)
    origin = [head.segment.base] if head.segment.base is not None else []
    return [*listing.bases_newest_first(), *origin]


def _execute(head: Snapshot, files: pa.Table, runner: Runner) -> None:
    context = head.context
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
    context.cache.invalidate(context.store)


def _unusable_checkpoint(head: Snapshot) -> CheckpointCorruptionError | ConcurrentMaintenanceError:
    """The error for a checkpoint of the newest version that is damaged or was deleted."""
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
