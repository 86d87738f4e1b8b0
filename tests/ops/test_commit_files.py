"""`commit_files`: what it accepts, what it rejects, and what each combination of adds and removes means."""

from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from indextables import AddAction, IndexTable
from indextables.errors import CommitConflictError, InvalidActionError, ReadOnlyTableError
from indextables.log.paths import version_key
from indextables.ops.write import commit_files
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.history import read_commits
from support.tables import (
    PLAIN,
    add,
    context,
    do,
    live,
    log_keys,
    memory_store,
    new_table,
    options,
    overwrite,
    remove,
)


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


@pytest.fixture
def table(store) -> Snapshot:
    """Version 1: a and b."""
    return commit_files(new_table(store), [add("a"), add("b")], []).snapshot


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store))


@pytest.mark.parametrize("removes", [[], ["a"]])
def test_doc_mappings_are_registered_once_and_referred_to(store, table, removes):
    mapping, spelled_otherwise = '[{"name":"id","type":"i64"}]', '[ {"type": "i64", "name": "id"} ]'
    adds = [
        msgspec.structs.replace(add("c"), doc_mapping_json=mapping),
        msgspec.structs.replace(add("d"), doc_mapping_json=spelled_otherwise),
        msgspec.structs.replace(add("e"), doc_mapping_json="not JSON"),
    ]
    commit_files(table, adds, removes)
    found = newest(store)
    (hash_,) = found.header.doc_mappings
    entries = {row["path"]: row for row in found.entries.to_pylist()}
    assert [entries[path]["docMappingRef"] for path in "cde"] == [hash_, hash_, None]
    assert [entries[path]["docMappingJson"] for path in "cde"] == [None, None, "not JSON"]
    assert set(found.metadata.configuration) == {f"docMappingSchema.{hash_}", "maxFieldId"}


# --- combinations of adds and removes -----------------------------------------------------------------


def test_adds_alone_are_an_append(store, table):
    result = commit_files(table, [add("c"), add("d")], [])
    assert (result.version, result.is_committed) == (2, True)
    assert set(live(newest(store))) == {"a", "b", "c", "d"}


def test_add_of_a_live_path_replaces_its_entry(store, table):
    commit_files(table, [add("a", size=77)], [])
    assert live(newest(store)) == {"a": 77, "b": 10}


def test_removes_alone_ignore_files_that_are_not_live(store, table):
    assert commit_files(table, [], ["a", "never was", "a"]).version == 2
    assert set(live(newest(store))) == {"b"}


def test_remove_of_nothing_live_is_no_commit(store, table):
    result = commit_files(table, [], ["never was"])
    assert (result.version, result.is_committed) == (1, False)
    assert version_key(2) not in log_keys(store)


def test_adds_and_removes_replace_in_one_version(store, table):
    assert commit_files(table, [add("ab", size=20)], ["a", "b"]).version == 2
    assert live(newest(store)) == {"ab": 20}
    assert live(load_snapshot(context(store), 1)) == {"a": 10, "b": 10}


def test_path_may_take_its_own_place(store, table):
    commit_files(table, [add("a", size=20)], ["a"])
    assert live(newest(store)) == {"a": 20, "b": 10}


def test_replace_of_a_removed_file_commits_nothing(store, table):
    do(table, remove("a"))
    with pytest.raises(
        CommitConflictError, match=r"nothing was committed, .* example a: a concurrent commit"
    ):
        commit_files(table, [add("ab")], ["a", "b"])
    assert set(live(newest(store))) == {"b"}


def test_replace_of_an_unknown_file_commits_nothing(store, table):
    with pytest.raises(CommitConflictError, match=r"are not live, or lost rows, for example never was"):
        commit_files(table, [add("x")], ["never was"])
    assert newest(store).version == 1


def test_commit_without_adds_and_removes_is_rejected(table):
    with pytest.raises(InvalidActionError, match="at least one add or remove"):
        commit_files(table, [], [])


def test_operations_in_the_history(store, table):
    table = commit_files(table, [add("c")], []).snapshot
    table = commit_files(table, [], ["c"]).snapshot
    table = commit_files(table, [add("d")], ["a"]).snapshot
    operations = [commit.info.operation for commit in read_commits(context(store), table.version)[1:]]
    assert operations == ["WRITE", "WRITE", "DELETE", "REPLACE"]


def test_overwritten_with_nothing_is_empty(store, table):
    do(table, overwrite())
    assert live(newest(store)) == {}
    assert newest(store).total_bytes == 0


# --- rejected commits ---------------------------------------------------------------------------------


def refused(store: ObjectStore, table: Snapshot, adds: list[AddAction], match: str) -> None:
    before = log_keys(store)
    with pytest.raises(InvalidActionError, match=match):
        commit_files(table, adds, [])
    with pytest.raises(InvalidActionError, match=match):
        commit_files(table, adds, ["a"])
    assert log_keys(store) == before


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../outside",
        "a/../../outside",
        "a/./b",
        "a//b",
        "a/",
        "nul\0",
        "new\nline",
        "back\\slash",
        "file:///etc/passwd",
        "s3://other/bucket",
        "lone\ud800surrogate",
    ],
)
def test_unsafe_paths_are_refused(store, table, path):
    refused(store, table, [add("fine"), add(path)], "cannot add|of the wrong type")


