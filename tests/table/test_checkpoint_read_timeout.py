"""A checkpoint that takes too long to read: the reader falls back, or fails, and never shows a smaller table."""

import pytest

from indextables.errors import StorageTimeoutError, TransientStorageError
from indextables.log.paths import LOG_PREFIX, version_key
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.storage import ObjectStore, RetryingStore, RetryPolicy
from indextables.table import load_snapshot
from support.clock import VirtualClock
from support.faults import FaultStore
from support.tables import after, append, checkpoint, context, live, log_keys, memory_store, new_table

TIMEOUT = {"checkpoint.read.timeoutSeconds": "60", "state.entriesPerManifest": "2"}
IN_PARTS = {"state.format": "json", "checkpoint.maxFileSize": "1K"}


class SlowStore(FaultStore):
    """A store that takes a while to hand out files whose keys contain a text."""

    def __init__(self, inner: ObjectStore, clock: VirtualClock, slow: str, seconds: float = 50) -> None:
        super().__init__(inner, clock=clock)
        self._slow, self._seconds = slow, seconds

    def get(self, key: str) -> bytes:
        if self._slow in key:
            self.clock.sleep(self._seconds)
        return super().get(key)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock) -> ObjectStore:
    """Five versions of ten files each, without a checkpoint."""
    store = memory_store(clock)
    table = new_table(store)
    for number in range(5):
        table = after(table, append(*(f"{number}-{file}" for file in range(10))))
    return store


def delete_versions(store: ObjectStore) -> None:
    store.delete_many([version_key(version) for version in range(6)])


def test_slow_state_falls_back_to_the_version_files(store, clock, caplog):
    write_checkpoint(load_snapshot(context(store, TIMEOUT)))
    expected = live(load_snapshot(context(store)))
    table = load_snapshot(context(SlowStore(store, clock, "/manifests/"), TIMEOUT))
    assert live(table) == expected
    assert "was not read within 60 seconds" in caplog.text


def test_slow_checkpoint_in_parts_falls_back_to_the_version_files(store, clock, caplog):
    write_checkpoint(load_snapshot(context(store, IN_PARTS)))
    table = load_snapshot(context(SlowStore(store, clock, ".checkpoint."), TIMEOUT))
    assert (table.version, table.segment.base) == (5, None)
    assert len(live(table)) == 50
    assert "failed to read checkpoint at version 5 in time" in caplog.text


def test_slow_checkpoint_falls_back_to_an_older_one(store, clock):
    checkpoint(store, "avro", 3)
    write_checkpoint(load_snapshot(context(store, IN_PARTS)))
    store.delete_many([version_key(version) for version in range(4)])
    table = load_snapshot(context(SlowStore(store, clock, "5.checkpoint."), TIMEOUT))
    assert (table.version, table.segment.base.version) == (5, 3)
    assert len(live(table)) == 50


@pytest.mark.parametrize("older", [False, True])
def test_slow_checkpoint_that_nothing_can_replace_is_an_error_not_a_smaller_table(store, clock, older):
    if older:
        checkpoint(store, "avro", 3)
    write_checkpoint(load_snapshot(context(store, IN_PARTS)))
    delete_versions(store)
    slow = SlowStore(store, clock, "5.checkpoint.")
    with pytest.raises(StorageTimeoutError, match=r"checkpoint\.json was not read.*read\.timeoutSeconds"):
        load_snapshot(context(slow, TIMEOUT))
    assert load_snapshot(context(slow, TIMEOUT | {"checkpoint.read.timeoutSeconds": "3600"})).num_files == 50


def test_slow_manifests_that_nothing_can_replace_are_an_error(store, clock):
    write_checkpoint(load_snapshot(context(store, TIMEOUT)))
    delete_versions(store)
    table = load_snapshot(context(SlowStore(store, clock, "/manifests/"), TIMEOUT))
    with pytest.raises(StorageTimeoutError, match="the state of version 5 was not read within 60 seconds"):
        live(table)


def test_time_limit_ends_the_retries_of_the_store(store, clock):
    """A retry would find the store well again, long after the reader has something better to do."""
    write_checkpoint(load_snapshot(context(store, IN_PARTS)))
    attempts = []

    class Failing(FaultStore):
        def get(self, key):
            if ".checkpoint." not in key:
                return super().get(key)
            attempts.append(key)
            self.clock.sleep(50)
            raise TransientStorageError("no answer")

    patient = RetryingStore(Failing(store, clock=clock), RetryPolicy(max_attempts=100))
    assert len(live(load_snapshot(context(patient, TIMEOUT)))) == 50
    assert len(attempts) == 2


def test_slow_checkpoint_is_read_once_per_load(store, clock):
    write_checkpoint(load_snapshot(context(store, IN_PARTS)))
    slow = SlowStore(store, clock, ".checkpoint.")
    load_snapshot(context(slow, TIMEOUT))
    assert sum(call.operation == "get" and call.key.endswith(".checkpoint.json") for call in slow.calls) == 1


def test_cleanup_deletes_nothing_if_the_checkpoint_is_too_slow_to_be_verified(store, clock, caplog):
    write_checkpoint(load_snapshot(context(store, TIMEOUT)))
    slow = SlowStore(store, clock, f"{LOG_PREFIX}manifests/")
    before = log_keys(store)
    settings = TIMEOUT | {"purge.txLogRetentionHours": "0", "checkpoint.retention": "0"}
    assert clean_up(context(slow, settings), 5) is None
    assert log_keys(store) == before
    assert "the cleanup of the log failed" in caplog.text
