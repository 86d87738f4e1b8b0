"""Spark's errors, as ours."""

import contextlib
import os
import pickle
import re
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from indextables._caching import LruCache, shared_cache
from indextables._version import __version__
from indextables.errors import (
    OperationInterruptedError,
    SparkFailedError,
    SparkUnavailableError,
    WorkerLostError,
)
from indextables.ops.runner import Failed, Interruption, Progress, Succeeded, Task, TaskOutcome


@contextlib.contextmanager
def explaining(what: str) -> Iterator[None]:
    """Raise SparkFailedError, with the first line of the reason and without the stack, for what Spark raises."""
    try:
        yield
    except PySparkException as error:
        reason = str(error).partition("\n")[0]
        raise SparkFailedError(f"Spark could not {what}: {reason}") from error


# How far a run on the executors has come, told to whoever sits at a terminal.


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


# What the executors of a session are like: whether their Python has this package, and how many tasks they
# take.


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
_KNOWN: LruCache[str, Workers] = shared_cache(
    "spark.jobs.workers", "executors by application", max_entries=16
)


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
            _KNOWN.put(application, known)
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


# Runs the tasks of an operation on Spark's executors, on a classic session or by Spark Connect.
#
# A few tasks make up a Spark job, submitted by a thread for each job that can run at once. So results come as
# soon as they are there, and what is finished when somebody stops a run is known, and can be taken back.


T = TypeVar("T")

_OUTCOME: Final = "outcome binary"
# How long closing waits before it asks again for jobs to stop: one may just be on its way to Spark.
_ASK_AGAIN_SECONDS: Final = 0.5


# A job costs as much as many a task. Each slot gets several jobs all the same, so that none of them waits long for
# the others at the end.
_MAX_TASKS_PER_JOB: Final = 8
_JOBS_PER_SLOT: Final = 4


