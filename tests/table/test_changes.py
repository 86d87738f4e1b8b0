"""The changes since a version: from the version files, or by comparison where cleanup removed them."""

from datetime import UTC, datetime

import pytest

from indextables import IndexTable
from indextables.errors import VersionNotFoundError
from indextables.log.actions import encode_actions
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.paths import LOG_PREFIX, json_checkpoint_key, version_key
from indextables.log.version_file import decompress
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import compact
from indextables.storage import ObjectStore
from indextables.table import ChangeSet, changes_since, load_snapshot
from indextables.table.history import read_commits, version_at
from indextables.table.intent import Append, ChangeProperties
from support.clock import VirtualClock
from support.faults import FaultStore
from support.tables import (
    FORMATS,
    AgeingStore,
    add,
    after,
    append,
    checkpoint,
    context,
    memory_store,
    merge,
    new_table,
    overwrite,
    remove,
    write_version,
)


@pytest.fixture
def store() -> ObjectStore:
    """Versions: 1 adds a and b; 2 adds c; 3 removes b; 4 merges a and c; 5 adds a again; 6 sets a property."""
    store = memory_store(VirtualClock())
    after(
        new_table(store),
        append("a", "b"),
        append("c"),
        remove("b"),
        merge((["a", "c"], ["ac"])),
        Append((add("a", size=99),), has_new_paths=True),
        ChangeProperties({"owner": "me"}),
    )
    return store


def changes(store: ObjectStore, since: int, until: int | None = None) -> ChangeSet:
    return changes_since(load_snapshot(context(store), until), since)


def summary(change_set: ChangeSet) -> tuple[list[str], list[str]]:
    return change_set.adds["path"].to_pylist(), change_set.removes["path"].to_pylist()


# Ordered by the version of the add, and by path.
NET = {
    -1: (["ac", "a"], []),
    0: (["ac", "a"], []),
    1: (["ac", "a"], ["b"]),
    2: (["ac", "a"], ["b", "c"]),
    3: (["ac", "a"], ["c"]),
    4: (["a"], []),
    5: ([], []),
    6: ([], []),
}


@pytest.mark.parametrize("since", NET)
def test_changes_are_what_two_versions_do_not_have_in_common(store, since):
    found = changes(store, since)
    assert summary(found) == NET[since]
    assert (found.since_version, found.version) == (since, 6)


def test_changes_have_the_columns_that_both_ways_know(store):
    found = changes(store, 2)
    assert found.adds.schema == FILE_ENTRY_SCHEMA
    assert found.removes.column_names == ["path", "partitionValues", "size"]
    assert found.adds["addedAtVersion"].to_pylist() == [4, 5]
    assert found.removes.to_pylist() == [
        {"path": path, "partitionValues": [("date", "2024-01-01")], "size": 10} for path in ("b", "c")
    ]


def test_file_that_was_added_and_removed_in_between_is_no_change(store):
    after(load_snapshot(context(store)), append("x"), remove("x"))
    assert summary(changes(store, 6)) == ([], [])


def test_file_that_came_back_unchanged_is_no_change(store):
    after(load_snapshot(context(store)), remove("ac"), append("ac"))
    assert summary(changes(store, 6)) == ([], [])
    assert summary(changes(store, 7)) == (["ac"], [])


def test_actions_of_other_writers_are_compared_with_what_was_live(store):
    """Another writer adds a live file again, unchanged, and removes a file that is not live."""
    again = encode_actions([add("a", size=99)]).decode()
    write_version(store, 7, more=f'{again}{{"remove":{{"path":"never"}}}}\n{{"remove":{{"path":"ac"}}}}\n')
    found = changes(store, 6)
    assert summary(found) == ([], ["ac"])
    assert found.removes["size"].to_pylist() == [10]


def test_changes_up_to_an_older_version(store):
    assert summary(changes(store, 1, until=3)) == (["c"], ["b"])


def test_compaction_and_checkpoints_are_no_changes(store):
    for path in ("x", "y"):
        after(load_snapshot(context(store)), append(path))
        checkpoint(store)
    assert compact(load_snapshot(context(store))).version == 9
    assert summary(changes(store, 8)) == ([], [])
    assert summary(changes(store, 6)) == (["x", "y"], [])


@pytest.mark.parametrize("since", [7, 100])
def test_changes_since_a_future_version_are_an_error(store, since):
    with pytest.raises(VersionNotFoundError, match=f"since version {since}: the newest version is 6"):
        changes(store, since)


def test_changes_since_a_version_below_minus_one_are_an_error(store):
    with pytest.raises(VersionNotFoundError, match="there is no version -2"):
        changes(store, -2)


@pytest.mark.parametrize("form", FORMATS)
def test_changes_of_a_table_of_checkpoints_alone_are_the_same(store, form):
    expected = {since: changes(store, since) for since in (2, 3, 4, 6)}
    for version in expected:
        checkpoint(store, form, version)
    store.delete_many([version_key(version) for version in range(7)])
    for since in expected:
        assert changes(store, since) == expected[since]


def test_changes_from_a_replayed_version_to_a_state_are_the_difference(store):
    checkpoint(store, "avro", 6)
    store.delete_many([version_key(version) for version in range(4, 7)])
    adds, removes = summary(changes(store, 2))
    assert (set(adds), set(removes)) == ({"ac", "a"}, {"b", "c"})


