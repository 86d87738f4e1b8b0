"""What the executors of a session are like: whether their Python has this package, and how many tasks they take."""

import os
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from indextables._version import __version__
from indextables.errors import SparkUnavailableError

_ANSWER: Final = "host string, interpreter string, version string, problem string"
_REMEDY: Final = (
    "install the same release of it there (pip install indextables[spark]), or let spark.pyspark.python name an "
    "environment of every worker that has it, see docs/cluster.md"
)
_LOCAL_MASTER: Final = re.compile(r"local(\[(?P<threads>\d+|\*)(,\d+)?\])?")
_PYTHON_ERROR: Final = re.compile(r"[\w.]*(Error|Exception): ")
_CONNECT_MODULE: Final = "pyspark.sql.connect"


class Workers(msgspec.Struct, frozen=True):
    """`slots` is how many tasks the session runs at once, as far as it knows."""

    slots: int


# By the id of the application: its sessions share their executors.
_KNOWN: dict[str, Workers] = {}


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no context."""
    return type(spark).__module__.startswith(_CONNECT_MODULE)


def check_workers(spark: SparkSession) -> Workers:
    """Ask the executors, once for each application, whether they can do our work.

    A session on a local master needs no question: its workers are this installation. Raises SparkUnavailableError
    with the interpreter and the host if one lacks this package, or has another release of it.
    """
    application = spark.conf.get("spark.app.id", None)
    known = None if application is None else _KNOWN.get(application)
    if known is None:
        known = _local_workers(spark) or _asked(spark)
        if application is not None:
            _KNOWN[application] = known
    return known


def _local_workers(spark: SparkSession) -> Workers | None:
    local = _LOCAL_MASTER.fullmatch(spark.conf.get("spark.master", None) or "")
    if local is None:
        return None
    threads = local["threads"] or "1"
    return Workers(os.cpu_count() or 1 if threads == "*" else int(threads))


def _asked(spark: SparkSession) -> Workers:
    try:
        # As many rows as it takes for none of Spark's default number of partitions to be empty.
        answers = spark.range(1 << 16).mapInArrow(_probe(), _ANSWER).collect()
    except PySparkException as error:
        raise SparkUnavailableError(
            f"the Python of the executors, {_interpreter(spark)}, cannot run tasks: {_reason(error)}; {_REMEDY}"
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
    return f"{worker} cannot import indextables ({answer.problem}); {_REMEDY}"


def _interpreter(spark: SparkSession) -> str:
    """Which Python the executors were told to start."""
    configured = spark.conf.get("spark.pyspark.python", None)
    return os.environ.get("PYSPARK_PYTHON") or configured or "python3"


def _reason(error: Exception) -> str:
    """What Python said, if it said something, or else the first line of Spark's own words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (said or lines or [type(error).__name__])[0]
