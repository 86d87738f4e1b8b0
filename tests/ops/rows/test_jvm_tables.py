"""Deletes from tables of the JVM."""

import shutil
from pathlib import Path

import pytest

from indextables import IndexTable
from indextables.errors import ProtocolUpgradeError
from support.row_tables import ids

FIXTURES = Path(__file__).parents[3] / "../shared/fixtures"
CONVERT = {"spark.indextables.protocol.convertJvmTables": "true"}


@pytest.fixture
def jvm(tmp_path) -> Path:
    if not FIXTURES.exists():
        pytest.skip("the reference tables are not at ../shared/fixtures")
    shutil.copytree(FIXTURES / "01_single_write", tmp_path / "t")
    return tmp_path / "t"


def test_a_table_of_the_jvm_is_not_changed_unasked(jvm):
    table = IndexTable(str(jvm))
    some = ids(table)[1::3]
    with pytest.raises(ProtocolUpgradeError, match="holds splits of the JVM"):
        table.delete(where=f"id IN ({', '.join(map(str, some))})")
    assert IndexTable(str(jvm)).version == table.version


def test_rows_of_a_converted_table_are_deleted_from_scans_and_searches(jvm):
    table = IndexTable(str(jvm), options=CONVERT)
    before = ids(table)
    gone = before[1::3]
    table.delete(where=f"id IN ({', '.join(map(str, gone))})")
    left = sorted(set(before) - set(gone))
    assert ids(table) == left
    assert table.count() == table.num_rows == len(left)
    assert table.count(where=f"id >= {left[0]}") == len(left)
    assert sorted(table.search("*", columns=["id"], limit=10_000)["id"].to_pylist()) == left
    [total] = table.aggregate(["sum(id)"]).to_pylist()
    assert total["sum(id)"] == sum(left)
    assert table.fsck(deep=True).is_clean
    table.merge_splits()
    assert ids(table) == left
