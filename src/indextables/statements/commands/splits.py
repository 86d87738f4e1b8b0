"""The statements that change which splits a table has, or delete their files, and the check of all of them."""

import pyarrow as pa
import pyarrow.compute as pc

from indextables.config.registry import MERGE_PARALLELISM, PURGE_PARALLELISM, READ_PARALLELISM
from indextables.errors import IndexTablesError
from indextables.ops.fsck.operation import fsck
from indextables.ops.fsck.report import FsckReport, Severity
from indextables.ops.merge import MergeReport, MergeRequest, merge_splits
from indextables.ops.purge.operation import purge
from indextables.ops.purge.report import PurgeKind, PurgeReport
from indextables.ops.write import drop_partitions
from indextables.predicates import parse_predicate
from indextables.statements import columns
from indextables.statements.caller import Caller
from indextables.statements.columns import Status, answer
from indextables.statements.commands.log import files_column
from indextables.statements.nodes import DropPartitions, Fsck, MergeSplits, Purge
from indextables.table import CommitResult, changes_since


def run_merge(statement: MergeSplits, caller: Caller) -> pa.Table:
    """See `ops.merge.merge_splits`."""
    snapshot = caller.snapshot(statement.target)
    request = MergeRequest(
        target_size=statement.target_bytes,
        where=None if statement.where is None else parse_predicate(statement.where),
        max_dest_splits=statement.max_dest_splits,
        max_source_splits_per_merge=statement.max_source_splits_per_merge,
    )
    report = merge_splits(snapshot, request, caller.runner_for(snapshot.context, MERGE_PARALLELISM)).report
    return answer(
        columns.MERGE,
        {
            "table_path": snapshot.context.url,
            "status": _merge_status(report),
            "version": report.version,
            "merged_groups": report.merged_groups,
            "source_splits": report.source_splits,
            "new_splits": report.new_splits,
            "rows": report.rows,
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "skipped": [{"path": bad.path, "reason": bad.reason} for bad in report.skipped],
            "given_up": [
                {"path": path, "reason": group.reason} for group in report.given_up for path in group.paths
            ],
            "message": f"{report.source_splits} splits became {report.new_splits}"
            if report.merged_groups
            else "nothing was merged",
        },
    )


def run_purge(statement: Purge, caller: Caller) -> pa.Table:
    """See `ops.purge.purge`."""
    snapshot = caller.snapshot(statement.target)
    report = purge(
        snapshot.context,
        statement.older_than,
        statement.log_retention,
        dry_run=statement.is_dry_run,
        runner=caller.runner_for(snapshot.context, PURGE_PARALLELISM),
    )
    counts = report.counts
    table = answer(
        columns.PURGE,
        {
            "table_path": report.url,
            "status": _purge_status(report),
            "version": report.version,
            "num_checkpoints": counts[PurgeKind.CHECKPOINT],
            "num_versions": counts[PurgeKind.VERSION],
            "num_manifests": counts[PurgeKind.MANIFEST],
            "num_removed_splits": counts[PurgeKind.REMOVED_SPLIT],
            "num_orphaned_splits": counts[PurgeKind.ORPHANED_SPLIT],
            "size_bytes": report.size_bytes,
            "num_deleted": report.num_deleted,
            "num_kept_for_time_travel": report.kept_for_time_travel,
            "num_left_over": report.left_over,
            "message": _purge_message(report),
        },
    )
    return files_column(table, report.files, is_deleted=False)


def run_drop_partitions(statement: DropPartitions, caller: Caller) -> pa.Table:
    """See `ops.drop_partitions.drop_partitions`."""
    result = drop_partitions(caller.snapshot(statement.target), statement.where)
    removed_files, removed_bytes = _removed(result)
    return answer(
        columns.DROP_PARTITIONS,
        {
            "table_path": result.snapshot.context.url,
            "status": Status.SUCCESS if result.is_committed else Status.NO_ACTION,
            "version": result.version,
            "removed_files": removed_files,
            "removed_bytes": removed_bytes,
            "message": f"dropped in version {result.version}; the files stay until a purge"
            if result.is_committed
            else "no partition matches, and nothing was committed",
        },
    )


def run_fsck(statement: Fsck, caller: Caller) -> pa.Table:
    """See `ops.fsck.fsck`."""
    snapshot = caller.snapshot(statement.target)
    runner = caller.runner_for(snapshot.context, READ_PARALLELISM)
    report = fsck(caller.context(statement.target), deep=statement.is_deep, runner=runner)
    warnings = sum(finding.severity is Severity.WARNING for finding in report.findings)
    return answer(
        columns.FSCK,
        {
            "table_path": report.url,
            "status": _fsck_status(report),
            "version": report.version,
            "versions_checked": report.versions_checked,
            "checkpoints_checked": report.checkpoints_checked,
            "splits_checked": report.splits_checked,
            "num_errors": len(report.errors),
            "num_warnings": warnings,
            "message": f"{len(report.errors)} errors and {warnings} warnings"
            if not report.is_clean
            else "nothing is wrong",
            "findings": report.to_arrow().to_pylist(),
        },
    )


def _merge_status(report: MergeReport) -> Status:
    if report.skipped or report.given_up:
        return Status.PARTIAL
    return Status.SUCCESS if report.merged_groups else Status.NO_ACTION


def _purge_status(report: PurgeReport) -> Status:
    if report.is_dry_run:
        return Status.DRY_RUN
    if report.failures.num_rows:
        return Status.FAILED
    return Status.SUCCESS if report.num_files else Status.NO_ACTION


def _purge_message(report: PurgeReport) -> str:
    if report.is_dry_run:
        return f"{report.num_files} files of {report.size_bytes} bytes would be deleted"
    failed = f"; {report.failures.num_rows} could not be" if report.failures.num_rows else ""
    return f"{report.num_deleted} of {report.num_files} files were deleted{failed}"


def _fsck_status(report: FsckReport) -> Status:
    if report.errors:
        return Status.FAILED
    return Status.SUCCESS if report.is_clean else Status.PARTIAL


def _removed(result: CommitResult) -> tuple[int | None, int | None]:
    """How many splits a commit removed, and their bytes; None if its version cannot be read any more."""
    if not result.is_committed:
        return 0, 0
    try:
        removes = changes_since(result.snapshot, result.version - 1).removes
    except IndexTablesError:
        # The commit stands, whatever happened to its version file since: that is no failure of the statement.
        return None, None
    return removes.num_rows, pc.sum(removes["size"]).as_py() or 0
