"""Every cell of the conflict matrix with an upsert, in both orders: two transactions planned on the same version."""

import threading
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import CommitConflictError, IndexTablesError
from indextables.schema import to_spark_json
from indextables.table.conflict import MATRIX, Resolution
from indextables.table.intent import Kind
from support.row_tables import SCHEMA, ids, rows
from support.tables import write_version

DAY_1, DAY_2 = "2024-01-01", "2024-01-02"
ALL = set(range(30))

Commit = Callable[[IndexTable], object]


@pytest.fixture
def url(tmp_path) -> str:
    """Ids 0 to 9 and 10 to 19 in two splits of the first day, 20 to 29 in one of the second."""
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"], text=["body"])
    table.append(rows(*range(10), day=DAY_1))
    table.append(rows(*range(10, 20), day=DAY_1))
    table.append(rows(*range(20, 30), day=DAY_2))
    return str(tmp_path / "t")


def of(*numbers: int, body: str, day: str = DAY_1) -> pa.Table:
    columns = {"id": list(numbers), "day": [day] * len(numbers), "body": [body] * len(numbers)}
    return pa.table(columns, schema=SCHEMA)


def upserting(*numbers: int, body: str = "mine") -> Commit:
    return lambda table: table.merge(of(*numbers, body=body), on=["id"])


# It updates 3 and 13, and inserts 40.
UPSERT = upserting(3, 13, 40)

# What another writer commits, and then the ids that the table has, and those of rows with "mine", if the upsert comes
# second and if it comes first.
CELLS: dict[str, tuple[Commit, list[int], list[int], list[int], list[int]]] = {
    "append of another key": (
        lambda table: table.append(rows(50, day=DAY_1)),
        *(sorted(ALL | {40, 50}), [3, 13, 40]) * 2,
    ),
    "append of a key to insert": (
        lambda table: table.append(rows(40, day=DAY_2)),
        sorted(ALL | {40}),
        [3, 13, 40],
        sorted([*ALL, 40, 40]),
        [3, 13, 40],
    ),
    "append of a key to update": (
        lambda table: table.append(rows(3, day=DAY_2)),
        sorted([*ALL, 3, 40]),
        [3, 3, 13, 40],
        sorted([*ALL, 3, 40]),
        [3, 13, 40],
    ),
    "overwrite": (
        lambda table: table.overwrite(rows(3, 40, day=DAY_1)),
        [3, 13, 40],
        [3, 13, 40],
        [3, 40],
        [],
    ),
    "overwrite of another partition": (
        lambda table: table.overwrite(rows(13, 50, day=DAY_2), where=f"day = '{DAY_2}'"),
        sorted([*range(20), 13, 40, 50]),
        [3, 13, 13, 40],
        sorted([*range(20), 13, 40, 50]),
        [3, 13, 40],
    ),
    "drop": (
        lambda table: table.drop_partitions(f"day = '{DAY_1}'"),
        [3, 13, *range(20, 30), 40],
        [3, 13, 40],
        list(range(20, 30)),
        [],
    ),
    "delete of a key": (
        lambda table: table.delete(where="id IN (3, 4)"),
        sorted(ALL - {4} | {40}),
        [3, 13, 40],
        # The delete finds its row where the upsert has put it.
        sorted(ALL - {3, 4} | {40}),
        [13, 40],
    ),
    "delete of another split": (
        lambda table: table.delete(where="id = 25"),
        *(sorted(ALL - {25} | {40}), [3, 13, 40]) * 2,
    ),
    "update of a key": (
        lambda table: table.update({"body": "theirs"}, where="id IN (3, 4)"),
        sorted(ALL | {40}),
        [3, 13, 40],
        sorted(ALL | {40}),
        [13, 40],
    ),
    "upsert of the same keys": (
        upserting(3, 40, body="theirs"),
        sorted(ALL | {40}),
        [3, 13, 40],
        sorted(ALL | {40}),
        [13],
    ),
    "upsert of another key": (
        upserting(50, body="theirs"),
        *(sorted(ALL | {40, 50}), [3, 13, 40]) * 2,
    ),
    "merge": (
        lambda table: table.merge_splits(),
        *(sorted(ALL | {40}), [3, 13, 40]) * 2,
    ),
    "restore": (
        lambda table: table.restore(version=2),
        sorted({*range(20), 40}),
        [3, 13, 40],
        list(range(20)),
        [],
    ),
    "metadata": (
        lambda table: table.set_properties({"owner": "me"}),
        *(sorted(ALL | {40}), [3, 13, 40]) * 2,
    ),
}


