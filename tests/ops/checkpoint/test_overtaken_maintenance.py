"""Maintenance that stalls until concurrent maintenance has cleaned up what it has just written."""

import logging

import pytest

from indextables import IndexTable
from indextables.errors import CheckpointWriteError, ConcurrentMaintenanceError
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, state_manifest_key
from indextables.ops.after_commit import after_commit
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.purge.garbage import collect_garbage
from indextables.ops.runner import LocalRunner
from indextables.ops.truncate import truncate_time_travel
from indextables.table import load_snapshot
from support.purge_tables import (
    DAY,
    ClockedStore,
    add_split,
    another,
    clocked_store,
    is_clean,
    newest,
    remove_split,
    run_purge,
    splits_in,
    table_of,
)
from support.tables import FORMATS, checkpoint, context


def concurrent_operations(store: ClockedStore) -> None:
    """Concurrent operations: commit, write a checkpoint, and purge the log before it."""
    others = another(store)
    add_split(newest(others), "later.split")
    checkpoint(others)
    others.clock.advance(30 * DAY)
    run_purge(others, "7 days", "0 hours")


def overtaken(store: ClockedStore, after: tuple[str, str]) -> ClockedStore:
    """A store on which concurrent operations run right after a write call."""
    sleeping, seen = another(store), []

    def interrupt(_, operation, key):
        if seen and seen[-1] == after:
            sleeping.before_call = None
            concurrent_operations(store)
        seen.append((operation, key))

    sleeping.before_call = interrupt
    return sleeping


def test_truncation_whose_checkpoint_was_cleaned_up_says_so_and_deletes_nothing():
    store = clocked_store()
    table_of(store, "a.split", "b.split")
    sleeping = overtaken(store, ("put_if_absent", LAST_CHECKPOINT_KEY))
    with pytest.raises(ConcurrentMaintenanceError, match="truncate again"):
        truncate_time_travel(load_snapshot(context(sleeping)), LocalRunner(), dry_run=False)
    assert not sleeping.count("delete_many")
    assert newest(store).num_files == 3
    assert is_clean(store)


def test_checkpoint_cleaned_up_right_after_its_write_is_not_reported_as_damage():
    store = clocked_store()
    table_of(store, "a.split", "b.split")
    sleeping = overtaken(store, ("put_if_absent", state_manifest_key(2)))
    with pytest.raises(ConcurrentMaintenanceError, match="open the table again"):
        write_checkpoint(newest(sleeping))
    assert newest(store).num_files == 3
    assert is_clean(store)


class StallingStore(ClockedStore):
    """The store of a writer that stalls after writing a file, while garbage is collected."""

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        self.clock.advance(30 * DAY)
        collect_garbage(load_snapshot(context(another(self))), dry_run=False)


@pytest.mark.parametrize("form", ["avro", "multi-part json", "parquet", "multi-part parquet"])
def test_checkpoint_whose_files_were_collected_while_its_writer_stalled_is_not_published(form):
    store = clocked_store()
    table_of(store, "a.split", "b.split", "c.split")
    drowsy = StallingStore(store._inner, store.clock, store.times)
    with pytest.raises(CheckpointWriteError, match="may have been garbage-collected; write it again"):
        write_checkpoint(newest(drowsy, FORMATS[form]))
    assert newest(store).num_files == 3
    assert is_clean(store)
    write_checkpoint(newest(store, FORMATS[form]))
    assert is_clean(store)


@pytest.mark.parametrize("maintain", ["purge", "truncate"])
@pytest.mark.parametrize("form", ["avro", "multi-part json", "parquet", "multi-part parquet"])
@pytest.mark.parametrize("minutes_asleep", [0, 40])
def test_checkpoint_that_others_rely_on_as_soon_as_it_is_published_stays(form, maintain, minutes_asleep):
    store = clocked_store()
    with_an_old_state(store)
    publishing, seen = another(store), []

    def rely_on_it(_, operation, key):
        if seen and seen[-1] == "put_if_absent":
            publishing.before_call = None
            store.clock.advance(minutes_asleep * 60)
            if maintain == "purge":
                run_purge(store, "7 days", "0 hours")
            else:
                truncate_time_travel(load_snapshot(context(store)), LocalRunner(), dry_run=False)
        seen.append(operation)

    publishing.before_call = rely_on_it
    write_checkpoint(newest(publishing, FORMATS[form]))
    assert publishing.before_call is None
    assert newest(store).num_files == 3
    assert is_clean(store)


def test_purge_whose_checkpoint_was_cleaned_up_while_it_looked_takes_the_next_one():
    store = clocked_store()
    table_of(store, "a.split", "b.split")
    checkpoint(store)
    store.clock.advance(30 * DAY)
    purging = another(store)

    def overtake(_, operation, key):
        # The purge lists the table, opens it, and lists its log before it reads the checkpoints.
        if operation == "get" and key == state_manifest_key(2) and purging.count("list") > 3:
            purging.before_call = None
            concurrent_operations(store)

    purging.before_call = overtake
    run_purge(purging, "7 days", "0 hours")
    assert purging.before_call is None
    assert newest(store).num_files == 3
    assert is_clean(store)