@pytest.mark.parametrize(
    "path", ["_transaction_log/00000000000000000002.json", "_transaction_log/x/y", "_transaction_log"]
)
def test_paths_inside_the_log_are_refused(store, table, path):
    refused(store, table, [add(path)], "belongs to the log")


@pytest.mark.parametrize(
    "path", ["_transaction_log2/x", "date=2024-01-01/p.split", "%2e%2e/x", "é/ü.split", "..a"]
)
def test_harmless_paths_are_accepted(store, table, path):
    commit_files(table, [add(path)], [])
    assert path in live(newest(store))


def test_the_same_path_twice_is_refused(store, table):
    refused(store, table, [add("x"), add("y"), add("x", size=3)], "'x': the same commit adds it twice")


@pytest.mark.parametrize("values", [{"nope": "1"}, {"date": "2024-01-01", "id": "1"}])
def test_values_for_columns_that_the_table_is_not_partitioned_by_are_refused(store, table, values):
    action = msgspec.structs.replace(add("x"), partition_values=values)
    refused(store, table, [action], "partitioned by date")


@pytest.mark.parametrize("values", [{}, {"date": None}, {"date": ""}])
def test_null_partition_values_are_accepted(store, table, values):
    commit_files(table, [msgspec.structs.replace(add("x"), partition_values=values)], [])
    assert "x" in live(newest(store))


@pytest.mark.parametrize("field", ["size", "modification_time"])
def test_negative_sizes_and_times_are_refused(store, table, field):
    refused(store, table, [msgspec.structs.replace(add("x"), **{field: -1})], "negative")


WRONG_TYPES: dict[str, Any] = {
    "size": [1.5, "12", None, 2**63, 2**70],
    "modification_time": [1.5, None],
    "num_records": ["many", 0.5, 2**64],
    "path": [None, 7, b"x"],
    "partition_values": [None, ["date"], {"date": 20240101}, {1: "x"}],
    "min_values": [{"id": 1}, "x"],
    "data_change": ["yes", None, 1],
    "num_merge_ops": [2**31],
    "split_tags": ["abc", [1]],
    "stats": [{"numRecords": 1}, "\ud800"],
    "footer_start_offset": [0.5],
    "doc_mapping_ref": [datetime(2024, 1, 1)],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in WRONG_TYPES.items() for value in values]
)
def test_values_of_a_wrong_type_are_refused_before_they_make_the_table_unreadable(store, table, field, value):
    refused(store, table, [msgspec.structs.replace(add("x"), **{field: value})], "of the wrong type")
    assert set(live(newest(store))) == {"a", "b"}


def test_every_field_of_an_add_survives_the_log(store, table):
    action = AddAction(
        path="full",
        partition_values={"date": "2024-02-29"},
        size=2**63 - 1,
        modification_time=1_700_000_000_123,
        data_change=False,
        stats='{"numRecords":3}',
        min_values={"id": "-1", "message": "ä\u2028"},
        max_values={"id": "9", "message": "\U0001f600"},
        num_records=3,
        footer_start_offset=10,
        footer_end_offset=20,
        has_footer_offsets=True,
        split_tags=("hot", ""),
        num_merge_ops=2,
        doc_mapping_ref="abc",
        uncompressed_size_bytes=100,
        tags={"k": "v"},
        hotcache_start_offset=1,
        hotcache_length=2,
        time_range_start="2024-01-01T00:00:00Z",
        time_range_end="2024-01-02T00:00:00Z",
        delete_opstamp=5,
        doc_mapping_json="[]",
        companion_source_files=("x.parquet",),
        companion_delta_version=4,
        companion_fast_field_mode="HYBRID",
    )
    commit_files(table, [action], ["a", "b"])
    (entry,) = newest(store).entries.to_pylist(maps_as_pydicts="strict")
    on_disk = msgspec.to_builtins(action)
    on_disk |= {"splitTags": ["hot", ""], "companionSourceFiles": ["x.parquet"]}
    assert {name: entry[name] for name in on_disk} == on_disk
    assert entry["addedAtVersion"] == 2


# --- tables opened at an older version ----------------------------------------------------------------


@pytest.mark.parametrize("pin", ["version", "timestamp"])
def test_pinned_table_refuses_to_write(tmp_path, pin):
    path = str(tmp_path / "table")
    table = IndexTable.create(path, pa.schema([("id", pa.int64())]), options=options(PLAIN))
    table.commit(adds=[plain("a")])
    value = 1 if pin == "version" else "2999-01-01"
    pinned = IndexTable(path, options=options(PLAIN), **{pin: value})
    operations = [
        lambda: pinned.commit(adds=[plain("b")]),
        lambda: pinned.commit(removes=["a"]),
        lambda: pinned.set_properties({"owner": "me"}),
        lambda: pinned.upgrade_protocol(4, 4),
        pinned.checkpoint,
        pinned.compact,
    ]
    for operation in operations:
        with pytest.raises(ReadOnlyTableError, match="can only be read"):
            operation()
    assert (pinned.version, pinned.num_files) == (1, 1)
    assert pinned.refresh().commit(adds=[plain("b")]) == 2


def plain(path: str) -> AddAction:
    return AddAction(path=path, partition_values={}, size=1, modification_time=0, data_change=True)
