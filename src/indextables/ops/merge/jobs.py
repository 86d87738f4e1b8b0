"""Merges that run beside their writer: who runs, how it went, and a clean end with the process."""

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
    MERGE_ON_WRITE_ENABLED,
    MERGE_ON_WRITE_MAX_CONCURRENT_BATCHES,
    MERGE_ON_WRITE_MIN_BATCHES_TO_TRIGGER,
    MERGE_ON_WRITE_SHUTDOWN_TIMEOUT_MS,
    MERGE_ON_WRITE_TARGET_SIZE,
)
from indextables.errors import IndexTablesError, OperationInterruptedError
from indextables.ops.merge.operation import MergeRequest, MergeResult, merge_splits, plan_merge
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

# Of older jobs nobody remembers anything.
_REMEMBERED: Final = 100
# How long a job may take to delete its uploads after it was told to stop.
_SECONDS_TO_STOP: Final = 10.0


class JobStatus(Enum):
    """Where a job stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class MergeJob(msgspec.Struct, eq=False):
    """A merge that somebody's write has started. `groups` is None until it is planned.

    `is_asked_again` says that another write came meanwhile, which the job then looks after, too.
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
    is_asked_again: bool = False
    interruption: Interruption = msgspec.field(default_factory=Interruption)
    ended: threading.Event = msgspec.field(default_factory=threading.Event)


Work = Callable[[MergeJob], None]


def merge_jobs() -> pa.Table:
    """The merges that writes of this process have started, oldest first, but for those with nothing to do."""
    return _registry().to_arrow()


def wait_for_merges() -> None:
    """Return when all merges that were started in the background are done."""
    for job in _registry().running():
        job.ended.wait()


def run_job(job: MergeJob, work: Work) -> None:
    """Do the work of a job here and now, unless its table is being merged already. Raises nothing."""
    if _registry().admit(job):
        _run(job, work)


