"""REPAIR: a new log, in the place of the old one or at another location."""

import pyarrow as pa

from indextables.config.registry import READ_PARALLELISM
from indextables.ops.repair.operation import repair_in_place, repair_to
from indextables.ops.repair.report import RepairReport, RepairStatus
from indextables.sql import columns
from indextables.sql.caller import Caller
from indextables.sql.columns import schema_of
from indextables.sql.statements import Repair, TablePath


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
