"""The statements about the log itself: checkpoints, time travel, and going back in it."""

from collections.abc import Callable

import pyarrow as pa

from indextables.config.registry import PURGE_PARALLELISM
from indextables.ops.checkpoint.operation import CheckpointReport, compact, write_checkpoint
from indextables.ops.purge.report import PurgeKind
from indextables.ops.restore import restore
from indextables.ops.runner import Runner
from indextables.ops.truncate import truncate_time_travel
from indextables.predicates.literals import timestamp_ms
from indextables.sql import columns
from indextables.sql.caller import Caller
from indextables.sql.columns import Status, answer
from indextables.sql.commands.files import files_column
from indextables.sql.statements import Checkpoint, Compact, Restore, Target, TruncateTimeTravel
from indextables.table import Snapshot
from indextables.table.history import version_at


def run_checkpoint(statement: Checkpoint, caller: Caller) -> pa.Table:
    """See `ops.checkpoint.write_checkpoint`."""
    return _checkpointed(statement.target, caller, write_checkpoint)


def run_compact(statement: Compact, caller: Caller) -> pa.Table:
    """See `ops.checkpoint.compact`."""
    return _checkpointed(statement.target, caller, compact)


def run_truncate(statement: TruncateTimeTravel, caller: Caller) -> pa.Table:
    """See `ops.truncate.truncate_time_travel`."""
    snapshot = caller.snapshot(statement.target)
    runner = caller.runner_for(snapshot.context, PURGE_PARALLELISM)
    report = truncate_time_travel(snapshot.context, dry_run=statement.is_dry_run, runner=runner)
    verb = "would be deleted" if report.is_dry_run else "deleted"
    done = Status.SUCCESS if report.files.num_rows else Status.NO_ACTION
    versions = report.count(PurgeKind.VERSION)
    table = answer(
        columns.TRUNCATE,
        {
            "table_path": report.url,
            "status": Status.DRY_RUN if report.is_dry_run else done,
            "version": report.version,
            "num_versions": versions,
            "num_checkpoints": report.count(PurgeKind.CHECKPOINT),
            "num_manifests": report.count(PurgeKind.MANIFEST),
            "size_bytes": report.size_bytes,
            "message": f"{versions} older versions {verb}; version {report.version} is left",
        },
    )
    return files_column(table, report.files, is_deleted=not report.is_dry_run)


def run_restore(statement: Restore, caller: Caller) -> pa.Table:
    """See `ops.restore.restore`."""
    snapshot = caller.snapshot(statement.target)
    wanted = _wanted_version(snapshot, statement)
    result = restore(snapshot, wanted)
    restored = result.snapshot
    return answer(
        columns.RESTORE,
        {
            "table_path": restored.context.url,
            "status": Status.SUCCESS if result.is_committed else Status.NO_ACTION,
            "version": restored.version,
            "restored_version": wanted,
            "num_files": restored.num_files,
            "total_bytes": restored.total_bytes,
            "message": f"version {restored.version} is what version {wanted} was"
            if result.is_committed
            else f"the table is as it was at version {wanted}, and nothing was committed",
        },
    )


def _wanted_version(snapshot: Snapshot, statement: Restore) -> int:
    if statement.version is not None:
        return statement.version
    assert statement.timestamp is not None  # one of the two is there
    return version_at(snapshot.context, snapshot.version, timestamp_ms(statement.timestamp))


def _checkpointed(
    target: Target, caller: Caller, write: Callable[[Snapshot, Runner | None], CheckpointReport]
) -> pa.Table:
    snapshot = caller.snapshot(target)
    report = write(snapshot, caller.runner)
    return answer(
        columns.CHECKPOINT,
        {
            "table_path": snapshot.context.url,
            "status": Status.SUCCESS,
            "previous_format": report.previous_format,
            "new_format": report.new_format,
            "version": report.version,
            "num_files": report.num_files,
            "total_bytes": report.total_bytes,
            "message": f"version {report.version} has a checkpoint in the format {report.new_format}",
        },
    )