def test_path_that_came_back_as_another_file_is_an_add_in_the_difference(store):
    again = Append((add("ac", size=11),))
    snapshot = after(load_snapshot(context(store)), remove("ac", "a"), append("x", "a"), again)
    checkpoint(store, "avro", 6)
    checkpoint(store, "avro", 9)
    store.delete_many([version_key(version) for version in range(10)])
    found = changes_since(snapshot, 6)
    assert set(found.adds["path"].to_pylist()) == {"x", "ac", "a"}
    assert found.removes.num_rows == 0


def test_entries_relabelled_by_another_writer_are_no_change(store):
    """Some writers give every entry the version of the compaction that rewrote it."""
    checkpoint(store, "json", 5)
    checkpoint(store, "json", 6)
    key = json_checkpoint_key(6)
    lines = decompress(store.get(key), key).replace(b'"addedAtVersion":4', b'"addedAtVersion":6')
    assert lines != decompress(store.get(key), key)
    store.put(key, lines)
    store.delete_many([version_key(version) for version in range(7)])
    assert summary(changes(store, 5)) == ([], [])


def test_changes_across_a_cleanup(store):
    """Cleanup removed the version files up to the checkpoint: changes since then are complete, older ones are gone."""
    checkpoint(store, "avro", 4)
    ageing = AgeingStore(store, store.clock)
    store.clock.advance(3600)
    settings = {"purge.txLogRetentionHours": "0", "checkpoint.retention": "0"}
    assert clean_up(context(ageing, settings), 4).versions
    assert summary(changes(store, 4)) == NET[4]
    assert summary(changes(store, 3)) == NET[3]  # the file of version 4 itself stays
    for since in (0, 2):
        with pytest.raises(VersionNotFoundError, match=f"the changes since version {since} are gone"):
            changes(store, since)


def test_changes_between_two_states_open_only_manifests_that_differ(store):
    """A table of states without version files, as some writers leave it. Both versions share most manifests."""
    snapshot = load_snapshot(context(store))
    for batch in range(5):
        snapshot = after(snapshot, append(*(f"{batch}-{number}" for number in range(30))))
        checkpoint(store)
    store.delete_many([version_key(version) for version in range(1, 12)])
    counting = FaultStore(store)
    newest = load_snapshot(context(counting))
    found = changes_since(newest, 10)
    assert found.adds["path"].to_pylist() == sorted(f"4-{number}" for number in range(30))
    assert found.removes.num_rows == 0
    opened = [call.key for call in counting.calls if call.operation == "get" and "/manifests/" in call.key]
    (info,) = [info for info in newest.source.state.manifests if info.min_added_at_version > 10]
    assert opened == [LOG_PREFIX + info.path]


def test_changes_of_a_large_table_read_the_new_versions_and_no_state(store):
    checkpoint(store)
    counting = FaultStore(store)
    new = Append((add("x"),), has_new_paths=True)
    snapshot = after(load_snapshot(context(counting)), new, remove("a"))
    counting.calls.clear()
    assert summary(changes_since(snapshot, 6)) == (["x"], ["a"])
    assert {call.key for call in counting.calls if call.operation == "get"} <= {
        version_key(7),
        version_key(8),
    }


def test_changes_since_a_timestamp():
    clock = VirtualClock()
    store = memory_store(clock)
    table = new_table(store)
    for path in ("a", "b", "c"):
        clock.advance(60)
        table = after(table, append(path))
    index_table = opened(store)
    moments = [commit.timestamp_ms for commit in read_commits(table.context, table.version)]
    for version, expected in enumerate((["a", "b", "c"], ["b", "c"], ["c"], [])):
        for late_ms in (0, 59_000):
            moment = datetime.fromtimestamp((moments[version] + late_ms) / 1000, UTC)
            found = index_table.changes(since_timestamp=moment)
            assert (found.since_version, found.adds["path"].to_pylist()) == (version, expected)


def opened(store: ObjectStore) -> IndexTable:
    index_table = IndexTable.__new__(IndexTable)
    index_table._bind(load_snapshot(context(store)), is_pinned=False)
    return index_table


LONG_AGO = "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_changes_since_a_timestamp_before_the_table_was_created_are_everything(store, has_checkpoint):
    if has_checkpoint:
        checkpoint(store, "avro", 4)
    found = opened(store).changes(since_timestamp=LONG_AGO)
    assert (found.since_version, found.version) == (-1, 6)
    assert summary(found) == NET[-1]


def test_changes_since_a_timestamp_before_the_earliest_version_are_gone(store):
    checkpoint(store, "avro", 4)
    store.delete_many([version_key(version) for version in range(4)])
    with pytest.raises(
        VersionNotFoundError, match=r"since 1970-01-01T.* are gone: the earliest .* version 4"
    ):
        opened(store).changes(since_timestamp=LONG_AGO)


def test_reading_at_a_timestamp_before_the_table_was_created_is_an_error(store):
    with pytest.raises(VersionNotFoundError, match="no version at or before 1970-01-01"):
        version_at(context(store), 6, 0)


def test_changes_after_an_overwrite(store):
    after(load_snapshot(context(store)), overwrite("o"))
    adds, removes = summary(changes(store, 6))
    assert (adds, set(removes)) == (["o"], {"ac", "a"})
