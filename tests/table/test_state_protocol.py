"""The protocol that a state requires: it is checked, and the log repeats it after an upgrade by a checkpoint."""

import pytest
from msgspec.structs import replace

from indextables.errors import UnsupportedProtocolError
from indextables.log.actions import READER_VERSION, ProtocolAction
from indextables.log.paths import state_manifest_key, version_key
from indextables.log.version_file import decompress
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.fsck.operation import fsck
from indextables.ops.runner import LocalRunner
from indextables.ops.write import commit_files, upgrade_protocol
from indextables.state.schemas import STATE_PROTOCOL_VERSION
from indextables.state.state_manifest import decode_state_manifest, encode_state_manifest
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from support.tables import (
    CONVERT,
    InterruptingStore,
    after,
    append,
    checkpoint,
    context,
    do,
    jvm_table,
    live,
    log_keys,
    memory_store,
    new_table,
    older_table,
    overwrite,
    remove,
)


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


def newest(store: ObjectStore, **settings: str) -> Snapshot:
    return load_snapshot(context(store, settings))


def protocols(store: ObjectStore) -> dict[int, int]:
    """The reader version that each version file requires."""
    found = {}
    for version in range(newest(store).version + 1):
        lines = decompress(store.get(version_key(version)), "version").decode().splitlines()
        for line in lines:
            if line.startswith('{"protocol"'):
                found[version] = int(line.partition('"minReaderVersion":')[2].partition(",")[0])
    return found


def require(store: ObjectStore, version: int, protocol_version: int) -> None:
    """Write the state of a version again with another protocol version, as a newer release would."""
    key = state_manifest_key(version)
    state = decode_state_manifest(store.get(key), key)
    store.put(key, encode_state_manifest(replace(state, protocol_version=protocol_version)))


# --- the check ----------------------------------------------------------------------------------------


def test_state_that_needs_a_newer_protocol_is_neither_read_nor_committed_to(store):
    handle = after(new_table(store), append("a"))
    checkpoint(store)
    require(store, 1, 9)
    before = log_keys(store)
    for use in (newest, lambda store: write_checkpoint(handle), lambda store: compact(handle)):
        with pytest.raises(UnsupportedProtocolError, match=r"needs protocol version 9.*upgrade indextables"):
            use(store)
    assert log_keys(store) == before


def test_state_of_a_supported_protocol_is_read(store):
    after(new_table(store), append("a"))
    checkpoint(store)
    require(store, 1, READER_VERSION)
    assert live(newest(store)) == {"a": 10}


def test_state_records_the_protocol_of_its_table(store):
    table = after(new_table(store), append("a"))
    checkpoint(store)
    state = decode_state_manifest(store.get(state_manifest_key(1)), "state")
    expected = max(table.protocol.min_reader_version, STATE_PROTOCOL_VERSION)
    assert (state.protocol_version, state.has_unlogged_protocol) == (expected, False)


# --- the log after an upgrade -------------------------------------------------------------------------


def test_next_transaction_after_an_upgrade_by_a_checkpoint_carries_the_protocol(store):
    jvm_table(store, "a", "b", "c", protocol=3)
    write_checkpoint(newest(store))
    upgraded = newest(store).protocol
    assert (protocols(store), upgraded.min_reader_version) == ({0: 3}, 4)
    after(newest(store), remove("b"), remove("c"))
    assert protocols(store) == {0: 3, 4: 4}
    without_states = load_snapshot(context(store), excluded_bases=[state_manifest_key(3)])
    assert without_states.protocol == upgraded
    assert live(newest(store)) == {"a": 10}


def test_first_split_after_an_upgrade_by_a_checkpoint_raises_the_protocol_once(store):
    jvm_table(store, "a", protocol=3)
    write_checkpoint(newest(store))
    after(newest(store, **CONVERT), append("b"), append("c"))
    assert protocols(store) == {0: 3, 2: 5}


def test_later_states_remember_that_the_log_lacks_the_protocol(store):
    table = jvm_table(store, "a", "b", "c", "d", protocol=3)
    write_checkpoint(newest(store))
    do(table, remove("b"))  # by a handle from before the upgrade
    write_checkpoint(newest(store))
    assert protocols(store) == {0: 3}
    do(newest(store), remove("c"))
    assert set(protocols(store)) == {0, 6}
    write_checkpoint(newest(store))
    do(newest(store), remove("d"))
    assert set(protocols(store)) == {0, 6}


def test_upgrade_by_an_automatic_checkpoint_reaches_the_log(store):
    jvm_table(store, "a", "b", protocol=3)
    table = newest(store, **{"checkpoint.enabled": "true", "checkpoint.interval": "1"})
    table = commit_files(table, [], ["a"]).snapshot
    commit_files(table, [], ["b"])
    assert set(protocols(store)) == {0, 4}


def test_table_that_is_not_upgraded_repeats_no_protocol(store):
    jvm_table(store, "a", "b", protocol=3)
    settings = {"protocol.autoUpgrade": "false"}
    write_checkpoint(newest(store, **settings))
    do(newest(store, **settings), remove("b"))
    assert protocols(store) == {0: 3}
    assert newest(store).protocol == ProtocolAction(min_reader_version=3, min_writer_version=3)


def test_current_table_repeats_no_protocol(store):
    after(new_table(store), append("a"))
    checkpoint(store)
    do(newest(store), append("b"))
    assert set(protocols(store)) == {0}


def test_explicit_upgrade_after_a_checkpoint_writes_the_protocol_once(store):
    jvm_table(store, "a", protocol=3)
    write_checkpoint(newest(store))
    result = upgrade_protocol(newest(store), STATE_PROTOCOL_VERSION, STATE_PROTOCOL_VERSION)
    assert result.is_committed
    assert protocols(store) == {0: 3, 2: STATE_PROTOCOL_VERSION}
    assert not upgrade_protocol(result.snapshot, 4, 4).is_committed


def test_concurrent_commit_that_repeats_the_protocol_is_no_conflict(store):
    jvm_table(store, "a", "b", protocol=3)
    write_checkpoint(newest(store))
    racing = InterruptingStore(store)
    table = load_snapshot(context(racing))
    racing.before_commit = lambda: do(newest(store), remove("b"))
    result = do(table, overwrite())
    assert (result.version, live(newest(store))) == (4, {})
    assert set(protocols(store)) == {0, 3}


def test_fsck_accepts_an_upgrade_by_a_checkpoint(store):
    older_table(store)
    write_checkpoint(newest(store))
    assert fsck(context(store), LocalRunner(), deep=False).is_clean
