"""Housekeeping after a commit: a checkpoint every N versions, which never fails the commit."""

import logging
import threading

import pytest

from indextables.errors import StorageError
from indextables.log.paths import LAST_CHECKPOINT_KEY, STATE_PREFIX, state_manifest_key
from indextables.log.segment import list_log, read_hint
from indextables.ops import checkpoint
from indextables.ops.after_commit import after_commit, wait_for_background
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.write import run, set_properties
from indextables.storage import ObjectStore
from indextables.table import Operation, Snapshot, load_snapshot
from indextables.table.intent import Append
from support import PATIENCE_SECONDS
from support.clock import VirtualClock
from support.faults import FaultStore, Moment
from support.tables import (
    FORMATS,
    UnreliableStore,
    add,
    append,
    context,
    do,
    live,
    log_keys,
    memory_store,
    new_table,
    remove,
)

EVERY_3 = {"checkpoint.enabled": "true", "checkpoint.interval": "3"}


@pytest.fixture
def store() -> ObjectStore:
    return memory_store(VirtualClock())


def commit_times(snapshot: Snapshot, times: int) -> Snapshot:
    for _ in range(times):
        snapshot = run(snapshot, append(f"p{snapshot.version + 1}"), Operation("WRITE")).snapshot
    return snapshot


def states(store: ObjectStore) -> list[int]:
    return list(list_log(store).bases)


# --- when a checkpoint is due -------------------------------------------------------------------------


def test_checkpoint_after_every_n_versions(store):
    commit_times(new_table(store, EVERY_3), 10)
    assert states(store) == [3, 6, 9]
    assert read_hint(store).version == 9


def test_default_is_every_ten_versions(store):
    commit_times(new_table(store, {"checkpoint.enabled": "true"}), 21)
    assert states(store) == [10, 20]


def test_no_checkpoint_when_switched_off(store):
    commit_times(new_table(store, EVERY_3 | {"checkpoint.enabled": "false"}), 7)
    assert states(store) == []


def test_interval_counts_from_the_last_checkpoint(store):
    table = commit_times(new_table(store, EVERY_3), 4)
    write_checkpoint(table)
    commit_times(table, 4)
    assert states(store) == [3, 4, 7]


def test_checkpoint_is_written_later_if_the_due_version_wrote_none(store):
    table = commit_times(new_table(store, EVERY_3), 2)
    for _ in range(3):
        # Another writer, which writes no checkpoints, always commits the third version after a checkpoint.
        table = commit_times(do(table, append(f"other{table.version}")).snapshot, 2)
    assert table.version == 11
    assert states(store) == [7, 10]


def test_table_property_sets_the_interval(store):
    table = new_table(store, {"checkpoint.enabled": "true"})
    table = set_properties(table, {"spark.indextables.checkpoint.interval": "2"}).snapshot
    commit_times(table, 3)
    assert states(store) == [2, 4]


@pytest.mark.parametrize("form", FORMATS)
def test_automatic_checkpoints_in_every_format(store, form):
    table = commit_times(new_table(store, {**EVERY_3, **FORMATS[form]}), 7)
    assert states(store) == [3, 6]
    assert live(load_snapshot(context(store))) == live(table)
    assert read_hint(store).num_files == 6


def test_commit_that_changes_nothing_writes_no_checkpoint(store):
    table = commit_times(new_table(store, EVERY_3), 2)
    for _ in range(3):
        assert not run(table, remove("not there"), Operation("DELETE")).is_committed
    assert states(store) == []


def test_hint_that_points_at_nothing_does_not_stop_checkpoints(store):
    table = new_table(store, EVERY_3)
    store.put(LAST_CHECKPOINT_KEY, b'{"version": 5000}')
    commit_times(table, 4)
    assert states(store) == [3]
    assert read_hint(store).version == 3


# --- the snapshot after a checkpoint ------------------------------------------------------------------


def test_snapshot_continues_from_its_own_checkpoint(store):
    table = commit_times(new_table(store, EVERY_3), 7)
    assert (table.segment.base.version, len(table.segment.version_files)) == (6, 1)


def test_state_after_a_state_costs_what_changed(store):
    """The writer chose a new path, so nothing has to be looked up in the previous state."""
    counting = FaultStore(store)
    table = commit_times(new_table(counting, EVERY_3), 3)
    for number in (4, 5):
        table = run(table, Append((add(f"p{number}"),), has_new_paths=True), Operation("WRITE")).snapshot
    counting.calls.clear()
    run(table, Append((add("p6"),), has_new_paths=True), Operation("WRITE"))
    # One listing shows the sizes of the files; no manifest is read.
    assert [call.operation for call in counting.calls if "/manifests/" in call.key] == ["list", "put"]


