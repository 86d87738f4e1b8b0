"""How far a run on the executors has come, told to whoever sits at a terminal."""

import sys
from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from indextables.ops.runner import Progress

# Spark's own switch for such lines.
_IS_SHOWN: Final = "spark.ui.showConsoleProgress"


def terminal_progress(spark: SparkSession) -> Callable[[Progress], None]:
    """Writes one line that changes, if standard error is a terminal and Spark shows its own progress, too."""
    is_shown = sys.stderr.isatty() and spark.conf.get(_IS_SHOWN, "true") == "true"
    return _write_line if is_shown else _keep_quiet


def _write_line(progress: Progress) -> None:
    is_done = progress.done == progress.total
    sys.stderr.write(f"\r\033[K{progress.description}: {progress.done} of {progress.total}")
    sys.stderr.write("\n" if is_done and progress.total else "")
    sys.stderr.flush()


def _keep_quiet(progress: Progress) -> None:
    del progress
