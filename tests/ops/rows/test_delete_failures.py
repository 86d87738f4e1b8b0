"""A delete with every storage call failing before and after its effect; and tables of the JVM."""

import shutil
from pathlib import Path

import pytest

from indextables import IndexTable
from indextables.errors import CommitOutcomeUnknownError, IndexTablesError, ProtocolUpgradeError
from indextables.log import deletion_vectors
from indextables.ops.delete import DeleteRequest, delete
from indextables.ops.fsck.operation import fsck
from indextables.ops.read import scan
from indextables.ops.runner import LocalRunner
from indextables.ops.write import append
from indextables.predicates import parse_predicate
from indextables.storage import ObjectStore
from indextables.table import create_table, load_snapshot
from support.faults import FaultStore, Moment
from support.row_tables import SCHEMA, ids, rows
from support.tables import context, copy_all, memory_store

FIXTURES = Path(__file__).parents[3] / "../shared/fixtures"
CONVERT = {"spark.indextables.protocol.convertJvmTables": "true"}
MODES = {"vectors": {}, "rewrite": {"delete.mode": "rewrite"}}


def table_in(store: ObjectStore) -> None:
    """Ids 0 to 19 in two splits."""
    table = create_table(context(store), SCHEMA, [], {"spark.indextables.indexing.typemap.body": "text"})
    table = append(table, rows(*range(10))).snapshot
    append(table, rows(*range(10, 20)))


def run(store: ObjectStore, settings: dict[str, str]) -> object:
    return delete(load_snapshot(context(store, settings)), DeleteRequest(parse_predicate("id IN (3, 13)")))


def copy_of(store: ObjectStore) -> ObjectStore:
    target = memory_store()
    copy_all(store, target)
    return target


def problems(store: ObjectStore) -> list[str]:
    """What FSCK finds, apart from files that the failed attempt left behind."""
    found = fsck(context(store), LocalRunner(), deep=False).findings
    return [finding.code for finding in found if finding.code != "orphaned-splits"]


def seen(store: ObjectStore) -> list[int]:
    return sorted(scan(load_snapshot(context(store)), None, ["id"]).read_all()["id"].to_pylist())


@pytest.mark.parametrize("mode", MODES)
def test_every_failing_call_leaves_the_table_before_or_after(mode, monkeypatch):
    monkeypatch.setattr(deletion_vectors, "MAX_INLINE_BYTES", 0)
    prepared = memory_store()
    table_in(prepared)
    before, after = list(range(20)), [number for number in range(20) if number not in (3, 13)]
    whole = FaultStore(copy_of(prepared))
    run(whole, MODES[mode])
    assert seen(whole) == after
    for number in range(len(whole.calls)):
        for moment in Moment:
            inner = copy_of(prepared)
            try:
                run(FaultStore(inner, fail_call=(number, moment)), MODES[mode])
            except CommitOutcomeUnknownError:
                assert seen(inner) in (before, after)
            except IndexTablesError:
                assert seen(inner) == before
            else:
                assert seen(inner) == after
            assert problems(inner) == []
            run(inner, MODES[mode])
            assert seen(inner) == after


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
