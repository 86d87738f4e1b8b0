"""Retries of a checkpoint's write: after a transient failure, and after another writer removed its base."""

import pytest

from indextables.errors import CheckpointWriteError, ConcurrentMaintenanceError
from indextables.log.paths import state_manifest_key, version_key
from indextables.log.segment import list_log
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from support.clock import VirtualClock
from support.faults import FaultStore, Moment
from support.tables import (
    FORMATS,
    UnreliableStore,
    after,
    append,
    checkpoint,
    context,
    live,
    memory_store,
    new_table,
)

RETRIES = {"state.retry.maxAttempts": "4", "state.retry.baseDelayMs": "100", "state.retry.maxDelayMs": "5000"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock) -> ObjectStore:
    store = memory_store(clock)
    after(new_table(store), append("a"), append("b"))
    return store


class FailingWrites(FaultStore):
    """A store on which the first writes of some keys fail."""

    def __init__(self, inner: ObjectStore, failures: int, moment: Moment, part: str) -> None:
        super().__init__(inner)
        self.failures, self._moment, self._part = failures, moment, part

    def _start(self, operation, key):
        moment = super()._start(operation, key)
        if self.failures and operation in ("put", "put_if_absent") and self._part in key:
            self.failures -= 1
            return self._moment
        return moment


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize(
    ("form", "part"),
    [("avro", "/manifests/"), ("avro", "/state-v"), ("json", ".checkpoint.json"), ("parquet", "checkpoint")],
)
def test_checkpoint_is_written_although_the_store_fails_as_often_as_the_settings_allow(
    store, form, part, moment
):
    failing = FailingWrites(store, 3, moment, part)
    report = write_checkpoint(load_snapshot(context(failing, RETRIES | FORMATS[form])))
    assert (report.version, report.num_files) == (2, 2)
    assert list(list_log(store).bases) == [2]
    assert set(live(load_snapshot(context(store)))) == {"a", "b"}


def test_checkpoint_fails_after_the_last_attempt(store):
    def fails(operation: str, key: str) -> Moment | None:
        return Moment.BEFORE if key == state_manifest_key(2) and operation == "put_if_absent" else None

    failing = UnreliableStore(store, fails)
    with pytest.raises(CheckpointWriteError, match="failed on purpose"):
        write_checkpoint(load_snapshot(context(failing, RETRIES)))
    assert failing.count("put_if_absent") == 4


def test_one_attempt_is_no_retry(store):
    failing = FailingWrites(store, 1, Moment.BEFORE, "/state-v")
    with pytest.raises(CheckpointWriteError):
        write_checkpoint(load_snapshot(context(failing, {"state.retry.maxAttempts": "1"})))


def test_pauses_double_from_the_base_delay_up_to_the_longest(store, clock, monkeypatch):
    """Pauses are random up to a limit: here every one is as long as it can be."""
    monkeypatch.setattr("random.uniform", lambda _, limit: limit)
    settings = {
        "state.retry.maxAttempts": "6",
        "state.retry.baseDelayMs": "1000",
        "state.retry.maxDelayMs": "5000",
    }
    started_ms = clock.now_ms()
    write_checkpoint(load_snapshot(context(FailingWrites(store, 5, Moment.BEFORE, "/state-v"), settings)))
    assert clock.now_ms() - started_ms == 1000 + 2000 + 4000 + 5000 + 5000


def test_any_number_of_attempts_may_be_set(store, clock, monkeypatch):
    """An outage that is longer than a thousand attempts: the pause still has its upper limit."""
    monkeypatch.setattr("random.uniform", lambda _, limit: limit)
    settings = {"state.retry.maxAttempts": str(10**12), "state.retry.maxDelayMs": "1"}
    failing = FailingWrites(store, 1100, Moment.BEFORE, "/state-v")
    assert write_checkpoint(load_snapshot(context(failing, settings))).version == 2
    assert failing.failures == 0


def test_retry_goes_on_from_the_state_that_a_concurrent_writer_left(store):
    """Its base was removed, but the concurrent writer has written the same version: that one counts."""
    checkpoint(store)
    after(load_snapshot(context(store)), append("c"))

    class Overtaken(FaultStore):
        is_overtaken = False

        def head(self, key):
            if key == state_manifest_key(2) and not self.is_overtaken:
                self.is_overtaken = True
                compact(load_snapshot(context(store)))
                store.delete_many([key])
            return super().head(key)

    overtaken = Overtaken(store)
    report = write_checkpoint(load_snapshot(context(overtaken, RETRIES)))
    assert overtaken.is_overtaken
    assert (report.version, report.num_files) == (3, 3)
    assert set(live(load_snapshot(context(store)))) == {"a", "b", "c"}


def test_checkpoint_of_a_version_that_was_cleaned_up_is_not_retried(store):
    checkpoint(store)
    after(load_snapshot(context(store)), append("c"))

    class Overtaken(FaultStore):
        is_overtaken = False

        def head(self, key):
            if key == state_manifest_key(2) and not self.is_overtaken:
                self.is_overtaken = True
                compact(after(load_snapshot(context(store)), append("d")))
                store.delete_many([key, *(version_key(version) for version in range(4))])
            return super().head(key)

    overtaken = Overtaken(store)
    with pytest.raises(ConcurrentMaintenanceError, match="was not published"):
        write_checkpoint(load_snapshot(context(overtaken, RETRIES)))
    assert set(live(load_snapshot(context(store)))) == {"a", "b", "c", "d"}
