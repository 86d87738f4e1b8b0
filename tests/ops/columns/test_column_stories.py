"""Names and types that pass from one column to another: every reader answers for the right column, at every version."""

from decimal import Decimal

import pyarrow as pa
import pytest

from indextables import IndexTable
from support.row_tables import ids


@pytest.fixture
def table(tmp_path) -> IndexTable:
    return IndexTable.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("n", pa.int32())]))


def append(table: IndexTable, *numbers: int, **columns: list) -> None:
    schema = pa.schema([table.schema.field(name) for name in ("id", *columns)])
    table.append(pa.table({"id": list(numbers), **columns}, schema=schema))


def test_two_columns_swap_their_names(table):
    table.add_column("m", pa.int32())
    append(table, 1, n=[10], m=[99])
    table.rename_column("n", "other")
    table.rename_column("m", "n")
    table.rename_column("other", "m")
    append(table, 2, n=[10], m=[99])
    assert ids(table, where="n = 10") == [2]
    assert ids(table, where="n > 50") == [1]
    assert table.search("m:10", columns=["id"])["id"].to_pylist() == [1]
    assert table.count(where="m = 99 AND n = 10") == 1
    # Statistics skip the splits that they should.
    assert table.files(where="n = 10").num_rows == table.files(where="m < 50").num_rows == 1


def test_a_column_is_dropped_and_added_again_and_again(table):
    for number, type_ in enumerate(["string", "int", "string", "date"]):
        append(table, number, n=[number])
        table.drop_column("n")
        assert "n" not in table.schema.names
        table.add_column("n", type_)
        assert table.count(where="n IS NULL") == number + 1
        table.drop_column("n")
        table.add_column("n", "int")
    append(table, 9, n=[0])
    assert ids(table, where="n = 0") == [9]
    assert table.search("n:0", columns=["id"])["id"].to_pylist() == [9]
    table.restore(version=1)
    assert ids(table, where="n = 0") == [0]
    table.add_column("n2", "int")
    assert table.fsck(deep=True).is_clean


def test_a_restored_column_is_not_that_of_the_same_name(table):
    append(table, 1, n=[7])
    table.drop_column("n")
    table.add_column("n", "int", default=5)
    assert ids(table, where="n = 5") == [1]
    with_default = table.version
    table.restore(version=1)
    assert ids(table, where="n = 7") == [1]
    table.add_column("m", "int")
    append(table, 2, n=[5], m=[1])
    assert ids(table, where="n = 5") == [2]
    table.restore(version=with_default)
    assert table.schema.names == ["id", "n"]
    assert ids(table, where="n = 5") == [1]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n = 2", [2]),
        ("n < 2.5", [1, 2]),
        ("n >= 2.5", [3, 4]),
        ("n IN (1, 2.5)", [1, 4]),
        ("n <> 2", [1, 3, 4]),
    ],
)
def test_predicates_over_integers_that_became_decimals(table, where, expected):
    append(table, 1, 2, 3, n=[1, 2, 3])
    table.alter_column("n", "decimal(12,1)")
    append(table, 4, n=[Decimal("2.5")])
    assert ids(table, where=where) == expected
    assert table.count(where=where) == len(expected)
    table.merge_splits()
    assert table.count(where=where) == len(expected)


def test_a_merge_indexes_decimals_with_their_new_scale(tmp_path):
    table = IndexTable.create(
        str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("n", pa.decimal128(5, 1))])
    )
    append(table, 1, n=[Decimal("1.5")])
    table.alter_column("n", "decimal(7,3)")
    append(table, 2, n=[Decimal("1.525")])
    for _ in range(2):
        assert table.search("n:1.5", columns=["id"])["id"].to_pylist() == [1]
        assert table.search("n:>1.51", columns=["id"])["id"].to_pylist() == [2]
        assert table.aggregate(["sum(n)"]).to_pylist() == [{"sum(n)": Decimal("3.025")}]
        table.merge_splits()
    assert table.num_files == 1


def test_splits_of_the_state_and_of_the_log_have_their_names(table):
    append(table, 1, n=[1])
    table.rename_column("n", "m")
    table.checkpoint()
    table.compact()
    append(table, 2, m=[2])
    reopened = IndexTable(table.snapshot.context.url)
    assert ids(reopened, where="m = 1") == [1]
    assert reopened.to_arrow().sort_by("id").to_pylist() == [{"id": 1, "m": 1}, {"id": 2, "m": 2}]


def test_rows_are_sorted_by_columns_that_changed(table):
    append(table, 1, 2, 3, n=[5, 1, 9])
    table.alter_column("n", "double")
    table.add_column("rank", "int", default=7)
    schema = pa.schema([*table.schema])
    table.append(pa.table({"id": [4, 5], "n": [4.5, 9.5], "rank": [1, 8]}, schema=schema))
    assert table.search("*", sort="-n", columns=["id"])["id"].to_pylist() == [5, 3, 1, 4, 2]
    assert table.search("*", sort=["rank", "n"], columns=["id"])["id"].to_pylist() == [4, 2, 1, 3, 5]
