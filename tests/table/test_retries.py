"""Writers that meet many concurrent commits: how often they retry, how long they wait, and when they give up."""

import pytest

from indextables.errors import CommitConflictError, CommitRetriesExhaustedError
from indextables.log.paths import version_key
from indextables.storage import ObjectStore
from indextables.table import Operation, commit, load_snapshot
from support.clock import VirtualClock
from support.faults import FaultStore
from support.tables import append, context, do, log_keys, memory_store, new_table, paths


class ContendedStore(FaultStore):
    """A store on which a concurrent commit takes the next version first, a number of times."""

    def __init__(self, inner: ObjectStore, times: int, latency_seconds: float = 0.0) -> None:
        super().__init__(inner, latency_seconds=latency_seconds)
        self._times = times

    def put_if_absent(self, key, data):
        if self._times:
            self._times -= 1
            other = load_snapshot(context(self._inner))
            do(other, append(f"other-{other.version + 1}"))
        return super().put_if_absent(key, data)


class PatientClock(VirtualClock):
    """Records the pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        super().sleep(seconds)


@pytest.fixture
def inner() -> ObjectStore:
    store = memory_store(PatientClock())
    new_table(store)
    return store


@pytest.mark.parametrize("conflicts", [1, 2, 19, 20, 21, 45])
def test_append_commits_once_after_any_number_of_conflicts(inner, conflicts):
    result = do(load_snapshot(context(ContendedStore(inner, conflicts))), append("own"))
    assert (result.tries, result.version) == (conflicts + 1, conflicts + 1)
    assert paths(load_snapshot(context(inner))) == {"own", *(f"other-{v + 1}" for v in range(conflicts))}


@pytest.mark.parametrize("attempts", [1, 2])
def test_writer_gives_up_after_the_configured_attempts(inner, attempts):
    settings = {"transaction.retry.maxAttempts": str(attempts)}
    table = load_snapshot(context(ContendedStore(inner, 10**6), settings))
    with pytest.raises(CommitRetriesExhaustedError, match=f"maxAttempts .now {attempts}."):
        do(table, append("own"))
    newest = load_snapshot(context(inner))
    assert "own" not in paths(newest)
    assert newest.version == attempts * 20


def test_caller_checks_run_before_every_try(inner):
    looks: list[int] = []

    def look(_) -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            raise CommitConflictError("the splits were purged during the retries")

    table = load_snapshot(context(ContendedStore(inner, 10)))
    with pytest.raises(CommitConflictError, match="the splits were purged"):
        commit(table, append("own"), Operation("WRITE"), before_each_try=look)
    newest = load_snapshot(context(inner))
    assert (newest.version, paths(newest)) == (2, {"other-1", "other-2"})


def test_first_retry_follows_without_a_pause(inner):
    do(load_snapshot(context(ContendedStore(inner, 1))), append("own"))
    assert inner.clock.waits == []


def test_pauses_are_proportional_to_the_duration_of_a_try(inner):
    """On a store without latency, the writer does not pause before the end of the round."""
    do(load_snapshot(context(ContendedStore(inner, 19))), append("own"))
    assert inner.clock.waits == []
    slow = ContendedStore(inner, 10, latency_seconds=0.01)
    do(load_snapshot(context(slow)), append("own again"))
    pauses = [wait for wait in inner.clock.waits if wait != 0.01]
    assert len(pauses) == 9
    assert 0 < max(pauses) < 8 * 0.2


def test_configured_back_off_follows_each_round_and_doubles(inner):
    settings = {"transaction.retry.baseDelayMs": "100", "transaction.retry.maxDelayMs": "150"}
    do(load_snapshot(context(ContendedStore(inner, 61), settings)), append("own"))
    waits = inner.clock.waits
    assert len(waits) == 3
    assert waits[0] <= 0.1
    assert all(wait <= 0.15 for wait in waits)


def test_writer_that_is_far_behind_lists_once_instead_of_requesting_every_version(inner):
    table = load_snapshot(context(inner))
    other = table
    for number in range(30):
        other = do(other, append(f"other-{number}")).snapshot
    counting = FaultStore(inner)
    behind = load_snapshot(context(counting), 0)
    counting.calls.clear()
    assert do(behind, append("own")).version == 31
    assert counting.count("head") < 20


def test_default_settings_allow_two_hundred_tries(inner):
    do(load_snapshot(context(ContendedStore(inner, 150))), append("own"))
    assert version_key(151) in log_keys(inner)