def mine(table: IndexTable) -> list[int]:
    return sorted(table.search("mine", columns=["id"], limit=100)["id"].to_pylist())


@pytest.mark.parametrize("cell", CELLS)
def test_an_upsert_after_a_concurrent_commit(url, cell):
    concurrent, expected, expected_mine, _, _ = CELLS[cell]
    stale, other = IndexTable(url), IndexTable(url)
    concurrent(other)
    UPSERT(stale)
    newest = IndexTable(url)
    assert (ids(newest), mine(newest)) == (expected, expected_mine)
    assert newest.version == other.version + 1
    assert newest.fsck(deep=True).is_clean


@pytest.mark.parametrize("cell", CELLS)
def test_a_commit_after_a_concurrent_upsert(url, cell):
    commit, _, _, expected, expected_mine = CELLS[cell]
    stale, other = IndexTable(url), IndexTable(url)
    UPSERT(other)
    commit(stale)
    newest = IndexTable(url)
    assert (ids(newest), mine(newest)) == (expected, expected_mine)
    assert newest.fsck(deep=True).is_clean


def test_an_upsert_that_only_inserts_looks_into_new_splits(url):
    stale, other = IndexTable(url), IndexTable(url)
    for number in (40, 41):
        other.append(rows(number, day=DAY_2))
    stale.merge(of(40, 41, 42, body="mine"), on="id", when_matched_update=False)
    newest = IndexTable(url)
    assert ids(newest) == sorted(ALL | {40, 41, 42})
    assert mine(newest) == [42]


def test_keys_that_a_restore_brings_back_are_found(url):
    table = IndexTable(url)
    table.delete(where="id = 3")
    stale, other = IndexTable(url), IndexTable(url)
    other.restore(version=3)
    stale.merge(of(3, body="mine"), on="id")
    assert ids(IndexTable(url)) == sorted(ALL)


def test_a_failed_attempt_leaves_no_split(url, tmp_path):
    stale, other = IndexTable(url), IndexTable(url)
    other.append(rows(40, day=DAY_2))
    UPSERT(stale)
    live = set(stale.files()["path"].to_pylist())
    older = {
        path for version in range(5) for path in IndexTable(url, version=version).files()["path"].to_pylist()
    }
    on_disk = {found.relative_to(tmp_path / "t").as_posix() for found in (tmp_path / "t").rglob("*.split")}
    assert on_disk == live | older


def test_many_upserts_of_the_same_keys_at_once_insert_each_once(url):
    errors: list[IndexTablesError] = []

    def work(name: str) -> None:
        try:
            for first in (100, 101, 102):
                IndexTable(url).merge(of(first, first + 1, 3, body=name), on="id")
        except IndexTablesError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    table = IndexTable(url)
    assert ids(table) == sorted([*ALL, 100, 101, 102, 103])
    assert table.fsck(deep=True).is_clean


def test_a_schema_change_stops_an_upsert(url):
    stale = IndexTable(url)
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    metadata = msgspec.structs.replace(stale.metadata, schema_string=to_spark_json(wider))
    write_version(stale.snapshot.context.store, stale.version + 1, metadata)
    with pytest.raises(CommitConflictError, match="the schema"):
        UPSERT(stale)


def test_the_row_of_the_matrix():
    others = {MATRIX[Kind.UPSERT][kind] for kind in set(Kind) - {Kind.UPSERT, Kind.SCHEMA, Kind.METADATA}}
    assert others == {Resolution.SEARCH}
    assert MATRIX[Kind.UPSERT][Kind.METADATA] is Resolution.RECHECK
