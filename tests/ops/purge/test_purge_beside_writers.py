"""Purging beside concurrent writers: rules 9 and 10 of the ten."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest
from msgspec.structs import replace

from indextables import errors
from indextables.log.actions import encode_actions
from indextables.log.paths import LAST_CHECKPOINT_KEY, version_key
from indextables.log.segment import read_hint
from indextables.ops.runner import LocalRunner
from indextables.ops.truncate import truncate_time_travel
from indextables.ops.write import check_uploads, commit_files
from indextables.schema import record_field_ids, recorded_field_ids, to_spark_json
from indextables.storage import PutOutcome
from indextables.table import Operation, commit, load_snapshot
from indextables.table.commit import purge_fence_ms
from indextables.table.field_ids import MAX_FIELD_ID_PROPERTY
from indextables.table.intent import Append
from support import PATIENCE_SECONDS
from support.clock import VirtualClock
from support.faults import FaultStore
from support.purge_tables import (
    ALL_OF_THE_LOG,
    DAY,
    HOUR,
    UNCHECKED,
    ClockedStore,
    add_split,
    another,
    append_some_rows,
    clocked_store,
    copy_of,
    is_clean,
    newest,
    put_split,
    remove_split,
    run_purge,
    table_of,
)
from support.tables import SCHEMA, checkpoint, context, log_keys, new_table


@pytest.fixture
def store() -> ClockedStore:
    return clocked_store()


# --- rule 9: a slow or stalled writer -----------------------------------------------------------------


@pytest.mark.parametrize("hours_asleep", [0, 30])
def test_rule_9_purge_at_every_step_of_an_upload_and_commit_leaves_no_dangling_add(store, hours_asleep):
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store)
    store.clock.advance(30 * DAY)
    undisturbed = another(copy_of(store))
    append_some_rows(newest(undisturbed))
    for step in range(len(undisturbed.calls)):
        table = copy_of(store)
        writing = another(table)

        def interrupt(call, operation, key, step=step, table=table):
            if call == step:
                table.clock.advance(hours_asleep * HOUR)
                run_purge(table, "24 hours", ALL_OF_THE_LOG)

        writing.before_call = interrupt
        try:
            append_some_rows(newest(writing))
        except errors.IndexTablesError:
            assert hours_asleep
        else:
            writing.before_call = None
            assert newest(table).num_files == 2, step
        assert is_clean(table), step


def test_rule_9_writer_whose_split_was_purged_before_its_commit_gets_an_error(store):
    new_table(store)

    class Sleeping(FaultStore):
        def put(self, key, data):
            super().put(key, data)
            if key.endswith(".split"):
                store.clock.advance(30 * HOUR)
                assert run_purge(store, "24 hours").num_deleted == 1

    with pytest.raises(errors.CommitConflictError, match="purge"):
        append_some_rows(newest(Sleeping(store)))
    assert newest(store).num_files == 0
    assert is_clean(store)


def waiting_for_long(store: ClockedStore) -> Callable[[ClockedStore], int]:
    """Upload a split, and let more than a day pass. Returns a function that commits it."""
    add = put_split(store, "waiting.split")
    store.clock.advance(30 * HOUR)
    check = partial(check_uploads, {add.path: add.modification_time})

    def finish(way: ClockedStore) -> int:
        intent = Append((add,), has_new_paths=True)
        return commit(newest(way), intent, Operation("WRITE"), before_each_try=check).version

    return finish


def test_rule_9_commit_of_a_split_that_waited_is_whole_or_refused_at_every_step_of_a_purge(store):
    table_of(store, "a.split")
    finish = waiting_for_long(store)
    undisturbed = another(copy_of(store))
    run_purge(undisturbed, "24 hours")
    outcomes = Counter()
    for step in range(len(undisturbed.calls)):
        table = copy_of(store)
        purging = another(table)

        def interrupt(call, operation, key, step=step, table=table):
            if call == step:
                try:
                    finish(another(table))
                except errors.CommitConflictError:
                    outcomes["refused"] += 1
                else:
                    outcomes["committed"] += 1

        purging.before_call = interrupt
        run_purge(purging, "24 hours")
        assert is_clean(table), step
    assert min(outcomes["refused"], outcomes["committed"]) > 0


def test_rule_9_writer_that_found_its_split_just_before_the_purge_and_commits_just_before_the_deletion(store):
    table_of(store, "a.split")
    finish = waiting_for_long(store)
    writing, purging = another(store), another(store)
    is_about_to_commit, is_about_to_delete = threading.Event(), threading.Event()

    def wait(_, operation, key):
        if operation == "put_if_absent" and key == version_key(2):
            is_about_to_commit.set()
            assert is_about_to_delete.wait(PATIENCE_SECONDS)

    def let_the_other_go_on(_, operation, key):
        if operation == "delete_many":
            is_about_to_delete.set()
            assert isinstance(future.exception(60), errors.CommitConflictError)

    writing.before_call, purging.before_call = wait, let_the_other_go_on
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(finish, writing)
        assert is_about_to_commit.wait(PATIENCE_SECONDS)
        assert run_purge(purging, "24 hours").num_deleted == 1
    assert newest(store).num_files == 1
    assert is_clean(store)


def test_purge_commits_a_marker_with_the_time_up_to_which_it_deletes_orphans(store):
    table_of(store, "a.split")
    uploaded_ms = store.clock.now_ms()
    put_split(store, "orphan.split")
    store.clock.advance(30 * HOUR)
    assert run_purge(store, "24 hours", dry_run=True).num_deleted == 0
    assert newest(store).version == 1
    run_purge(store, "24 hours")
    assert (newest(store).version, purge_fence_ms(newest(store))) == (2, uploaded_ms)
    checkpoint(store)
    assert purge_fence_ms(newest(store)) == uploaded_ms
    # Only newer orphans need another marker.
    run_purge(store, "24 hours")
    assert newest(store).version == 2


def test_purge_without_orphans_commits_nothing(store):
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store)
    store.clock.advance(30 * DAY)
    before = newest(store).version
    assert run_purge(store, "24 hours", ALL_OF_THE_LOG).num_deleted > 1
    assert newest(store).version == before


def test_splits_uploaded_at_the_same_time_as_a_purge_of_everything_are_committed(store):
    table_of(store, "a.split")
    put_split(store, "orphan.split")
    assert run_purge(store, 0, settings=UNCHECKED).num_deleted == 1
    append_some_rows(newest(store))
    assert (newest(store).version, newest(store).num_files) == (2, 2)
    assert is_clean(store)


@pytest.mark.parametrize("seconds_ahead", [-600, -5, 0, 5, 600])
@pytest.mark.parametrize("resolution_ms", [1, 1000])
def test_rule_9_writer_whose_clock_stood_still_is_refused_too(store, seconds_ahead, resolution_ms):
    """A suspended machine may resume with the time at which it was suspended."""
    table_of(store, "a.split")
    clock = VirtualClock(store.clock.now_ms() + seconds_ahead * 1000)

    class Resumed(ClockedStore):
        def put(self, key, data):
            super().put(key, data)
            self.times[key] = store.clock.now_ms() // resolution_ms * resolution_ms
            store.clock.advance(30 * HOUR)
            assert run_purge(store, "24 hours").num_deleted == 1

    with pytest.raises(errors.CommitConflictError, match="purge"):
        append_some_rows(newest(Resumed(store._inner, clock, store.times)))
    assert is_clean(store)


def test_rule_9_writer_on_a_store_without_times_is_not_refused(store):
    new_table(store)
    finish = waiting_for_long(store)
    timeless = another(store)
    timeless.times = dict.fromkeys(store.times, 0)
    assert finish(timeless) == 1


def test_purge_that_reaches_its_limit_before_any_orphan_commits_nothing(store):
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    put_split(store, "orphan.split")
    truncate_time_travel(load_snapshot(context(store)), LocalRunner(), dry_run=False)
    store.clock.advance(30 * DAY)
    before = newest(store).version
    one = {"purge.maxFilesToDelete": "1"}
    assert run_purge(store, "24 hours", settings=one).files["path"].to_pylist() == ["a.split"]
    assert newest(store).version == before


def test_change_of_the_schema_at_any_step_of_a_purge_does_not_stop_it(store):
    table_of(store, "a.split")
    put_split(store, "orphan.split")
    store.clock.advance(30 * HOUR)
    undisturbed = another(copy_of(store))
    run_purge(undisturbed, "24 hours")
    wider = to_spark_json(SCHEMA.append(pa.field("more", pa.string())))
    for step in range(len(undisturbed.calls)):
        table = copy_of(store)
        purging = another(table)

        def interrupt(call, operation, key, step=step, table=table):
            if call == step:
                head = newest(table)
                ids = recorded_field_ids(head.metadata.schema_string)
                changed = replace(
                    head.metadata,
                    schema_string=record_field_ids(wider, (*ids, max(ids) + 1)),
                    configuration={**head.metadata.configuration, MAX_FIELD_ID_PROPERTY: str(max(ids) + 1)},
                )
                line = encode_actions([changed])
                assert table.put_if_absent(version_key(head.version + 1), line) is PutOutcome.WRITTEN

        purging.before_call = interrupt
        assert run_purge(purging, "24 hours").num_deleted == 1, step
        assert is_clean(table), step


# --- rule 10: version numbers are not reused ----------------------------------------------------------


@pytest.mark.parametrize("has_hint", [True, False])
def test_rule_10_stalled_writer_does_not_take_a_number_that_was_used_and_deleted(store, has_hint):
    table_of(store, "a.split")
    stalled = another(store)
    snapshot = newest(stalled)
    late = put_split(store, "late.split")
    done = []

    def concurrent_step(_, operation, key):
        if operation == "put_if_absent" and key == version_key(2) and not done:
            done.append(True)
            table = newest(store)
            for number in range(5):
                table = add_split(table, f"other-{number}.split")
            checkpoint(store)
            if not has_hint:
                store.delete_many([LAST_CHECKPOINT_KEY])
            store.clock.advance(2 * HOUR)
            run_purge(store, "24 hours", ALL_OF_THE_LOG)

    stalled.before_call = concurrent_step
    result = commit_files(snapshot, [late], [])
    assert (result.version, result.snapshot.num_files) == (7, 7)
    assert version_key(2) not in log_keys(store)
    assert is_clean(store)


@pytest.mark.parametrize("hint", [None, b'{"version": 1}'])
def test_rule_10_hint_is_corrected_before_versions_are_deleted(store, hint):
    """By the hint, a stalled writer recognises that its version number may have been used."""
    table_of(store, "a.split", "b.split")
    checkpoint(store)
    store.delete_many([LAST_CHECKPOINT_KEY])
    if hint is not None:
        store.put(LAST_CHECKPOINT_KEY, hint)
    store.clock.advance(2 * HOUR)
    started = len(store.calls)
    run_purge(store, "24 hours", ALL_OF_THE_LOG)
    calls = store.calls[started:]
    pointed = next(
        i
        for i, call in enumerate(calls)
        if call.operation.startswith("put") and call.key == LAST_CHECKPOINT_KEY
    )
    deleted = next(i for i, call in enumerate(calls) if call.operation == "delete_many")
    assert pointed < deleted
    assert read_hint(store).version == 2
