"""States of other writers: without metadata, and in logs with few version files."""

import pytest
from msgspec.structs import replace

from indextables.errors import LogCorruptedError
from indextables.log.paths import LAST_CHECKPOINT_KEY, state_manifest_key, version_key
from indextables.state.state_manifest import decode_state_manifest, encode_state_manifest
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.intent import ChangeProperties
from support.tables import after, append, checkpoint, context, do, live, memory_store, new_table


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store))


def without_identity(store: ObjectStore, version: int) -> None:
    """Take metadata and protocol out of a state."""
    key = state_manifest_key(version)
    state = decode_state_manifest(store.get(key), key)
    store.put(key, encode_state_manifest(replace(state, metadata=None, protocol=None)))


def delete_versions(store: ObjectStore, versions: range) -> None:
    store.delete_many([version_key(version) for version in versions])


# --- metadata -----------------------------------------------------------------------------------------


def test_metadata_that_a_state_leaves_out_comes_from_version_0(store):
    table = after(new_table(store), append("a"), append("b"))
    checkpoint(store)
    without_identity(store, 2)
    delete_versions(store, range(1, 3))
    found = newest(store)
    assert (found.metadata, found.protocol) == (table.metadata, table.protocol)
    assert live(found) == {"a": 10, "b": 10}


def test_metadata_that_a_state_leaves_out_comes_from_an_older_state(store):
    table = after(new_table(store), ChangeProperties({"owner": "me"}), append("a"))
    checkpoint(store)
    after(table, append("b"))
    checkpoint(store)
    without_identity(store, 3)
    delete_versions(store, range(4))
    found = newest(store)
    assert found.version == 3
    assert (found.metadata, found.protocol) == (table.metadata, table.protocol)
    assert found.metadata.configuration["owner"] == "me"
    assert do(found, append("c")).version == 4
    checkpoint(store)
    delete_versions(store, range(5))
    store.delete_many([state_manifest_key(2), state_manifest_key(3)])
    assert newest(store).metadata == table.metadata


def test_metadata_that_a_state_leaves_out_comes_from_the_newest_file_that_has_it(store):
    table = after(new_table(store), ChangeProperties({"owner": "old"}))
    checkpoint(store)
    after(table, ChangeProperties({"owner": "new"}), append("a"))
    checkpoint(store)
    without_identity(store, 3)
    assert newest(store).metadata.configuration["owner"] == "new"


# --- the next version ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", ["right", "missing", "stale"])
def test_table_of_version_0_and_state_15_continues_with_version_16(store, hint):
    table = new_table(store)
    for number in range(1, 16):
        table = after(table, append(f"p{number}"))
        if number in (3, 15):
            checkpoint(store)
        if number == 3:
            stale = store.get(LAST_CHECKPOINT_KEY)
    delete_versions(store, range(1, 16))
    if hint == "missing":
        store.delete_many([LAST_CHECKPOINT_KEY])
    if hint == "stale":
        store.put(LAST_CHECKPOINT_KEY, stale)
    found = newest(store)
    assert (found.version, found.num_files) == (15, 15)
    assert do(found, append("p16")).version == 16
    assert set(live(newest(store))) == {f"p{number}" for number in range(1, 17)}


def test_metadata_is_not_taken_from_before_a_damaged_state(store):
    """The damaged state may hold newer metadata, and the versions that would tell are gone."""
    table = after(new_table(store), append("a"))
    checkpoint(store)
    table = after(table, ChangeProperties({"owner": "new"}))
    checkpoint(store)
    after(table, append("b"))
    checkpoint(store)
    without_identity(store, 3)
    store.put(state_manifest_key(2), b"damaged")
    assert newest(store).metadata.configuration["owner"] == "new"
    delete_versions(store, range(1, 4))
    with pytest.raises(LogCorruptedError, match=r"failed to read checkpoint at version 2.*REPAIR INDEXFILES"):
        newest(store)
