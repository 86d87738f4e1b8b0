"""Every cell of the conflict matrix, through the real commit loop: two transactions planned on one version."""

import msgspec
import pyarrow as pa
import pytest

from indextables.errors import CommitConflictError, InvalidActionError, UnsupportedProtocolError
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
    older_table,
    overwrite,
    paths,
    remove,
    write_version,
)

DAY_1, DAY_2 = "2024-01-01", "2024-01-02"
GIVES_UP = "gives up"
NO_OP = "has nothing left to do"

Outcome = set[str] | str

WINNERS: dict[str, Intent] = {
    "append": append("w-append", date=DAY_2),
    "overwrite": overwrite("w-overwrite"),
    "merge": merge((["a", "b"], ["w-merge"])),
    "drop": drop(f"date = '{DAY_1}'"),
    "metadata": ChangeProperties({"owner": "w"}),
    "protocol": UpgradeProtocol(4, 4),
}
LOSERS: dict[str, Intent] = {
    "append": append("l-append", date=DAY_2),
    "overwrite": overwrite("l-overwrite"),
    "merge": merge((["a", "b"], ["l-merge"])),
    "drop": drop(f"date = '{DAY_1}'"),
    "metadata": ChangeProperties({"purpose": "l"}),
    "protocol": UpgradeProtocol(4, 4),
}

# What is live after both. The table starts with a and b on the first day and c on the second.
MATRIX: dict[tuple[str, str], Outcome] = {
    ("append", "append"): {"a", "b", "c", "w-append", "l-append"},
    ("append", "overwrite"): {"w-overwrite", "l-append"},
    ("append", "merge"): {"w-merge", "c", "l-append"},
    ("append", "drop"): {"c", "l-append"},
    ("append", "metadata"): {"a", "b", "c", "l-append"},
    ("append", "protocol"): {"a", "b", "c", "l-append"},
    ("overwrite", "append"): {"l-overwrite"},
    ("overwrite", "overwrite"): {"l-overwrite"},
    ("overwrite", "merge"): {"l-overwrite"},
    ("overwrite", "drop"): {"l-overwrite"},
    ("overwrite", "metadata"): GIVES_UP,
    ("overwrite", "protocol"): GIVES_UP,
    ("merge", "append"): {"l-merge", "c", "w-append"},
    ("merge", "overwrite"): GIVES_UP,
    ("merge", "merge"): GIVES_UP,
    ("merge", "drop"): GIVES_UP,
    ("merge", "metadata"): {"l-merge", "c"},
    ("merge", "protocol"): {"l-merge", "c"},
    ("drop", "append"): {"c", "w-append"},
    ("drop", "overwrite"): set(),
    ("drop", "merge"): {"c"},
    ("drop", "drop"): NO_OP,
    ("drop", "metadata"): GIVES_UP,
    ("drop", "protocol"): GIVES_UP,
    ("metadata", "append"): {"a", "b", "c", "w-append"},
    ("metadata", "overwrite"): {"w-overwrite"},
    ("metadata", "merge"): {"w-merge", "c"},
    ("metadata", "drop"): {"c"},
    ("metadata", "metadata"): {"a", "b", "c"},
    ("metadata", "protocol"): {"a", "b", "c"},
    ("protocol", "append"): {"a", "b", "c", "w-append"},
    ("protocol", "overwrite"): {"w-overwrite"},
    ("protocol", "merge"): {"w-merge", "c"},
    ("protocol", "drop"): {"c"},
    ("protocol", "metadata"): {"a", "b", "c"},
    ("protocol", "protocol"): NO_OP,
}


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


@pytest.fixture
def start(store) -> Snapshot:
    """Version 2: a and b on the first day, c on the second; its protocol leaves room for an upgrade."""
    return after(older_table(store), append("a", "b", date=DAY_1), append("c", date=DAY_2))


