"""Purge in practice: cases known from other systems, failures, and purge-on-write."""

import logging
import os
import time
from datetime import timedelta

import pytest

from indextables import IndexTable, errors
from indextables.log.paths import LOG_PREFIX, version_key
from indextables.log.segment import list_log
from indextables.ops.purge.operation import purge
from indextables.ops.purge.report import PurgeKind, PurgeRequest
from indextables.ops.restore import RestoreRequest, restore
from indextables.ops.runner import LocalRunner
from indextables.storage import RetryingStore
from indextables.table import load_snapshot
from support.faults import FaultStore, Moment
from support.purge_tables import (
    ALL_OF_THE_LOG,
    DAY,
    UNCHECKED,
    ClockedStore,
    add_split,
    another,
    clocked_store,
    copy_of,
    current_clock,
    doomed,
    everything_goes,
    is_clean,
    live_paths,
    newest,
    put_split,
    remove_split,
    run_purge,
    splits_in,
    table_of,
)
from support.row_tables import SCHEMA, rows
from support.tables import checkpoint, context, log_keys, memory_store, new_table


@pytest.fixture
def store() -> ClockedStore:
    return clocked_store()


# --- cases known from other systems -------------------------------------------------------------------


def test_file_retention_shorter_than_log_retention_never_breaks_time_travel(store):
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store)
    store.clock.advance(10 * DAY)
    report = run_purge(store, "1 day", "20 days")
    assert (report.num_files, report.num_kept_for_time_travel) == (0, 1)
    assert is_clean(store)
    restore(newest(store), RestoreRequest(2))
    assert live_paths(store) == {"a.split", "b.split"}


def test_listing_of_more_than_a_thousand_objects(store):
    table_of(store, "a.split")
    for number in range(2500):
        store.put(f"orphans/{number:05d}.split", b"")
    store.clock.advance(30 * DAY)
    before = store.count("delete_many")
    report = run_purge(store)
    assert report.num_deleted == 2500
    assert store.count("delete_many") - before == 3
    assert splits_in(store) == {"a.split"}


def test_objects_without_a_time_are_kept(store):
    table_of(store, "a.split")
    store.put("folder.split", b"")
    store.times["folder.split"] = 0
    store.clock.advance(365 * DAY)
    assert run_purge(store, "0 hours", ALL_OF_THE_LOG, settings=UNCHECKED).num_files == 0
    assert "folder.split" in splits_in(store)


def test_version_files_without_a_time_are_kept(store):
    table_of(store, "a.split")
    checkpoint(store)
    store.times[version_key(0)] = 0
    store.clock.advance(365 * DAY)
    run_purge(store, "7 days", ALL_OF_THE_LOG)
    assert version_key(0) in log_keys(store)


def test_scrambled_and_repeated_listings_change_nothing(store):
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store)
    put_split(store, "orphan.split")
    store.clock.advance(30 * DAY)
    expected = doomed(run_purge(store, "7 days", ALL_OF_THE_LOG, dry_run=True))
    for seed in range(5):
        scrambled = FaultStore(store, seed=seed, scramble_rate=0.5)
        assert doomed(run_purge(scrambled, "7 days", ALL_OF_THE_LOG, dry_run=True)) == expected


def test_throttled_deletes_are_retried(store):
    table_of(store, "a.split")
    for number in range(3):
        put_split(store, f"orphan-{number}.split")
    store.clock.advance(30 * DAY)
    refusals = []

    class Busy(FaultStore):
        def delete_many(self, keys):
            if len(refusals) < 3:
                refusals.append(True)
                raise errors.TransientStorageError("slow down")
            super().delete_many(keys)

    assert run_purge(Busy(store)).num_deleted == 3
    assert len(refusals) == 3


