"""Batches of streaming writers: the `txn` action makes a retried batch a no-op."""

import pytest

from indextables.log.actions import TransactionAction
from indextables.table import Operation, commit, load_snapshot
from indextables.table.intent import Append, Overwrite
from support.tables import add, memory_store, new_table


@pytest.fixture
def snapshot():
    return new_table(memory_store())


def write(snapshot, path, version, app="query", kind=Append):
    transaction = TransactionAction(app_id=app, version=version)
    return commit(snapshot, kind((add(path),), transaction=transaction), Operation("WRITE"))


@pytest.mark.parametrize("kind", [Append, Overwrite])
def test_batch_is_committed_once(snapshot, kind):
    first = write(snapshot, "a", 3, kind=kind)
    assert first.is_committed
    for repeated in (3, 2):
        again = write(first.snapshot, "b", repeated, kind=kind)
        assert (again.is_committed, again.version) == (False, first.version)
    assert load_snapshot(snapshot.context).header.transactions == {"query": 3}
    assert write(first.snapshot, "c", 4, kind=kind).is_committed


def test_batch_that_another_process_committed_concurrently_is_skipped(snapshot):
    write(snapshot, "a", 0)
    late = write(snapshot, "b", 0)
    assert not late.is_committed
    assert late.tries > 1
    assert late.snapshot.entries["path"].to_pylist() == ["a"]


def test_each_writer_has_its_own_batch_numbers(snapshot):
    write(snapshot, "a", 5)
    assert write(snapshot, "b", 0, app="other").is_committed
    assert load_snapshot(snapshot.context).header.transactions == {"query": 5, "other": 0}
