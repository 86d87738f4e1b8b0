"""The name and the description of a table: given at its creation, changed later, kept and shown."""

import pytest

from indextables import IndexTable
from indextables.errors import CommitConflictError, InvalidOptionError, ReadOnlyTableError
from indextables.ops.write import set_metadata, set_properties
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from support.tables import (
    FORMATS,
    SCHEMA,
    append,
    checkpoint,
    context,
    do,
    log_keys,
    memory_store,
    new_table,
    options,
    overwrite,
)

PLAIN = options({"checkpoint.enabled": "false"})


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "table")


def named(table: IndexTable | Snapshot) -> tuple[str | None, str | None]:
    return table.metadata.name, table.metadata.description


def test_a_table_is_created_with_a_name_and_a_description(path):
    table = IndexTable.create(path, SCHEMA, name="events", description="All events", options=PLAIN)
    assert named(table) == named(IndexTable(path)) == ("events", "All events")
    assert table.version == 0


def test_a_table_without_them_has_none(path):
    assert named(IndexTable.create(path, SCHEMA, description="")) == (None, None)


def test_an_existing_table_keeps_its_name(path):
    IndexTable.create(path, SCHEMA, name="events")
    assert named(IndexTable.create(path, SCHEMA, name="other", description="another")) == ("events", None)


def test_they_are_changed_one_by_one_and_removed(path):
    table = IndexTable.create(path, SCHEMA, name="events", options=PLAIN)
    assert table.set_metadata(description="All events") == 1
    assert named(table) == ("events", "All events")
    assert table.set_metadata(name="logs") == 2
    assert named(table) == ("logs", "All events")
    assert table.set_metadata(name="", description="") == 3
    assert named(IndexTable(path)) == (None, None)
    assert named(IndexTable(path, version=2)) == ("logs", "All events")
    assert table.history(1)["operation"].to_pylist() == ["SET METADATA"]


def test_nothing_to_change_is_no_commit(store):
    table = set_metadata(new_table(store), "events").snapshot
    for fields in ({}, {"name": "events"}, {"description": ""}):
        assert not set_metadata(table, **fields).is_committed
    assert load_snapshot(context(store)).version == 1


@pytest.mark.parametrize("fields", [{"name": 5}, {"description": b"bytes"}])
def test_other_values_than_texts_are_rejected_before_anything_is_written(store, path, fields):
    table = new_table(store)
    before = log_keys(store)
    with pytest.raises(InvalidOptionError, match="must be a string"):
        set_metadata(table, **fields)
    assert log_keys(store) == before
    with pytest.raises(InvalidOptionError, match="pass a text or None"):
        IndexTable.create(path, SCHEMA, **fields)


def test_a_table_at_an_older_version_is_read_only(path):
    IndexTable.create(path, SCHEMA, options=PLAIN).set_metadata(name="events")
    with pytest.raises(ReadOnlyTableError):
        IndexTable(path, version=0).set_metadata(name="other")


@pytest.mark.parametrize("form", FORMATS)
def test_they_survive_properties_commits_and_checkpoints(store, form):
    table = set_metadata(new_table(store), "events", "All \u2028 events").snapshot
    table = set_properties(table, {"owner": "me"}).snapshot
    do(table, append("a"))
    checkpoint(store, form)
    found = load_snapshot(context(store))
    assert named(found) == ("events", "All \u2028 events")
    assert found.metadata.configuration == {"owner": "me", "maxFieldId": "3"}


def test_a_restore_brings_them_back(path):
    table = IndexTable.create(path, SCHEMA, name="events", options=PLAIN)
    table.set_metadata(name="other")
    table.restore(version=0)
    assert named(table) == ("events", None)


# --- concurrent commits -------------------------------------------------------------------------------


def test_concurrent_changes_of_name_and_description_are_both_kept(store):
    stale = new_table(store)
    set_metadata(stale, name="events")
    assert named(set_metadata(stale, description="All events").snapshot) == ("events", "All events")


def test_concurrent_changes_of_the_same_one_conflict(store):
    stale = new_table(store)
    set_metadata(stale, name="events")
    with pytest.raises(CommitConflictError, match=r"the same metadata \(name\)"):
        set_metadata(stale, name="logs", description="never")
    assert named(load_snapshot(context(store))) == ("events", None)


def test_concurrent_changes_of_a_property_and_of_the_name_are_both_kept(store):
    stale = new_table(store)
    set_properties(stale, {"owner": "me"})
    named_table = set_metadata(stale, name="events").snapshot
    assert named_table.metadata.configuration == {"owner": "me", "maxFieldId": "3"}
    final = set_properties(stale, {"purpose": "tests"}).snapshot
    assert (final.metadata.name, final.metadata.configuration) == (
        "events",
        {"owner": "me", "purpose": "tests", "maxFieldId": "3"},
    )


def test_an_append_goes_on_and_an_overwrite_starts_again_after_a_change_of_the_name(store):
    stale = new_table(store)
    set_metadata(stale, name="events")
    assert named(do(stale, append("a")).snapshot) == ("events", None)
    with pytest.raises(CommitConflictError, match="changed the table's schema, metadata or protocol"):
        do(stale, overwrite("b"))
