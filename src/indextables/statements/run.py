"""From the text of a statement to its answer."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from indextables._public import public_call
from indextables.config import check_options
from indextables.ops.runner import Progress, Runner
from indextables.statements import nodes
from indextables.statements.caller import Caller, TableResolver
from indextables.statements.commands import process, tables
from indextables.statements.forms import is_select
from indextables.statements.grammar import require_statement
from indextables.statements.nodes import Statement


@public_call
def sql(
    text: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    resolve_table: TableResolver | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> pa.Table:
    """Execute a SQL statement of IndexTables or a SELECT, without Spark.

    Args:
        text: The statement, with the table as a path in quotes; docs/sql.md lists all statements. Or a query over
            tables and Parquet files, in which `_query = '…'` searches; docs/guide/select.md.
        storage_options: Settings and credentials of the object store.
        options: Settings, as docs/configuration.md lists them.
        runner: Executes the tasks; threads of this process by default.
        resolve_table: Returns the path of a table that the statement names without quotes.
        progress: Called with the progress of the threads.

    Returns:
        The answer as an Arrow table, with the columns that docs/sql.md lists, or those of the query.

    Raises:
        InvalidStatementError: The text is not a statement; the message has the position and the syntax.
        InvalidPredicateError: The condition is not a predicate, or does not fit the table.
        InvalidExpressionError: An expression cannot be evaluated.
        IndexTablesError: The operation failed; docs/sql.md and the methods of `IndexTable` list the causes.

    Example:
        >>> import indextables
        >>> indextables.sql("CHECKPOINT INDEXTABLES 'logs'")["status"].to_pylist()
        ['SUCCESS']
        >>> query = "SELECT level, count(*) AS n FROM 'logs' WHERE _query = 'timeout' GROUP BY level"
        >>> indextables.sql(query).to_pylist()
        [{'level': 'ERROR', 'n': 2}]
    """
    check_options(options or {})
    caller = Caller(
        storage_options=dict(storage_options or {}),
        options=dict(options or {}),
        runner=runner,
        resolve_table=resolve_table,
        progress=progress,
    )
    if is_select(text):
        return select_rows(text, caller).read_all()
    return run_statement(require_statement(text), caller)


def select_rows(text: str, caller: Caller) -> pa.RecordBatchReader:
    """The rows of a query, as they come. Raises what `run_select` raises."""
    # Imports DataFusion, which no statement needs.
    from indextables.statements.select import run_select

    return run_select(text, caller)


def run_statement(statement: Statement, caller: Caller) -> pa.Table:
    """Execute a statement. Raises what its operation raises, and InvalidStatementError for a name without a catalog.

    The caller's runner also reads and writes the manifests of very large tables.
    """
    return _COMMANDS[type(statement)](statement, caller)


# Each command takes a statement of the type of its key.
_COMMANDS: Final[Mapping[type[Statement], Callable[[Any, Caller], pa.Table]]] = {
    nodes.Checkpoint: tables.run_checkpoint,
    nodes.Compact: tables.run_compact,
    nodes.DescribeState: tables.run_describe_state,
    nodes.DescribeTransactionLog: tables.run_describe_log,
    nodes.DescribeHistory: tables.run_describe_history,
    nodes.DescribeMergeJobs: process.run_describe_merge_jobs,
    nodes.DescribeDiskCache: process.run_describe_disk_cache,
    nodes.DescribeEnvironment: process.run_describe_environment,
    nodes.MergeSplits: tables.run_merge,
    nodes.Purge: tables.run_purge,
    nodes.TruncateTimeTravel: tables.run_truncate,
    nodes.DropPartitions: tables.run_drop_partitions,
    nodes.Delete: tables.run_delete,
    nodes.Alter: tables.run_alter,
    nodes.Update: tables.run_update,
    nodes.MergeInto: tables.run_merge_into,
    nodes.Repair: tables.run_repair,
    nodes.Prewarm: tables.run_prewarm,
    nodes.Publish: tables.run_publish,
    nodes.InvalidateLogCache: process.run_invalidate,
    nodes.FlushDiskCache: process.run_flush_disk_cache,
    nodes.Fsck: tables.run_fsck,
    nodes.Restore: tables.run_restore,
}
