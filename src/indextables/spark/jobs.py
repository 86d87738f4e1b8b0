"""Runs the tasks of an operation on Spark's executors, on a classic session or through Spark Connect.

Also here: the check that executors have this package, progress on the terminal, and the translation of Spark's errors.
"""

import contextlib
import logging
import os
import pickle
import re
import socket
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from indextables._caching import LruCache, shared_cache
from indextables._version import __version__
from indextables.errors import (
    IndexCacheError,
    OperationInterruptedError,
    SparkFailedError,
    SparkUnavailableError,
    WorkerLostError,
)
from indextables.ops.runner import (
    Failed,
    Host,
    HostOutcome,
    HostTask,
    Interruption,
    Progress,
    Succeeded,
    Task,
    TaskOutcome,
    on_this_host,
)

T = TypeVar("T")

# The tasks of one job: their indexes, and the pickled tasks.
_Chunk: TypeAlias = list[tuple[int, bytes]]

# A job costs about as much as a short task, so each job runs several tasks. Each slot still gets several jobs, so that
# the slots finish at about the same time.
_MAX_TASKS_PER_JOB: Final = 8
_JOBS_PER_SLOT: Final = 4

_OUTCOME_SCHEMA: Final = "outcome binary"
# How often a closing run cancels its jobs again: a job may reach Spark only after the first request.
_CANCEL_AGAIN_SECONDS: Final = 0.5


