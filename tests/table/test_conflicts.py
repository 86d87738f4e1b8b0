"""Every cell of the conflict matrix, through the real commit loop: two transactions planned on the same version."""

import msgspec
import pyarrow as pa
import pytest

from indextables.errors import CommitConflictError, InvalidActionError, UnsupportedProtocolError
from indextables.log import actions
from indextables.log.actions import ProtocolAction, RemoveAction
from indextables.predicates import parse_predicate
from indextables.schema import to_spark_json
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.intent import Append, ChangeProperties, EmptyCommit, Intent, Overwrite, UpgradeProtocol
from support.tables import (
    SCHEMA,
    add,
    after,
    append,
    context,
    do,
    drop,
    live,
    memory_store,
    merge,
    new_table,
    overwrite,
    paths,
    remove,
    write_version,
)

DAY_1, DAY_2 = "2024-01-01", "2024-01-02"
GIVES_UP = "gives up"
NO_OP = "has nothing left to do"

Outcome = set[str] | str

CONCURRENT: dict[str, Intent] = {
    "append": append("concurrent-append", date=DAY_2),
    "overwrite": overwrite("concurrent-overwrite"),
    "merge": merge((["a", "b"], ["concurrent-merge"])),
    "drop": drop(f"date = '{DAY_1}'"),
    "metadata": ChangeProperties({"owner": "w"}),
    "protocol": UpgradeProtocol(6, 6),
}
TRANSACTIONS: dict[str, Intent] = {
    "append": append("own-append", date=DAY_2),
    "overwrite": overwrite("own-overwrite"),
    "merge": merge((["a", "b"], ["own-merge"])),
    "drop": drop(f"date = '{DAY_1}'"),
    "metadata": ChangeProperties({"purpose": "l"}),
    "protocol": UpgradeProtocol(6, 6),
}

# The live files after a transaction and a concurrent commit, by (transaction, concurrent commit). The table starts with
# a and b on the first day and c on the second.
MATRIX: dict[tuple[str, str], Outcome] = {
    ("append", "append"): {"a", "b", "c", "concurrent-append", "own-append"},
    ("append", "overwrite"): {"concurrent-overwrite", "own-append"},
    ("append", "merge"): {"concurrent-merge", "c", "own-append"},
    ("append", "drop"): {"c", "own-append"},
    ("append", "metadata"): {"a", "b", "c", "own-append"},
    ("append", "protocol"): {"a", "b", "c", "own-append"},
    ("overwrite", "append"): {"own-overwrite"},
    ("overwrite", "overwrite"): {"own-overwrite"},
    ("overwrite", "merge"): {"own-overwrite"},
    ("overwrite", "drop"): {"own-overwrite"},
    ("overwrite", "metadata"): GIVES_UP,
    ("overwrite", "protocol"): GIVES_UP,
    ("merge", "append"): {"own-merge", "c", "concurrent-append"},
    ("merge", "overwrite"): GIVES_UP,
    ("merge", "merge"): GIVES_UP,
    ("merge", "drop"): GIVES_UP,
    ("merge", "metadata"): {"own-merge", "c"},
    ("merge", "protocol"): {"own-merge", "c"},
    ("drop", "append"): {"c", "concurrent-append"},
    ("drop", "overwrite"): set(),
    ("drop", "merge"): {"c"},
    ("drop", "drop"): NO_OP,
    ("drop", "metadata"): GIVES_UP,
    ("drop", "protocol"): GIVES_UP,
    ("metadata", "append"): {"a", "b", "c", "concurrent-append"},
    ("metadata", "overwrite"): {"concurrent-overwrite"},
    ("metadata", "merge"): {"concurrent-merge", "c"},
    ("metadata", "drop"): {"c"},
    ("metadata", "metadata"): {"a", "b", "c"},
    ("metadata", "protocol"): {"a", "b", "c"},
    ("protocol", "append"): {"a", "b", "c", "concurrent-append"},
    ("protocol", "overwrite"): {"concurrent-overwrite"},
    ("protocol", "merge"): {"concurrent-merge", "c"},
    ("protocol", "drop"): {"c"},
    ("protocol", "metadata"): {"a", "b", "c"},
    ("protocol", "protocol"): NO_OP,
}


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


@pytest.fixture
def start(store, monkeypatch) -> Snapshot:
    """Version 2: a and b on the first day, c on the second. The release supports a newer protocol than the table's."""
    monkeypatch.setattr(actions, "READER_VERSION", 6)
    monkeypatch.setattr(actions, "WRITER_VERSION", 6)
    return after(new_table(store), append("a", "b", date=DAY_1), append("c", date=DAY_2))


