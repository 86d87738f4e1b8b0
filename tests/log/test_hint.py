import json
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from indextables.errors import TransientStorageError
from indextables.log.paths import LAST_CHECKPOINT_KEY
from indextables.log.segment import LastCheckpoint, advance_hint, read_hint
from indextables.storage import ObjectStore, open_store
from support import PATIENCE_SECONDS
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


# --- late writers -------------------------------------------------------------------------------------


class Late(FaultStore):
    """The store of a writer that is overtaken: something else happens right before it writes the hint."""

    def __init__(self, inner: ObjectStore, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._meanwhile: Callable[[], object] | None = meanwhile

    def _start(self, operation, key):
        if operation.startswith("put") and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return super()._start(operation, key)


@pytest.fixture(params=["memory", "local", "s3"])
def any_store(request, store, tmp_path) -> ObjectStore:
    if request.param == "memory":
        return store
    if request.param == "local":
        return open_store(tmp_path / "table")
    server = request.getfixturevalue("s3_server")
    return open_store(f"s3://{server.make_bucket()}/table", storage_options=server.storage_options)


@pytest.mark.parametrize("before", [None, 5])
def test_a_late_writer_never_moves_the_hint_back(any_store, before):
    if before is not None:
        advance_hint(any_store, LastCheckpoint(version=before))
    late = Late(any_store, lambda: advance_hint(any_store, LastCheckpoint(version=10)))
    advance_hint(late, LastCheckpoint(version=6))
    assert read_hint(any_store) == LastCheckpoint(version=10)


def test_a_late_writer_of_a_newer_checkpoint_tries_again(any_store):
    advance_hint(any_store, LastCheckpoint(version=5))
    late = Late(any_store, lambda: advance_hint(any_store, LastCheckpoint(version=10)))
    advance_hint(late, LastCheckpoint(version=11))
    assert read_hint(any_store) == LastCheckpoint(version=11)


def test_a_hint_that_points_at_nothing_is_replaced_unless_it_changed(any_store):
    lost = LastCheckpoint(version=4711)
    advance_hint(any_store, lost)
    advance_hint(any_store, LastCheckpoint(version=3), over=lost)
    assert read_hint(any_store) == LastCheckpoint(version=3)

    advance_hint(any_store, lost)
    found = LastCheckpoint(version=4711, num_files=7)
    late = Late(any_store, lambda: advance_hint(any_store, found))
    advance_hint(late, LastCheckpoint(version=3), over=lost)
    assert read_hint(any_store) == found


def test_a_hint_that_never_stops_changing_is_an_error(store):
    class Restless(FaultStore):
        def get(self, key):
            data = super().get(key)
            self._inner.put(key, data + b" ")
            return data

    advance_hint(store, LastCheckpoint(version=5))
    with pytest.raises(TransientStorageError, match="changed at every attempt"):
        advance_hint(Restless(store), LastCheckpoint(version=6))


RACER = """
import sys
from indextables.log.segment import LastCheckpoint, advance_hint
from indextables.storage import open_store

store = open_store(sys.argv[1])
sys.stdin.readline()
for version in range(int(sys.argv[2]), 300, int(sys.argv[3])):
    advance_hint(store, LastCheckpoint(version=version))
"""


def test_racing_processes_move_the_hint_forward_only(tmp_path):
    """Each process writes its own versions, and all of them run over the same range."""
    racers, store = 3, open_store(tmp_path / "table")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path / "table"), str(number), str(racers)],
            stdin=subprocess.PIPE,
        )
        for number in range(racers)
    ]
    seen: list[int] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            hint = read_hint(store)
            seen.append(-1 if hint is None else hint.version)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for process in processes:
            process.stdin.write(b"\n")
            process.stdin.close()
        assert [process.wait(timeout=PATIENCE_SECONDS) for process in processes] == [0] * racers
    finally:
        is_over.set()
        watcher.join()
    assert seen == sorted(seen)
    assert read_hint(store) == LastCheckpoint(version=299)
