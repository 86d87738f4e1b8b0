"""Deletes, updates and upserts, with every one of their storage calls failing before and after its effect.

The rows are those of before or of after the change, no key is there twice, and the same change works afterwards.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from indextables.errors import CommitOutcomeUnknownError, IndexTablesError
from indextables.log import deletion_vectors
from indextables.ops.delete import DeleteRequest, delete
from indextables.ops.fsck.operation import fsck
from indextables.ops.read import scan
from indextables.ops.runner import LocalRunner
from indextables.ops.update import UpdateRequest, update
from indextables.ops.upsert import UpsertRequest, upsert
from indextables.ops.write import append
from indextables.predicates import parse_predicate
from indextables.storage import ObjectStore
from indextables.table import Snapshot, create_table, load_snapshot
from simulation.scheduler import WRITES
from support.faults import FaultStore, Moment
from support.row_tables import SCHEMA, rows
from support.tables import context, copy_all, memory_store

REWRITE = {"delete.mode": "rewrite"}
CHOSEN = parse_predicate("id IN (3, 13)")
OLD = {number: f"row {number}" for number in range(20)}
CHANGED = {**OLD, 3: "changed", 13: "changed"}

Rows = list[tuple[int, str]]


@dataclass(frozen=True)
class Case:
    """A change, the rows after it, and the ids that another writer appends once the change is planned."""

    run: Callable[[Snapshot], object]
    after: Mapping[int, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    appended: tuple[int, ...] = ()


def deleting(table: Snapshot) -> object:
    return delete(table, DeleteRequest(CHOSEN))


def updating(table: Snapshot) -> object:
    return update(table, UpdateRequest({"body": "changed"}, CHOSEN))


def upserting(table: Snapshot) -> object:
    """Updates 3 and 13, and inserts 40."""
    source = pa.table({"id": [3, 13, 40], "body": ["changed"] * 3})
    return upsert(table, UpsertRequest(source, {"id": "id"}))


LEFT = {number: body for number, body in OLD.items() if number not in (3, 13)}
UPSERTED = {**CHANGED, 40: "changed"}

CASES = {
    "delete": Case(deleting, LEFT),
    "delete, rewriting": Case(deleting, LEFT, REWRITE),
    "update": Case(updating, CHANGED),
    "upsert": Case(upserting, UPSERTED),
    "upsert after an append of a key to insert": Case(upserting, UPSERTED, appended=(40,)),
}


@pytest.fixture(autouse=True)
def _vectors_in_files(monkeypatch):
    monkeypatch.setattr(deletion_vectors, "MAX_INLINE_BYTES", 0)


@pytest.fixture(scope="module")
def prepared() -> ObjectStore:
    """Ids 0 to 19 in two splits."""
    store = memory_store()
    table = create_table(context(store), SCHEMA, [], {"spark.indextables.indexing.typemap.body": "text"})
    table = append(table, rows(*range(10))).snapshot
    append(table, rows(*range(10, 20)))
    return store


def copy_of(store: ObjectStore) -> ObjectStore:
    target = memory_store()
    copy_all(store, target)
    return target


def seen(store: ObjectStore) -> Rows:
    found = scan(load_snapshot(context(store)), None, ["id", "body"]).read_all()
    return sorted(zip(found["id"].to_pylist(), found["body"].to_pylist(), strict=True))


def problems(store: ObjectStore) -> list[str]:
    """What FSCK finds, apart from files that the failed attempt left behind."""
    found = fsck(context(store), LocalRunner(), deep=False).findings
    return [finding.code for finding in found if finding.code != "orphaned-splits"]


@pytest.mark.parametrize("name", CASES)
def test_every_failing_call_leaves_the_rows_before_or_after(prepared, name):
    case = CASES[name]
    planned = load_snapshot(context(prepared)).version
    start = copy_of(prepared)
    if case.appended:
        append(load_snapshot(context(start)), rows(*case.appended))
    before, after = seen(start), sorted(case.after.items())
    inner = copy_of(start)
    whole = FaultStore(inner)
    table = load_snapshot(context(whole, case.settings), planned)
    first = len(whole.calls)
    case.run(table)
    assert seen(inner) == after
    for number, call in enumerate(whole.calls[first:], first):
        # A read that fails has no effect.
        for moment in Moment if call.operation in WRITES else [Moment.BEFORE]:
            inner = copy_of(start)
            table = load_snapshot(
                context(FaultStore(inner, fail_call=(number, moment)), case.settings), planned
            )
            try:
                case.run(table)
            except CommitOutcomeUnknownError:
                assert seen(inner) in (before, after)
            except IndexTablesError:
                assert seen(inner) == before
            else:
                assert seen(inner) == after
            assert problems(inner) == []
            if seen(inner) == before:
                case.run(load_snapshot(context(inner, case.settings)))
                assert seen(inner) == after
