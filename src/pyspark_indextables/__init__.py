"""Lets Spark find the data source `indextables` by itself, wherever this package is installed."""

from indextables.spark.source import IndexTablesSource as DefaultSource

__all__ = ["DefaultSource"]
