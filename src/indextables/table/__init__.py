"""The table on top of its log: snapshots, time travel, changes and transactions."""

from indextables.table.changes import ChangeSet, changes_since
from indextables.table.commit import CommitResult, Operation, commit
from indextables.table.context import TableContext
from indextables.table.create import create_table
from indextables.table.load import load_snapshot
from indextables.table.snapshot import FileSelection, Snapshot

__all__ = [
    "ChangeSet",
    "CommitResult",
    "FileSelection",
    "Operation",
    "Snapshot",
    "TableContext",
    "changes_since",
    "commit",
    "create_table",
    "load_snapshot",
]
