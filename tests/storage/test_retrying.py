"""Retries: which calls are repeated, the pauses, deadlines, and a put-if-absent whose response is lost."""

import uuid

import pytest

from indextables.errors import ObjectNotFoundError, StorageTimeoutError, TransientStorageError
from indextables.storage import (
    ObjectStore,
    PutOutcome,
    RetryingStore,
    RetryPolicy,
    open_store,
    with_time_limit,
)
from support.clock import VirtualClock
from support.faults import FaultStore, Moment

POLICY = RetryPolicy(max_attempts=4, base_seconds=0.1, cap_seconds=0.25)


@pytest.fixture
def inner() -> ObjectStore:
    return open_store(f"memory://{uuid.uuid4().hex}/table")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def retried(inner: ObjectStore, clock: VirtualClock, **faults) -> tuple[RetryingStore, FaultStore]:
    faulty = FaultStore(inner, clock=clock, **faults)
    return RetryingStore(faulty, POLICY), faulty


OPERATIONS = {
    "get": lambda store: store.get("object"),
    "get_range": lambda store: store.get_range("object", 0, 3),
    "get_ranges": lambda store: store.get_ranges("object", [(0, 1), (2, 3)]),
    "head": lambda store: store.head("object"),
    "put": lambda store: store.put("object", b"new"),
    "put_if_absent": lambda store: store.put_if_absent("new", b"ours"),
    "put_if_unchanged": lambda store: store.put_if_unchanged("object", b"new", b"0123"),
    "list": lambda store: list(store.list("")),
    "delete_many": lambda store: store.delete_many(iter(["object", "absent"])),
    "remove_empty_folders": lambda store: store.remove_empty_folders("folder-"),
    "now_ms": lambda store: store.now_ms(),
}


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_survives_one_failure(inner, clock, name, moment):
    inner.put("object", b"0123")
    expected = OPERATIONS[name](inner)
    inner.delete_many(["new"])
    inner.put("object", b"0123")
    store, faulty = retried(inner, clock, fail_call=(0, moment))
    result = OPERATIONS[name](store)
    if name not in ("now_ms", "list", "head"):
        assert result == expected
    assert faulty.count(name) == 2


@pytest.mark.parametrize("name", OPERATIONS)
def test_outage_is_raised_after_the_last_attempt(inner, clock, name):
    inner.put("object", b"0123")
    store, faulty = retried(inner, clock, outage_from=0)
    with pytest.raises(TransientStorageError, match="on purpose"):
        OPERATIONS[name](store)
    assert len(faulty.calls) == POLICY.max_attempts


def test_other_errors_are_not_repeated(inner, clock):
    store, faulty = retried(inner, clock)
    with pytest.raises(ObjectNotFoundError):
        store.get("absent")
    assert len(faulty.calls) == 1


def test_pauses_double_up_to_the_cap_and_are_random(inner):
    limits = [0.1, 0.2, 0.25, 0.25]
    for failures, limit in enumerate(limits, start=1):
        pauses = [POLICY.pause(failures) for _ in range(200)]
        assert all(0.0 <= pause <= limit for pause in pauses)
        assert max(pauses) > limit / 2 > min(pauses)


def test_pauses_are_spent_on_the_clock(inner, clock):
    store, _ = retried(inner, clock, outage_from=0)
    before = clock.now_ms()
    with pytest.raises(TransientStorageError):
        store.get("object")
    assert before < clock.now_ms() <= before + 550