class SparkRunner:
    """Runs up to `parallelism` jobs of a few tasks at once; 0 is as many as the executors have room for.

    Tasks run in other processes: they and their results must be picklable. `progress` is told whenever tasks are done;
    without it, a terminal is. A task whose executor is lost is tried again by Spark, then alone, and then fails with a
    WorkerLostError. Jobs that are running when a run is closed are killed: what they have uploaded by then stays
    behind as orphans, for a purge. Spark's pages show each job with the description of the run.
    """

    def __init__(
        self,
        spark: SparkSession,
        parallelism: int = 0,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._spark = spark
        self._parallelism = parallelism
        self._progress = progress or terminal_progress(spark)

    def run(self, description: str, tasks: Sequence[Task[T]]) -> Generator[TaskOutcome[T], None, None]:
        """See `Runner.run`. Raises SparkUnavailableError if the executors lack this package.

        A task that cannot be pickled is the caller's mistake: its error ends the run.
        """
        self._progress(Progress(description, 0, len(tasks)))
        if tasks:
            workers = check_workers(self._spark)
            yield from self._run(description, tasks, min(self._parallelism or workers.slots, len(tasks)))

    def _run(
        self, description: str, tasks: Sequence[Task[T]], slots: int
    ) -> Generator[TaskOutcome[T], None, None]:
        waiting = _chunks(len(tasks), slots)
        jobs = _Jobs(self._spark, description, len(tasks))
        running: dict[Future[list[TaskOutcome[T]]], _Chunk] = {}
        received: deque[TaskOutcome[T]] = deque()
        done = 0
        with ThreadPoolExecutor(slots, "indextables-spark") as pool:
            try:
                while True:
                    while waiting and len(running) < slots:
                        # As late as possible, since some tasks are large.
                        chunk = [(index, _pickled(tasks[index])) for index in waiting.popleft()]
                        running[pool.submit(jobs.run, chunk)] = chunk
                    if not running:
                        return
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        chunk = running.pop(future)
                        if len(chunk) > 1 and _is_lost(future.result()):
                            waiting.extendleft([index] for index, _ in chunk)
                        else:
                            received += future.result()
                    while received:
                        done += 1
                        self._progress(Progress(description, done, len(tasks)))
                        yield received.popleft()
            finally:
                jobs.stop(running)
                for future in running:
                    received += future.result()
                for outcome in received:
                    if isinstance(outcome, Succeeded):
                        tasks[outcome.index].discard(outcome.result)


# Tasks that travel together: their numbers, and what they are, pickled.
_Chunk: TypeAlias = list[tuple[int, bytes]]


class _Jobs:
    """The Spark jobs of one run, which can be stopped together."""

    def __init__(self, spark: SparkSession, description: str, total: int) -> None:
        self._spark = spark
        self._description = description
        self._total = total
        self._name = f"indextables-{uuid.uuid4().hex}"
        self._is_stopped = threading.Event()

    def run(self, chunk: _Chunk) -> list[TaskOutcome[Any]]:
        """The outcomes of tasks. Raises nothing."""
        last = chunk[-1][0] + 1
        title = f"{self._description}: {last} of {self._total}"
        if self._is_stopped.is_set():
            return _all_failed(chunk, OperationInterruptedError(f"{title} was stopped before it began"))
        try:
            self._mark(title)
            rows = self._spark.range(0, 1, 1, 1).mapInArrow(_running(chunk), _OUTCOME).collect()
            return [pickle.loads(bytes(row.outcome)) for row in rows]  # noqa: S301  # our own tasks wrote them
        except PySparkException as error:
            return _all_failed(
                chunk, WorkerLostError(f"Spark gave up a task ({title}): {_last_lines(error)}")
            )
        except Exception as error:  # noqa: BLE001  # it belongs to the tasks, whatever it is
            return _all_failed(chunk, WorkerLostError(f"a task could not be run by Spark ({title}): {error}"))

    def stop(self, running: Iterable[Future[Any]]) -> None:
        """Kill what still runs; returns when nothing does."""
        self._is_stopped.set()
        left = {future for future in running if not future.done()}
        while left:
            self._interrupt()
            _, left = wait(left, timeout=_ASK_AGAIN_SECONDS)

    def _mark(self, title: str) -> None:
        """Label the jobs of this thread."""
        if is_connect(self._spark):
            self._spark.addTag(self._name)
        else:
            self._spark.sparkContext.setJobGroup(self._name, title, interruptOnCancel=True)

    def _interrupt(self) -> None:
        if is_connect(self._spark):
            self._spark.interruptTag(self._name)
        else:
            # Tags of a classic session belong to the thread that has set them.
            self._spark.sparkContext.cancelJobGroup(self._name)


def run_pickled(index: int, task: bytes) -> bytes:
    """Run a pickled task on an executor; returns its outcome, pickled."""
    try:
        return _pickled(Succeeded(index, cloudpickle.loads(task).run(Interruption())))
    except Exception as error:  # noqa: BLE001  # errors travel, and are told to whoever waits
        return _pickled_error(index, error)


def _chunks(num_tasks: int, slots: int) -> deque[Sequence[int]]:
    """The numbers of the tasks that make up each job."""
    size = max(1, min(_MAX_TASKS_PER_JOB, num_tasks // (slots * _JOBS_PER_SLOT)))
    return deque(range(start, min(start + size, num_tasks)) for start in range(0, num_tasks, size))


def _running(chunk: _Chunk) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for index, task in chunk:
                outcome = pa.array([run_pickled(index, task)], pa.binary())
                yield pa.record_batch([outcome], names=["outcome"])

    return run


def _is_lost(outcomes: Sequence[TaskOutcome[Any]]) -> bool:
    """Whether all tasks of a job went down together, so that nobody knows which of them is to blame."""
    return all(
        isinstance(outcome, Failed) and isinstance(outcome.error, WorkerLostError) for outcome in outcomes
    )


def _all_failed(chunk: _Chunk, error: Exception) -> list[TaskOutcome[Any]]:
    return [Failed(index, error) for index, _ in chunk]


def _pickled_error(index: int, error: Exception) -> bytes:
    try:
        pickled = _pickled(Failed(index, error))
        pickle.loads(pickled)  # noqa: S301  # made in the line before
    except Exception:  # noqa: BLE001  # such an error cannot travel: its text can
        return _pickled(Failed(index, WorkerLostError(f"{type(error).__name__}: {error}")))
    return pickled


def _pickled(value: object) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]  # it comes without types


def _last_lines(error: Exception) -> str:
    """What a Python process said last, or what Spark says, without the trace through the JVM."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "File ", "Traceback"))]
    return " ".join(said[:3])
