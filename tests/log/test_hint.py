import json

import pytest

from indextables.errors import TransientStorageError
from indextables.log.paths import LAST_CHECKPOINT_KEY
from indextables.log.segment import LastCheckpoint, advance_hint, read_hint
from support.faults import FaultStore, Moment


def test_a_missing_hint_is_none(store):
    assert read_hint(store) is None


def test_the_hint_of_a_real_table_is_read(store):
    store.put(
        LAST_CHECKPOINT_KEY,
        b'{"version":12,"size":24,"sizeInBytes":158371,"numFiles":24,"createdTime":1775007216046,"parts":null,'
        b'"checkpointId":null,"format":"avro-state","stateDir":"state-v00000000000000000012"}',
    )
    assert read_hint(store) == LastCheckpoint(
        version=12,
        size=24,
        size_in_bytes=158371,
        num_files=24,
        created_time=1775007216046,
        format="avro-state",
        state_dir="state-v00000000000000000012",
    )


def test_the_hints_of_the_specification_are_read(store):
    multi_part = {
        "version": 50,
        "size": 50000,
        "sizeInBytes": 987654321,
        "numFiles": 50000,
        "createdTime": 1704123456789,
        "parts": 3,
        "checkpointId": "abc123def456",
    }
    store.put(LAST_CHECKPOINT_KEY, json.dumps(multi_part).encode())
    hint = read_hint(store)
    assert hint is not None
    assert (hint.version, hint.parts, hint.checkpoint_id, hint.format) == (50, 3, "abc123def456", None)

    newest = {
        **multi_part,
        "version": 100,
        "format": "avro-state",
        "stateDir": "state-v100",
        "protocolVersion": 4,
    }
    store.put(LAST_CHECKPOINT_KEY, json.dumps(newest, indent=2).encode())
    hint = read_hint(store)
    assert hint is not None
    assert (hint.version, hint.format, hint.protocol_version) == (100, "avro-state", 4)


def test_the_first_hints_had_only_a_version(store):
    store.put(LAST_CHECKPOINT_KEY, b'{"version": 3, "somethingElse": {"a": [1]}}')
    assert read_hint(store) == LastCheckpoint(version=3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"5",
        b"{}",
        b'{"version":null}',
        b'{"version":"x"}',
        b'{"version":-1}',
        b'{"version":1.5}',
        b'{"version":%d}' % 2**63,
        b'{"version":%d}' % 2**70,
        b'{"version":3,"format":7}',
        b'{"version":3,"a":"\xff"',
        b'{"version":3,"format":"\xff"}',
        b"\x00\x00",
        b'{"version":3,"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_an_invalid_hint_is_none(store, data):
    store.put(LAST_CHECKPOINT_KEY, data)
    assert read_hint(store) is None


def test_a_damaged_hint_is_ignored_with_a_warning(store, caplog):
    store.put(LAST_CHECKPOINT_KEY, b"{")
    assert read_hint(store) is None
    assert f"{store.url}/{LAST_CHECKPOINT_KEY} is not readable and is ignored" in caplog.text


def test_an_invalid_hint_is_replaced(store):
    for nonsense in (b"{", b'{"version":%d}' % 2**70):
        store.put(LAST_CHECKPOINT_KEY, nonsense)
        advance_hint(store, LastCheckpoint(version=4))
        assert read_hint(store) == LastCheckpoint(version=4)


def test_the_hint_advances_and_never_moves_back(store):
    for version, expected in ((0, 0), (10, 10), (5, 10), (11, 11)):
        advance_hint(store, LastCheckpoint(version=version, num_files=version))
        assert read_hint(store) == LastCheckpoint(version=expected, num_files=expected)


def test_the_hint_of_the_same_version_may_change_its_format(store):
    advance_hint(store, LastCheckpoint(version=3, format="json"))
    advance_hint(store, LastCheckpoint(version=3, format="avro-state"))
    assert read_hint(store) == LastCheckpoint(version=3, format="avro-state")


def test_the_hint_has_the_specified_names_on_disk(store):
    hint = LastCheckpoint(
        version=1, size=2, size_in_bytes=3, num_files=4, created_time=5, parts=6, checkpoint_id="c", format="json",
        state_dir="s", protocol_version=4,
    )  # fmt: skip
    advance_hint(store, hint)
    assert json.loads(store.get(LAST_CHECKPOINT_KEY)) == {
        "version": 1,
        "size": 2,
        "sizeInBytes": 3,
        "numFiles": 4,
        "createdTime": 5,
        "parts": 6,
        "checkpointId": "c",
        "format": "json",
        "stateDir": "s",
        "protocolVersion": 4,
    }


def test_an_unavailable_store_is_not_a_missing_hint(store):
    with pytest.raises(TransientStorageError):
        read_hint(FaultStore(store, fail_call=(0, Moment.BEFORE)))
