"""Restoring the files, schema and properties of an older version in a new commit."""

from datetime import UTC, datetime

import pytest

from indextables import IndexTable, errors
from indextables.log.decode import UnknownContent
from indextables.ops.fsck.operation import fsck
from indextables.ops.restore import RestoreRequest, restore
from indextables.ops.runner import LocalRunner
from indextables.ops.write import set_properties, upgrade_protocol
from indextables.storage import RetryingStore
from indextables.table import changes_since, load_snapshot
from indextables.table.intent import ChangeProperties
from indextables.table.log_reader import read_tail
from support.faults import Moment
from support.purge_tables import (
    ALL_OF_THE_LOG,
    DAY,
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
    run_purge,
    splits_in,
    table_of,
)
from support.racing_commits import overtaken_by
from support.row_tables import SCHEMA, ids, rows
from support.tables import (
    FORMATS,
    append,
    checkpoint,
    context,
    drop,
    merge,
    new_table,
    older_table,
    overwrite,
    write_version,
)


@pytest.fixture
def store() -> ClockedStore:
    """Version 2 has a and b, version 3 only b, version 4 b and c; version 5 changes the owner."""
    store = clocked_store()
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    set_properties(add_split(newest(store), "c.split", number=1), {"owner": "me"})
    return store


def test_files_and_properties_are_as_they_were(store):
    result = restore(newest(store), RestoreRequest(2))
    assert (result.is_committed, result.version) == (True, 6)
    assert live_paths(store) == {"a.split", "b.split"}
    assert "owner" not in newest(store).metadata.configuration
    old = load_snapshot(context(store), 2)
    assert newest(store).entries.select(["path", "size", "numRecords"]).sort_by("path") == old.entries.select(
        ["path", "size", "numRecords"]
    ).sort_by("path")
    assert is_clean(store)


@pytest.mark.parametrize("form", FORMATS)
def test_version_is_restored_from_checkpoints_of_every_format(store, form):
    checkpoint(store, form, 2)
    checkpoint(store, form)
    restore(newest(store), RestoreRequest(2))
    checkpoint(store, form)
    assert live_paths(store) == {"a.split", "b.split"}
    assert is_clean(store)


def test_every_version_can_be_restored_in_turn(store):
    expected = {version: set_of(store, version) for version in range(6)}
    for version in (0, 5, 1, 4, 2, 3):
        restore(newest(store), RestoreRequest(version))
        assert live_paths(store) == expected[version]
    for version, files in expected.items():
        assert set_of(store, version) == files
    assert is_clean(store)


def set_of(store, version) -> set[str]:
    return set(load_snapshot(context(store), version).entries["path"].to_pylist())


def test_version_that_the_table_already_is_needs_no_commit(store):
    result = restore(newest(store), RestoreRequest(5))
    assert (result.is_committed, result.version) == (False, 5)


def test_restored_files_count_as_added_by_the_restore(store):
    restore(newest(store), RestoreRequest(2))
    changes = changes_since(newest(store), 5)
    assert changes.adds["path"].to_pylist() == ["a.split"]
    assert changes.adds["dataChange"].to_pylist() == [True]
    assert changes.removes["path"].to_pylist() == ["c.split"]
    added = {row["path"]: row["addedAtVersion"] for row in newest(store).entries.to_pylist()}
    assert added == {"a.split": 6, "b.split": 2}


def test_file_that_was_replaced_under_its_path_is_the_old_one_again(store):
    table = remove_split(newest(store), "b.split")
    write_version(
        store,
        table.version + 1,
        more='{"add":{"path":"b.split","size":7,"modificationTime":9,'
        '"partitionValues":{"date":"2024-01-01"},"dataChange":true}}\n',
    )
    assert sizes(store)["b.split"] == 7
    restore(newest(store), RestoreRequest(4))
    assert sizes(store) == {
        row["path"]: row["size"] for row in load_snapshot(context(store), 4).entries.to_pylist()
    }
    checkpoint(store)
    assert sizes(store)["b.split"] != 7


def sizes(store) -> dict[str, int]:
    return {row["path"]: row["size"] for row in newest(store).entries.to_pylist()}


def test_fields_that_this_release_does_not_know_survive(store):
    put_split(store, "x.split")
    write_version(
        store,
        6,
        more='{"add":{"path":"x.split","size":1,"partitionValues":{"date":"2024-01-01"},'
        '"dataChange":true,"fromTheFuture":{"deep":[1,2]}}}\n',
    )
    remove_split(newest(store), "x.split")
    restored = restore(newest(store), RestoreRequest(6)).snapshot
    tail = read_tail(restored.context, restored.segment.version_files[-1:], UnknownContent.KEEP)
    assert tail.adds["unknownFields"].to_pylist() == ['{"fromTheFuture":{"deep":[1,2]}}']


