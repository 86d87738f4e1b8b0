"""Truncating time travel leaves only the newest version, under any failure and concurrency."""

import contextlib

import pytest

from indextables import IndexTable, errors
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, version_key
from indextables.log.segment import list_log
from indextables.ops.checkpoint.operation import compact
from indextables.ops.fsck.operation import fsck
from indextables.ops.runner import LocalRunner
from indextables.ops.truncate import TruncateResult, truncate_time_travel
from indextables.ops.write import commit_files
from indextables.storage import RetryingStore
from indextables.table import load_snapshot
from support.faults import Moment
from support.purge_tables import (
    DAY,
    HOUR,
    ClockedStore,
    add_split,
    another,
    clocked_store,
    copy_of,
    is_clean,
    live_paths,
    newest,
    put_split,
    remove_split,
    splits_in,
    table_of,
)
from support.row_tables import SCHEMA, ids, rows
from support.tables import FORMATS, checkpoint, context, log_keys, write_version


@pytest.fixture
def store() -> ClockedStore:
    """A table with five versions and a checkpoint of the third."""
    store = clocked_store()
    table = table_of(store, "a.split", "b.split", "c.split")
    checkpoint(store)
    remove_split(table, "a.split")
    add_split(newest(store), "d.split")
    return store


def truncate(store, *, dry_run=False, settings=None) -> TruncateResult:
    return truncate_time_travel(load_snapshot(context(store, settings)), LocalRunner(), dry_run=dry_run)


def readable(store) -> tuple[list[int], list[int]]:
    listing = list_log(store)
    return list(listing.versions), list(listing.bases)


@pytest.mark.parametrize("form", FORMATS)
def test_newest_version_is_the_only_one_left(store, form):
    report = truncate(store, settings=FORMATS[form])
    assert (report.version, report.writes_checkpoint) == (5, True)
    assert (report.num_versions, report.num_checkpoints) == (5, 1)
    assert readable(store) == ([5], [5])
    assert live_paths(store) == {"b.split", "c.split", "d.split"}
    for version in range(5):
        with pytest.raises(errors.VersionNotFoundError):
            load_snapshot(context(store), version)
    assert is_clean(store)


def test_splits_are_left_for_a_purge(store):
    truncate(store)
    assert splits_in(store) == {"a.split", "b.split", "c.split", "d.split"}


@pytest.mark.parametrize("has_state", [True, False])
def test_dry_run_lists_exactly_what_the_real_run_deletes(store, has_state):
    if has_state:
        compact(newest(store))
    store.clock.advance(2 * HOUR)
    before = set(log_keys(store))
    dry = truncate(store, dry_run=True)
    assert set(log_keys(store)) == before
    real = truncate(store)
    assert dry.files.drop_columns(["is_deleted"]).equals(real.files.drop_columns(["is_deleted"]))
    assert before - set(log_keys(store)) == set(dry.files["path"].to_pylist())
    assert (real.num_manifests > 0) is has_state


def test_truncating_again_has_nothing_to_do(store):
    truncate(store)
    keys = log_keys(store)
    report = truncate(store)
    assert (report.files.num_rows, report.writes_checkpoint, report.size_bytes) == (0, False, 0)
    assert log_keys(store) == keys


def test_table_accepts_writes_after_a_truncation(store):
    truncate(store)
    table = add_split(newest(store), "e.split")
    assert (table.version, table.num_files) == (6, 4)
    assert is_clean(store)


def test_unreadable_old_versions_are_deleted_too(store):
    store._inner.put(version_key(1), b"nonsense")
    truncate(store)
    assert readable(store) == ([5], [5])
    assert is_clean(store)


def test_young_manifests_stay_for_the_next_collection(store):
    store.put(f"{LOG_PREFIX}manifests/manifest-00ff.avro", b"a writer is about to refer to it")
    assert truncate(store).num_manifests == 0