def test_splits_that_cannot_be_deleted_are_in_the_report(store):
    table_of(store, "a.split")
    put_split(store, "orphan.split")
    store.clock.advance(30 * DAY)

    class ReadOnly(FaultStore):
        def delete_many(self, keys):
            raise errors.AccessDeniedError("no")

    report = run_purge(ReadOnly(store))
    assert (report.num_files, report.num_deleted) == (1, 0)
    assert report.failures.select(["path", "error"]).to_pylist() == [{"path": "orphan.split", "error": "no"}]
    assert "orphan.split" in splits_in(store)


def test_no_split_is_deleted_if_a_log_file_could_not_be_deleted(store):
    everything_goes(store)

    class ReadOnlyLog(FaultStore):
        def delete_many(self, keys):
            wanted = list(keys)
            if any(key.startswith(LOG_PREFIX) for key in wanted):
                raise errors.AccessDeniedError("no")
            super().delete_many(wanted)

    before = splits_in(store)
    with pytest.raises(errors.StorageError, match="no split was"):
        run_purge(ReadOnlyLog(store), "7 days", ALL_OF_THE_LOG)
    assert splits_in(store) == before


def test_two_purges_at_the_same_time_do_no_harm(store):
    everything_goes(store)
    first = another(store)
    started = []

    def start_another(call, operation, key):
        if operation == "delete_many" and not started:
            started.append(run_purge(another(store), "7 days", ALL_OF_THE_LOG))

    first.before_call = start_another
    run_purge(first, "7 days", ALL_OF_THE_LOG)
    assert started[0].num_deleted > 0
    assert is_clean(store)


def test_restored_split_is_not_purged_by_a_plan_that_is_older(store):
    """After the plan was made, an older version with a doomed split is restored."""
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store, version=2)
    checkpoint(store)
    store.clock.advance(30 * DAY)
    purging = another(store)
    restored = []

    def restore_before_the_first_delete(_, operation, key):
        if operation == "delete_many" and not restored:
            restored.append(restore(newest(store), RestoreRequest(2)))

    purging.before_call = restore_before_the_first_delete
    report = run_purge(purging, "7 days", ALL_OF_THE_LOG)
    assert "a.split" in doomed(report, PurgeKind.REMOVED_SPLIT)
    assert live_paths(store) == splits_in(store) == {"a.split", "b.split"}
    assert is_clean(store)


@pytest.mark.parametrize("retention", ["soon", "-1 days", timedelta(hours=-1), "7 parsecs"])
def test_retention_that_is_no_length_of_time_is_refused(store, retention):
    new_table(store)
    with pytest.raises(errors.InvalidOptionError, match="is not a retention"):
        run_purge(store, retention)


@pytest.mark.parametrize("retention", ["7 days", "168", 168, 168.0, timedelta(days=7), None])
def test_retention_in_every_spelling(store, retention):
    new_table(store)
    report = run_purge(store, retention)
    assert report.as_of - report.split_cutoff == timedelta(days=7)


def test_a_hundred_thousand_files_are_planned():
    clock = current_clock()
    store = ClockedStore(memory_store(clock), clock)
    table_of(store, "a.split")

    class Huge(FaultStore):
        """A store that lists splits which do not exist: writing them would take too long."""

        def list(self, prefix, **selection):
            yield from super().list(prefix, **selection)
            if prefix == "":
                listed = next(super().list("")).__class__
                yield from (
                    listed(f"z/{number:06d}.split", 1, 1_600_000_000_000) for number in range(100_000)
                )

    report = purge(load_snapshot(context(Huge(store))), PurgeRequest("7 days", dry_run=True), LocalRunner())
    assert report.num_files == 100_000


# --- IndexTable.purge ---------------------------------------------------------------------------------


def test_purge_of_a_table_on_disk(tmp_path):
    path = tmp_path / "table"
    table = IndexTable.create(str(path), SCHEMA, partition_by=["day"])
    table.append(rows(1, 2))
    table.overwrite(rows(3))
    (path / "orphan.split").write_bytes(b"x")
    old = time.time() - 10 * DAY
    os.utime(path / "orphan.split", (old, old))
    report = table.purge()
    assert (report.is_dry_run, report.num_files, report.num_kept_for_time_travel) == (True, 1, 1)
    assert table.purge(timedelta(days=7), dry_run=False).num_deleted == 1
    assert table.fsck(deep=True).is_clean
    assert IndexTable(str(path), version=1).count() == 2


