"""IndexTables: full-text search as a table format on the data lake.

`sql` is imported when it is first asked for: who opens a table and searches it does not need its parser.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from indextables import errors
from indextables._version import __version__
from indextables.index_table import IndexTable, repair_table
from indextables.log.actions import AddAction

if TYPE_CHECKING:
    from indextables.sql import sql

__all__ = ["AddAction", "IndexTable", "__version__", "errors", "repair_table", "sql"]


def __getattr__(name: str) -> Any:
    if name != "sql":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The package of that name, which can be called as its function.
    return import_module(f"{__name__}.sql")
