"""IndexTables: full-text search as a table format on the data lake."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from indextables import errors
from indextables._version import __version__

if TYPE_CHECKING:
    from indextables.index_table import IndexTable, repair_table
    from indextables.log.actions import AddAction
    from indextables.statements import sql

__all__ = ["AddAction", "IndexTable", "__version__", "errors", "repair_table", "sql"]

# Imported when they are first asked for: a command that needs little of them starts at once.
_HOMES = {
    "AddAction": "indextables.log.actions",
    "IndexTable": "indextables.index_table",
    "repair_table": "indextables.index_table",
    "sql": "indextables.statements",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
