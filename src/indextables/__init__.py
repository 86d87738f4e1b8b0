"""IndexTables: full-text search as a table format on the data lake."""

from indextables._version import __version__

__all__ = ["__version__"]
