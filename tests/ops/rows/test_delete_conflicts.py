"""Every cell of the conflict matrix with a delete, in both orders: two transactions planned on the same version."""

import threading
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest

from indextables import AddAction, IndexTable
from indextables.errors import CommitConflictError, IndexTablesError
from indextables.ops import row_changes
from indextables.ops.merge import MergeRequest, merge_splits
from indextables.ops.runner import LocalRunner
from indextables.schema import to_spark_json
from indextables.table import load_snapshot
from indextables.table.conflict import MATRIX, Resolution
from indextables.table.intent import Kind
from support.row_tables import SCHEMA, ids, rows, split_files
from support.tables import write_version

DAY_1, DAY_2 = "2024-01-01", "2024-01-02"
ALL = set(range(30))


@pytest.fixture
def url(tmp_path) -> str:
    """Ids 0 to 9 and 10 to 19 in two splits of the first day, 20 to 29 in one of the second."""
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"], text=["body"])
    table.append(rows(*range(10), day=DAY_1))
    table.append(rows(*range(10, 20), day=DAY_1))
    table.append(rows(*range(20, 30), day=DAY_2))
    return str(tmp_path / "t")


Commit = Callable[[IndexTable], object]

DELETE: Commit = lambda table: table.delete(where="id IN (3, 13)")  # noqa: E731

