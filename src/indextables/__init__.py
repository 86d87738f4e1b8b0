"""IndexTables: full-text search as a table format on the data lake."""

from indextables import errors
from indextables._version import __version__
from indextables.index_table import IndexTable
from indextables.log.actions import AddAction
from indextables.sql import sql

__all__ = ["AddAction", "IndexTable", "__version__", "errors", "sql"]
