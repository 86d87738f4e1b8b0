"""Merge-on-write: after a write, merges small splits as soon as there are enough of them.

A batch is as many as the processors that merges may use. A merge starts when the number of small splits exceeds a
number of batches, and merges a number of batches of groups at once; the settings have both numbers. A large split is
not rewritten for the sake of a few small ones, so over many writes a row is copied a logarithmic number of times.
Merges run as jobs beside their writer, and end cleanly with the process.
"""

import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Final

import msgspec
import pyarrow as pa

from indextables._results import MOMENT, TABLE_PATH, Column, schema_of
from indextables.config import Settings
from indextables.config.registry import (
    MERGE_ON_WRITE_ASYNC_ENABLED,
    MERGE_ON_WRITE_BATCH_CPU_FRACTION,
    MERGE_ON_WRITE_MAX_CONCURRENT_BATCHES,
    MERGE_ON_WRITE_MIN_BATCHES_TO_TRIGGER,
    MERGE_ON_WRITE_SHUTDOWN_TIMEOUT_MS,
    MERGE_ON_WRITE_TARGET_SIZE,
)
from indextables.errors import IndexTablesError, OperationInterruptedError
from indextables.ops.merge.job_records import CANCELLED, RUNNING, JobRecord, RecordLock, read_records
from indextables.ops.merge.operation import (
    MergeRequest,
    MergeResult,
    count_small_splits,
    merge_splits,
    plan_merge,
)
from indextables.ops.runner import Interruption, LocalRunner
from indextables.table import Snapshot
from indextables.table.load import catch_up

logger = logging.getLogger(__name__)

JOB_COLUMNS: Final = (
    TABLE_PATH,
    Column("job_id", pa.string(), "the id of the job"),
    Column("status", pa.string(), "`running`, `done`, `failed` or `cancelled`"),
    Column("started", MOMENT, "when a write started the job"),
    Column("finished", MOMENT, "when it ended; null: it is running"),
    Column("groups", pa.int64(), "the number of groups of splits to merge; null: not planned yet"),
    Column("message", pa.string(), "the outcome"),
)

# How many jobs of this process `merge_jobs` shows.
_MAX_JOBS: Final = 100
# How long an interrupted job may take to delete its uploads.
_SECONDS_TO_STOP: Final = 10.0
# Above one half, so that two splits of nearly the same size can be merged.
_MAX_SHARE_OF_LARGEST: Final = 2 / 3


class JobStatus(Enum):
    RUNNING = RUNNING
    DONE = "done"
    FAILED = "failed"
    CANCELLED = CANCELLED