class SparkRunner:
    """Runs tasks on Spark's executors, up to `parallelism` jobs at once; 0 uses all task slots.

    A run submits jobs of a few tasks each, one thread per concurrent job. So results arrive early, and a run that is
    stopped knows which tasks finished and can discard their results.

    Tasks run in other processes: tasks and results must be picklable. `progress` is called as tasks finish; by default
    progress goes to the terminal. If an executor dies, Spark retries the task, then the runner retries it in a job of
    its own, then it fails with WorkerLostError. Closing a run kills its running jobs; files they uploaded remain as
    orphans for PURGE. Spark's UI shows each job under the description of the run.
    """

    def __init__(
        self,
        spark: SparkSession,
        parallelism: int = 0,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._spark = spark
        self._parallelism = parallelism
        self._progress = progress or _terminal_progress(spark)

    def run(self, description: str, tasks: Sequence[Task[T]]) -> Generator[TaskOutcome[T], None, None]:
        """See `Runner.run`. Raises SparkUnavailableError if the executors lack this package.

        A task that cannot be pickled is a bug of the caller: its error ends the run.
        """
        self._progress(Progress(description, 0, len(tasks)))
        if tasks:
            workers = check_workers(self._spark)
            yield from self._run(description, tasks, min(self._parallelism or workers.slots, len(tasks)))

    def run_on_hosts(
        self, description: str, tasks: Sequence[HostTask[T]]
    ) -> Generator[HostOutcome[T], None, None]:
        """See `Runner.run_on_hosts`. The hosts are those that have an executor now; see `_HostRun`.

        Raises SparkUnavailableError, and SparkFailedError if a job fails.
        """
        if _local_workers(self._spark) is not None:
            with contextlib.closing(self.run(description, tasks)) as outcomes:
                yield from on_this_host(tasks, outcomes)
            return
        self._progress(Progress(description, 0, len(tasks)))
        if tasks:
            slots = check_workers(self._spark).slots
            yield from _HostRun(self._spark, description, tasks, slots).run(self._progress)

    def _run(
        self, description: str, tasks: Sequence[Task[T]], slots: int
    ) -> Generator[TaskOutcome[T], None, None]:
        waiting = _task_indexes_by_job(len(tasks), slots)
        jobs = _Jobs(self._spark, description, len(tasks))
        running: dict[Future[list[TaskOutcome[T]]], _Chunk] = {}
        received: deque[TaskOutcome[T]] = deque()
        done = 0
        with ThreadPoolExecutor(slots, "indextables-spark") as pool:
            try:
                while True:
                    while waiting and len(running) < slots:
                        # Pickle as late as possible: some tasks are large.
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


class _Jobs:
    """The Spark jobs of one run, which are cancelled together."""

    def __init__(self, spark: SparkSession, description: str, total: int) -> None:
        self._spark = spark
        self._description = description
        self._total = total
        self._group = f"indextables-{uuid.uuid4().hex}"
        self._is_stopped = threading.Event()

    def run(self, chunk: _Chunk) -> list[TaskOutcome[Any]]:
        """Run tasks in one job. Failures are outcomes; this raises nothing."""
        last = chunk[-1][0] + 1
        title = f"{self._description}: {last} of {self._total}"
        if self._is_stopped.is_set():
            return _all_failed(chunk, OperationInterruptedError(f"{title} was stopped before it started"))
        try:
            self._label_thread(title)
            rows = (
                self._spark.range(0, 1, 1, 1).mapInArrow(_run_in_executor(chunk), _OUTCOME_SCHEMA).collect()
            )
            return [pickle.loads(bytes(row.outcome)) for row in rows]  # noqa: S301  # written by our own tasks
        except PySparkException as error:
            return _all_failed(
                chunk, WorkerLostError(f"Spark gave up on a task ({title}): {_first_lines(error)}")
            )
        except Exception as error:  # noqa: BLE001  # any error is an outcome of the tasks
            return _all_failed(chunk, WorkerLostError(f"Spark could not run a task ({title}): {error}"))

    def stop(self, running: Iterable[Future[Any]]) -> None:
        """Cancel the running jobs, and wait until all have ended."""
        self._is_stopped.set()
        left = {future for future in running if not future.done()}
        while left:
            self._cancel()
            _, left = wait(left, timeout=_CANCEL_AGAIN_SECONDS)

    def run_everywhere(
        self, width: int, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> list[Any]:
        """Run a function in so many tasks of one job, and return the rows of all. Raises SparkFailedError."""
        with translate_spark_errors(f"run tasks on every host ({self._description})"):
            self._label_thread(self._description)
            frame = self._spark.range(0, width, 1, width)
            return frame.mapInArrow(function, _HOST_SCHEMA).collect()

    def _label_thread(self, title: str) -> None:
        """Label the jobs that this thread submits."""
        if is_connect(self._spark):
            self._spark.addTag(self._group)
        else:
            self._spark.sparkContext.setJobGroup(self._group, title, interruptOnCancel=True)

    def _cancel(self) -> None:
        if is_connect(self._spark):
            self._spark.interruptTag(self._group)
        else:
            # On a classic session, tags belong to the thread that set them; job groups do not.
            self._spark.sparkContext.cancelJobGroup(self._group)


# Tasks on every host. Spark has no such thing, but it offers the tasks of a job to all free executors in turn: a job
# with as many tasks as there are slots reaches every executor that is not busy. The processes of a host claim what is
# to be done there one by one. What a lost process had claimed is missing from the answers, and is done again.

_HOST_SCHEMA: Final = "host binary, executor string, outcome binary"
# A job has at least so many tasks of the operation, or as many as there are slots; progress advances by jobs.
_MIN_TASKS_PER_HOST_JOB: Final = 32
# How long to wait, again and again, for executors that are busy.
_PAUSES_SECONDS: Final = (1.0, 2.0, 4.0)

_logger = logging.getLogger(__name__)


class _HostRun(Generic[T]):
    """A run of tasks on every host that has an executor.

    An executor whose slots are all busy with other work for several seconds is left out, with a warning; so is one
    that starts later. Through Spark Connect the number of executors is not known, so none is waited for.
    """

    def __init__(
        self, spark: SparkSession, description: str, tasks: Sequence[HostTask[T]], slots: int
    ) -> None:
        self._spark = spark
        self._tasks = tasks
        self._width = max(slots, _num_executors(spark) or 0)
        self._jobs = _Jobs(spark, description, len(tasks))
        self._description = description
        self._executors: set[str] = set()
        self._answered: dict[Host, set[int]] = {}

    def run(self, progress: Callable[[Progress], None]) -> Generator[HostOutcome[T], None, None]:
        """Find the hosts, and run the tasks on each."""
        self._find_hosts()
        size = max(_MIN_TASKS_PER_HOST_JOB, self._width)
        for start in range(0, len(self._tasks), size):
            end = min(start + size, len(self._tasks))
            yield from self._run_job(range(start, end), None)
            progress(Progress(self._description, end, len(self._tasks)))
        for pause in _PAUSES_SECONDS:
            missing = self._missing()
            if not missing:
                return
            time.sleep(pause)
            indexes = sorted(frozenset().union(*missing.values()))
            wanted = {host.identity: indexes for host, indexes in missing.items()}
            yield from self._run_job(indexes, wanted)
        for host, lost in self._missing().items():
            for index in sorted(lost):
                error = WorkerLostError(
                    f"{self._description}: no executor on {host.name} finished a task; try again"
                )
                yield HostOutcome(host, Failed(index, error))

    def _find_hosts(self) -> None:
        """Run a job that only says where it runs, until all executors have answered."""
        expected = 0
        for pause in (0.0, *_PAUSES_SECONDS):
            time.sleep(pause)
            for _ in self._run_job([0], {}):
                raise AssertionError("a host ran a task that it was not asked to")
            expected = _num_executors(self._spark) or 0
            if len(self._executors) >= expected:
                return
            self._width = max(2 * self._width, expected)
        _logger.warning(
            "%s: %d of %d executors ran no task, because they were busy; their hosts may be left out",
            self._description,
            expected - len(self._executors),
            expected,
        )

    def _missing(self) -> dict[Host, frozenset[int]]:
        everything = frozenset(range(len(self._tasks)))
        missing = {host: everything - answered for host, answered in self._answered.items()}
        return {host: indexes for host, indexes in missing.items() if indexes}

    def _run_job(
        self, indexes: Iterable[int], wanted: Mapping[str, frozenset[int]] | None
    ) -> Iterator[HostOutcome[T]]:
        """Run tasks on every host, or those that `wanted` has for it. Each outcome is yielded once."""
        chunk = [(index, _pickled(self._tasks[index])) for index in indexes]
        function = _run_on_host(chunk, f"claims-{uuid.uuid4().hex}", wanted)
        # In a thread of its own, because the label of a job stays with the thread.
        with ThreadPoolExecutor(1, "indextables-spark") as pool:
            running = pool.submit(self._jobs.run_everywhere, self._width, function)
            try:
                rows = running.result()
            except BaseException:
                self._jobs.stop([running])
                raise
        for row in rows:
            host: Host = pickle.loads(bytes(row.host))  # noqa: S301  # written by our own tasks
            self._executors.add(row.executor)
            answered = self._answered.setdefault(host, set())
            if row.outcome is not None:
                outcome: TaskOutcome[T] = pickle.loads(bytes(row.outcome))  # noqa: S301
                if outcome.index not in answered:
                    answered.add(outcome.index)
                    yield HostOutcome(host, outcome)


def _run_on_host(
    chunk: _Chunk, work: str, wanted: Mapping[str, frozenset[int]] | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def answer(host: Host, outcome: bytes | None) -> pa.RecordBatch:
        values = [[_pickled(host)], [_executor()], [outcome]]
        types = [pa.binary(), pa.string(), pa.binary()]
        arrays = [pa.array(value, kind) for value, kind in zip(values, types, strict=True)]
        return pa.record_batch(arrays, names=["host", "executor", "outcome"])

    def asked_of(host: Host) -> _Chunk:
        return [each for each in chunk if wanted is None or each[0] in wanted.get(host.identity, ())]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        cache = cloudpickle.loads(chunk[0][1]).cache()
        try:
            host = Host.this(cache)
            yield answer(host, None)
            with cache.claims(work) as claim:
                for index, task in asked_of(host):
                    if claim(index):
                        yield answer(host, _run_pickled(index, task))
        except IndexCacheError as error:
            unusable = Host(socket.gethostname(), str(cache.root), f"{socket.gethostname()}: unusable")
            yield answer(unusable, None)
            for index, _ in asked_of(unusable):
                yield answer(unusable, _pickled_error(index, error))

    return run


def _executor() -> str:
    """The process of the executor that this Python process belongs to: the parent of the daemon that started it."""
    daemon = os.getppid()
    try:
        parent = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        parent = str(daemon)
    return f"{socket.gethostname()}/{parent}"


def _num_executors(spark: SparkSession) -> int | None:
    """The number of executors; None if this session cannot tell."""
    if is_connect(spark):
        return None
    # The driver is listed, too.
    return len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1


def _task_indexes_by_job(num_tasks: int, slots: int) -> deque[Sequence[int]]:
    size = max(1, min(_MAX_TASKS_PER_JOB, num_tasks // (slots * _JOBS_PER_SLOT)))
    return deque(range(start, min(start + size, num_tasks)) for start in range(0, num_tasks, size))


def _run_in_executor(chunk: _Chunk) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for index, task in chunk:
                outcome = pa.array([_run_pickled(index, task)], pa.binary())
                yield pa.record_batch([outcome], names=["outcome"])

    return run


def _run_pickled(index: int, task: bytes) -> bytes:
    """Run a pickled task; returns its pickled outcome."""
    try:
        return _pickled(Succeeded(index, cloudpickle.loads(task).run(Interruption())))
    except Exception as error:  # noqa: BLE001  # errors travel to the driver as outcomes
        return _pickled_error(index, error)


def _is_lost(outcomes: Sequence[TaskOutcome[Any]]) -> bool:
    """Whether all tasks of a job died together, so that any of them may be the cause."""
    return all(
        isinstance(outcome, Failed) and isinstance(outcome.error, WorkerLostError) for outcome in outcomes
    )


def _all_failed(chunk: _Chunk, error: Exception) -> list[TaskOutcome[Any]]:
    return [Failed(index, error) for index, _ in chunk]


def _pickled_error(index: int, error: Exception) -> bytes:
    try:
        pickled = _pickled(Failed(index, error))
        pickle.loads(pickled)  # noqa: S301  # pickled in the line above
    except Exception:  # noqa: BLE001  # an error that cannot be pickled travels as text
        return _pickled(Failed(index, WorkerLostError(f"{type(error).__name__}: {error}")))
    return pickled


def _pickled(value: object) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]  # cloudpickle has no types


def _first_lines(error: Exception) -> str:
    """The first lines of the message, without stack traces."""
    lines = [line.strip() for line in str(error).splitlines()]
    message = [line for line in lines if line and not line.startswith(("at ", "File ", "Traceback"))]
    return " ".join(message[:3])


# The executors: whether their Python has this package, and how many tasks they run at once.

_PROBE_SCHEMA: Final = "host string, interpreter string, version string, problem string"
_REMEDY: Final = (
    "install the same release there (pip install indextables[spark]), or set spark.pyspark.python to an environment "
    "that has it on every worker; see docs/cluster.md"
)
_LOCAL_MASTER: Final = re.compile(r"local(\[(?P<threads>\d+|\*)(,\d+)?\])?")
_PYTHON_ERROR: Final = re.compile(r"[\w.]*(Error|Exception): ")
_CONNECT_MODULE: Final = "pyspark.sql.connect"


class Workers(msgspec.Struct, frozen=True):
    """`slots` is the number of tasks that the session runs at once, as far as it can be determined."""

    slots: int


# By application id: the sessions of an application share its executors.
_CHECKED: LruCache[str, Workers] = shared_cache(
    "spark.jobs.workers", "executors by application", max_entries=16
)


def check_workers(spark: SparkSession) -> Workers:
    """Check, once per application, that the executors can import this package in the same release.

    A local master is not checked: its workers use this installation. Raises SparkUnavailableError with the interpreter
    and the host of an executor that lacks this package or has another release.
    """
    application = spark.conf.get("spark.app.id", None)
    workers = None if application is None else _CHECKED.get(application)
    if workers is None:
        workers = _local_workers(spark) or _probe_workers(spark)
        if application is not None:
            _CHECKED.put(application, workers)
    return workers


def _local_workers(spark: SparkSession) -> Workers | None:
    local = _LOCAL_MASTER.fullmatch(spark.conf.get("spark.master", None) or "")
    if local is None:
        return None
    threads = local["threads"] or "1"
    return Workers(os.cpu_count() or 1 if threads == "*" else int(threads))


def _probe_workers(spark: SparkSession) -> Workers:
    try:
        with describe_jobs(spark, "IndexTables: look for the package on the executors"):
            # Enough rows that none of Spark's default number of partitions is empty.
            probes = spark.range(1 << 16).mapInArrow(_probe(), _PROBE_SCHEMA).collect()
    except PySparkException as error:
        raise SparkUnavailableError(
            f"the executors' Python, {_interpreter(spark)}, cannot run tasks: {_reason(error)}; {_REMEDY}"
        ) from error
    for probe in probes:
        if probe.version != __version__:
            raise SparkUnavailableError(_unusable_worker(probe))
    return Workers(len(probes))


def _probe() -> Any:
    """A function for `mapInArrow` that also runs where this package is missing.

    As a closure it is pickled by value. It must not use anything else in this module, and imports what it needs.
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
        except Exception as error:  # noqa: BLE001  # the driver reports any error
            problem = f"{type(error).__name__}: {error}"
        columns = [[socket.gethostname()], [sys.executable], [version], [problem]]
        arrays = [pyarrow.array(column, pyarrow.string()) for column in columns]
        yield pyarrow.record_batch(arrays, names=["host", "interpreter", "version", "problem"])

    return probe


def _unusable_worker(probe: Any) -> str:
    worker = f"an executor's Python, {probe.interpreter} on {probe.host},"
    if probe.version is not None:
        return (
            f"{worker} has indextables {probe.version}, but the driver has {__version__}; install the same release on "
            f"both"
        )
    return f"{worker} cannot import indextables ({probe.problem}); {_REMEDY}"


def _interpreter(spark: SparkSession) -> str:
    """The Python interpreter that executors are configured to start."""
    configured = spark.conf.get("spark.pyspark.python", None)
    return os.environ.get("PYSPARK_PYTHON") or configured or "python3"


def _reason(error: Exception) -> str:
    """The first Python error in the message, or else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python_errors = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (python_errors or lines or [type(error).__name__])[0]


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session, which has no SparkContext."""
    return type(spark).__module__.startswith(_CONNECT_MODULE)


# Descriptions, progress and errors.

_DESCRIPTION: Final = "spark.job.description"


@contextlib.contextmanager
def describe_jobs(spark: SparkSession, description: str) -> Iterator[None]:
    """Show this description in Spark's UI for the jobs of the block, unless the caller has set one of their own.

    Spark Connect has no descriptions.
    """
    context = None if is_connect(spark) else spark.sparkContext
    if context is None or context.getLocalProperty(_DESCRIPTION) is not None:
        yield
        return
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, None)  # type: ignore[arg-type]  # None removes it


# Spark's own setting for progress lines.
_CONSOLE_PROGRESS: Final = "spark.ui.showConsoleProgress"


def _terminal_progress(spark: SparkSession) -> Callable[[Progress], None]:
    """Write one updating line if standard error is a terminal and Spark may show its own progress there."""
    is_shown = sys.stderr.isatty() and spark.conf.get(_CONSOLE_PROGRESS, "true") == "true"
    return _write_progress_line if is_shown else _ignore_progress


def _write_progress_line(progress: Progress) -> None:
    is_done = progress.done == progress.total
    sys.stderr.write(f"\r\033[K{progress.description}: {progress.done} of {progress.total}")
    sys.stderr.write("\n" if is_done and progress.total else "")
    sys.stderr.flush()


def _ignore_progress(progress: Progress) -> None:
    del progress


@contextlib.contextmanager
def translate_spark_errors(action: str) -> Iterator[None]:
    """Raise SparkFailedError with the first line of Spark's message, without its stack trace."""
    try:
        yield
    except PySparkException as error:
        reason = str(error).partition("\n")[0]
        raise SparkFailedError(f"Spark could not {action}: {reason}") from error
