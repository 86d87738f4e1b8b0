"""Commits whose answer is lost: recognised by their id, committed once, and reported correctly."""

import pytest

from indextables.errors import CommitOutcomeUnknownError, StorageError
from indextables.log.paths import LAST_CHECKPOINT_KEY, version_key
from indextables.storage import ObjectStore, RetryingStore
from indextables.table import Snapshot, load_snapshot
from support.clock import VirtualClock
from support.faults import Moment
from support.tables import (
    InterruptingStore,
    UnreliableStore,
    append,
    context,
    do,
    log_keys,
    memory_store,
    new_table,
    overwrite,
    paths,
)


@pytest.fixture
def inner() -> ObjectStore:
    store = memory_store(VirtualClock())
    do(new_table(store), append("a"))
    return store


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store))


class AfterCommit:
    """Faults that start after a version file was written."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._is_committed = False

    def __call__(self, operation: str, key: str) -> Moment | None:
        self._is_committed |= operation == "put_if_absent"
        return self._faults(operation, key) if self._is_committed else None


class Faults:
    """Planned faults, used in order: an operation, a key prefix, and the moment of the fault."""

    def __init__(self, *planned: tuple[str, str, Moment], then_down: bool = False) -> None:
        self._planned = list(planned)
        self._then_down = then_down
        self._is_down = False

    def __call__(self, operation: str, key: str) -> Moment | None:
        if self._is_down:
            return Moment.BEFORE
        if self._planned and operation == self._planned[0][0] and key.startswith(self._planned[0][1]):
            moment = self._planned.pop(0)[2]
            self._is_down = self._then_down and not self._planned
            return moment
        return None


COMMIT = ("put_if_absent", version_key(2))
EXACTLY_ONCE = (2, {"a", "b"})


def state(store: ObjectStore) -> tuple[int, set[str]]:
    snapshot = newest(store)
    return snapshot.version, paths(snapshot)


def test_lost_answer_of_the_commit_is_success_exactly_once(inner):
    store = UnreliableStore(inner, Faults((*COMMIT, Moment.AFTER)))
    result = do(newest(store), append("b"))
    assert (result.version, result.tries) == (2, 1)
    assert state(inner) == EXACTLY_ONCE


def test_lost_answer_that_the_store_retries_is_success_exactly_once(inner):
    store = RetryingStore(UnreliableStore(inner, Faults((*COMMIT, Moment.AFTER))))
    assert do(newest(store), append("b")).version == 2
    assert state(inner) == EXACTLY_ONCE


def test_several_lost_answers_in_a_row(inner):
    faults = Faults(*[(*COMMIT, Moment.AFTER)] * 3, ("get", version_key(2), Moment.AFTER))
    store = RetryingStore(UnreliableStore(inner, faults))
    assert do(newest(store), append("b")).version == 2
    assert state(inner) == EXACTLY_ONCE


def test_overwrite_with_a_lost_answer_never_removes_its_own_files(inner):
    store = UnreliableStore(inner, Faults((*COMMIT, Moment.AFTER)))
    do(newest(store), overwrite("b"))
    assert state(inner) == (2, {"b"})


def test_request_that_never_arrived_is_an_unknown_outcome(inner):
    """Without a retry, an absent file proves nothing: the request may still arrive."""
    store = UnreliableStore(inner, Faults((*COMMIT, Moment.BEFORE)))
    with pytest.raises(CommitOutcomeUnknownError, match="version 2"):
        do(newest(store), append("b"))
    assert state(inner) == (1, {"a"})


def test_request_that_never_arrived_is_retried(inner):
    store = RetryingStore(UnreliableStore(inner, Faults((*COMMIT, Moment.BEFORE))))
    assert do(newest(store), append("b")).version == 2
    assert state(inner) == EXACTLY_ONCE


@pytest.mark.parametrize("wrap", [lambda store: store, RetryingStore], ids=["bare", "retrying"])
@pytest.mark.parametrize(("moment", "expected"), [(Moment.BEFORE, (1, {"a"})), (Moment.AFTER, EXACTLY_ONCE)])
def test_store_that_stays_down_makes_the_outcome_unknown(inner, wrap, moment, expected):
    store = wrap(UnreliableStore(inner, Faults((*COMMIT, moment), then_down=True)))
    with pytest.raises(CommitOutcomeUnknownError, match="read the history again before you retry"):
        do(newest(store), append("b"))
    assert state(inner) == expected


@pytest.mark.parametrize("call", [("head", version_key(1)), ("get", LAST_CHECKPOINT_KEY), ("list", "")])
def test_store_that_goes_down_before_the_commit_is_verified_makes_the_outcome_unknown(inner, call):
    store = UnreliableStore(inner, AfterCommit(Faults((*call, Moment.BEFORE), then_down=True)))
    with pytest.raises(CommitOutcomeUnknownError, match="version 2 was written"):
        do(newest(store), append("b"))
    assert state(inner) == EXACTLY_ONCE


def test_commit_stands_when_the_store_goes_down_right_after_it(inner):
    store = UnreliableStore(inner, AfterCommit(Faults(("head", version_key(2), Moment.BEFORE))))
    result = do(newest(store), append("b"))
    assert (result.version, paths(result.snapshot)) == EXACTLY_ONCE
    later = do(result.snapshot, append("c"))
    assert (later.version, paths(later.snapshot)) == (3, {"a", "b", "c"})


def test_lost_request_is_retried_as_a_conflict_after_a_concurrent_commit(inner):
    other = newest(inner)
    faults = Faults((*COMMIT, Moment.BEFORE))
    store = InterruptingStore(UnreliableStore(inner, faults))
    store.before_commit = lambda: do(other, append("other"))
    result = do(newest(store), append("b"))
    assert (result.version, result.tries) == (3, 2)
    assert state(inner) == (3, {"a", "other", "b"})


def test_rejected_write_is_an_error_and_no_commit(inner):
    class Refusing(InterruptingStore):
        def put_if_absent(self, key, data):
            raise StorageError("the disk is full")

    before = log_keys(inner)
    with pytest.raises(StorageError, match="disk is full"):
        do(newest(Refusing(inner)), append("b"))
    assert log_keys(inner) == before