@pytest.mark.parametrize(("loser", "winner"), MATRIX)
def test_cell_of_the_matrix(store, start, loser, winner):
    won = do(start, WINNERS[winner])
    expected = MATRIX[loser, winner]
    if expected == GIVES_UP:
        with pytest.raises(CommitConflictError, match="start again from the newest version"):
            do(start, LOSERS[loser])
        final = paths(won.snapshot)
    else:
        lost = do(start, LOSERS[loser])
        assert lost.tries == 2
        assert lost.is_committed is (expected != NO_OP)
        final = paths(won.snapshot) if expected == NO_OP else expected
        assert paths(lost.snapshot) == final
    versions = [paths(load_snapshot(context(store), version)) for version in range(start.version + 2)]
    assert versions[2:] == [{"a", "b", "c"}, paths(won.snapshot)]
    newest = load_snapshot(context(store))
    assert newest.version == start.version + (1 if expected in (GIVES_UP, NO_OP) else 2)
    assert paths(newest) == final


@pytest.mark.parametrize("loser", LOSERS)
def test_each_transaction_goes_through_when_nobody_was_faster(start, loser):
    result = do(start, LOSERS[loser])
    assert (result.tries, result.version, result.is_committed) == (1, start.version + 1, True)


def test_both_metadata_changes_are_there_after_a_race(start):
    do(start, ChangeProperties({"owner": "w"}))
    final = do(start, ChangeProperties({"purpose": "l"})).snapshot
    assert final.metadata.configuration == {"owner": "w", "purpose": "l"}


def test_the_same_property_set_twice_in_a_race_is_a_conflict(store, start):
    do(start, ChangeProperties({"owner": "w"}))
    with pytest.raises(CommitConflictError, match=r"the same properties \(owner\)"):
        do(start, ChangeProperties({"owner": "l"}))
    assert load_snapshot(context(store)).metadata.configuration == {"owner": "w"}


def test_property_change_and_protocol_upgrade_compose(start):
    do(start, UpgradeProtocol(4, 4))
    final = do(start, ChangeProperties({"owner": "l"})).snapshot
    assert final.protocol.min_reader_version == 4
    assert final.metadata.configuration == {"owner": "l"}


REGISTERING = Append((add("r"),), schemas={"hash-1": '[{"name":"id"}]'})


@pytest.mark.parametrize("loser", ["overwrite", "drop"])
def test_registering_a_doc_mapping_is_no_metadata_change(start, loser):
    do(start, REGISTERING)
    final = do(start, LOSERS[loser]).snapshot
    assert final.header.doc_mappings == {"hash-1": '[{"name":"id"}]'}
    assert "docMappingSchema.hash-1" in final.metadata.configuration


def test_two_writers_that_register_doc_mappings_keep_both(start):
    do(start, REGISTERING)
    final = do(start, Append((add("s"),), schemas={"hash-2": "[]"})).snapshot
    assert set(final.header.doc_mappings) == {"hash-1", "hash-2"}
    assert paths(final) == {"a", "b", "c", "r", "s"}


def test_registration_composes_with_a_property_that_was_set_meanwhile(start):
    do(start, ChangeProperties({"owner": "w"}))
    final = do(start, REGISTERING).snapshot
    assert final.metadata.configuration == {"owner": "w", "docMappingSchema.hash-1": '[{"name":"id"}]'}


def test_merge_gives_up_when_the_index_settings_changed(store, start):
    do(start, ChangeProperties({"spark.indextables.indexing.typemap.message": "text"}))
    with pytest.raises(CommitConflictError, match="the index settings"):
        do(start, LOSERS["merge"])
    assert paths(load_snapshot(context(store))) == {"a", "b", "c"}


def schema_change(store: ObjectStore, start: Snapshot) -> None:
    """Another implementation evolves the schema."""
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    metadata = msgspec.structs.replace(start.metadata, schema_string=to_spark_json(wider))
    write_version(store, start.version + 1, metadata)


@pytest.mark.parametrize("loser", [loser for loser in LOSERS if loser != "protocol"])
def test_a_changed_schema_stops_what_was_planned_on_the_old_one(store, start, loser):
    schema_change(store, start)
    with pytest.raises(CommitConflictError, match=r"schema|metadata"):
        do(start, LOSERS[loser])
    assert load_snapshot(context(store)).version == start.version + 1


