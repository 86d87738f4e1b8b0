"""The parts of a checkpoint are read at the same time, by as many threads as the settings allow, and in order."""

import threading

import pytest

from indextables.errors import LogCorruptedError
from indextables.log.paths import JsonCheckpointPart, ParquetCheckpointPart, parse_log_path, version_key
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from support.faults import FaultStore
from support.tables import after, append, checkpoint, context, live, log_keys, memory_store, new_table

NUM_FILES = 40
ALL_ARRIVE_SECONDS = 30
PARTS = JsonCheckpointPart | ParquetCheckpointPart
IN_PARTS = ["multi-part json", "multi-part parquet"]


def is_part(key: str) -> bool:
    return isinstance(parse_log_path(key), PARTS)


def part_keys(store: ObjectStore) -> list[str]:
    return sorted(key for key in log_keys(store) if is_part(key))


class Meeting(FaultStore):
    """A store whose first reads of parts wait for each other. It counts how many are in flight at once."""

    def __init__(self, inner: ObjectStore, readers: int) -> None:
        super().__init__(inner)
        self.most_at_once = 0
        self._readers = readers
        self._barrier = threading.Barrier(readers)
        self._counts = threading.Lock()
        self._arrived = 0
        self._at_once = 0

    def get(self, key: str) -> bytes:
        if not is_part(key):
            return super().get(key)
        with self._counts:
            self._arrived += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            is_expected = self._arrived <= self._readers
        try:
            if is_expected:
                self._barrier.wait(timeout=ALL_ARRIVE_SECONDS)
            return super().get(key)
        finally:
            with self._counts:
                self._at_once -= 1


@pytest.fixture(params=IN_PARTS)
def store(request) -> ObjectStore:
    """A table that can be read from the parts of its checkpoint only."""
    store = memory_store()
    after(new_table(store), append(*(f"file-{number}" for number in range(NUM_FILES))))
    checkpoint(store, request.param)
    store.delete_many([version_key(0), version_key(1)])
    assert len(part_keys(store)) > 8
    return store


@pytest.mark.parametrize("parallelism", [1, 3, 8])
def test_parts_are_read_at_the_same_time_up_to_the_setting(store, parallelism):
    """One after another, the first read would wait for the second one forever."""
    meeting = Meeting(store, parallelism)
    table = load_snapshot(context(meeting, {"checkpoint.parallelism": str(parallelism)}))
    assert sorted(live(table)) == sorted(f"file-{number}" for number in range(NUM_FILES))
    assert meeting.most_at_once == parallelism


@pytest.mark.parametrize("parallelism", ["1", "8"])
def test_entries_come_in_the_order_of_the_parts(store, parallelism):
    table = load_snapshot(context(store, {"checkpoint.parallelism": parallelism}))
    assert table.entries["path"].to_pylist() == [f"file-{number}" for number in range(NUM_FILES)]


@pytest.mark.parametrize("parallelism", ["1", "8"])
def test_a_missing_part_is_an_error_and_not_a_smaller_table(store, parallelism):
    for key in part_keys(store):
        data = store.get(key)
        store.delete_many([key])
        with pytest.raises(LogCorruptedError, match="no checkpoint can be read"):
            _ = load_snapshot(context(store, {"checkpoint.parallelism": parallelism})).entries
        store.put(key, data)
    assert len(live(load_snapshot(context(store)))) == NUM_FILES