class TestPutIfAbsent:
    def test_lost_answer_is_recognised_by_its_bytes(self, inner, clock):
        store, faulty = retried(inner, clock, fail_call=(0, Moment.AFTER))
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
        assert [call.operation for call in faulty.calls] == ["put_if_absent", "put_if_absent", "get"]

    def test_failed_attempt_that_another_writer_overtook_is_exists(self, inner, clock):
        inner.put("log/0", b"theirs")
        store, _ = retried(inner, clock, fail_call=(0, Moment.BEFORE))
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.EXISTS
        assert inner.get("log/0") == b"theirs"

    def test_same_bytes_without_a_failure_are_another_writers(self, inner, clock):
        inner.put("log/0", b"same")
        store, faulty = retried(inner, clock)
        assert store.put_if_absent("log/0", b"same") is PutOutcome.EXISTS
        assert faulty.count("get") == 0

    def test_read_back_that_fails_is_tried_again(self, inner, clock):
        class SecondFailure(FaultStore):
            def get(self, key: str) -> bytes:
                if self.count("get") == 0:
                    super().get(key)
                    raise TransientStorageError("the read back failed too")
                return super().get(key)

        faulty = SecondFailure(inner, clock=clock, fail_call=(0, Moment.AFTER))
        assert RetryingStore(faulty, POLICY).put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
        assert faulty.count("put_if_absent") == 3

    def test_object_that_cannot_be_read_back_leaves_the_outcome_open(self, inner, clock):
        class Invisible(FaultStore):
            def get(self, key: str) -> bytes:
                raise ObjectNotFoundError(f"{key} is not visible yet")

        faulty = Invisible(inner, clock=clock, fail_call=(0, Moment.AFTER))
        with pytest.raises(TransientStorageError, match="cannot be read back"):
            RetryingStore(faulty, POLICY).put_if_absent("log/0", b"ours")

    @pytest.mark.parametrize("seed", range(30))
    def test_two_unlucky_writers_never_both_win(self, inner, clock, seed):
        stores = [retried(inner, clock, seed=seed * 2 + number, error_rate=0.4)[0] for number in range(2)]
        outcomes: list[PutOutcome | None] = []
        for number, store in enumerate(stores):
            try:
                outcomes.append(store.put_if_absent("log/0", f"writer {number}".encode()))
            except TransientStorageError:
                outcomes.append(None)
        assert outcomes.count(PutOutcome.WRITTEN) <= 1
        if PutOutcome.WRITTEN in outcomes:
            assert inner.get("log/0") == f"writer {outcomes.index(PutOutcome.WRITTEN)}".encode()


@pytest.mark.parametrize("seed", range(20))
def test_listing_with_failures_misses_nothing_and_repeats_nothing(inner, clock, seed):
    keys = [f"log/{number:03d}" for number in range(50)]
    for key in keys:
        inner.put(key, b"")
    store = RetryingStore(
        FaultStore(inner, clock=clock, seed=seed, error_rate=0.4), RetryPolicy(max_attempts=50)
    )
    assert [meta.key for meta in store.list("log/")] == keys
    assert [meta.key for meta in store.list("log/", start_after="log/020")] == keys[21:]


def test_wrapper_has_the_url_identity_and_clock_of_what_it_wraps(inner, clock):
    store, _ = retried(inner, clock)
    assert (store.url, store.identity, store.clock) == (inner.url, inner.identity, clock)
    assert inner.url in repr(store)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("is_retrying", [False, True])
def test_no_call_starts_after_the_time_limit(inner, clock, name, is_retrying):
    inner.put("object", b"0123")
    faulty = FaultStore(inner, clock=clock)
    store = with_time_limit(
        RetryingStore(faulty, POLICY) if is_retrying else faulty, 60, "the checkpoint", "spark.some.timeout"
    )
    clock.advance(59)
    store.get("object")
    clock.advance(1)
    faulty.calls.clear()
    with pytest.raises(StorageTimeoutError, match=r"the checkpoint was not read.*spark\.some\.timeout"):
        OPERATIONS[name](store)
    assert faulty.calls == []


def test_time_limit_keeps_the_retries_within_it(inner, clock):
    inner.put("object", b"0123")
    store, faulty = retried(inner, clock, fail_call=(0, Moment.BEFORE))
    assert with_time_limit(store, 60, "the checkpoint", "spark.some.timeout").get("object") == b"0123"
    assert faulty.count("get") == 2


@pytest.mark.parametrize("base_seconds", [0.0, 0.1, 86_400.0])
def test_the_pause_keeps_its_limit_after_any_number_of_failures(base_seconds):
    policy = RetryPolicy(max_attempts=10**12, base_seconds=base_seconds, cap_seconds=5.0)
    for failures in (1, 2, 1000, 1100, 10**9):
        assert 0 <= policy.pause(failures) <= 5
