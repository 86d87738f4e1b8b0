"""Tasks in threads: outcomes, errors, and the cleanup of a run that is stopped."""

import contextlib
import pickle
import threading
from dataclasses import dataclass, field

import pytest

from indextables.errors import OperationInterruptedError
from indextables.ops.runner import Failed, Interruption, LocalRunner, Progress, Succeeded, Task

LONG_SECONDS = 30


@dataclass(frozen=True)
class Double(Task[int]):
    number: int

    def run(self, interruption):
        if self.number < 0:
            raise ValueError(f"{self.number} is negative")
        return 2 * self.number


@dataclass(frozen=True)
class Shared:
    """State that the tasks of one test share."""

    started: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    may_end: threading.Event = field(default_factory=threading.Event)
    discarded: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Waiting(Task[int]):
    """A task that ends when the test releases it or the run is interrupted."""

    number: int
    shared: Shared

    def run(self, interruption):
        self.shared.started.release()
        assert self.shared.may_end.wait(LONG_SECONDS)
        return self.number

    def discard(self, result):
        self.shared.discarded.append(result)


@dataclass(frozen=True)
class Checking(Task[int]):
    """A task that runs until it is interrupted."""

    shared: Shared

    def run(self, interruption):
        self.shared.started.release()
        while True:
            interruption.check()
            self.shared.may_end.wait(0.001)


@pytest.mark.parametrize("parallelism", [0, 1, 2, 9])
def test_every_task_has_one_outcome(parallelism):
    outcomes = list(LocalRunner(parallelism).run("doubling", [Double(number) for number in range(20)]))
    assert sorted((outcome.index, outcome.result) for outcome in outcomes) == [(n, 2 * n) for n in range(20)]


def test_error_of_a_task_is_an_outcome_and_the_others_go_on():
    outcomes = list(LocalRunner(1).run("doubling", [Double(1), Double(-1), Double(2)]))
    assert outcomes[0] == Succeeded(0, 2)
    assert isinstance(outcomes[1], Failed)
    assert str(outcomes[1].error) == "-1 is negative"
    assert outcomes[2] == Succeeded(2, 4)


def test_no_tasks_have_no_outcomes():
    assert list(LocalRunner().run("nothing", [])) == []


def test_progress_is_reported_from_start_to_end():
    reported = []
    list(LocalRunner(1, reported.append).run("doubling", [Double(1), Double(-1)]))
    assert reported == [Progress("doubling", done, 2) for done in range(3)]


def test_unreceived_results_are_discarded():
    shared = Shared()
    shared.may_end.set()
    run = LocalRunner(3).run("waiting", [Waiting(number, shared) for number in range(9)])
    received = next(run).result
    run.close()
    assert received not in shared.discarded
    assert len(set(shared.discarded)) == len(shared.discarded) <= 3


def test_no_task_is_started_after_the_run_was_closed():
    shared = Shared()
    shared.may_end.set()
    with contextlib.closing(LocalRunner(1).run("waiting", [Waiting(n, shared) for n in range(5)])) as run:
        next(run)
    assert shared.started.acquire(blocking=False)
    assert not shared.started.acquire(blocking=False)


def test_running_tasks_are_interrupted_when_the_consumer_fails():
    shared = Shared()

    def fail(progress):
        if progress.done:
            raise KeyboardInterrupt

    tasks = [Double(1), Checking(shared)]
    with pytest.raises(KeyboardInterrupt):
        list(LocalRunner(2, fail).run("checking", tasks))


def test_interruption_from_another_thread_ends_the_run():
    shared, interruption = Shared(), Interruption()

    def interrupt():
        shared.started.acquire()
        interruption.set()

    threading.Thread(target=interrupt).start()
    run = LocalRunner(1, interruption=interruption).run("checking", [Checking(shared), Double(1)])
    assert isinstance(next(run).error, OperationInterruptedError)
    with pytest.raises(OperationInterruptedError):
        next(run)


def test_closing_one_run_does_not_affect_the_next():
    runner = LocalRunner(1)
    run = runner.run("doubling", [Double(1), Double(2)])
    next(run)
    run.close()
    assert len(list(runner.run("doubling", [Double(1), Double(2)]))) == 2


def test_tasks_are_picklable():
    task = pickle.loads(pickle.dumps(Double(4)))
    assert task.run(Interruption()) == 8