def test_handle_of_one_of_many_writers_does_not_carry_every_version(store):
    """Here, other writers always write the checkpoints."""
    mine, theirs = new_table(store, EVERY_3), load_snapshot(context(store, EVERY_3))
    for number in range(30):
        mine = run(mine, append(f"mine-{number}"), Operation("WRITE")).snapshot
        for other in range(2):
            theirs = run(theirs, append(f"theirs-{number}-{other}"), Operation("WRITE")).snapshot
    assert len(mine.segment.version_files) < 60
    assert mine.num_files == 88


# --- failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize(
    "operation",
    [
        *("put", "put_if_absent", "put_if_unchanged", "get", "list", "head", "now_ms"),
        *("delete_many", "remove_empty_folders"),
    ],
)
def test_failing_checkpoint_never_fails_the_commit(store, caplog, operation, moment):
    """Every call of one storage operation fails once version 3 is committed."""
    do(commit_times(new_table(store, EVERY_3), 2), append("p3"))
    is_armed = False
    unreliable = UnreliableStore(
        store, lambda called, _: moment if is_armed and called == operation else None
    )
    table = load_snapshot(context(unreliable, EVERY_3))
    is_armed = True
    assert after_commit(table).version == 3
    assert set(live(load_snapshot(context(store)))) == {"p1", "p2", "p3"}
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_failed_checkpoint_is_written_later(store, caplog):
    table = new_table(store, EVERY_3)
    unreliable = UnreliableStore(
        store, lambda operation, key: Moment.BEFORE if key == state_manifest_key(3) else None
    )
    commit_times(load_snapshot(context(unreliable, EVERY_3)), 6)
    assert states(store) == [6]
    assert "no checkpoint at version 3" in caplog.text
    assert set(live(load_snapshot(table.context))) == {f"p{number}" for number in range(1, 7)}


def test_bug_in_a_checkpoint_does_not_fail_the_commit_either(store, caplog, monkeypatch):
    """A caller that saw an error would commit again."""

    def broken(snapshot, **_):
        raise ZeroDivisionError

    monkeypatch.setattr(checkpoint, "write_checkpoint", broken)
    assert commit_times(new_table(store, EVERY_3), 3).version == 3
    assert "ZeroDivisionError" in caplog.text


def test_lost_race_for_a_state_is_no_failure(store):
    table = commit_times(new_table(store, EVERY_3), 2)
    other = load_snapshot(context(store, EVERY_3))

    class Racing(FaultStore):
        def put_if_absent(self, key, data):
            if key == state_manifest_key(3):
                write_checkpoint(load_snapshot(context(store), 3))
            return super().put_if_absent(key, data)

    racing = Racing(store)
    result = run(load_snapshot(context(racing, EVERY_3)), append("p3"), Operation("WRITE"))
    assert (result.version, other.version, table.version) == (3, 2, 2)
    assert live(result.snapshot) == live(load_snapshot(context(store)))
    # The loser deletes its manifest.
    assert sum("/manifests/" in key for key in log_keys(store)) == 1


# --- in the background --------------------------------------------------------------------------------


def test_background_checkpoint(store):
    settings = EVERY_3 | {"checkpoint.async.enabled": "true"}
    table = commit_times(new_table(store, settings), 3)
    wait_for_background()
    assert states(store) == [3]
    assert read_hint(store).version == 3
    assert live(load_snapshot(context(store))) == live(table)


def test_commit_does_not_wait_for_a_background_checkpoint(store):
    may_go_on = threading.Event()

    class Slow(FaultStore):
        def put_if_absent(self, key, data):
            if key.startswith(STATE_PREFIX):
                assert may_go_on.wait(timeout=PATIENCE_SECONDS)
            return super().put_if_absent(key, data)

    settings = EVERY_3 | {"checkpoint.async.enabled": "true"}
    table = new_table(Slow(store), settings)
    assert commit_times(table, 5).version == 5
    assert states(store) == []
    may_go_on.set()
    wait_for_background()
    assert states(store) == [3]


def test_failing_background_checkpoint_is_a_warning(store, caplog):
    settings = EVERY_3 | {"checkpoint.async.enabled": "true"}
    new_table(store)

    def fails(operation: str, key: str) -> Moment | None:
        return Moment.BEFORE if key.startswith(STATE_PREFIX) else None

    commit_times(load_snapshot(context(UnreliableStore(store, fails), settings)), 3)
    wait_for_background()
    assert "no checkpoint at version 3" in caplog.text
    assert states(store) == []


def test_warning_contains_the_error_of_the_store(store, caplog):
    class Full(FaultStore):
        def put(self, key, data):
            raise StorageError("the disk is full")

    commit_times(new_table(Full(store), EVERY_3), 3)
    assert "the disk is full" in caplog.text
