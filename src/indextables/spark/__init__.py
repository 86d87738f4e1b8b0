"""IndexTables on Spark: sessions that are ready to use, and the data source `indextables`."""

import sys
from typing import TYPE_CHECKING, Any

from indextables._arrow import hide_pandas_from_pyarrow
from indextables.spark.session import PYSPARK_VERSION, enable, session

if TYPE_CHECKING:
    from indextables.spark.source import IndexTablesSource

__all__ = ["PYSPARK_VERSION", "IndexTablesSource", "enable", "session"]


_is_planning = any(name.startswith("pyspark.sql.worker.") for name in sys.modules)
if _is_planning and "pyspark.worker" not in sys.modules:
    # Spark started this process for one planning step. No user code runs here, so pandas is not needed.
    hide_pandas_from_pyarrow()


def __getattr__(name: str) -> Any:
    if name != "IndexTablesSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from indextables.spark.source import IndexTablesSource

    return IndexTablesSource