class MergeJob(msgspec.Struct, eq=False):
    """A merge that a write has started. `groups` is None until it is planned.

    `is_requested_again` is set by a write that comes while the job runs: the job then plans again before it ends.
    """

    table_path: str
    table_identity: str
    seconds_at_exit: float
    job_id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    status: JobStatus = JobStatus.RUNNING
    started_ms: int = msgspec.field(default_factory=lambda: time.time_ns() // 1_000_000)
    finished_ms: int | None = None
    groups: int | None = None
    message: str = ""
    is_requested_again: bool = False
    record_lock: RecordLock | None = None
    interruption: Interruption = msgspec.field(default_factory=Interruption)
    ended: threading.Event = msgspec.field(default_factory=threading.Event)

    def to_record(self) -> JobRecord:
        return JobRecord(
            table_path=self.table_path,
            job_id=self.job_id,
            status=self.status.value,
            started_ms=self.started_ms,
            finished_ms=self.finished_ms,
            groups=self.groups,
            message=self.message,
        )


Work = Callable[[MergeJob], None]


def merge_on_write(snapshot: Snapshot) -> None:
    """Merge what is due after a write, in the background unless the settings say otherwise. Never raises.

    The caller checks that merge-on-write is enabled. Only one job merges a table at a time; a write that comes while it
    runs makes it plan again.
    """
    settings = snapshot.context.settings
    job = MergeJob(
        table_path=snapshot.context.url,
        table_identity=snapshot.context.store.identity,
        seconds_at_exit=settings[MERGE_ON_WRITE_SHUTDOWN_TIMEOUT_MS] / 1000,
    )
    begin = start_job if settings[MERGE_ON_WRITE_ASYNC_ENABLED] else run_job
    begin(job, lambda job: _merge_while_due(job, snapshot))


def merge_jobs() -> pa.Table:
    """The merges that writes have started, oldest first, without those that found nothing to do.

    Includes the merges of other processes of this user on this machine, such as the workers of Spark.
    """
    own = _registry().records()
    known = {record.job_id for record in own}
    others = [record for record in read_records() if record.job_id not in known]
    rows = [
        {
            "table_path": record.table_path,
            "job_id": record.job_id,
            "status": record.status,
            "started": _moment(record.started_ms),
            "finished": None if record.finished_ms is None else _moment(record.finished_ms),
            "groups": record.groups,
            "message": record.message,
        }
        for record in sorted([*others, *own], key=lambda record: record.started_ms)
    ]
    return pa.Table.from_pylist(rows, schema_of(JOB_COLUMNS))


def wait_for_merges() -> None:
    """Wait until all background merges of this process have ended."""
    for job in _registry().running():
        job.ended.wait()


def run_job(job: MergeJob, work: Work) -> None:
    """Run a job in this thread, unless another job merges its table. Never raises."""
    if _registry().admit(job):
        _run(job, work)


def start_job(job: MergeJob, work: Work) -> None:
    """Run a job in the background, unless another job merges its table. Never raises."""
    registry = _registry()
    if not registry.admit(job):
        return
    # A daemon thread cannot keep the process from exiting; `_end_all` gives it time to finish.
    thread = threading.Thread(target=_run, args=(job, work), name="indextables-merge", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the interpreter is shutting down, or there are too many threads
        _finish(job, JobStatus.CANCELLED, str(error))
        job.ended.set()


def _merge_while_due(job: MergeJob, snapshot: Snapshot) -> None:
    settings = snapshot.context.settings
    request = MergeRequest(
        target_size=settings[MERGE_ON_WRITE_TARGET_SIZE], max_share_of_largest=_MAX_SHARE_OF_LARGEST
    )
    batch = _batch(settings)
    runner = LocalRunner(
        batch * settings[MERGE_ON_WRITE_MAX_CONCURRENT_BATCHES], interruption=job.interruption
    )
    threshold = batch * settings[MERGE_ON_WRITE_MIN_BATCHES_TO_TRIGGER]
    while True:
        job.interruption.check()
        snapshot = catch_up(snapshot).snapshot
        if count_small_splits(snapshot, settings[MERGE_ON_WRITE_TARGET_SIZE]) <= threshold:
            return
        num_groups = len(plan_merge(snapshot, request))
        if not num_groups:
            return
        job.groups = (job.groups or 0) + num_groups
        job.record_lock = job.record_lock or RecordLock(job.job_id)
        job.record_lock.write(job.to_record())
        result = merge_splits(snapshot, request, runner)
        job.message = _summary(result)
        if not result.merged_groups:
            return
        snapshot = result.snapshot


def _batch(settings: Settings) -> int:
    return max(1, int((os.cpu_count() or 1) * settings[MERGE_ON_WRITE_BATCH_CPU_FRACTION]))


def _summary(result: MergeResult) -> str:
    merged = f"{result.source_splits} splits became {result.new_splits} in version {result.version}"
    summary = merged if result.merged_groups else "nothing was merged"
    if result.skipped:
        summary += f"; {len(result.skipped)} could not be read"
    return f"{summary}; {len(result.given_up)} groups were given up" if result.given_up else summary


def _run(job: MergeJob, work: Work) -> None:
    try:
        work(job)
        while not _registry().complete(job):
            work(job)
    except OperationInterruptedError as error:
        _finish(job, JobStatus.CANCELLED, str(error))
    except IndexTablesError as error:
        logger.warning("%s: merge-on-write failed: %s", job.table_path, error)
        _finish(job, JobStatus.FAILED, str(error))
    except Exception as error:
        # If this raised, the caller would take the write for failed and write again.
        logger.exception("%s: merge-on-write failed", job.table_path)
        _finish(job, JobStatus.FAILED, repr(error))
    except BaseException:
        _finish(job, JobStatus.CANCELLED, "interrupted")
        raise
    finally:
        job.ended.set()


def _finish(job: MergeJob, status: JobStatus, message: str) -> None:
    job.finished_ms = time.time_ns() // 1_000_000
    job.status, job.message = status, message
    if job.record_lock is not None:
        job.record_lock.release(job.to_record())


class _Registry:
    """The jobs of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[MergeJob] = []

    def admit(self, job: MergeJob) -> bool:
        """Add a job, unless one for the same table is running: that one is requested to plan again."""
        with self._lock:
            for other in self._jobs:
                if other.table_identity == job.table_identity and other.status is JobStatus.RUNNING:
                    other.is_requested_again = True
                    return False
            ended = [other for other in self._jobs if other.status is not JobStatus.RUNNING]
            dropped = ended[: max(0, len(self._jobs) + 1 - _MAX_JOBS)]
            self._jobs = [*(other for other in self._jobs if other not in dropped), job]
            return True

    def complete(self, job: MergeJob) -> bool:
        """Mark a job as done, unless it was requested again. A job that found nothing to do is dropped."""
        with self._lock:
            if job.is_requested_again:
                job.is_requested_again = False
                return False
            _finish(job, JobStatus.DONE, job.message)
            if not job.groups:
                self._jobs.remove(job)
            return True

    def running(self) -> list[MergeJob]:
        with self._lock:
            return [job for job in self._jobs if job.status is JobStatus.RUNNING]

    def records(self) -> list[JobRecord]:
        with self._lock:
            return [job.to_record() for job in self._jobs]


# By process id: threads do not survive a fork.
_registries: dict[int, _Registry] = {}


def _registry() -> _Registry:
    process_id = os.getpid()
    if process_id not in _registries:
        # `atexit` functions run after thread pools have stopped accepting work, too late for a merge to finish.
        # Functions of `threading._register_atexit` run before that; it raises RuntimeError once shutdown has begun.
        with contextlib.suppress(RuntimeError):
            threading._register_atexit(_end_all)  # type: ignore[attr-defined]
    return _registries.setdefault(process_id, _Registry())


def _end_all() -> None:
    """Wait for the running jobs, each for as long as its table's settings allow; then interrupt them."""
    jobs = _registry().running()
    started = time.monotonic()
    try:
        for job in jobs:
            job.ended.wait(max(0.0, started + job.seconds_at_exit - time.monotonic()))
    finally:
        for job in jobs:
            job.interruption.set()
    for job in jobs:
        job.ended.wait(_SECONDS_TO_STOP)


def _moment(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
