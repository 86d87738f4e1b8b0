"""The files that a statement deletes or would delete, as one value of its answer."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from indextables.config.registry import PURGE_PARALLELISM, READ_PARALLELISM
from indextables.ops.checkpoint.operation import CheckpointReport, compact, write_checkpoint
from indextables.ops.purge.report import PurgeKind
from indextables.ops.repair.operation import repair_in_place, repair_to
from indextables.ops.repair.report import RepairReport, RepairStatus
from indextables.ops.restore import restore
from indextables.ops.runner import Runner
from indextables.ops.truncate import truncate_time_travel
from indextables.predicates.literals import timestamp_ms
from indextables.statements import columns
from indextables.statements.caller import Caller
from indextables.statements.columns import FILE, Status, answer, schema_of
from indextables.statements.nodes import (
    Checkpoint,
    Compact,
    Repair,
    Restore,
    TablePath,
    Target,
    TruncateTimeTravel,
)
from indextables.table import Snapshot
from indextables.table.history import version_at


def files_column(table: pa.Table, files: pa.Table, *, is_deleted: bool) -> pa.Table:
    """An answer of one row with its column `files` filled.

    `files` has the columns of `DOOMED_SCHEMA`, perhaps with their outcomes; where there is none, `is_deleted` counts.
    """
    count = files.num_rows
    has_outcome = "isDeleted" in files.column_names
    values = [
        *(files[name] for name in ("path", "kind", "size", "ageHours")),
        files["isDeleted"] if has_outcome else pa.array(np.full(count, is_deleted)),
        files["error"] if has_outcome else pa.nulls(count, pa.string()),
    ]
    structs = pa.StructArray.from_arrays([_in_one_piece(value) for value in values], fields=list(FILE))
    listed = pa.LargeListArray.from_arrays(pa.array([0, count], pa.int64()), structs).cast(pa.list_(FILE))
    index = table.schema.get_field_index("files")
    return table.set_column(index, table.schema.field(index), listed)


def _in_one_piece(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# The statements about the log itself: checkpoints, time travel, and going back in it.


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


# REPAIR: a new log, in the place of the old one or at another location.


def run_repair(statement: Repair, caller: Caller) -> pa.Table:
    """See `ops.repair`: without a location `repair_in_place`, with one `repair_to`, which only reads the source."""
    context = caller.context(statement.target)
    runner = caller.runner_for(context, READ_PARALLELISM)
    if statement.location is None:
        report = repair_in_place(context, runner)
    else:
        report = repair_to(context, caller.context(TablePath(statement.location)), runner)
    answer = report.to_arrow().append_column("message", pa.array([_message(report)]))
    names = ["table_path" if name == "url" else name for name in answer.column_names]
    return answer.rename_columns(names).cast(schema_of(columns.REPAIR))


def _message(report: RepairReport) -> str:
    if report.status is RepairStatus.NO_ACTION:
        return "nothing is wrong with the log, and nothing was written"
    skipped = len(report.skipped_splits)
    lost = f"; {skipped} splits are missing or left out" if skipped else ""
    return f"version {report.version} of the new log has {report.num_files} splits{lost}"
