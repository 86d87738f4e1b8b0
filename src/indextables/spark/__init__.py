"""IndexTables on Spark: a ready session, and the data source `indextables`."""

from indextables.spark.availability import PYSPARK_VERSION
from indextables.spark.session import enable, session
from indextables.spark.source import IndexTablesSource

__all__ = ["PYSPARK_VERSION", "IndexTablesSource", "enable", "session"]