@pytest.mark.parametrize(("transaction", "concurrent"), MATRIX)
def test_cell_of_the_matrix(store, start, transaction, concurrent):
    first = do(start, CONCURRENT[concurrent])
    expected = MATRIX[transaction, concurrent]
    if expected == GIVES_UP:
        with pytest.raises(CommitConflictError, match="start again from the newest version"):
            do(start, TRANSACTIONS[transaction])
        final = paths(first.snapshot)
    else:
        second = do(start, TRANSACTIONS[transaction])
        assert second.tries == 2
        assert second.is_committed is (expected != NO_OP)
        final = paths(first.snapshot) if expected == NO_OP else expected
        assert paths(second.snapshot) == final
    versions = [paths(load_snapshot(context(store), version)) for version in range(start.version + 2)]
    assert versions[2:] == [{"a", "b", "c"}, paths(first.snapshot)]
    newest = load_snapshot(context(store))
    assert newest.version == start.version + (1 if expected in (GIVES_UP, NO_OP) else 2)
    assert paths(newest) == final


@pytest.mark.parametrize("transaction", TRANSACTIONS)
def test_each_transaction_commits_without_a_concurrent_commit(start, transaction):
    result = do(start, TRANSACTIONS[transaction])
    assert (result.tries, result.version, result.is_committed) == (1, start.version + 1, True)


def test_concurrent_metadata_changes_are_both_kept(start):
    do(start, ChangeProperties({"owner": "w"}))
    final = do(start, ChangeProperties({"purpose": "l"})).snapshot
    assert final.metadata.configuration == {"owner": "w", "purpose": "l", "maxFieldId": "3"}


def test_concurrent_changes_of_the_same_property_conflict(store, start):
    do(start, ChangeProperties({"owner": "w"}))
    with pytest.raises(CommitConflictError, match=r"the same properties \(owner\)"):
        do(start, ChangeProperties({"owner": "l"}))
    assert load_snapshot(context(store)).metadata.configuration == {"owner": "w", "maxFieldId": "3"}


def test_property_change_and_protocol_upgrade_compose(start):
    do(start, UpgradeProtocol(6, 6))
    final = do(start, ChangeProperties({"owner": "l"})).snapshot
    assert final.protocol.min_reader_version == 6
    assert final.metadata.configuration == {"owner": "l", "maxFieldId": "3"}


REGISTERING = Append((add("r"),), doc_mappings={"hash-1": '[{"name":"id"}]'})


@pytest.mark.parametrize("transaction", ["overwrite", "drop"])
def test_registering_a_doc_mapping_is_no_metadata_change(start, transaction):
    do(start, REGISTERING)
    final = do(start, TRANSACTIONS[transaction]).snapshot
    assert final.header.doc_mappings == {"hash-1": '[{"name":"id"}]'}
    assert "docMappingSchema.hash-1" in final.metadata.configuration


def test_two_writers_that_register_doc_mappings_keep_both(start):
    do(start, REGISTERING)
    final = do(start, Append((add("s"),), doc_mappings={"hash-2": "[]"})).snapshot
    assert set(final.header.doc_mappings) == {"hash-1", "hash-2"}
    assert paths(final) == {"a", "b", "c", "r", "s"}


def test_registration_composes_with_a_concurrent_property_change(start):
    do(start, ChangeProperties({"owner": "w"}))
    final = do(start, REGISTERING).snapshot
    assert final.metadata.configuration == {
        "owner": "w",
        "docMappingSchema.hash-1": '[{"name":"id"}]',
        "maxFieldId": "3",
    }


def test_merge_fails_when_the_index_settings_changed(store, start):
    do(start, ChangeProperties({"spark.indextables.indexing.typemap.message": "text"}))
    with pytest.raises(CommitConflictError, match="the index settings"):
        do(start, TRANSACTIONS["merge"])
    assert paths(load_snapshot(context(store))) == {"a", "b", "c"}


def schema_change(store: ObjectStore, start: Snapshot) -> None:
    """A commit of another implementation that adds a column."""
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    metadata = msgspec.structs.replace(start.metadata, schema_string=to_spark_json(wider))
    write_version(store, start.version + 1, metadata)


