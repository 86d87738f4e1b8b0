"""The store that fails on purpose does so as it was told, and the same way every time."""

import uuid

import pytest

from indextables.errors import ObjectNotFoundError, TransientStorageError, UnsupportedStoreError
from indextables.storage import PROBE_PREFIX, ObjectStore, PutOutcome, open_store, require_put_if_absent
from support.clock import VirtualClock
from support.faults import Call, FaultStore, Moment, NoConditionalPutStore


@pytest.fixture
def inner() -> ObjectStore:
    return open_store(f"memory://{uuid.uuid4().hex}/table")


def test_calls_are_recorded_in_order(inner):
    store = FaultStore(inner)
    store.put("a", b"0123")
    store.put_if_absent("b", b"")
    store.get("a")
    store.get_range("a", 1, 2)
    store.head("a")
    list(store.list("x/"))
    store.delete_many(iter(["a", "b"]))
    store.now_ms()
    assert store.calls == [
        Call("put", "a"),
        Call("put_if_absent", "b"),
        Call("get", "a"),
        Call("get_range", "a"),
        Call("head", "a"),
        Call("list", "x/"),
        Call("delete_many", "a"),
        Call("now_ms", ""),
    ]
    assert store.count("get") == 1
    assert list(inner.list("")) == []


def test_listing_counts_when_it_is_read(inner):
    store = FaultStore(inner)
    listing = store.list("")
    assert store.calls == []
    assert list(listing) == []
    assert store.count("list") == 1


@pytest.mark.parametrize("failing", range(3))
@pytest.mark.parametrize("moment", Moment)
def test_one_call_fails_before_or_after_its_effect(inner, failing, moment):
    store = FaultStore(inner, fail_call=(failing, moment))
    for number in range(3):
        if number == failing:
            with pytest.raises(TransientStorageError, match=moment.value):
                store.put(f"{number}", b"")
        else:
            store.put(f"{number}", b"")
    written = [meta.key for meta in inner.list("")]
    assert written == [f"{number}" for number in range(3) if number != failing or moment is Moment.AFTER]


def test_listing_that_fails_after_hands_out_a_part(inner):
    for number in range(20):
        inner.put(f"{number:02d}", b"")
    listing = FaultStore(inner, fail_call=(0, Moment.AFTER)).list("")
    seen = [next(listing) for _ in range(8)]
    with pytest.raises(TransientStorageError):
        seen.extend(listing)
    assert [meta.key for meta in seen[:8]] == [f"{number:02d}" for number in range(8)]


def test_outage_lets_nothing_through(inner):
    store = FaultStore(inner, outage_from=1)
    store.put("a", b"")
    for _ in range(3):
        with pytest.raises(TransientStorageError):
            store.put("b", b"")
    assert [meta.key for meta in inner.list("")] == ["a"]


def fates(inner: ObjectStore, seed: int) -> list[bool]:
    store = FaultStore(inner, seed=seed, error_rate=0.5)
    outcomes = []
    for number in range(100):
        try:
            store.put(f"{number}", b"")
        except TransientStorageError:
            outcomes.append(False)
        else:
            outcomes.append(True)
    return outcomes


def test_seed_decides_which_calls_fail(inner):
    assert fates(inner, 1) == fates(inner, 1)
    assert fates(inner, 1) != fates(inner, 2)
    assert 25 < sum(fates(inner, 1)) < 75


def test_short_reads_lose_the_end_of_chosen_keys(inner):
    store = FaultStore(inner, short_reads={"torn"}, seed=3)
    for key in ("torn", "whole"):
        store.put(key, b"0123456789")
    torn = store.get("torn")
    assert len(torn) < 10
    assert b"0123456789".startswith(torn)
    assert len(store.get_range("torn", 2, 8)) < 6
    assert store.get("whole") == b"0123456789"


def test_scrambled_listing_repeats_and_exchanges_but_loses_nothing(inner):
    keys = [f"{number:03d}" for number in range(60)]
    for key in keys:
        inner.put(key, b"")
    listed = [meta.key for meta in FaultStore(inner, scramble_rate=0.5, seed=1).list("")]
    assert listed != sorted(listed)
    assert len(listed) > len(keys)
    assert sorted(set(listed)) == keys
    assert listed == [meta.key for meta in FaultStore(inner, scramble_rate=0.5, seed=1).list("")]


def test_latency_passes_on_the_clock(inner):
    clock = VirtualClock(start_ms=0)
    store = FaultStore(inner, latency_seconds=0.5, clock=clock)
    store.put("a", b"")
    store.get("a")
    assert clock.now_ms() == 1000
    assert store.clock is clock


def test_probe_detects_a_store_that_ignores_put_if_absent(inner):
    store = NoConditionalPutStore(inner)
    with pytest.raises(UnsupportedStoreError, match="If-None-Match") as caught:
        require_put_if_absent(store)
    assert store.url in str(caught.value)
    assert list(inner.list("")) == []


def test_probe_lies_where_the_log_is(inner):
    store = FaultStore(inner)
    require_put_if_absent(store)
    assert [call.operation for call in store.calls] == ["put_if_absent", "put_if_absent", "delete_many"]
    assert all(call.key.startswith(PROBE_PREFIX) for call in store.calls)
    assert PROBE_PREFIX.startswith("_transaction_log/")


@pytest.mark.parametrize("failing", [0, 1])
def test_probe_that_fails_is_cleaned_up(inner, failing):
    with pytest.raises(TransientStorageError):
        require_put_if_absent(FaultStore(inner, fail_call=(failing, Moment.AFTER)))
    assert list(inner.list("")) == []


def test_probe_passes_even_if_it_cannot_be_cleaned_up(inner):
    require_put_if_absent(FaultStore(inner, fail_call=(2, Moment.BEFORE)))
    [left] = inner.list("")
    assert left.key.startswith(PROBE_PREFIX)


def test_errors_of_the_store_inside_pass_through(inner):
    with pytest.raises(ObjectNotFoundError):
        FaultStore(inner).get("absent")
    assert FaultStore(inner).put_if_absent("a", b"") is PutOutcome.WRITTEN
