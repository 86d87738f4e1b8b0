"""Runs the tasks of an operation on Spark's executors, on a classic session or by Spark Connect.

Every task is a Spark job of its own, submitted by a thread for each that can run at once. So results come as soon as
they are there, and what is finished when somebody stops a run is known, and can be taken back.
"""

import pickle
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from indextables.errors import OperationInterruptedError, WorkerLostError
from indextables.ops.runner import Failed, Interruption, Progress, Succeeded, Task, TaskOutcome
from indextables.spark.jobs.terminal import terminal_progress
from indextables.spark.jobs.workers import check_workers, is_connect

T = TypeVar("T")

_OUTCOME: Final = "outcome binary"
# How long closing waits before it asks again for jobs to stop: one may just be on its way to Spark.
_ASK_AGAIN_SECONDS: Final = 0.5


class SparkRunner:
    """Runs up to `parallelism` tasks at once; 0 is as many as the executors have room for.

    Tasks run in other processes: they and their results must be picklable. `progress` is told whenever a task is done;
    without it, a terminal is. A task whose executor is lost is tried again by Spark, and then fails with a
    WorkerLostError. Tasks that are running when a run is closed are killed: what they have uploaded by then stays
    behind as orphans, for a purge. Spark's pages show each task as a job with the description of the run.
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
        """See `Runner.run`. Raises SparkUnavailableError if the executors lack this package."""
        self._progress(Progress(description, 0, len(tasks)))
        if tasks:
            workers = check_workers(self._spark)
            yield from self._run(description, tasks, min(self._parallelism or workers.slots, len(tasks)))

    def _run(
        self, description: str, tasks: Sequence[Task[T]], slots: int
    ) -> Generator[TaskOutcome[T], None, None]:
        # Before anything runs: a task that cannot travel is the caller's mistake.
        waiting = iter([(index, _pickled(task)) for index, task in enumerate(tasks)])
        jobs = _Jobs(self._spark)
        running: dict[Future[TaskOutcome[T]], Task[T]] = {}
        done = 0
        with ThreadPoolExecutor(slots, "indextables-spark") as pool:
            try:
                while True:
                    for index, task in islice(waiting, slots - len(running)):
                        title = f"{description}: {index + 1} of {len(tasks)}"
                        running[pool.submit(jobs.run, index, title, task)] = tasks[index]
                    if not running:
                        return
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        done += 1
                        self._progress(Progress(description, done, len(tasks)))
                        # Until it is handed over it counts as not received.
                        del running[future]
                        yield future.result()
            finally:
                jobs.stop(running)
                for future, given_up in running.items():
                    outcome = future.result()
                    if isinstance(outcome, Succeeded):
                        given_up.discard(outcome.result)


class _Jobs:
    """The Spark jobs of one run, which can be stopped together."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"indextables-{uuid.uuid4().hex}"
        self._is_stopped = threading.Event()

    def run(self, index: int, title: str, task: bytes) -> TaskOutcome[Any]:
        """The outcome of a task. Raises nothing."""
        if self._is_stopped.is_set():
            return Failed(
                index, OperationInterruptedError("the operation was stopped before this task began")
            )
        try:
            self._mark(title)
            (row,) = self._spark.range(0, 1, 1, 1).mapInArrow(_running(index, task), _OUTCOME).collect()
            outcome: TaskOutcome[Any] = pickle.loads(bytes(row.outcome))  # noqa: S301  # our own task wrote it
        except PySparkException as error:
            return Failed(index, WorkerLostError(f"Spark gave up a task ({title}): {_last_lines(error)}"))
        except Exception as error:  # noqa: BLE001  # it belongs to the task, whatever it is
            return Failed(index, WorkerLostError(f"a task could not be run by Spark ({title}): {error}"))
        return outcome

    def stop(self, running: Iterable[Future[Any]]) -> None:
        """Kill what still runs; returns when nothing does."""
        self._is_stopped.set()
        left = {future for future in running if not future.done()}
        while left:
            self._spark.interruptTag(self._tag)
            _, left = wait(left, timeout=_ASK_AGAIN_SECONDS)

    def _mark(self, title: str) -> None:
        """Label the jobs of this thread."""
        self._spark.addTag(self._tag)
        if not is_connect(self._spark):
            self._spark.sparkContext.setJobDescription(title)


def run_pickled(index: int, task: bytes) -> bytes:
    """Run a pickled task on an executor; returns its outcome, pickled."""
    try:
        return _pickled(Succeeded(index, cloudpickle.loads(task).run(Interruption())))
    except Exception as error:  # noqa: BLE001  # errors travel, and are told to whoever waits
        return _pickled_error(index, error)


def _running(index: int, task: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch([pa.array([run_pickled(index, task)], pa.binary())], names=["outcome"])

    return run


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
