"""From the text of a statement to its answer."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from indextables.ops.runner import Progress, Runner
from indextables.statements import nodes
from indextables.statements.caller import Caller, TableResolver
from indextables.statements.commands import caches, describe, log, splits
from indextables.statements.grammar import require_statement
from indextables.statements.nodes import Statement


def sql(
    text: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    resolve_table: TableResolver | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> pa.Table:
    """Execute a statement of IndexTables, and return its answer with the columns that docs/sql.md lists.

    Tables are given as paths in quotes or, where `resolve_table` can look them up, by name. Without a `runner`,
    threads of this process do the work. Raises InvalidStatementError, with the place and the syntax, for a text that
    is no statement, InvalidPredicateError for its condition, and what the operation behind it raises.
    """
    caller = Caller(
        storage_options=dict(storage_options or {}),
        options=dict(options or {}),
        runner=runner,
        resolve_table=resolve_table,
        progress=progress,
    )
    return run_statement(require_statement(text), caller)


def run_statement(statement: Statement, caller: Caller) -> pa.Table:
    """Execute a statement. Raises what its operation raises, and InvalidStatementError for a name without a catalog.

    The caller's runner also works on the manifests of the table, if these are very many.
    """
    return _COMMANDS[type(statement)](statement, caller)


# The types of the first arguments are those of the keys.
_COMMANDS: Final[Mapping[type[Statement], Callable[[Any, Caller], pa.Table]]] = {
    nodes.Checkpoint: log.run_checkpoint,
    nodes.Compact: log.run_compact,
    nodes.DescribeState: describe.run_describe_state,
    nodes.DescribeTransactionLog: describe.run_describe_log,
    nodes.DescribeHistory: describe.run_describe_history,
    nodes.DescribeMergeJobs: describe.run_describe_merge_jobs,
    nodes.DescribeDiskCache: caches.run_describe_disk_cache,
    nodes.DescribeEnvironment: describe.run_describe_environment,
    nodes.MergeSplits: splits.run_merge,
    nodes.Purge: splits.run_purge,
    nodes.TruncateTimeTravel: log.run_truncate,
    nodes.DropPartitions: splits.run_drop_partitions,
    nodes.Repair: log.run_repair,
    nodes.InvalidateLogCache: caches.run_invalidate,
    nodes.FlushDiskCache: caches.run_flush_disk_cache,
    nodes.Fsck: splits.run_fsck,
    nodes.Restore: log.run_restore,
}
