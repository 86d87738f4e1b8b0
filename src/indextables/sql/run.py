"""From the text of a statement to its answer."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pyarrow as pa

from indextables.ops.checkpoint.manifests_by_runner import manifests_by_runner
from indextables.ops.runner import Progress, Runner
from indextables.sql import statements
from indextables.sql.caller import Caller, TableResolver
from indextables.sql.commands import caches, describe, environment, log, repair, splits
from indextables.sql.grammar import require_statement
from indextables.sql.statements import Statement


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
    with _work_on_manifests(statement, caller):
        return _COMMANDS[type(statement)](statement, caller)


def _work_on_manifests(statement: Statement, caller: Caller) -> AbstractContextManager[None]:
    target = getattr(statement, "target", None)
    if target is None or caller.runner is None:
        return nullcontext()
    return manifests_by_runner(caller.context(target), caller.runner)


# The types of the first arguments are those of the keys.
_COMMANDS: Final[Mapping[type[Statement], Callable[[Any, Caller], pa.Table]]] = {
    statements.Checkpoint: log.run_checkpoint,
    statements.Compact: log.run_compact,
    statements.DescribeState: describe.run_describe_state,
    statements.DescribeTransactionLog: describe.run_describe_log,
    statements.DescribeHistory: describe.run_describe_history,
    statements.DescribeMergeJobs: describe.run_describe_merge_jobs,
    statements.DescribeDiskCache: caches.run_describe_disk_cache,
    statements.DescribeEnvironment: environment.run_describe_environment,
    statements.MergeSplits: splits.run_merge,
    statements.Purge: splits.run_purge,
    statements.TruncateTimeTravel: log.run_truncate,
    statements.DropPartitions: splits.run_drop_partitions,
    statements.Repair: repair.run_repair,
    statements.InvalidateLogCache: caches.run_invalidate,
    statements.FlushDiskCache: caches.run_flush_disk_cache,
    statements.Fsck: splits.run_fsck,
    statements.Restore: log.run_restore,
}
