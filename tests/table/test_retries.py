"""Writers that lose again and again: how often they try, how long they wait, and when they give up."""

import pytest

from indextables.errors import CommitConflictError, CommitRetriesExhaustedError
from indextables.log.paths import version_key
from indextables.storage import ObjectStore
from indextables.table import Operation, commit, load_snapshot
from support.clock import VirtualClock
from support.faults import FaultStore
from support.tables import append, context, do, log_keys, memory_store, new_table, paths


class BeatenStore(FaultStore):
    """A store on which somebody else is faster, so many times; each call takes its time."""

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
    """Counts what was spent waiting."""

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


@pytest.mark.parametrize("losses", [1, 2, 19, 20, 21, 45])
def test_append_is_there_once_after_any_number_of_losses(inner, losses):
    result = do(load_snapshot(context(BeatenStore(inner, losses))), append("mine"))
    assert (result.tries, result.version) == (losses + 1, losses + 1)
    assert paths(load_snapshot(context(inner))) == {"mine", *(f"other-{v + 1}" for v in range(losses))}


@pytest.mark.parametrize("attempts", [1, 2])
def test_writer_gives_up_when_the_settings_say_so(inner, attempts):
    settings = {"transaction.retry.maxAttempts": str(attempts)}
    table = load_snapshot(context(BeatenStore(inner, 10**6), settings))
    with pytest.raises(CommitRetriesExhaustedError, match=f"maxAttempts .now {attempts}."):
        do(table, append("mine"))
    newest = load_snapshot(context(inner))
    assert "mine" not in paths(newest)
    assert newest.version == attempts * 20


def test_what_has_to_hold_is_looked_at_before_every_try(inner):
    looks: list[int] = []

    def look(_) -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            raise CommitConflictError("mine was purged while others were faster")

    table = load_snapshot(context(BeatenStore(inner, 10)))
    with pytest.raises(CommitConflictError, match="mine was purged"):
        commit(table, append("mine"), Operation("WRITE"), before_each_try=look)
    newest = load_snapshot(context(inner))
    assert (newest.version, paths(newest)) == (2, {"other-1", "other-2"})


def test_first_loser_goes_on_at_once(inner):
    do(load_snapshot(context(BeatenStore(inner, 1))), append("mine"))
    assert inner.clock.waits == []


def test_pauses_are_in_proportion_to_what_a_try_takes(inner):
    """On a store that is so fast that no time passes, nobody waits before the round is over."""
    do(load_snapshot(context(BeatenStore(inner, 19))), append("mine"))
    assert inner.clock.waits == []
    slow = BeatenStore(inner, 10, latency_seconds=0.01)
    do(load_snapshot(context(slow)), append("mine again"))
    pauses = [wait for wait in inner.clock.waits if wait != 0.01]
    assert len(pauses) == 9
    assert 0 < max(pauses) < 8 * 0.2


def test_configured_back_off_ends_a_round_and_doubles(inner):
    settings = {"transaction.retry.baseDelayMs": "100", "transaction.retry.maxDelayMs": "150"}
    do(load_snapshot(context(BeatenStore(inner, 61), settings)), append("mine"))
    waits = inner.clock.waits
    assert len(waits) == 3
    assert waits[0] <= 0.1
    assert all(wait <= 0.15 for wait in waits)


def test_loser_that_is_far_behind_lists_once_instead_of_asking_for_every_version(inner):
    table = load_snapshot(context(inner))
    other = table
    for number in range(30):
        other = do(other, append(f"other-{number}")).snapshot
    counting = FaultStore(inner)
    behind = load_snapshot(context(counting), 0)
    counting.calls.clear()
    assert do(behind, append("mine")).version == 31
    assert counting.count("head") < 20


def test_default_settings_allow_two_hundred_tries(inner):
    do(load_snapshot(context(BeatenStore(inner, 150))), append("mine"))
    assert version_key(151) in log_keys(inner)