def test_settings_of_the_table_decide_where_the_caller_does_not(tmp_path):
    table = IndexTable.create(
        str(tmp_path / "t"), SCHEMA, properties={"spark.indextables.purge.defaultRetentionHours": "48"}
    )
    report = table.purge()
    assert report.as_of - report.split_cutoff == timedelta(days=2)


def test_table_at_an_older_version_cannot_be_purged(tmp_path):
    IndexTable.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(errors.ReadOnlyTableError, match="can only be read"):
        IndexTable(str(tmp_path / "t"), version=0).purge()


# --- purge-on-write -----------------------------------------------------------------------------------

ON_WRITE = {
    "purgeOnWrite.enabled": "true",
    "purgeOnWrite.triggerAfterWrites": "3",
    "purgeOnWrite.splitRetentionHours": "24",
}


def test_purge_on_write_runs_every_n_writes(store):
    table = table_of(store, "a.split", settings=ON_WRITE)
    put_split(store, "orphan.split")
    store.clock.advance(2 * DAY)
    table = add_split(table, "b.split")
    assert "orphan.split" in splits_in(store)
    add_split(table, "c.split")
    assert splits_in(store) == {"a.split", "b.split", "c.split"}


def test_purge_on_write_needs_only_to_be_enabled(store):
    table = table_of(store, "a.split", settings={"purgeOnWrite.enabled": "true"})
    put_split(store, "orphan.split")
    store.clock.advance(8 * DAY)
    for number in range(2, 10):
        table = add_split(table, f"{number}.split")
        assert "orphan.split" in splits_in(store)
    add_split(table, "10.split")
    assert "orphan.split" not in splits_in(store)
    assert len(splits_in(store)) == 10


@pytest.mark.parametrize(
    "change", [{"purgeOnWrite.enabled": "false"}, {"purgeOnWrite.triggerAfterWrites": "0"}]
)
def test_purge_on_write_is_off_by_default(store, change):
    table = table_of(store, "a.split", settings={**ON_WRITE, **change})
    put_split(store, "orphan.split")
    store.clock.advance(2 * DAY)
    add_split(add_split(table, "b.split"), "c.split")
    assert "orphan.split" in splits_in(store)


def test_purge_on_write_cleans_up_old_versions(store):
    settings = {**ON_WRITE, "purgeOnWrite.txLogRetentionHours": "24", "checkpoint.retention": "0"}
    table = table_of(store, "a.split", "b.split", settings=settings)
    checkpoint(store)
    store.clock.advance(2 * DAY)
    add_split(table, "c.split")
    assert list(list_log(store).versions) == [2, 3]


def test_purge_on_write_that_fails_does_not_fail_the_write(store, caplog):
    table = table_of(store, "a.split", "b.split", settings=ON_WRITE)
    put_split(store, "orphan.split")
    store.clock.advance(2 * DAY)
    store._inner.put(version_key(1), b"nonsense")
    with caplog.at_level(logging.WARNING):
        assert add_split(table, "c.split").version == 3
    assert "the purge after version 3 failed" in caplog.text
    assert "orphan.split" in splits_in(store)


def test_purge_with_any_single_call_failing_and_repeated_does_the_same(store):
    everything_goes(store)
    whole = copy_of(store)
    run_purge(whole, "7 days", ALL_OF_THE_LOG)
    for call in range(len(whole.calls)):
        for moment in Moment:
            copy = copy_of(store)
            run_purge(RetryingStore(another(copy, fail_call=(call, moment))), "7 days", ALL_OF_THE_LOG)
            assert splits_in(copy) == splits_in(whole), (call, moment)
            assert len(log_keys(copy)) == len(log_keys(whole)), (call, moment)
