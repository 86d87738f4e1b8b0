"""Every cell of the conflict matrix with a schema change, in both orders: two transactions planned on one version."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import CommitConflictError, InvalidSchemaError
from indextables.ops import columns
from indextables.table.conflict import MATRIX, Resolution
from indextables.table.intent import Kind
from support.row_tables import SCHEMA, ids, rows

DAY_1, DAY_2 = "2024-01-01", "2024-01-02"
Change = Callable[[IndexTable], object]

# Planned on the version of the table object, unlike the methods of `IndexTable`, which start from the newest one.
ADD: Change = lambda table: _change(table, columns.add_column, "level", "string", "INFO")  # noqa: E731
DROP: Change = lambda table: _change(table, columns.drop_column, "n")  # noqa: E731
RENAME: Change = lambda table: _change(table, columns.rename_column, "n", "number")  # noqa: E731
WIDEN: Change = lambda table: _change(table, columns.alter_column, "n", "bigint")  # noqa: E731
WIDEN_TO_DOUBLES: Change = lambda table: _change(table, columns.alter_column, "m", "double")  # noqa: E731
COMMENT: Change = lambda table: _change(table, columns.alter_column, "n", comment="a number")  # noqa: E731

WRITES: dict[str, tuple[Change, set[int]]] = {
    "append": (lambda table: table.append(_rows(8)), {0, 1, 2, 3, 4, 5, 8}),
    "merge": (lambda table: _merge(table), {0, 1, 2, 3, 4, 5}),
    "delete": (lambda table: table.delete(where="id IN (1, 4)"), {0, 2, 3, 5}),
    "update": (lambda table: table.update({"body": "new"}, where="id = 1"), {0, 1, 2, 3, 4, 5}),
    "drop": (lambda table: table.drop_partitions(f"day = '{DAY_2}'"), {0, 1, 2, 3}),
    "overwrite": (lambda table: table.overwrite(_rows(9)), {9}),
    "restore": (lambda table: table.restore(version=1), {0, 1}),
}


@pytest.fixture
def url(tmp_path) -> str:
    """Ids 0 to 3 in two splits of the first day, 4 and 5 in one of the second, with the same number as n and m."""
    schema = pa.schema([*SCHEMA, ("n", pa.int32()), ("m", pa.int64())])
    table = IndexTable.create(str(tmp_path / "t"), schema, partition_by=["day"], text=["body"])
    for numbers, day in (((0, 1), DAY_1), ((2, 3), DAY_1), ((4, 5), DAY_2)):
        table.append(_rows(*numbers, day=day))
    return str(tmp_path / "t")


def _rows(*numbers: int, day: str = DAY_1) -> pa.Table:
    plain = rows(*numbers, day=day).append_column("n", pa.array(numbers, pa.int32()))
    return plain.append_column("m", pa.array(numbers, pa.int64()))


def _change(table: IndexTable, make, *arguments, **more):
    return columns.change_columns(table.snapshot, [make(table.snapshot, *arguments, **more)])


def _merge(table: IndexTable) -> None:
    from indextables.ops.merge import MergeRequest, merge_splits
    from indextables.ops.runner import LocalRunner

    assert merge_splits(table.snapshot, MergeRequest(), LocalRunner()).merged_groups == 1


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("change", [ADD, RENAME, WIDEN], ids=["add", "rename", "widen"])
def test_a_schema_change_after_a_concurrent_write(url, write, change):
    commit, expected = WRITES[write]
    stale, other = IndexTable(url), IndexTable(url)
    commit(other)
    change(stale)
    newest = IndexTable(url)
    assert newest.version == 5
    assert set(ids(newest)) == expected
    _check(newest)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("change", [ADD, RENAME, WIDEN], ids=["add", "rename", "widen"])
def test_a_write_after_a_concurrent_schema_change(url, write, change):
    commit, expected = WRITES[write]
    stale, other = IndexTable(url), IndexTable(url)
    change(other)
    if write == "overwrite":
        with pytest.raises(CommitConflictError, match="changed the table's schema"):
            commit(stale)
        expected = {0, 1, 2, 3, 4, 5}
    else:
        commit(stale)
    newest = IndexTable(url)
    assert set(ids(newest)) == expected
    _check(newest)


def _check(table: IndexTable) -> None:
    """Every row has the values that it was written with, and searches find it."""
    name = next((name for name in ("n", "number") if name in table.schema.names), None)
    for row in table.to_arrow().to_pylist():
        assert name is None or row[name] == row["id"]
        assert row.get("level", "INFO") == "INFO"
        assert table.search(f"{name}:{row['id']}", columns=["id"])["id"].to_pylist() == [row["id"]]
        assert ids(table, where=f"{name} = {row['id']}") == [row["id"]]
    assert table.fsck(deep=True).is_clean


def test_an_append_of_a_column_that_was_dropped_fails(url):
    stale, other = IndexTable(url), IndexTable(url)
    DROP(other)
    with pytest.raises(CommitConflictError, match="changed the column 'n', which was dropped"):
        stale.append(_rows(8))
    assert ids(IndexTable(url)) == [0, 1, 2, 3, 4, 5]
    assert len(list((IndexTable(url).snapshot.context.store).list(""))) == len(_listed(url))


def _listed(url: str) -> list[str]:
    store = IndexTable(url).snapshot.context.store
    splits = IndexTable(url).files()["path"].to_pylist()
    return [*splits, *(meta.key for meta in store.list("") if not meta.key.endswith(".split"))]


def test_an_append_of_integers_that_became_doubles_fails(url):
    stale, other = IndexTable(url), IndexTable(url)
    WIDEN_TO_DOUBLES(other)
    with pytest.raises(CommitConflictError, match="'m', which has doubles now"):
        stale.append(_rows(8))


def test_a_change_to_doubles_looks_at_integers_that_were_appended_meanwhile(url):
    stale, other = IndexTable(url), IndexTable(url)
    other.append(_rows(2**30).set_column(4, "m", pa.array([2**53 + 1], pa.int64())))
    with pytest.raises(InvalidSchemaError, match="beyond 2\\^53"):
        WIDEN_TO_DOUBLES(stale)


SCHEMA_CHANGES = {"add": ADD, "drop": DROP, "rename": RENAME, "widen": WIDEN, "comment": COMMENT}


@pytest.mark.parametrize("first", SCHEMA_CHANGES)
@pytest.mark.parametrize("second", SCHEMA_CHANGES)
def test_two_schema_changes(url, first, second):
    stale, other = IndexTable(url), IndexTable(url)
    SCHEMA_CHANGES[first](other)
    if (first == "add") == (second == "add"):
        with pytest.raises(CommitConflictError, match="changed the same column"):
            SCHEMA_CHANGES[second](stale)
        assert IndexTable(url).version == other.version + 1
    else:
        SCHEMA_CHANGES[second](stale)
        assert "level" in IndexTable(url).schema.names
    assert ids(IndexTable(url)) == [0, 1, 2, 3, 4, 5]


def test_changes_of_different_columns_are_both_applied(url):
    stale, other = IndexTable(url), IndexTable(url)
    RENAME(other)
    _change(stale, columns.rename_column, "m", "measure")
    assert IndexTable(url).schema.names == ["id", "day", "body", "number", "measure"]


def test_a_name_is_given_once(url):
    stale, other = IndexTable(url), IndexTable(url)
    _change(other, columns.rename_column, "n", "taken")
    with pytest.raises(InvalidSchemaError, match="taken"):
        _change(stale, columns.rename_column, "m", "TAKEN")


def test_properties_and_a_schema_change(url):
    stale, other = IndexTable(url), IndexTable(url)
    other.set_properties({"owner": "me"})
    RENAME(stale)
    assert IndexTable(url).metadata.configuration["owner"] == "me"
    behind = IndexTable(url, version=other.version)
    behind._is_pinned = False
    with pytest.raises(CommitConflictError, match="the schema"):
        behind.set_properties({"owner": "you"})


def test_the_matrix_has_the_cells_of_a_schema_change():
    assert MATRIX[Kind.SCHEMA][Kind.SCHEMA] is Resolution.RECHECK
    assert all(
        MATRIX[kind][Kind.SCHEMA] is Resolution.FITS for kind in (Kind.APPEND, Kind.MERGE, Kind.DELETE)
    )
    assert all(
        resolution is Resolution.RECOMPUTE
        for kind, resolution in MATRIX[Kind.SCHEMA].items()
        if kind not in (Kind.SCHEMA, Kind.METADATA)
    )
