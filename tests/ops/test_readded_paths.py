"""A removed path that is added again while a tombstone still hides its old entry."""

import pytest

from indextables.log.segment import BaseFormat
from indextables.state.source import StateSource
from indextables.table import Snapshot, load_snapshot
from indextables.table.intent import Append
from support.clock import VirtualClock
from support.tables import add, append, checkpoint, context, do, live, memory_store, new_table, remove

# Enough files that a single tombstone does not trigger a compaction.
MANY = [f"part-{number:03d}.split" for number in range(60)]


def table_with_a_tombstone() -> Snapshot:
    store = memory_store(VirtualClock())
    table = do(new_table(store), append(*MANY)).snapshot
    checkpoint(store)
    do(table, remove(MANY[7]))
    checkpoint(store)
    table = load_snapshot(context(store))
    assert isinstance(table.source, StateSource)
    assert table.source.state.tombstones.to_pylist() == [MANY[7]]
    return table


@pytest.mark.parametrize("removed_besides", [(), (MANY[9],)], ids=["alone", "beside another remove"])
def test_path_that_is_added_again_is_not_hidden_by_its_tombstone(removed_besides):
    table = table_with_a_tombstone()
    store = table.context.store
    table = do(table, Append((add(MANY[7], size=77),))).snapshot
    if removed_besides:
        table = do(table, remove(*removed_besides)).snapshot
    expected = {**dict.fromkeys(MANY, 10), MANY[7]: 77}
    expected = {path: size for path, size in expected.items() if path not in removed_besides}
    assert live(table) == expected
    checkpoint(store)
    reopened = load_snapshot(context(store))
    assert reopened.segment.base is not None
    assert (reopened.segment.base.format, reopened.segment.version_files) == (BaseFormat.AVRO_STATE, ())
    assert live(reopened) == expected
