"""CHECKPOINT and COMPACT clean up the log like the checkpoint after a commit."""

from pathlib import Path

import pytest

from indextables import IndexTable, sql
from indextables.errors import CleanupFailedError
from indextables.log.paths import state_manifest_key, version_key
from indextables.ops.checkpoint.with_cleanup import checkpoint_with_cleanup, compact_with_cleanup
from indextables.table import load_snapshot
from support.faults import Moment
from support.tables import (
    SCHEMA,
    UnreliableStore,
    after,
    append,
    checkpoint,
    context,
    live,
    log_keys,
    memory_store,
    new_table,
    options,
)

KEEP_NOTHING = {
    "purge.txLogRetentionHours": "0",
    "checkpoint.retention": "0",
    "state.retention.versions": "0",
    "state.retention.hours": "0",
}
BY_HAND = {"checkpoint": checkpoint_with_cleanup, "compact": compact_with_cleanup}


@pytest.fixture
def store():
    """A table of three versions after version 0, with a state at version 1."""
    store = memory_store()
    table = after(new_table(store), append("a"))
    checkpoint(store)
    after(table, append("b"), append("c"))
    return store


@pytest.mark.parametrize("name", BY_HAND)
def test_a_checkpoint_by_hand_deletes_what_it_covers(store, name):
    result = BY_HAND[name](load_snapshot(context(store, KEEP_NOTHING)))
    assert result.version == 3
    found = log_keys(store)
    assert [version for version in range(4) if version_key(version) in found] == [3]
    assert [version for version in range(4) if state_manifest_key(version) in found] == [3]
    assert set(live(load_snapshot(context(store)))) == {"a", "b", "c"}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("retention", [{}, {**KEEP_NOTHING, "cleanup.enabled": "false"}])
def test_a_checkpoint_by_hand_keeps_what_the_settings_keep(store, name, retention):
    before = set(log_keys(store))
    BY_HAND[name](load_snapshot(context(store, retention)))
    assert before <= set(log_keys(store))


@pytest.mark.parametrize("name", BY_HAND)
def test_a_failed_cleanup_is_an_error_only_if_the_settings_say_so(store, name, caplog):
    unreliable = UnreliableStore(
        store, lambda operation, _: Moment.BEFORE if operation == "delete_many" else None
    )
    strict = {**KEEP_NOTHING, "cleanup.failurePolicy": "fail"}
    with pytest.raises(
        CleanupFailedError, match="the checkpoint of version 3 is written and stands"
    ) as caught:
        BY_HAND[name](load_snapshot(context(unreliable, strict)))
    assert caught.value.version == 3
    assert state_manifest_key(3) in log_keys(store)
    assert BY_HAND[name](load_snapshot(context(unreliable, KEEP_NOTHING))).version == 3
    assert "the cleanup of the log failed" in caplog.text


@pytest.mark.parametrize("statement", ["CHECKPOINT", "COMPACT"])
def test_the_statements_clean_up(tmp_path, statement):
    path = str(tmp_path / "logs")
    settings = options({**KEEP_NOTHING, "checkpoint.enabled": "false"})
    table = IndexTable.create(path, SCHEMA, properties=settings)
    for number in range(3):
        table.set_properties({"owner": str(number)})
    (answer,) = sql(f"{statement} INDEXTABLES '{path}'").to_pylist()
    assert (answer["status"], answer["version"]) == ("SUCCESS", 3)
    names = sorted(file.name for file in Path(path, "_transaction_log").glob("*.json"))
    assert names == ["00000000000000000003.json"]