def with_an_old_state(store: ClockedStore) -> None:
    """A version after a state that expires as soon as there is a newer one."""
    table_of(store, "a.split", "b.split")
    checkpoint(store)
    store.clock.advance(30 * DAY)
    add_split(newest(store), "c.split")


def overtaking(store: ClockedStore) -> None:
    """Concurrent operations: write a newer state without the manifests of the old ones, and purge those."""
    others = another(store)
    add_split(newest(others), "d.split")
    compact(newest(others))
    run_purge(others, "7 days", "0 hours")


@pytest.mark.parametrize("moment", ["put", "head"])
def test_state_is_not_published_after_the_one_that_it_goes_on_from_was_purged(moment):
    """The purge runs before the writer's first file, or before the writer checks the older state."""
    store = clocked_store()
    with_an_old_state(store)
    writing = another(store)

    def overtake(_, operation, key):
        is_state = key.startswith((f"{LOG_PREFIX}manifests/", f"{LOG_PREFIX}state-v"))
        if operation == moment and is_state:
            writing.before_call = None
            overtaking(store)

    writing.before_call = overtake
    with pytest.raises(ConcurrentMaintenanceError, match=r"cleaned up concurrently|concurrent cleanup"):
        write_checkpoint(newest(writing))
    assert newest(store).num_files == 4
    assert is_clean(store)


def test_splits_of_an_older_version_are_kept_if_a_checkpoint_of_it_is_published_concurrently():
    store = clocked_store()
    with_an_old_state(store)
    slow = newest(store)
    remove_split(slow, "a.split", "c.split")
    compact(newest(store))
    store.clock.advance(30 * DAY)
    purging = another(store)

    def publish_an_older_state(_, operation, key):
        if operation == "delete_many":
            purging.before_call = None
            write_checkpoint(load_snapshot(context(store), 3))

    purging.before_call = publish_an_older_state
    run_purge(purging, "7 days", "0 hours")
    assert purging.before_call is None
    assert load_snapshot(context(store), 3).num_files == 3
    assert is_clean(store)
    run_purge(store, "7 days", "0 hours")
    assert splits_in(store) == {"b.split"}


def test_collection_starts_over_when_a_state_that_another_one_builds_on_disappears():
    store = clocked_store()
    with_an_old_state(store)
    slow = newest(store)
    compact(add_split(slow, "d.split"))
    store.clock.advance(DAY)
    collecting = another(store)

    def replace_the_old_state(_, operation, key):
        if operation == "get" and key == state_manifest_key(2):
            collecting.before_call = None
            write_checkpoint(slow)
            store.delete_many([state_manifest_key(2)])

    collecting.before_call = replace_the_old_state
    collect_garbage(load_snapshot(context(collecting)), dry_run=False)
    assert collecting.before_call is None
    assert load_snapshot(context(store), 3).num_files == 3
    assert is_clean(store)


@pytest.mark.parametrize("maintain", ["purge", "truncate"])
def test_manifests_that_a_new_state_goes_on_to_use_are_not_deleted(maintain):
    store = clocked_store()
    with_an_old_state(store)
    slow = newest(store)
    compact(add_split(slow, "d.split"))
    maintaining = another(store)

    def publish_an_older_state(_, operation, key):
        if operation == "delete_many":
            maintaining.before_call = None
            write_checkpoint(slow)

    maintaining.before_call = publish_an_older_state
    if maintain == "purge":
        run_purge(maintaining, "7 days", "0 hours")
    else:
        truncate_time_travel(load_snapshot(context(maintaining)), LocalRunner(), dry_run=False)
    assert maintaining.before_call is None
    assert is_clean(store)


def truncating_after(store: ClockedStore, call: tuple[str, str]) -> ClockedStore:
    """A store on which, right after a call, a concurrent process commits and truncates time travel."""
    overtaken_store, seen = another(store), []

    def interrupt(_, operation, key):
        if seen and seen[-1] == call:
            overtaken_store.before_call = None
            add_split(newest(store), "later.split")
            truncate_time_travel(load_snapshot(context(store)), LocalRunner(), dry_run=False)
        seen.append((operation, key))

    overtaken_store.before_call = interrupt
    return overtaken_store


def test_checkpoint_whose_version_was_truncated_right_afterwards_has_succeeded():
    store = clocked_store()
    table_of(store, "a.split", "b.split")
    own = truncating_after(store, ("put_if_absent", LAST_CHECKPOINT_KEY))
    table = IndexTable.__new__(IndexTable)
    table._bind(newest(own), is_pinned=False)
    assert table.checkpoint().version == 2
    assert own.before_call is None
    assert (table.version, len(table.files())) == (3, 3)


def test_commit_whose_version_was_truncated_after_its_checkpoint_keeps_its_version(caplog):
    store = clocked_store()
    table = table_of(store, "a.split", "b.split")
    own = truncating_after(store, ("put_if_absent", LAST_CHECKPOINT_KEY))
    with caplog.at_level(logging.WARNING):
        later = after_commit(newest(own, {"checkpoint.enabled": "true", "checkpoint.interval": "2"}))
    assert own.before_call is None
    assert later.version == table.version == 2
    assert "no checkpoint" not in caplog.text