def test_damaged_checkpoint_of_the_newest_version_is_rebuilt_from_an_older_one():
    """It is built from the manifests of the older checkpoint, which the damaged one did not refer to."""
    store = clocked_store()
    table = table_of(store, "a.split", "b.split")
    checkpoint(store)
    (older,) = manifests(store)
    compact(add_split(table, "c.split"))
    (damaged,) = manifests(store) - {older}
    store._inner.put(damaged, store.get(damaged)[:-20])
    store.clock.advance(2 * DAY)
    assert older in truncate(store, dry_run=True).files["path"].to_pylist()
    files = truncate(store).files.to_pylist()
    assert older in manifests(store)
    assert {file["path"] for file in files if not file["is_deleted"]} == {older}
    assert live_paths(store) == {"a.split", "b.split", "c.split"}
    assert is_clean(store)


def manifests(store) -> set[str]:
    return {key for key in log_keys(store) if "/manifests/" in key}


def test_gap_in_the_log_stops_the_truncation(store):
    store.delete_many([version_key(4)])
    before = log_keys(store)
    with pytest.raises(errors.LogGapError, match="nothing was deleted"):
        truncate(store)
    assert log_keys(store) == before


def test_table_that_needs_a_newer_release_is_not_truncated(store):
    protocol = '{"protocol":{"minReaderVersion":4,"minWriterVersion":4,"writerFeatures":["tomorrow"]}}\n'
    write_version(store, 6, more=protocol)
    with pytest.raises(errors.UnsupportedProtocolError):
        truncate(store)
    assert version_key(0) in log_keys(store)


def test_concurrent_commits_stay(store):
    truncating = another(store)
    done = []

    def commit_before_the_first_delete(_, operation, key):
        if operation == "delete_many" and not done:
            done.append(add_split(newest(store), "e.split"))

    truncating.before_call = commit_before_the_first_delete
    truncate(truncating)
    assert readable(store) == ([5, 6], [5])
    assert "e.split" in live_paths(store)
    assert is_clean(store)


@pytest.mark.parametrize("has_hint", [True, False])
def test_stalled_writer_cannot_use_a_version_number_that_was_deleted(store, has_hint):
    stalled = another(store)
    snapshot = load_snapshot(context(stalled))
    late = put_split(store, "late.split")
    done = []

    def concurrent_step(_, operation, key):
        if operation == "put_if_absent" and key == version_key(6) and not done:
            done.append(True)
            add_split(add_split(newest(store), "e.split"), "f.split")
            truncate(store)
            if not has_hint:
                store.delete_many([LAST_CHECKPOINT_KEY])

    stalled.before_call = concurrent_step
    result = commit_files(snapshot, [late], [])
    assert (result.version, result.snapshot.num_files) == (8, 6)
    assert readable(store) == ([7, 8], [7])
    assert is_clean(store)


def test_truncation_with_any_call_failing_keeps_the_newest_version(store):
    store.clock.advance(2 * HOUR)
    whole = copy_of(store)
    truncate(whole)
    expected = live_paths(whole)
    for call in range(len(whole.calls)):
        for moment in Moment:
            crashed = copy_of(store)
            with contextlib.suppress(errors.IndexTablesError):
                truncate(another(crashed, fail_call=(call, moment)), settings={"purge.deleteRetries": "0"})
            assert live_paths(crashed) == expected, (call, moment)
            assert is_clean(crashed), (call, moment)
            truncate(crashed)
            assert readable(crashed) == ([5], [5]), (call, moment)


def test_truncation_succeeds_when_any_single_call_fails_and_is_repeated(store):
    whole = copy_of(store)
    truncate(whole)
    for call in range(len(whole.calls)):
        for moment in Moment:
            copy = copy_of(store)
            truncate(RetryingStore(another(copy, fail_call=(call, moment))))
            assert readable(copy) == ([5], [5]), (call, moment)


def test_truncation_of_a_table_on_disk(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA)
    table.append(rows(1, 2))
    table.overwrite(rows(3))
    assert table.truncate_time_travel().is_dry_run
    assert table.history().num_rows == 3
    table.truncate_time_travel(dry_run=False)
    assert (table.version, ids(table), table.history().num_rows) == (2, [3], 1)
    assert ids(IndexTable(str(tmp_path / "t"))) == [3]
    assert fsck(table._snapshot.context, LocalRunner(), deep=True).is_clean
