"""`repair_table`, for a table that cannot be opened, and the function behind it and `IndexTable.repair`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from indextables import ops
from indextables._public import public_call
from indextables.config.registry import READ_PARALLELISM
from indextables.table import TableContext
from indextables.table_reader import choose_runner

if TYPE_CHECKING:
    from indextables.ops.repair import RepairRequest, RepairResult
    from indextables.ops.runner import Progress, Runner


@public_call
def repair_table(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    swap: bool = False,
    log_only: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RepairResult:
    """Build a new log for a table whose log is damaged or gone.

    With a `target`, the table is only read: its splits are copied to the target, and the new log is written there.
    Without one, `swap` or `dry_run` is needed, unless the table has no log at all.

    Args:
        path: The damaged table.
        target: The path or URL of the repaired table.
        swap: Whether to replace the old log, which is kept in a folder beside the new one.
        log_only: Whether to write only the new log to `target`, and copy no splits.
        dry_run: Whether to report without writing.
        storage_options: Settings and credentials of the object store.
        options: Settings, as docs/configuration.md lists them.
        runner: Executes the tasks; threads of this process by default.
        progress: Called with the progress of the threads.

    Returns:
        What was recovered, what is missing, and what is undecided.

    Raises:
        InvalidOptionError: The arguments contradict each other.
        TableNotFoundError: There is neither a log nor a split at `path`.
        LogCorruptedError: Neither the log nor the splits tell the schema.
        TableAlreadyExistsError: `target` has a log already.

    Example:
        >>> from indextables import repair_table
        >>> repair_table("logs", "logs-repaired").num_files
        2
    """
    context = TableContext.at(path, storage_options, options)
    mode = ops.repair.RepairMode.of(swap=swap, log_only=log_only, dry_run=dry_run)
    return repair_context(context, ops.repair.RepairRequest(as_path(target), mode), runner, progress)


def as_path(path: str | os.PathLike[str] | None) -> str | None:
    """A path as text, if there is one."""
    return None if path is None else os.fspath(path)


def repair_context(
    context: TableContext,
    request: RepairRequest,
    runner: Runner | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RepairResult:
    """Repair a table, for callers that resolve its location and settings themselves."""
    return ops.repair.repair(context, request, choose_runner(context, READ_PARALLELISM, runner, progress))
