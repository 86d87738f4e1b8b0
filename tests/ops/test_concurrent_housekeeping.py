"""Compaction, cleanup and garbage collection concurrent with each other, with readers and with writers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from indextables.errors import ConcurrentMaintenanceError
from indextables.log.paths import LAST_CHECKPOINT_KEY, SHARED_MANIFEST_PREFIX, state_manifest_key
from indextables.log.segment import list_log
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.describe import describe_state
from indextables.ops.purge.garbage import collect_garbage
from indextables.ops.write import set_properties
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from support import PATIENCE_SECONDS
from support.clock import VirtualClock
from support.tables import (
    FORMATS,
    AgeingStore,
    after,
    append,
    checkpoint,
    context,
    do,
    live,
    log_keys,
    memory_store,
    new_table,
    remove,
)

HOUR = 3600
ALL_AT_ONCE = {
    "purge.txLogRetentionHours": "0",
    "checkpoint.retention": "0",
    "state.retention.versions": "0",
    "state.retention.hours": "0",
}
FILES = {f"{letter}{number}": 10 for letter in "pqr" for number in range(4)}


class BetweenCalls(AgeingStore):
    """A store that runs another operation once, right before a call that the test selects."""

    def __init__(self, inner: ObjectStore, is_moment: Callable[[str, str], bool]) -> None:
        super().__init__(inner, inner.clock)
        self._is_moment = is_moment
        self.concurrent_step: Callable[[], object] | None = None

    def _start(self, operation, key):
        if self.concurrent_step is not None and self._is_moment(operation, key):
            concurrent_step, self.concurrent_step = self.concurrent_step, None
            concurrent_step()
        return super()._start(operation, key)


@pytest.fixture
def store() -> AgeingStore:
    """A table whose state has three manifests and a tombstone, two hours after the last commit."""
    clock = VirtualClock()
    store = AgeingStore(memory_store(clock), clock)
    table = new_table(store)
    for letter in "pqr":
        table = do(table, append(*(f"{letter}{number}" for number in range(4)), f"{letter}-gone")).snapshot
        write_checkpoint(table)
    do(table, remove("p-gone", "q-gone", "r-gone"))
    clock.advance(2 * HOUR)
    return store


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store))


def described(store: ObjectStore) -> dict[str, str | None]:
    return dict(zip(*describe_state(newest(store)).to_pydict().values(), strict=True))


def manifests(store: ObjectStore) -> set[str]:
    return {key for key in log_keys(store) if key.startswith(SHARED_MANIFEST_PREFIX)}


# --- compaction ---------------------------------------------------------------------------------------


def test_overtaken_compaction_keeps_the_other_state_and_leaves_no_manifest(store):
    before = manifests(store)
    late = BetweenCalls(store, lambda operation, key: operation == "put_if_absent" and "/state-v" in key)
    late.concurrent_step = lambda: compact(newest(store))
    report = compact(newest(late))
    assert late.concurrent_step is None
    assert (report.version, report.num_files) == (4, 12)
    assert len(manifests(store) - before) == 1
    assert (described(store)["numManifests"], described(store)["numTombstones"]) == ("1", "0")
    assert live(newest(store)) == FILES


def test_compactions_at_the_same_time_agree_on_one_state(store):
    racers = 6
    start = threading.Barrier(racers)

    def race(_: int) -> int:
        snapshot = newest(store)
        start.wait(timeout=PATIENCE_SECONDS)
        return compact(snapshot).num_files

    with ThreadPoolExecutor(racers) as pool:
        assert set(pool.map(race, range(racers))) == {12}
    assert live(newest(store)) == FILES
    assert (described(store)["numManifests"], described(store)["numTombstones"]) == ("1", "0")
    # The losers have deleted their files: no orphan is left.
    store.clock.advance(2 * HOUR)
    assert collect_garbage(load_snapshot(context(store)), dry_run=True).paths == ()


@pytest.mark.parametrize("moment", ["put", "put_if_absent"])
def test_commit_in_the_middle_of_a_compaction_is_not_lost(store, moment):
    busy = BetweenCalls(store, lambda operation, key: operation == moment)
    busy.concurrent_step = lambda: do(newest(store), append("late"))
    assert compact(newest(busy)).version == 4
    assert live(load_snapshot(context(store), 4)) == FILES
    assert live(newest(store)) == FILES | {"late": 10}


# --- cleanup ------------------------------------------------------------------------------------------


def test_overtaken_cleanup_has_nothing_to_do(store):
    checkpoint(store)
    late = BetweenCalls(store, lambda operation, _: operation == "delete_many")
    late.concurrent_step = lambda: clean_up(context(store, ALL_AT_ONCE), 4)
    assert clean_up(context(late, ALL_AT_ONCE), 4) is not None
    assert late.concurrent_step is None
    assert (list(list_log(store).versions), list(list_log(store).bases)) == ([4], [4])
    assert live(newest(store)) == FILES


def test_overtaken_collection_has_nothing_to_do(store):
    compact(newest(store))
    clean_up(context(store, ALL_AT_ONCE), 4)
    store.clock.advance(2 * HOUR)
    late = BetweenCalls(store, lambda operation, _: operation == "delete_many")
    late.concurrent_step = lambda: collect_garbage(load_snapshot(context(store)), dry_run=False)
    assert len(collect_garbage(load_snapshot(context(late)), dry_run=False).paths) == 3
    assert late.concurrent_step is None
    assert len(manifests(store)) == 1
    assert live(newest(store)) == FILES


@pytest.mark.parametrize("is_collecting", [False, True])
def test_reader_with_an_open_table_continues_after_its_state_was_cleaned_up(store, is_collecting):
    """The reader keeps its rows, or gets an error that the version is gone; it never loses rows silently."""
    reader = newest(store)
    compact(newest(store))
    after(newest(store), append("x"), remove("p0"))
    checkpoint(store)
    clean_up(context(store, ALL_AT_ONCE), 6)
    if is_collecting:
        store.clock.advance(2 * HOUR)
        collect_garbage(load_snapshot(context(store)), dry_run=False)
        with pytest.raises(
            ConcurrentMaintenanceError, match=r"manifest-.*no other files of the log lead to version 4"
        ):
            live(reader)
    else:
        assert live(reader) == FILES
    assert live(newest(store)) == {**{path: 10 for path in FILES if path != "p0"}, "x": 10}


@pytest.mark.parametrize("form", FORMATS)
def test_checkpoint_after_a_cleanup_keeps_metadata_and_files(store, form):
    set_properties(newest(store), {"owner": "search team"})
    checkpoint(store, form)
    assert clean_up(context(store, ALL_AT_ONCE), 5).versions
    identity = (newest(store).metadata, newest(store).protocol)
    after(newest(store), append("x"))
    checkpoint(store, form)
    assert (newest(store).metadata, newest(store).protocol) == identity
    assert newest(store).metadata.configuration["owner"] == "search team"
    assert live(newest(store)) == FILES | {"x": 10}


def test_missing_hint_does_not_endanger_the_newest_state(store):
    checkpoint(store)
    store.delete_many([LAST_CHECKPOINT_KEY])
    clean_up(context(store, ALL_AT_ONCE), 4)
    assert state_manifest_key(4) in log_keys(store)
    assert newest(store).segment.base.version == 4
    assert live(newest(store)) == FILES