def start_job(job: MergeJob, work: Work) -> None:
    """Do the work of a job in the background, unless its table is being merged already. Raises nothing."""
    registry = _registry()
    if not registry.admit(job):
        return
    # No process has to wait for a daemon for ever: see `_end_all`.
    thread = threading.Thread(target=_run, args=(job, work), name="indextables-merge", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the interpreter is about to end, or there are too many threads
        _finish(job, JobStatus.CANCELLED, str(error))
        job.ended.set()


def _run(job: MergeJob, work: Work) -> None:
    try:
        work(job)
        while not _registry().complete(job):
            work(job)
    except OperationInterruptedError as error:
        _finish(job, JobStatus.CANCELLED, str(error))
    except IndexTablesError as error:
        logger.warning("%s: the splits were not merged: %s", job.table_path, error)
        _finish(job, JobStatus.FAILED, str(error))
    except Exception as error:
        # Whatever it is: the write stands, and a caller who saw an error would write again.
        logger.exception("%s: the splits were not merged", job.table_path)
        _finish(job, JobStatus.FAILED, repr(error))
    except BaseException:
        _finish(job, JobStatus.CANCELLED, "interrupted")
        raise
    finally:
        job.ended.set()


def _finish(job: MergeJob, status: JobStatus, message: str) -> None:
    job.finished_ms = time.time_ns() // 1_000_000
    job.status, job.message = status, message


class _Registry:
    """The jobs of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[MergeJob] = []

    def admit(self, job: MergeJob) -> bool:
        """Remember a job, unless one for the same table is running, which is asked to look again."""
        with self._lock:
            for each in self._jobs:
                if each.table_identity == job.table_identity and each.status is JobStatus.RUNNING:
                    each.is_asked_again = True
                    return False
            ended = [each for each in self._jobs if each.status is not JobStatus.RUNNING]
            forgotten = ended[: max(0, len(self._jobs) + 1 - _REMEMBERED)]
            self._jobs = [*(each for each in self._jobs if each not in forgotten), job]
            return True

    def complete(self, job: MergeJob) -> bool:
        """Count a job as done, unless it was asked again. One that found nothing to do is not remembered."""
        with self._lock:
            if job.is_asked_again:
                job.is_asked_again = False
                return False
            _finish(job, JobStatus.DONE, job.message)
            if not job.groups:
                self._jobs.remove(job)
            return True

    def running(self) -> list[MergeJob]:
        with self._lock:
            return [job for job in self._jobs if job.status is JobStatus.RUNNING]

    def to_arrow(self) -> pa.Table:
        with self._lock:
            rows = [
                {
                    "table_path": job.table_path,
                    "job_id": job.job_id,
                    "status": job.status.value,
                    "started": _moment(job.started_ms),
                    "finished": None if job.finished_ms is None else _moment(job.finished_ms),
                    "groups": job.groups,
                    "message": job.message,
                }
                for job in self._jobs
            ]
        return pa.Table.from_pylist(rows, schema_of(JOB_COLUMNS))


# By process: threads do not survive a fork.
_registries: dict[int, _Registry] = {}


def _registry() -> _Registry:
    process_id = os.getpid()
    if process_id not in _registries:
        # Functions that are registered with `atexit` come too late: no thread pool takes any work by then, so that no
        # merge could go on. These are called before the pools are closed, and refused when that has begun.
        with contextlib.suppress(RuntimeError):
            threading._register_atexit(_end_all)  # type: ignore[attr-defined]
    return _registries.setdefault(process_id, _Registry())


def _end_all() -> None:
    """Let the running jobs come to their end, each for as long as its table's settings say; then stop them."""
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


# Merge-on-write: after a write, small splits are merged as soon as there are enough of them.
#
# A batch is as many groups as the processors that merges may use; the settings say how many batches must be
# waiting, and how many run at once. A large split is not rewritten for the sake of a few small ones, so that
# over many writes a row is copied a logarithmic number of times.


# Splits of nearly the same size must pass.
_MAX_SHARE_OF_LARGEST: Final = 2 / 3


def merge_on_write(snapshot: Snapshot) -> None:
    """Merge what is due after a write, in the background unless the settings say otherwise.

    The write stands: nothing is raised. Of several writes to one table, one merges, and looks again when it is done.
    """
    settings = snapshot.context.settings
    if not settings[MERGE_ON_WRITE_ENABLED]:
        return
    job = MergeJob(
        table_path=snapshot.context.url,
        table_identity=snapshot.context.store.identity,
        seconds_at_exit=settings[MERGE_ON_WRITE_SHUTDOWN_TIMEOUT_MS] / 1000,
    )
    begin = start_job if settings[MERGE_ON_WRITE_ASYNC_ENABLED] else run_job
    begin(job, lambda job: _merge_while_due(job, snapshot))


def _merge_while_due(job: MergeJob, snapshot: Snapshot) -> None:
    settings = snapshot.context.settings
    request = MergeRequest(
        target_size=settings[MERGE_ON_WRITE_TARGET_SIZE], max_share_of_largest=_MAX_SHARE_OF_LARGEST
    )
    batch = _batch(settings)
    runner = LocalRunner(
        batch * settings[MERGE_ON_WRITE_MAX_CONCURRENT_BATCHES], interruption=job.interruption
    )
    while True:
        job.interruption.check()
        snapshot = catch_up(snapshot).snapshot
        waiting = len(plan_merge(snapshot, request))
        if waiting < batch * settings[MERGE_ON_WRITE_MIN_BATCHES_TO_TRIGGER]:
            return
        job.groups = (job.groups or 0) + waiting
        result = merge_splits(snapshot, request, runner)
        job.message = _told(result)
        if not result.merged_groups:
            return
        snapshot = result.snapshot


def _batch(settings: Settings) -> int:
    return max(1, int((os.cpu_count() or 1) * settings[MERGE_ON_WRITE_BATCH_CPU_FRACTION]))


def _told(result: MergeResult) -> str:
    merged = f"{result.source_splits} splits became {result.new_splits} in version {result.version}"
    told = merged if result.merged_groups else "nothing was merged"
    if result.skipped:
        told += f"; {len(result.skipped)} could not be read"
    return f"{told}; {len(result.given_up)} groups were given up" if result.given_up else told
