"""Dropping partitions: exactly the selected ones, compared by the types of their columns."""

import pyarrow as pa
import pytest

from indextables import IndexTable, errors
from indextables.ops.write import drop_partitions
from indextables.predicates import col
from indextables.storage import RetryingStore
from indextables.table import load_snapshot
from indextables.table.intent import ChangeProperties
from support.faults import Moment
from support.purge_tables import (
    add_split,
    another,
    clocked_store,
    copy_of,
    is_clean,
    live_paths,
    newest,
    table_of,
)
from support.racing_commits import overtaken_by
from support.row_tables import SCHEMA, ids, rows
from support.tables import append, context, do, drop, memory_store, merge, new_table, overwrite, paths

INT = pa.int32()


def numbered(path, values, kind=INT) -> IndexTable:
    """A table with one row in each partition. The row's id is the index of its value."""
    schema = pa.schema([("id", pa.int64()), ("part", kind)])
    table = IndexTable.create(str(path), schema, partition_by=["part"])
    table.append(pa.table({"id": list(range(len(values))), "part": pa.array(values, kind)}, schema=schema))
    return table


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("part BETWEEN 2 AND 11", [0, 11]),
        ("part > 9", [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("part = 1 OR part = 12", list(range(1, 11))),
        ("part IN (1, 2, 3)", list(range(3, 12))),
        ("NOT part < 12", list(range(11))),
        ("part IS NULL", list(range(12))),
    ],
)
def test_numbers_are_compared_as_numbers(tmp_path, where, left):
    table = numbered(tmp_path / "t", list(range(1, 13)))
    table.drop_partitions(where)
    assert ids(table) == left


def test_texts_are_compared_as_texts(tmp_path):
    table = numbered(tmp_path / "t", ["100", "25", "9"], pa.string())
    table.drop_partitions("part < '3'")
    assert ids(table) == [2]


def test_dates_are_compared_as_dates(tmp_path):
    values = pa.array(["2024-01-31", "2024-02-01", "2023-12-31"]).cast(pa.date32()).to_pylist()
    table = numbered(tmp_path / "t", values, pa.date32())
    table.drop_partitions("part >= DATE '2024-01-01' AND part < '2024-02-01'")
    assert ids(table) == [1, 2]


@pytest.mark.parametrize(
    ("where", "left"),
    [("part IS NULL", [1, 2]), ("part = 'null'", [0, 1]), ("part = ''", [0, 2]), ("part IS NOT NULL", [0])],
)
def test_null_the_empty_text_and_the_word_null_are_three_partitions(tmp_path, where, left):
    table = numbered(tmp_path / "t", [None, "", "null"], pa.string())
    table.drop_partitions(where)
    assert ids(table) == left


@pytest.mark.parametrize("value", ["A/A", "B B", "%", "é", "..", "x" * 300])
def test_values_that_look_strange_in_a_path(tmp_path, value):
    table = numbered(tmp_path / "t", [value, "other"], pa.string())
    table.drop_partitions(col("part") == value)
    assert ids(table) == [1]


@pytest.mark.parametrize("where", ["id = 1", "day = '2024-01-01' OR id = 1", "body IS NULL"])
def test_predicate_on_other_columns_is_refused(tmp_path, where):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"])
    table.append(rows(1))
    with pytest.raises(errors.InvalidPredicateError, match="not a partition column"):
        table.drop_partitions(where)
    assert (table.version, ids(table)) == (1, [1])


def test_table_without_partitions_is_refused(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(errors.InvalidPredicateError, match="not partitioned"):
        table.drop_partitions("id = 1")


def test_unknown_column_is_refused_even_if_there_are_no_files(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"])
    with pytest.raises(errors.InvalidPredicateError):
        table.drop_partitions("nothing = 1")


def test_partition_that_is_not_there_is_no_commit(tmp_path):
    table = numbered(tmp_path / "t", [1, 2])
    assert table.drop_partitions("part = 7") == 1
    assert table.history().num_rows == 2


def test_drop_is_one_commit_that_older_versions_do_not_see(tmp_path):
    table = numbered(tmp_path / "t", [1, 2, 3])
    assert table.drop_partitions("part <= 2") == 2
    commit = table.history(limit=1).to_pylist()[0]
    assert commit["operation"] == "DROP PARTITIONS"
    assert dict(commit["operation_parameters"]) == {"predicate": "part <= 2"}
    assert dict(commit["operation_metrics"])["numRemovedFiles"] == 2
    assert ids(IndexTable(str(tmp_path / "t"), version=1)) == [0, 1, 2]
    assert table.fsck().is_clean


def test_drop_with_any_call_failing_is_before_or_after():
    start = clocked_store()
    add_split(table_of(start, "a.split", "b.split"), "c.split", date="2024-01-02")
    whole = copy_of(start)
    drop_partitions(newest(whole), "date = '2024-01-01'")
    for call in range(len(whole.calls)):
        for moment in Moment:
            copy = copy_of(start)
            before, after = {"a.split", "b.split", "c.split"}, {"c.split"}
            try:
                drop_partitions(newest(another(copy, fail_call=(call, moment))), "date = '2024-01-01'")
                allowed = [after]
            except errors.CommitOutcomeUnknownError:
                allowed = [before, after]
            except errors.IndexTablesError:
                allowed = [before]
            assert live_paths(copy) in allowed, (call, moment)
            assert is_clean(copy), (call, moment)
            again = copy_of(start)
            failing = RetryingStore(another(again, fail_call=(call, moment)))
            drop_partitions(newest(failing), "date = '2024-01-01'")
            assert live_paths(again) == {"c.split"}, (call, moment)


# --- lost races ---------------------------------------------------------------------------------------


def partitioned():
    store = memory_store()
    table = do(new_table(store), append("a", "b")).snapshot
    do(table, append("c", date="2024-01-02"))
    return store


@pytest.mark.parametrize(
    ("winner", "left"),
    [
        (append("late"), {"c"}),
        (append("late", date="2024-01-02"), {"c", "late"}),
        (overwrite("new"), set()),
        (merge((["a", "b"], ["ab"])), {"c"}),
        (drop("date = '2024-01-02'"), set()),
    ],
)
def test_partitions_are_evaluated_again_after_a_lost_race(winner, left):
    store = partitioned()
    snapshot = overtaken_by(store, winner)
    assert drop_partitions(snapshot, "date = '2024-01-01'").is_committed
    assert paths(load_snapshot(context(store))) == left


def test_concurrently_dropped_partition_is_no_commit():
    store = partitioned()
    snapshot = overtaken_by(store, drop("date = '2024-01-01'"))
    result = drop_partitions(snapshot, "date = '2024-01-01'")
    assert (result.is_committed, result.version) == (False, 3)


def test_concurrent_metadata_change_is_a_conflict():
    store = partitioned()
    snapshot = overtaken_by(store, ChangeProperties({"owner": "me"}))
    with pytest.raises(errors.CommitConflictError):
        drop_partitions(snapshot, "date = '2024-01-01'")
    assert paths(load_snapshot(context(store))) == {"a", "b", "c"}
