"""The statements about one table. Each calls the façade or an operation, and answers with the result's `to_arrow()`."""

import pyarrow as pa

from indextables.errors import InvalidStatementError
from indextables.ops.columns import change_columns
from indextables.ops.delete import DeleteRequest, delete
from indextables.ops.expressions import Expression, expr
from indextables.ops.repair import RepairMode, RepairRequest
from indextables.ops.restore import RestoreRequest, restore
from indextables.ops.update import UpdateRequest, update
from indextables.ops.upsert import UpsertRequest, upsert
from indextables.ops.upsert_clauses import WhenMatched, WhenNotMatched
from indextables.ops.write import drop_partitions
from indextables.statements import nodes
from indextables.statements.alter import schema_changes
from indextables.statements.caller import Caller
from indextables.table_reader import as_predicate
from indextables.table_repair import repair_context


def run_checkpoint(statement: nodes.Checkpoint, caller: Caller) -> pa.Table:
    """See `IndexTable.checkpoint`."""
    return caller.table(statement.target).checkpoint(runner=caller.runner).to_arrow()


def run_compact(statement: nodes.Compact, caller: Caller) -> pa.Table:
    """See `IndexTable.compact`."""
    return caller.table(statement.target).compact(runner=caller.runner).to_arrow()


def run_describe_state(statement: nodes.DescribeState, caller: Caller) -> pa.Table:
    """See `IndexTable.describe_state`."""
    return caller.table(statement.target).describe_state()


def run_describe_log(statement: nodes.DescribeTransactionLog, caller: Caller) -> pa.Table:
    """See `IndexTable.describe_log`."""
    return caller.table(statement.target).describe_log(include_all=statement.includes_all)


def run_describe_history(statement: nodes.DescribeHistory, caller: Caller) -> pa.Table:
    """See `IndexTable.history`."""
    return caller.table(statement.target).history()


def run_merge(statement: nodes.MergeSplits, caller: Caller) -> pa.Table:
    """See `IndexTable.merge_splits`."""
    table = caller.table(statement.target)
    result = table.merge_splits(
        statement.target_bytes,
        statement.where,
        statement.max_dest_splits,
        statement.max_source_splits_per_merge,
        runner=caller.runner,
        progress=caller.progress,
    )
    return result.to_arrow()


def run_purge(statement: nodes.Purge, caller: Caller) -> pa.Table:
    """See `IndexTable.purge`."""
    table = caller.table(statement.target)
    result = table.purge(
        statement.older_than,
        statement.log_retention,
        statement.is_dry_run,
        runner=caller.runner,
        progress=caller.progress,
    )
    return result.to_arrow()


def run_truncate(statement: nodes.TruncateTimeTravel, caller: Caller) -> pa.Table:
    """See `IndexTable.truncate_time_travel`."""
    table = caller.table(statement.target)
    result = table.truncate_time_travel(statement.is_dry_run, runner=caller.runner, progress=caller.progress)
    return result.to_arrow()


def run_drop_partitions(statement: nodes.DropPartitions, caller: Caller) -> pa.Table:
    """See `ops.write.drop_partitions`."""
    return drop_partitions(caller.table(statement.target).snapshot, statement.where).to_arrow()


def run_delete(statement: nodes.Delete, caller: Caller) -> pa.Table:
    """See `ops.delete.delete`. As in SQL, all rows without a condition."""
    where = "true" if statement.where is None and statement.query is None else statement.where
    request = DeleteRequest(
        as_predicate(where), statement.query, statement.fields, dry_run=statement.is_dry_run
    )
    return delete(caller.table(statement.target).snapshot, request).to_arrow()


def run_alter(statement: nodes.Alter, caller: Caller) -> pa.Table:
    """See `ops.columns.change_columns`."""
    snapshot = caller.table(statement.target).snapshot
    return change_columns(snapshot, schema_changes(snapshot, statement.changes)).to_arrow()


def run_update(statement: nodes.Update, caller: Caller) -> pa.Table:
    """See `ops.update.update`. As in SQL, all rows without a condition."""
    where = "true" if statement.where is None and statement.query is None else statement.where
    values = {name: expr(sql) for name, sql in statement.values}
    if len(values) != len(statement.values):
        raise InvalidStatementError("UPDATE sets a column twice; name it once", position=0)
    request = UpdateRequest(
        values, as_predicate(where), statement.query, statement.fields, dry_run=statement.is_dry_run
    )
    return update(caller.table(statement.target).snapshot, request).to_arrow()


def run_merge_into(statement: nodes.MergeInto, caller: Caller) -> pa.Table:
    """See `ops.upsert.upsert`."""
    request = UpsertRequest(
        caller.rows(statement.source),
        dict(statement.on),
        tuple(WhenMatched(_values(each), _condition(each), each.is_delete) for each in statement.matched),
        tuple(WhenNotMatched(_values(each), _condition(each)) for each in statement.not_matched),
        statement.target_name,
        statement.source_name,
        statement.is_dry_run,
    )
    return upsert(caller.table(statement.target).snapshot, request).to_arrow()


def _values(clause: nodes.MergeClause) -> dict[str, Expression] | None:
    if clause.values is None:
        return None
    values = {name: expr(sql) for name, sql in clause.values}
    if len(values) != len(clause.values):
        raise InvalidStatementError("MERGE INTO sets a column twice in one clause; name it once", position=0)
    return values


def _condition(clause: nodes.MergeClause) -> Expression | None:
    return None if clause.condition is None else expr(clause.condition)


def run_restore(statement: nodes.Restore, caller: Caller) -> pa.Table:
    """See `ops.restore.restore`."""
    request = RestoreRequest(statement.version, statement.timestamp)
    return restore(caller.table(statement.target).snapshot, request).to_arrow()


def run_prewarm(statement: nodes.Prewarm, caller: Caller) -> pa.Table:
    """See `IndexTable.prewarm`."""
    table = caller.table(statement.target)
    result = table.prewarm(statement.fields, statement.where, runner=caller.runner, progress=caller.progress)
    return result.to_arrow()


def run_publish(statement: nodes.Publish, caller: Caller) -> pa.Table:
    """See `IndexTable.publish`."""
    return caller.table(statement.target).publish(statement.format).to_arrow()


def run_repair(statement: nodes.Repair, caller: Caller) -> pa.Table:
    """See `repair_table`: without a location the new log replaces the old one, with one the source is only read."""
    mode = RepairMode.SWAP if statement.location is None else RepairMode.COPY
    request = RepairRequest(statement.location, mode)
    return repair_context(
        caller.context(statement.target), request, caller.runner, caller.progress
    ).to_arrow()


def run_fsck(statement: nodes.Fsck, caller: Caller) -> pa.Table:
    """See `IndexTable.fsck`."""
    table = caller.table(statement.target)
    return table.fsck(statement.is_deep, runner=caller.runner, progress=caller.progress).to_arrow()