@pytest.mark.parametrize(
    "transaction", [transaction for transaction in TRANSACTIONS if transaction != "protocol"]
)
def test_changed_schema_fails_transactions_planned_on_the_old_one(store, start, transaction):
    schema_change(store, start)
    with pytest.raises(CommitConflictError, match=r"schema|metadata"):
        do(start, TRANSACTIONS[transaction])
    assert load_snapshot(context(store)).version == start.version + 1


@pytest.mark.parametrize("transaction", TRANSACTIONS)
def test_newer_protocol_stops_every_writer(store, start, transaction):
    write_version(store, start.version + 1, ProtocolAction(min_reader_version=6, min_writer_version=7))
    with pytest.raises((UnsupportedProtocolError, CommitConflictError)):
        do(start, TRANSACTIONS[transaction])
    assert load_snapshot(context(store)).version == start.version + 1


# --- merges and their groups ------------------------------------------------------------------------


def test_concurrent_merges_of_different_files_both_commit(start):
    do(start, merge((["c"], ["concurrent-merge"])))
    final = do(start, TRANSACTIONS["merge"])
    assert paths(final.snapshot) == {"own-merge", "concurrent-merge"}
    assert final.given_up == ()


def test_merge_gives_up_only_groups_whose_sources_are_gone(start):
    do(start, remove("b"))
    result = do(start, merge((["a", "b"], ["ab"]), (["c"], ["cc"])))
    assert paths(result.snapshot) == {"a", "cc"}
    assert [group.sources for group in result.given_up] == [("a", "b")]


def test_merge_continues_if_a_source_was_replaced_under_the_same_path(start):
    """Splits are identified by path: a writer that adds a path again allows it to be merged."""
    do(do(start, remove("a")).snapshot, append("a"))
    assert paths(do(start, TRANSACTIONS["merge"]).snapshot) == {"own-merge", "c"}


def test_source_in_two_merge_groups_is_rejected(store, start):
    with pytest.raises(InvalidActionError, match="by two groups"):
        do(start, merge((["a"], ["x"]), (["a", "b"], ["y"])))
    assert load_snapshot(context(store)).version == start.version


# --- overwrites and drops ---------------------------------------------------------------------------


def test_overwrite_removes_concurrently_appended_files(start):
    do(do(start, append("late")).snapshot, append("later"))
    final = do(start, overwrite("o"))
    assert paths(final.snapshot) == {"o"}


def test_overwrite_of_a_partition_keeps_other_partitions(start):
    do(start, append("late", date=DAY_1))
    intent = Overwrite((add("o", date=DAY_1),), where=parse_predicate(f"date = '{DAY_1}'"))
    assert paths(do(start, intent).snapshot) == {"o", "c"}


def test_drop_removes_files_appended_to_the_partition_concurrently(start):
    do(start, append("late", date=DAY_1))
    assert paths(do(start, TRANSACTIONS["drop"]).snapshot) == {"c"}


def test_drop_continues_after_a_drop_of_other_partitions(start):
    do(start, drop(f"date = '{DAY_2}'"))
    assert paths(do(start, TRANSACTIONS["drop"]).snapshot) == set()


def test_remove_by_path_skips_concurrently_removed_files(start):
    do(start, remove("a"))
    result = do(start, remove("a", "b"))
    assert paths(result.snapshot) == {"c"}
    assert not do(start, remove("a", "b")).is_committed


# --- several concurrent commits --------------------------------------------------------------------------------


def test_every_concurrent_commit_is_checked(store, start):
    later = after(start, append("w1"), ChangeProperties({"owner": "w"}), append("w2"))
    with pytest.raises(CommitConflictError, match=f"version {start.version + 2} changed"):
        do(start, overwrite("o"))
    assert paths(load_snapshot(context(store))) == paths(later)


def test_append_continues_after_any_number_of_concurrent_commits(start):
    later = after(start, *(append(f"w{number}") for number in range(7)))
    result = do(start, append("late"))
    assert (result.version, result.tries) == (later.version + 1, 2)
    assert live(result.snapshot) == {**live(later), "late": 10}


def test_empty_concurrent_commit_changes_nothing(start):
    do(start, EmptyCommit())
    assert paths(do(start, overwrite("o")).snapshot) == {"o"}


def test_concurrent_commits_without_commit_info_are_judged_by_their_actions(store, start):
    """Other implementations may leave out the commitInfo."""
    write_version(store, start.version + 1, add("foreign"))
    write_version(store, start.version + 2, RemoveAction(path="a", data_change=True))
    assert paths(do(start, append("x")).snapshot) == {"b", "c", "foreign", "x"}
    with pytest.raises(CommitConflictError):
        do(start, TRANSACTIONS["merge"])
