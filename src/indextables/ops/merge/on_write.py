"""Merge-on-write: after a write, small splits are merged as soon as there are enough of them.

A batch is as many groups as the processors that merges may use; the settings say how many batches must be waiting,
and how many run at once. A large split is not rewritten for the sake of a few small ones, so that over many
writes a row is copied a logarithmic number of times.
"""

import os
from typing import Final

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
from indextables.ops.merge.jobs import MergeJob, run_job, start_job
from indextables.ops.merge.operation import MergeRequest, merge_splits, plan_merge
from indextables.ops.merge.report import MergeReport
from indextables.ops.runner import LocalRunner
from indextables.table import Snapshot
from indextables.table.load import catch_up

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
        job.message = _told(result.report)
        if not result.report.merged_groups:
            return
        snapshot = result.snapshot


def _batch(settings: Settings) -> int:
    return max(1, int((os.cpu_count() or 1) * settings[MERGE_ON_WRITE_BATCH_CPU_FRACTION]))


def _told(report: MergeReport) -> str:
    merged = f"{report.source_splits} splits became {report.new_splits} in version {report.version}"
    told = merged if report.merged_groups else "nothing was merged"
    if report.skipped:
        told += f"; {len(report.skipped)} could not be read"
    return f"{told}; {len(report.given_up)} groups were given up" if report.given_up else told