def test_protocol_is_never_lowered():
    store = clocked_store()
    add_split(older_table(store), "a.split")
    upgrade_protocol(newest(store), 5, 5)
    restore(newest(store), RestoreRequest(0))
    assert (live_paths(store), newest(store).protocol.min_reader_version) == (set(), 5)


def test_missing_splits_are_named_and_nothing_is_committed(store):
    store.delete_many(["a.split", "b.split"])
    with pytest.raises(errors.SplitsMissingError, match=r"a\.split, b\.split") as raised:
        restore(newest(store), RestoreRequest(2))
    assert raised.value.paths == ("a.split", "b.split")
    assert newest(store).version == 5


def test_missing_splits_among_very_many_are_found(monkeypatch, store):
    monkeypatch.setattr("indextables.ops.restore._MAX_LOOKUPS", 1)
    store.delete_many(["a.split"])
    with pytest.raises(errors.SplitsMissingError) as raised:
        restore(newest(store), RestoreRequest(2))
    assert raised.value.paths == ("a.split",)


@pytest.mark.parametrize("version", [-1, 6, 100])
def test_version_that_does_not_exist(store, version):
    with pytest.raises(errors.VersionNotFoundError):
        restore(newest(store), RestoreRequest(version))


def test_version_that_was_purged_cannot_be_restored(store):
    checkpoint(store)
    store.clock.advance(30 * DAY)
    run_purge(store, "7 days", ALL_OF_THE_LOG)
    assert splits_in(store) == {"b.split", "c.split"}
    with pytest.raises(errors.VersionNotFoundError):
        restore(newest(store), RestoreRequest(2))


def test_purge_of_the_version_during_the_restore_is_reported(store):
    checkpoint(store)
    store.clock.advance(30 * DAY)
    restoring = another(store)
    done = []

    def purge_before_the_commit(_, operation, key):
        if operation == "put_if_absent" and not done:
            done.append(True)
            run_purge(store, "7 days", ALL_OF_THE_LOG)

    restoring.before_call = purge_before_the_commit
    with pytest.raises(errors.SplitsMissingError, match="restore version 5"):
        restore(newest(restoring), RestoreRequest(2))


@pytest.mark.parametrize(
    "winner",
    [
        append("late.split"),
        overwrite("new.split"),
        merge((["b.split", "c.split"], ["bc.split"])),
        drop("date = '2024-01-01'"),
    ],
)
def test_restore_undoes_concurrent_commits(store, winner):
    result = restore(overtaken_by(store, winner), RestoreRequest(2))
    assert result.version == 7
    assert live_paths(store) == {"a.split", "b.split"}


def test_concurrent_metadata_change_is_a_conflict(store):
    with pytest.raises(errors.CommitConflictError):
        restore(overtaken_by(store, ChangeProperties({"owner": "you"})), RestoreRequest(2))
    assert live_paths(store) == {"b.split", "c.split"}


def test_restore_with_any_call_failing_is_before_or_after(store):
    whole = copy_of(store)
    restore(newest(whole), RestoreRequest(2))
    calls = len(whole.calls)
    for call in range(calls):
        for moment in Moment:
            copy = copy_of(store)
            failing = another(copy, fail_call=(call, moment))
            before, after = {"b.split", "c.split"}, {"a.split", "b.split"}
            try:
                restore(newest(failing), RestoreRequest(2))
                allowed = [after]
            except errors.CommitOutcomeUnknownError:
                allowed = [before, after]
            except errors.IndexTablesError:
                allowed = [before]
            assert live_paths(copy) in allowed, (call, moment)
            assert is_clean(copy), (call, moment)
            again = copy_of(store)
            restore(newest(RetryingStore(another(again, fail_call=(call, moment)))), RestoreRequest(2))
            assert live_paths(again) == {"a.split", "b.split"}, (call, moment)


def test_restore_of_an_empty_version(store):
    restore(newest(store), RestoreRequest(0))
    assert live_paths(store) == set()
    new_table(store)


def test_rows_of_a_table_on_disk_are_as_they_were(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"])
    table.append(rows(1, 2))
    between = datetime.now(UTC)
    table.overwrite(rows(3, day="2024-01-02"))
    table.drop_partitions("day = '2024-01-02'")
    assert table.restore(version=2) == 4
    assert ids(table) == [3]
    assert table.restore(timestamp=between) == 5
    assert ids(table) == [1, 2]
    assert table.history(limit=1)["operation"].to_pylist() == ["RESTORE"]
    assert fsck(table._snapshot.context, LocalRunner(), deep=True).is_clean


@pytest.mark.parametrize("arguments", [{}, {"version": 1, "timestamp": "2024-01-01"}])
def test_version_or_timestamp_but_not_both(tmp_path, arguments):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(errors.InvalidOptionError, match="either"):
        table.restore(**arguments)
