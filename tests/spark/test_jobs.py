"""Tasks on executors: outcomes, errors, and what a stopped run leaves behind."""

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from indextables.errors import InvalidOptionError, SplitCorruptedError, WorkerLostError
from indextables.ops.runner import Failed, Interruption, Progress, Succeeded, Task, TaskStore
from indextables.spark.jobs import SparkRunner
from indextables.storage import open_store

# The executors cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LONG_SECONDS = 60


@dataclass(frozen=True)
class Double(Task[int]):
    number: int

    def run(self, interruption: Interruption) -> int:
        if self.number < 0:
            raise SplitCorruptedError(f"{self.number} is negative")
        return 2 * self.number


@dataclass(frozen=True)
class Crash(Task[int]):
    def run(self, interruption: Interruption) -> int:
        os._exit(7)


@dataclass(frozen=True)
class Unpicklable(Task[object]):
    def run(self, interruption: Interruption) -> object:
        return (number for number in range(3))


@dataclass(frozen=True)
class Upload(Task[str]):
    """Writes a file. Number 9 then never ends."""

    folder: str
    number: int

    def run(self, interruption: Interruption) -> str:
        path = Path(self.folder) / str(self.number)
        path.write_text("uploaded")
        while self.number == 9:
            time.sleep(0.01)
        return str(path)

    def discard(self, result: str) -> None:
        Path(result).unlink()


@dataclass(frozen=True)
class WithStore(Task[str]):
    store: TaskStore

    def run(self, interruption: Interruption) -> str:
        return self.store.store.url


def _by_index(outcomes):
    return sorted(outcomes, key=lambda outcome: outcome.index)


def test_outcomes_of_all_tasks_come_back_with_their_errors(spark: SparkSession) -> None:
    reported: list[Progress] = []
    outcomes = _by_index(
        SparkRunner(spark, progress=reported.append).run("doubling", [Double(n) for n in (3, -1, 5)])
    )
    assert outcomes[0] == Succeeded(0, 6)
    assert outcomes[2] == Succeeded(2, 10)
    assert isinstance(outcomes[1], Failed)
    assert isinstance(outcomes[1].error, SplitCorruptedError)
    assert str(outcomes[1].error) == "-1 is negative"
    assert [progress.done for progress in reported] == [0, 1, 2, 3]


def test_a_run_without_tasks_starts_no_job(spark: SparkSession) -> None:
    assert list(SparkRunner(spark).run("nothing", [])) == []


def test_a_python_process_that_dies_fails_its_task_alone(spark: SparkSession) -> None:
    outcomes = _by_index(SparkRunner(spark).run("crashing", [Crash(), Double(1)]))
    assert isinstance(outcomes[0], Failed)
    assert isinstance(outcomes[0].error, WorkerLostError)
    assert "crashing: 1 of 2" in str(outcomes[0].error)
    assert outcomes[1] == Succeeded(1, 2)


def test_a_crash_fails_no_other_task_of_the_same_job(spark: SparkSession) -> None:
    tasks: list[Task[int]] = [Double(number) for number in range(20)]
    tasks[7] = Crash()
    outcomes = _by_index(SparkRunner(spark).run("sharing", tasks))
    assert [outcome.index for outcome in outcomes] == list(range(20))
    assert [outcome.index for outcome in outcomes if isinstance(outcome, Failed)] == [7]


def test_an_unpicklable_result_fails_its_task(spark: SparkSession) -> None:
    (outcome,) = SparkRunner(spark).run("generating", [Unpicklable()])
    assert isinstance(outcome, Failed)
    assert "generator" in str(outcome.error)


def test_an_unpicklable_task_fails_before_any_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    store = TaskStore(open_store(tmp_path), None)
    with pytest.raises(InvalidOptionError, match="open the table by its path"):
        list(SparkRunner(spark).run("travelling", [WithStore(store)]))


def test_closing_a_run_kills_running_jobs_and_discards_unread_results(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers = [0, 9, 1, 2]
    tasks = [Upload(str(tmp_path), number) for number in numbers]
    started = time.monotonic()
    with contextlib.closing(SparkRunner(spark, parallelism=2).run("uploading", tasks)) as outcomes:
        first = next(outcomes)
        assert isinstance(first, Succeeded)
        while not (tmp_path / "9").exists():
            assert time.monotonic() - started < LONG_SECONDS
    # The caller received the first result and owns it; the endless task was killed.
    left = {path.name for path in tmp_path.iterdir()}
    assert {"0", "9"} <= left
    assert left <= {"0", "9", "1", "2"}
    assert time.monotonic() - started < LONG_SECONDS


def test_a_run_that_was_closed_leaves_no_job(spark: SparkSession, tmp_path: Path) -> None:
    tracker = spark.sparkContext.statusTracker()
    with contextlib.closing(SparkRunner(spark).run("waiting", [Upload(str(tmp_path), 9), Double(1)])) as run:
        assert next(run) == Succeeded(1, 2)
        # The endless task has started, so its job is active; the other job may take a moment to leave the list.
        deadline = time.monotonic() + LONG_SECONDS
        while not (tmp_path / "9").exists() or len(tracker.getActiveJobsIds()) != 1:
            assert time.monotonic() < deadline
    while tracker.getActiveJobsIds():
        assert time.monotonic() < deadline


def test_jobs_of_writes_and_operations_say_what_they_do(spark: SparkSession, tmp_path: Path) -> None:
    """A description of the caller stays."""
    context = spark.sparkContext._jsc.sc()

    def described() -> set[str]:
        context.listenerBus().waitUntilEmpty()
        jobs = context.statusStore().jobsList(None)
        found = (jobs.apply(number).description() for number in range(jobs.size()))
        return {text.get() for text in found if text.isDefined()}

    place = (tmp_path / "described").as_posix()
    rows = spark.range(2)
    rows.write.format("indextables").save(place)
    rows.write.format("indextables").mode("append").save(place)
    spark.sql(f"MERGE SPLITS '{place}'").collect()
    assert {f"IndexTables: write to {place}", "merging splits: 1 of 1"} <= described()
    spark.sparkContext.setJobDescription("nightly load")
    try:
        rows.write.format("indextables").mode("append").save(place)
    finally:
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]  # None removes it
    assert "nightly load" in described()
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None