# What another writer commits, and the ids that both leave if the delete comes second and if it comes first. None: the
# second one commits nothing.
CELLS: dict[str, tuple[Commit, list[int] | None, list[int]]] = {
    # The appended row is not the one that the delete was to see.
    "append": (
        lambda table: table.append(rows(3, 30, day=DAY_1)),
        sorted([*(ALL - {3, 13}), 3, 30]),
        sorted([*(ALL - {3, 13}), 3, 30]),
    ),
    "overwrite": (lambda table: table.overwrite(rows(3, 40, day=DAY_1)), [40], [3, 40]),
    "overwrite of another partition": (
        lambda table: table.overwrite(rows(13, 50, day=DAY_2), where=f"day = '{DAY_2}'"),
        sorted([*(set(range(20)) - {3, 13}), 13, 50]),
        sorted([*(set(range(20)) - {3, 13}), 13, 50]),
    ),
    "drop": (
        lambda table: table.drop_partitions(f"day = '{DAY_1}'"),
        None,
        list(range(20, 30)),
    ),
    "delete of the same rows": (DELETE, None, sorted(ALL - {3, 13})),
    "delete of other rows of the split": (
        lambda table: table.delete(where="id IN (4, 13)"),
        sorted(ALL - {3, 4, 13}),
        sorted(ALL - {3, 4, 13}),
    ),
    "delete of another split": (
        lambda table: table.delete(query="25"),
        sorted(ALL - {3, 13, 25}),
        sorted(ALL - {3, 13, 25}),
    ),
    "delete of the whole split": (
        lambda table: table.delete(where="id < 10"),
        sorted(ALL - set(range(10)) - {13}),
        sorted(ALL - set(range(10)) - {13}),
    ),
    "metadata": (
        lambda table: table.set_properties({"owner": "me"}),
        sorted(ALL - {3, 13}),
        sorted(ALL - {3, 13}),
    ),
    "restore": (lambda table: table.restore(version=2), sorted(set(range(20)) - {3, 13}), list(range(20))),
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_delete_after_a_concurrent_commit(url, cell):
    concurrent, expected, _ = CELLS[cell]
    stale, other = IndexTable(url), IndexTable(url)
    concurrent(other)
    DELETE(stale)
    newest = IndexTable(url)
    assert newest.version == other.version + (expected is not None)
    assert ids(newest) == (ids(other) if expected is None else expected)
    assert newest.fsck(deep=True).is_clean


@pytest.mark.parametrize("cell", CELLS)
def test_a_commit_after_a_concurrent_delete(url, cell):
    commit, _, expected = CELLS[cell]
    stale, other = IndexTable(url), IndexTable(url)
    DELETE(other)
    commit(stale)
    newest = IndexTable(url)
    assert ids(newest) == expected
    assert newest.fsck(deep=True).is_clean


def test_a_delete_finds_its_rows_again_after_a_merge(url):
    stale, other = IndexTable(url), IndexTable(url)
    assert other.merge_splits().merged_groups == 1
    stale.delete(where="id IN (3, 13)")
    assert ids(IndexTable(url)) == sorted(ALL - {3, 13})
    assert stale.num_files == 2


def test_a_merge_gives_up_splits_that_lost_rows(url):
    stale, other = IndexTable(url), IndexTable(url)
    DELETE(other)
    result = merge_splits(stale.snapshot, MergeRequest(), LocalRunner())
    assert (result.version, len(result.given_up)) == (None, 1)
    assert ids(IndexTable(url)) == sorted(ALL - {3, 13})
    assert IndexTable(url).merge_splits().merged_groups == 1
    assert ids(IndexTable(url)) == sorted(ALL - {3, 13})


def test_files_replaced_by_hand_must_not_have_lost_rows(url):
    stale, other = IndexTable(url), IndexTable(url)
    DELETE(other)
    first = stale.files().sort_by("addedAtVersion")["path"][0].as_py()
    new = load_snapshot(stale.snapshot.context).select_paths([first], ["path"])
    assert new.num_rows == 1
    with pytest.raises(CommitConflictError, match="lost rows"):
        stale.commit(adds=[_copy_of(first)], removes=[first])
    assert ids(IndexTable(url)) == sorted(ALL - {3, 13})


def _copy_of(path: str) -> AddAction:
    return AddAction(
        path=f"copy-{path.rpartition('/')[2]}",
        partition_values={"day": DAY_1},
        size=10,
        modification_time=1,
        data_change=True,
    )


def test_an_appended_split_is_not_searched_again_after_a_merge(url):
    stale, other = IndexTable(url), IndexTable(url)
    other.merge_splits()
    other.append(rows(3, day=DAY_2))
    DELETE(stale)
    assert ids(IndexTable(url)) == sorted([*(ALL - {3, 13}), 3])


def test_a_failed_attempt_leaves_no_vector_file(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, text=["body"])
    table.append(rows(*range(20_000)))
    stale, other = IndexTable(str(tmp_path / "t")), IndexTable(str(tmp_path / "t"))
    thirds = ", ".join(str(number * number % 20_000) for number in range(9000))
    other.delete(where="id = 1")
    stale.delete(where=f"id IN ({thirds})")
    assert len(list((tmp_path / "t").glob("deletion_vector_*.bin"))) == 1
    assert table.refresh().fsck(deep=True).is_clean


def test_a_delete_gives_up_after_too_many_attempts(url, monkeypatch):
    table = IndexTable(url, options={"spark.indextables.transaction.retry.maxAttempts": "2"})
    find = row_changes.RowFinder.find
    victims = iter([4, 5, 6])

    def find_and_lose(self, snapshot, skipped=()):
        found = find(self, snapshot, skipped)
        if threading.current_thread() is threading.main_thread() and not find_and_lose.is_nested:
            find_and_lose.is_nested = True
            IndexTable(url).delete(where=f"id = {next(victims)}")
            find_and_lose.is_nested = False
        return found

    find_and_lose.is_nested = False
    monkeypatch.setattr(row_changes.RowFinder, "find", find_and_lose)
    with pytest.raises(CommitConflictError, match="in each of 2 attempts"):
        DELETE(table)
    monkeypatch.undo()
    assert ids(IndexTable(url)) == sorted(ALL - {4, 5})


def test_many_deletes_appends_and_merges_at_once(url, tmp_path):
    errors: list[IndexTablesError] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except IndexTablesError as error:
            errors.append(error)

    def deletes(remainder: int) -> None:
        for number in range(remainder, 30, 3):
            IndexTable(url).delete(where=f"id = {number}")

    def merges() -> None:
        for _ in range(3):
            IndexTable(url).merge_splits()

    def appends() -> None:
        for number in range(100, 105):
            IndexTable(url).append(rows(number, day=DAY_1))

    work = [lambda: deletes(0), lambda: deletes(1), merges, appends]
    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    table = IndexTable(url)
    assert ids(table) == sorted([*range(2, 30, 3), *range(100, 105)])
    assert table.count("row") == table.num_rows == 15
    assert table.fsck(deep=True).is_clean
    assert split_files(tmp_path / "t")


def test_the_matrix_names_every_pair_of_kinds():
    # The commit of an upsert looks like an append, an overwrite or a delete.
    assert all(set(row) == set(Kind) - {Kind.UPSERT} for row in MATRIX.values())
    assert set(MATRIX) == set(Kind)
    assert MATRIX[Kind.DELETE][Kind.APPEND] is Resolution.REBASE
    assert MATRIX[Kind.MERGE][Kind.DELETE] is Resolution.GROUPS


def test_a_schema_change_stops_a_delete(url):
    stale = IndexTable(url)
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    metadata = msgspec.structs.replace(stale.metadata, schema_string=to_spark_json(wider))
    write_version(stale.snapshot.context.store, stale.version + 1, metadata)
    with pytest.raises(CommitConflictError, match="the schema"):
        DELETE(stale)