@pytest.mark.parametrize("loser", LOSERS)
def test_a_protocol_that_asks_for_more_than_this_release_stops_every_writer(store, start, loser):
    write_version(store, start.version + 1, ProtocolAction(min_reader_version=4, min_writer_version=5))
    with pytest.raises((UnsupportedProtocolError, CommitConflictError)):
        do(start, LOSERS[loser])
    assert load_snapshot(context(store)).version == start.version + 1


# --- merges and their groups ------------------------------------------------------------------------


def test_merges_of_different_files_both_go_through(start):
    do(start, merge((["c"], ["w-merge"])))
    final = do(start, LOSERS["merge"])
    assert paths(final.snapshot) == {"l-merge", "w-merge"}
    assert final.given_up == ()


def test_only_those_merge_groups_are_given_up_whose_sources_are_gone(start):
    do(start, remove("b"))
    result = do(start, merge((["a", "b"], ["ab"]), (["c"], ["cc"])))
    assert paths(result.snapshot) == {"a", "cc"}
    assert [group.sources for group in result.given_up] == [("a", "b")]


def test_merge_whose_source_came_back_as_another_file_goes_on(start):
    """A path is the identity of a split: whoever put it back says that it may be merged."""
    do(do(start, remove("a")).snapshot, append("a"))
    assert paths(do(start, LOSERS["merge"]).snapshot) == {"l-merge", "c"}


def test_one_source_in_two_groups_is_refused(store, start):
    with pytest.raises(InvalidActionError, match="by two groups"):
        do(start, merge((["a"], ["x"]), (["a", "b"], ["y"])))
    assert load_snapshot(context(store)).version == start.version


# --- overwrites and drops ---------------------------------------------------------------------------


def test_overwrite_removes_what_was_appended_meanwhile(start):
    do(do(start, append("late")).snapshot, append("later"))
    final = do(start, overwrite("o"))
    assert paths(final.snapshot) == {"o"}


def test_overwrite_of_a_partition_leaves_the_others_alone(start):
    do(start, append("late", date=DAY_1))
    intent = Overwrite((add("o", date=DAY_1),), where=parse_predicate(f"date = '{DAY_1}'"))
    assert paths(do(start, intent).snapshot) == {"o", "c"}


def test_drop_takes_files_that_were_appended_to_the_partition_meanwhile(start):
    do(start, append("late", date=DAY_1))
    assert paths(do(start, LOSERS["drop"]).snapshot) == {"c"}


def test_drop_of_other_partitions_goes_on(start):
    do(start, drop(f"date = '{DAY_2}'"))
    assert paths(do(start, LOSERS["drop"]).snapshot) == set()


def test_remove_by_path_passes_over_what_others_removed(start):
    do(start, remove("a"))
    result = do(start, remove("a", "b"))
    assert paths(result.snapshot) == {"c"}
    assert not do(start, remove("a", "b")).is_committed


# --- several winners --------------------------------------------------------------------------------


def test_every_winner_in_between_is_looked_at(store, start):
    later = after(start, append("w1"), ChangeProperties({"owner": "w"}), append("w2"))
    with pytest.raises(CommitConflictError, match=f"version {start.version + 2} changed"):
        do(start, overwrite("o"))
    assert paths(load_snapshot(context(store))) == paths(later)


def test_append_goes_on_after_any_number_of_winners(start):
    later = after(start, *(append(f"w{number}") for number in range(7)))
    result = do(start, append("late"))
    assert (result.version, result.tries) == (later.version + 1, 2)
    assert live(result.snapshot) == {**live(later), "late": 10}


def test_a_winner_that_only_marks_a_version_changes_nothing(start):
    do(start, EmptyCommit())
    assert paths(do(start, overwrite("o")).snapshot) == {"o"}


def test_winners_of_other_implementations_are_judged_by_their_actions(store, start):
    """They leave no commitInfo."""
    write_version(store, start.version + 1, add("foreign"))
    write_version(store, start.version + 2, RemoveAction(path="a", data_change=True))
    assert paths(do(start, append("x")).snapshot) == {"b", "c", "foreign", "x"}
    with pytest.raises(CommitConflictError):
        do(start, LOSERS["merge"])
