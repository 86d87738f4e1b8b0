"""IndexTables: full-text search as a table format on the data lake.

`IndexTable` opens, searches and changes a table; `write` puts data into one in a single step; `sql` executes a
statement; `repair_table` repairs a table that cannot be opened. Operations take frozen requests and return frozen
results; every result has `to_arrow()` and `to_dict()`. All errors derive from
`errors.IndexTablesError`.

Example:
    >>> import pyarrow as pa
    >>> from indextables import IndexTable
    >>> schema = pa.schema([("date", pa.string()), ("message", pa.string())])
    >>> events = IndexTable.create("events", schema, partition_by=["date"], text=["message"])
    >>> events.append(pa.table({"date": ["2026-01-31"], "message": ["connection timeout"]}))
    1
    >>> events.search("timeout")["message"].to_pylist()
    ['connection timeout']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from indextables import errors
from indextables._version import __version__

if TYPE_CHECKING:
    from indextables._results import Status
    from indextables.index_table import IndexTable
    from indextables.ingest.write import write
    from indextables.log.actions import AddAction
    from indextables.ops.checkpoint import CheckpointResult
    from indextables.ops.expressions import Expression, expr
    from indextables.ops.fsck import FsckResult
    from indextables.ops.merge import MergeRequest, MergeResult
    from indextables.ops.prewarm import PrewarmRequest, PrewarmResult
    from indextables.ops.publish import PublishFormat, PublishRequest, PublishResult
    from indextables.ops.purge import GarbageResult, PurgeRequest, PurgeResult
    from indextables.ops.repair import RepairMode, RepairRequest, RepairResult
    from indextables.ops.restore import RestoreRequest, RestoreResult
    from indextables.ops.search import SearchRequest
    from indextables.ops.truncate import TruncateResult
    from indextables.ops.write import DropPartitionsResult
    from indextables.search import DateHistogram, Histogram, Metric, Range, Ranges, Terms
    from indextables.statements import sql
    from indextables.table import ChangeSet, CommitResult, FileSelection
    from indextables.table_repair import repair_table

# Each name is imported at its first use, so that `import indextables` and short commands start fast.
_HOMES = {
    "AddAction": "indextables.log.actions",
    "ChangeSet": "indextables.table",
    "CheckpointResult": "indextables.ops.checkpoint",
    "CommitResult": "indextables.table",
    "DateHistogram": "indextables.search",
    "DropPartitionsResult": "indextables.ops.write",
    "Expression": "indextables.ops.expressions",
    "FileSelection": "indextables.table",
    "FsckResult": "indextables.ops.fsck",
    "GarbageResult": "indextables.ops.purge",
    "Histogram": "indextables.search",
    "IndexTable": "indextables.index_table",
    "MergeRequest": "indextables.ops.merge",
    "MergeResult": "indextables.ops.merge",
    "Metric": "indextables.search",
    "PrewarmRequest": "indextables.ops.prewarm",
    "PrewarmResult": "indextables.ops.prewarm",
    "PublishFormat": "indextables.ops.publish",
    "PublishRequest": "indextables.ops.publish",
    "PublishResult": "indextables.ops.publish",
    "PurgeRequest": "indextables.ops.purge",
    "PurgeResult": "indextables.ops.purge",
    "Range": "indextables.search",
    "Ranges": "indextables.search",
    "RepairMode": "indextables.ops.repair",
    "RepairRequest": "indextables.ops.repair",
    "RepairResult": "indextables.ops.repair",
    "RestoreRequest": "indextables.ops.restore",
    "RestoreResult": "indextables.ops.restore",
    "SearchRequest": "indextables.ops.search",
    "Status": "indextables._results",
    "Terms": "indextables.search",
    "TruncateResult": "indextables.ops.truncate",
    "expr": "indextables.ops.expressions",
    "repair_table": "indextables.table_repair",
    "sql": "indextables.statements",
    "write": "indextables.ingest.write",
}

__all__ = [
    "AddAction",
    "ChangeSet",
    "CheckpointResult",
    "CommitResult",
    "DateHistogram",
    "DropPartitionsResult",
    "Expression",
    "FileSelection",
    "FsckResult",
    "GarbageResult",
    "Histogram",
    "IndexTable",
    "MergeRequest",
    "MergeResult",
    "Metric",
    "PrewarmRequest",
    "PrewarmResult",
    "PublishFormat",
    "PublishRequest",
    "PublishResult",
    "PurgeRequest",
    "PurgeResult",
    "Range",
    "Ranges",
    "RepairMode",
    "RepairRequest",
    "RepairResult",
    "RestoreRequest",
    "RestoreResult",
    "SearchRequest",
    "Status",
    "Terms",
    "TruncateResult",
    "__version__",
    "errors",
    "expr",
    "repair_table",
    "sql",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
