"""IndexTables on Spark: sessions that are ready to use, and the data source `indextables`."""

import sys
from typing import TYPE_CHECKING, Any

from indextables._arrow import hide_pandas_from_pyarrow
from indextables.spark.session import PYSPARK_VERSION, enable, session

if TYPE_CHECKING:
    from indextables.spark.source import IndexTablesSource

__all__ = ["PYSPARK_VERSION", "IndexTablesSource", "enable", "session"]


def _end_quietly() -> None:
    """Print no traceback when Spark closes the connection of this process, where this is a worker of Spark.

    A process for planning then tries to report that its input ended. Through a Unix socket that fails, and Spark's
    daemon prints the failure. The daemon looks its function up anew when it waits for the next piece of work.
    """
    daemon: Any = sys.modules["__main__"]
    spec = getattr(daemon, "__spec__", None)
    if spec is None or spec.name != "pyspark.daemon":
        return
    run_worker = daemon.worker

    def worker(*args: Any) -> int:
        try:
            return int(run_worker(*args))
        except BrokenPipeError:
            return 1

    daemon.worker = worker


_end_quietly()
_is_planning = any(name.startswith("pyspark.sql.worker.") for name in sys.modules)
if _is_planning and "pyspark.worker" not in sys.modules:
    # Spark started this process for one planning step. No user code runs here, so pandas is not needed.
    hide_pandas_from_pyarrow()


def __getattr__(name: str) -> Any:
    if name != "IndexTablesSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from indextables.spark.source import IndexTablesSource

    return IndexTablesSource
