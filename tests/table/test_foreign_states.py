"""States of other writers: without metadata or the batches of streams, and in logs with few version files."""

import pytest
from msgspec.structs import replace

from indextables.errors import LogCorruptedError
from indextables.log.actions import TransactionAction
from indextables.log.paths import LAST_CHECKPOINT_KEY, state_manifest_key, version_key
from indextables.state.state_manifest import decode_state_manifest, encode_state_manifest
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.commit import commit_purge_fence, purge_fence_ms
from indextables.table.intent import Append, ChangeProperties
from support.tables import (
    after,
    append,
    checkpoint,
    context,
    do,
    live,
    memory_store,
    new_table,
    write_version,
)


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


# --- batches of streams, and recent commits -----------------------------------------------------------


def batch(number: int, *paths: str, query: str = "query") -> Append:
    """A batch of a stream, which must not be committed twice."""
    return Append(append(*paths).adds, transaction=TransactionAction(app_id=query, version=number))


def as_on_the_jvm(store: ObjectStore, version: int) -> None:
    """Take everything out of a state that the JVM does not copy from ours."""
    key = state_manifest_key(version)
    state = decode_state_manifest(store.get(key), key)
    kept = replace(state, protocol=None, transactions={}, recent_commits={}, skips=(), unknown_actions=())
    store.put(key, encode_state_manifest(kept))


def test_a_repeated_batch_is_not_committed_again_after_a_state_of_the_jvm(store):
    after(new_table(store), batch(7, "a"), append("b"))
    checkpoint(store)
    as_on_the_jvm(store, 2)
    again = do(newest(store), batch(7, "a-again"))
    assert (again.is_committed, live(newest(store))) == (False, {"a": 10, "b": 10})
    assert do(newest(store), batch(8, "c")).is_committed


def test_batches_before_the_retained_versions_come_from_an_older_state_of_ours(store):
    table = after(new_table(store), batch(7, "a"), batch(3, "b", query="other"))
    checkpoint(store)
    after(table, batch(8, "c"))
    checkpoint(store)
    as_on_the_jvm(store, 3)
    after(newest(store), append("d"))
    checkpoint(store)
    as_on_the_jvm(store, 4)
    delete_versions(store, range(3))
    assert newest(store).header.transactions == {"query": 8, "other": 3}


def test_a_protocol_after_the_state_does_not_hide_what_the_state_leaves_out(store):
    table = after(new_table(store), batch(7, "a"))
    checkpoint(store)
    as_on_the_jvm(store, 1)
    write_version(store, 2, table.protocol)
    assert newest(store).header.transactions == {"query": 7}


def test_the_next_checkpoint_carries_the_batches_and_the_commits_on(store):
    table = after(new_table(store), batch(7, "a"), append("b"))
    checkpoint(store)
    as_on_the_jvm(store, 2)
    assert newest(store).header.recent_commits == table.header.recent_commits
    latest = after(newest(store), append("c"))
    checkpoint(store)
    delete_versions(store, range(4))
    store.delete_many([state_manifest_key(2)])
    found = newest(store).header
    assert (found.version, found.transactions) == (3, {"query": 7})
    assert found.recent_commits == latest.header.recent_commits
    assert set(found.recent_commits) == {1, 2, 3}


def test_the_fence_of_a_purge_survives_a_state_of_the_jvm(store):
    fenced = commit_purge_fence(after(new_table(store), append("a")), 1_000)
    checkpoint(store)
    as_on_the_jvm(store, 2)
    assert purge_fence_ms(newest(store)) == purge_fence_ms(fenced) == 1_000


def test_a_damaged_version_that_the_state_covers_costs_only_its_own_batches(store, caplog):
    table = after(new_table(store), batch(7, "a"), batch(3, "b", query="other"), append("c"))
    checkpoint(store)
    as_on_the_jvm(store, 3)
    write_version(store, 4, table.protocol)
    store.put(version_key(1), b"not json")
    found = newest(store)
    assert (found.header.transactions, set(live(found))) == ({"other": 3}, {"a", "b", "c"})
    assert "version 1 are not recognized" in caplog.text


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
