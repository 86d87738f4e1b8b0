"""What the executors of a session are like: whether their Python has this package, and how many tasks they take."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from indextables._version import __version__
from indextables.errors import SparkUnavailableError

_ANSWER: Final = "host string, interpreter string, version string, problem string"
_CONNECT_MODULE: Final = "pyspark.sql.connect"


@dataclass(frozen=True, slots=True)
class Workers:
    """`slots` is how many tasks the session runs at once, as far as it knows."""

    slots: int


_KNOWN: WeakKeyDictionary[SparkSession, Workers] = WeakKeyDictionary()


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no context."""
    return type(spark).__module__.startswith(_CONNECT_MODULE)


def check_workers(spark: SparkSession) -> Workers:
    """Ask the executors, once for each session, whether they can do our work.

    A session on a local master needs no question: its workers are this installation. Raises SparkUnavailableError
    with the interpreter and the host if one lacks this package, or has another release of it.
    """
    known = _KNOWN.get(spark)
    if known is None:
        known = _local_workers(spark) or _asked(spark)
        _KNOWN[spark] = known
    return known


def _local_workers(spark: SparkSession) -> Workers | None:
    if is_connect(spark):
        return None
    master = str(spark.sparkContext.master)
    if master != "local" and not master.startswith("local["):
        return None
    return Workers(spark.sparkContext.defaultParallelism)


def _asked(spark: SparkSession) -> Workers:
    try:
        # As many rows as it takes for none of Spark's default number of partitions to be empty.
        answers = spark.range(1 << 16).mapInArrow(_probe(), _ANSWER).collect()
    except PySparkException as error:
        raise SparkUnavailableError(
            f"Python does not start on the executors: {_first_line(error)}; check that PYSPARK_PYTHON, or "
            f"spark.pyspark.python, names an interpreter that every worker has, with this version of Python"
        ) from error
    for answer in answers:
        if answer.version != __version__:
            raise SparkUnavailableError(_complaint(answer))
    return Workers(len(answers))


def _probe() -> Any:
    """A function for `mapInArrow` that also runs where this package is missing.

    It travels by value because it is made in a function, and so it must not use anything else of this module: what it
    needs it imports where it runs.
    """

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import socket
        import sys

        import pyarrow

        for _ in batches:
            pass
        version, problem = None, None
        try:
            importlib.import_module("indextables.spark.source")
            version = importlib.import_module("indextables._version").__version__
        except Exception as error:  # noqa: BLE001  # whatever it is, it has to be told
            problem = f"{type(error).__name__}: {error}"
        columns = [[socket.gethostname()], [sys.executable], [version], [problem]]
        arrays = [pyarrow.array(column, pyarrow.string()) for column in columns]
        yield pyarrow.record_batch(arrays, names=["host", "interpreter", "version", "problem"])

    return probe


def _complaint(answer: Any) -> str:
    worker = f"the Python of an executor, {answer.interpreter} on {answer.host},"
    if answer.version is not None:
        return (
            f"{worker} has indextables {answer.version}, and here it is {__version__}; install the same release on "
            f"both sides"
        )
    return (
        f"{worker} cannot import indextables ({answer.problem}); install it there (pip install indextables[spark]), or "
        f"let spark.pyspark.python name an environment that has it, see docs/cluster.md"
    )


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
