"""Table properties: setting, removing, persistence in the log, and use as settings."""

import pytest

from indextables.config.registry import CHECKPOINT_INTERVAL
from indextables.errors import InvalidOptionError
from indextables.ops.write import set_properties
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from indextables.table.intent import Append
from support.tables import add, append, checkpoint, context, do, log_keys, memory_store, new_table


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


def test_properties_are_set_changed_and_removed(store):
    table = set_properties(new_table(store), {"owner": "me", "purpose": "tests"}).snapshot
    table = set_properties(table, {"owner": "you", "purpose": None}).snapshot
    assert table.metadata.configuration == {"owner": "you", "maxFieldId": "3"}
    assert load_snapshot(context(store)).metadata == table.metadata
    assert load_snapshot(context(store), 1).metadata.configuration == {
        "owner": "me",
        "purpose": "tests",
        "maxFieldId": "3",
    }


def test_nothing_to_change_is_no_commit(store):
    table = set_properties(new_table(store), {"owner": "me"}).snapshot
    for properties in ({}, {"owner": "me"}, {"never set": None}):
        assert not set_properties(table, properties).is_committed
    assert load_snapshot(context(store)).version == 1


def test_schema_registry_cannot_be_set_by_hand(store):
    table = new_table(store)
    before = log_keys(store)
    with pytest.raises(InvalidOptionError, match=r"docMappingSchema\.x is part of the schema registry"):
        set_properties(table, {"docMappingSchema.x": "[]"})
    assert log_keys(store) == before


INTERVAL = "spark.indextables.checkpoint.interval"


@pytest.mark.parametrize("properties", [{"owner": 5}, {INTERVAL: "often"}, {INTERVAL: "0"}])
def test_unusable_values_are_rejected(store, properties):
    table = new_table(store)
    before = log_keys(store)
    with pytest.raises(InvalidOptionError):
        set_properties(table, properties)
    assert log_keys(store) == before


def test_property_is_a_setting_of_the_table(store):
    table = new_table(store)
    assert table.context.settings[CHECKPOINT_INTERVAL] == 10
    table = set_properties(table, {INTERVAL: "4"}).snapshot
    assert table.context.settings[CHECKPOINT_INTERVAL] == 4
    assert load_snapshot(context(store)).context.settings[CHECKPOINT_INTERVAL] == 4
    assert (
        load_snapshot(context(store, {"checkpoint.interval": "7"})).context.settings[CHECKPOINT_INTERVAL] == 7
    )
    table = set_properties(table, {INTERVAL: None}).snapshot
    assert table.context.settings[CHECKPOINT_INTERVAL] == 10


def test_properties_and_the_schema_registry_do_not_disturb_each_other(store):
    table = do(new_table(store), Append((add("a"),), doc_mappings={"hash": "[]"})).snapshot
    table = set_properties(table, {"owner": "me"}).snapshot
    assert table.header.doc_mappings == {"hash": "[]"}
    assert set_properties(table, {"owner": None}).snapshot.header.doc_mappings == {"hash": "[]"}


def test_newer_metadata_overrides_that_of_the_checkpoint(store):
    table = set_properties(new_table(store), {"owner": "me"}).snapshot
    checkpoint(store)
    set_properties(table, {"owner": "you"})
    do(load_snapshot(context(store)), append("a"))
    assert load_snapshot(context(store)).metadata.configuration == {"owner": "you", "maxFieldId": "3"}
    checkpoint(store)
    assert load_snapshot(context(store)).metadata.configuration == {"owner": "you", "maxFieldId": "3"}
