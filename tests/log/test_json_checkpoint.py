import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings

from indextables.errors import LogCorruptedError, ObjectNotFoundError, TransientStorageError
from indextables.log.checkpoint import Checkpoint
from indextables.log.decode import UnknownContent, decode_tail
from indextables.log.entries import empty_entries
from indextables.log.legacy_checkpoint import read_json_checkpoint, read_part_names, write_json_checkpoint
from indextables.log.paths import LOG_PREFIX, json_checkpoint_key, json_checkpoint_part_name
from indextables.log.replay import EMPTY_HEADER, removed_paths, replay_entries, replay_header
from indextables.log.version_file import compress, decompress
from indextables.storage import ObjectStore, PutOutcome, open_store
from support.faults import FaultStore, Moment
from support.log_samples import (
    FULL_ADD,
    FULL_REMOVE,
    METADATA,
    PROTOCOL,
    add,
    add_actions,
    json_lines,
    log_file,
    paths,
    remove,
    rows,
    versions_of,
)

VERSION = 4
KEY = json_checkpoint_key(VERSION)
ONE_FILE = 10**9


def checkpoint_of(*versions, unknown: UnknownContent = UnknownContent.KEEP) -> Checkpoint:
    """The checkpoint of VERSION, after versions that end there."""
    first = VERSION - len(versions) + 1
    tail = decode_tail(
        [log_file(first + number, *actions) for number, actions in enumerate(versions)], unknown
    )
    header = replay_header(EMPTY_HEADER, tail.versions, removed_paths(tail))
    return Checkpoint(header, replay_entries(empty_entries(), tail))


def small_table(count: int = 20) -> Checkpoint:
    return checkpoint_of(
        [PROTOCOL, METADATA],
        [add(f"part-{number}", size=number) for number in range(count)],
        [{"commitInfo": {"commitId": "c", "timestamp": 99, "operation": "WRITE"}}],
    )


def write(store: ObjectStore, checkpoint: Checkpoint, max_part_bytes: int = ONE_FILE) -> int | None:
    """The number of parts that were written; None for none."""
    written = write_json_checkpoint(store, checkpoint, max_part_bytes=max_part_bytes, created_ms=11)
    return None if written is None else written.parts


def read(store: ObjectStore, unknown: UnknownContent = UnknownContent.KEEP) -> Checkpoint:
    return read_json_checkpoint(store, store.head(KEY), VERSION, unknown, parallelism=1)


def keys(store: ObjectStore) -> list[str]:
    return [meta.key for meta in store.list("")]


def in_path_order(entries: pa.Table) -> pa.Table:
    return entries.combine_chunks().sort_by("path")


# --- one file -----------------------------------------------------------------------------------------


def test_a_checkpoint_survives_a_round_trip(store):
    checkpoint = small_table()
    assert write(store, checkpoint) is None
    assert keys(store) == [KEY]
    found = read(store)
    assert found.header == checkpoint.header
    assert found.entries == checkpoint.entries


@settings(max_examples=40)
@given(versions_of(add_actions, max_versions=2))
def test_any_entries_survive_a_checkpoint(versions):
    store = open_store("memory://log/any-entries")
    store.delete_many(keys(store))
    checkpoint = checkpoint_of([PROTOCOL, METADATA], *versions)
    write(store, checkpoint)
    found = read(store)
    assert found.entries == checkpoint.entries
    assert found.header == checkpoint.header


def test_a_checkpoint_is_gzip_of_plain_json_lines(store):
    write(store, checkpoint_of([PROTOCOL, METADATA, {"add": FULL_ADD}]))
    data = store.get(KEY)
    assert data[:2] == b"\x01\x01"
    actions = [json.loads(line) for line in gzip.decompress(data[2:]).splitlines()]
    assert [next(iter(action)) for action in actions] == ["checkpointInfo", "protocol", "metaData", "add"]
    when = FULL_ADD["modificationTime"]
    assert actions[-1] == {"add": {**FULL_ADD, "addedAtVersion": VERSION, "addedAtTimestamp": when}}


def test_an_empty_table_has_a_checkpoint(store):
    checkpoint = checkpoint_of([PROTOCOL, METADATA])
    write(store, checkpoint)
    assert read(store).entries == empty_entries()
    assert read(store).header == checkpoint.header


def test_the_version_and_time_of_an_entry_survive(store):
    checkpoint = checkpoint_of([METADATA, add("a", modificationTime=10)], [add("b", modificationTime=20)], [])
    write(store, checkpoint)
    added = read(store).entries.select(["path", "addedAtVersion", "addedAtTimestamp"]).to_pylist()
    assert [tuple(row.values()) for row in added] == [("a", 2, 10), ("b", 3, 20)]


def test_unknown_fields_and_actions_survive(store):
    checkpoint = checkpoint_of(
        [
            PROTOCOL,
            METADATA,
            {"cdc": {"big": 2**70}},
            add("a", future={"x": 2**70, "y": "ü\u2028"}, other=None),
            add("b"),
            {"add": {**FULL_ADD, "path": "c", "future": 1}},
        ]
    )
    write(store, checkpoint)
    found = read(store)
    assert in_path_order(found.entries) == in_path_order(checkpoint.entries)
    assert found.header.unknown_actions == ('{"cdc":{"big":1180591620717411303424}}',)
    lines = [json.loads(line) for line in decompress(store.get(KEY), KEY).split(b"\n")[:-1]]
    by_path = {line["add"]["path"]: line["add"] for line in lines if "add" in line}
    assert by_path["a"]["future"] == {"x": 2**70, "y": "ü\u2028"}
    assert by_path["a"]["other"] is None
    assert by_path["c"]["companionFastFieldMode"] == FULL_ADD["companionFastFieldMode"]
    assert "unknownFields" not in by_path["a"]


def test_unknown_content_is_ignored_by_plain_reads(store):
    write(store, checkpoint_of([METADATA, {"cdc": {}}, add("a", future=1)]))
    found = read(store, UnknownContent.IGNORE)
    assert found.entries["unknownFields"].to_pylist() == [None]
    assert found.header.unknown_actions == ()


def test_unknown_fields_cannot_replace_known_ones(store):
    checkpoint = checkpoint_of([METADATA, add("a", future=1)])
    forged = checkpoint.entries.set_column(
        checkpoint.entries.column_names.index("unknownFields"),
        checkpoint.entries.schema.field("unknownFields"),
        pa.array(['{"path":"b","future":1}']),
    )
    write(store, Checkpoint(checkpoint.header, forged))
    assert paths(read(store).entries) == ["a"]


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"a":' + "[" * 100_000])
def test_unknown_fields_that_are_not_an_object_are_refused(store, text):
    checkpoint = checkpoint_of([METADATA, add("a")])
    forged = checkpoint.entries.drop_columns(["unknownFields"]).append_column(
        "unknownFields", pa.array([text])
    )
    with pytest.raises(LogCorruptedError, match='"a": its unknown fields are not a JSON object'):
        write(store, Checkpoint(checkpoint.header, forged))
    assert keys(store) == []


def test_the_first_of_two_writers_wins(store):
    write(store, small_table(3))
    before = store.get(KEY)
    write(store, small_table(5))
    assert store.get(KEY) == before


# --- checkpoints of other writers ---------------------------------------------------------------------


@pytest.mark.parametrize("encode", [compress, gzip.compress, bytes], ids=["prefixed", "bare", "plain"])
def test_a_checkpoint_of_all_live_files_is_read(store, encode):
    store.put(KEY, encode(json_lines(PROTOCOL, METADATA, {"add": FULL_ADD}, add("b"))))
    found = read(store)
    assert paths(found.entries) == [FULL_ADD["path"], "b"]
    assert (found.header.version, found.header.timestamp_ms) == (VERSION, FULL_ADD["modificationTime"])
    assert found.header.protocol is not None


def test_a_checkpoint_of_every_action_since_version_zero_is_replayed(store):
    skip = {"mergeskip": {"path": "a", "skipTimestamp": 1, "reason": "r", "operation": "merge"}}
    newer = {"metaData": {**METADATA["metaData"], "name": "newer"}}
    store.put(
        KEY,
        compress(
            json_lines(PROTOCOL, METADATA, add("a"), add("b"), skip, newer, remove("a"), add("b", size=9))
        ),
    )
    found = read(store)
    assert [(row["path"], row["size"]) for row in rows(found.entries)] == [("b", 9)]
    assert found.header.metadata is not None
    assert found.header.metadata.name == "newer"
    assert found.header.skips == {}


def test_a_checkpoint_of_the_first_design_is_read(store):
    shape = {**PROTOCOL, **METADATA, "add": [FULL_ADD, add("b")["add"]]}
    for text in (json.dumps(shape), json.dumps(shape, indent=2)):
        store.put(KEY, text.encode())
        assert paths(read(store).entries) == [FULL_ADD["path"], "b"]


def test_the_parts_of_another_writer_are_read(store):
    parts = [json_checkpoint_part_name(VERSION, "0a1b2c3d4e5f", number) for number in (1, 2)]
    store.put(LOG_PREFIX + parts[0], compress(json_lines(PROTOCOL, METADATA, add("a"))))
    store.put(LOG_PREFIX + parts[1], json_lines(add("b"), add("c")))
    manifest = {
        "version": VERSION,
        "checkpointId": "0a1b2c3d4e5f",
        "parts": parts,
        "createdTime": 1,
        "format": "json",
    }
    store.put(KEY, json.dumps({**manifest, "future": True}).encode())
    assert paths(read(store).entries) == ["a", "b", "c"]
    assert read_part_names(store, store.head(KEY)) == tuple(parts)


def test_removes_in_a_checkpoint_are_harmless(store):
    store.put(KEY, json_lines(METADATA, add("a"), {"remove": FULL_REMOVE}))
    assert paths(read(store).entries) == ["a"]


# --- in parts -----------------------------------------------------------------------------------------


def test_a_large_checkpoint_is_written_in_parts_and_read_back(store):
    checkpoint = small_table()
    count = write(store, checkpoint, max_part_bytes=1000)
    assert count is not None
    assert count > 3
    assert len(keys(store)) == count + 1
    found = read(store)
    assert found.header == checkpoint.header
    assert found.entries == checkpoint.entries


def test_parts_are_cut_between_lines(store):
    checkpoint = small_table()
    write(store, checkpoint, max_part_bytes=1000)
    names = read_part_names(store, store.head(KEY))
    pieces = [decompress(store.get(LOG_PREFIX + name), name) for name in names]
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) <= 1000 for piece in pieces)
    assert sum(piece.count(b'{"add"') for piece in pieces) == checkpoint.entries.num_rows


def test_a_line_longer_than_a_part_becomes_its_own_part(store):
    checkpoint = checkpoint_of([METADATA, add("a"), add("b", stats="x" * 5000), add("c")])
    write(store, checkpoint, max_part_bytes=1)
    assert len(read_part_names(store, store.head(KEY))) == 4
    assert read(store).entries == checkpoint.entries


def test_the_part_list_is_written_last_and_only_if_absent(store):
    watched = FaultStore(store)
    count = write(watched, small_table(), max_part_bytes=1000)
    operations = [call.operation for call in watched.calls]
    assert operations == ["put"] * (count or 0) + ["put_if_absent"]
    assert watched.calls[-1].key == KEY
    manifest = json.loads(store.get(KEY))
    assert manifest == {
        "version": VERSION,
        "checkpointId": manifest["checkpointId"],
        "parts": [
            json_checkpoint_part_name(VERSION, manifest["checkpointId"], n + 1) for n in range(count or 0)
        ],
        "createdTime": 11,
        "format": "json",
    }


def test_the_loser_of_a_race_deletes_only_its_own_parts(store):
    write(store, small_table(), max_part_bytes=1000)
    before = {key: store.get(key) for key in keys(store)}
    write(store, small_table(), max_part_bytes=500)
    assert {key: store.get(key) for key in keys(store)} == before


class RepeatingClient(FaultStore):
    """A store whose client lost the response to a write, retried, and found an existing object."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        super().put_if_absent(key, data)
        return super().put_if_absent(key, data)


def test_a_retried_part_list_of_our_own_keeps_its_parts(store):
    checkpoint = small_table()
    write(RepeatingClient(store), checkpoint, max_part_bytes=1000)
    assert read(store).entries == checkpoint.entries


def test_a_crash_at_any_call_leaves_no_checkpoint_or_a_whole_one(store):
    checkpoint = small_table(8)
    watched = FaultStore(store)
    write(watched, checkpoint, max_part_bytes=1000)
    for index in range(len(watched.calls)):
        for moment in Moment:
            store.delete_many(keys(store))
            with pytest.raises(TransientStorageError):
                write(FaultStore(store, fail_call=(index, moment)), checkpoint, max_part_bytes=1000)
            if KEY in keys(store):
                assert read(store).entries == checkpoint.entries


# --- damage -------------------------------------------------------------------------------------------


def test_a_missing_part_is_not_found(store):
    write(store, small_table(), max_part_bytes=1000)
    name = read_part_names(store, store.head(KEY))[1]
    store.delete_many([LOG_PREFIX + name])
    with pytest.raises(ObjectNotFoundError, match=name):
        read(store)


def test_a_damaged_part_is_refused_by_name(store):
    write(store, small_table(), max_part_bytes=1000)
    for name in read_part_names(store, store.head(KEY)):
        whole = store.get(LOG_PREFIX + name)
        for data in (whole[:-5], b"", b"not json", compress(b"")):
            store.put(LOG_PREFIX + name, data)
            with pytest.raises(LogCorruptedError):
                read(store)
        store.put(LOG_PREFIX + name, whole)
    assert read(store).entries.num_rows == 20


@pytest.mark.parametrize(
    "name",
    [
        json_checkpoint_part_name(VERSION + 1, "abc", 1),
        json_checkpoint_part_name(VERSION, "other", 1),
        f"{VERSION:020d}.json",
        "../../secret.json",
        "/etc/passwd",
        "",
    ],
)
def test_a_part_list_with_a_foreign_name_is_refused(store, name):
    manifest = {"version": VERSION, "checkpointId": "abc", "parts": [name], "createdTime": 1}
    store.put(KEY, json.dumps(manifest).encode())
    store.put(f"{LOG_PREFIX}{VERSION:020d}.json", json_lines(METADATA))
    watched = FaultStore(store)
    with pytest.raises(LogCorruptedError, match="is not the name of one of its parts"):
        read_json_checkpoint(watched, store.head(KEY), VERSION, UnknownContent.IGNORE, parallelism=1)
    assert {call.key for call in watched.calls} == {KEY}


def test_a_part_list_of_another_version_is_refused(store):
    part = json_checkpoint_part_name(VERSION, "abc", 1)
    store.put(LOG_PREFIX + part, json_lines(METADATA))
    store.put(
        KEY, json.dumps({"version": 9, "checkpointId": "abc", "parts": [part], "createdTime": 1}).encode()
    )
    with pytest.raises(LogCorruptedError, match="lists the parts of version 9, not of 4"):
        read(store)


def test_a_checkpoint_without_its_last_lines_is_refused(store):
    write(store, small_table())
    lines = decompress(store.get(KEY), KEY).split(b"\n")
    store.put(KEY, compress(b"\n".join(lines[:-3]) + b"\n"))
    with pytest.raises(LogCorruptedError, match="has 18 of its 20 file entries"):
        read(store)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"not json",
        b'{"version":4}',
        b'{"version":4,"checkpointId":"abc","parts":"x","createdTime":1}',
        b'{"version":4,"checkpointId":"abc","parts":["0000',
        b'{"version":4,"checkpointId":"abc","parts":[' + b"[" * 100_000,
        b"\x01\x01",
        b"\x01\x02",
        json_lines(PROTOCOL, add("a")),
    ],
)
def test_an_invalid_checkpoint_is_refused_and_its_parts_are_unknown(store, data):
    store.put(KEY, data)
    with pytest.raises(LogCorruptedError, match=KEY):
        read(store)
    with pytest.raises(LogCorruptedError, match=KEY):
        read_part_names(store, store.head(KEY))


def test_a_part_list_without_parts_is_refused(store):
    store.put(KEY, b'{"version":4,"checkpointId":"abc","parts":[],"createdTime":1}')
    with pytest.raises(LogCorruptedError, match="no metaData"):
        read(store)


def test_a_checkpoint_in_one_file_has_no_parts(store):
    write(store, small_table())
    assert read_part_names(store, store.head(KEY)) == ()


def test_a_missing_checkpoint_is_not_found(store):
    write(store, small_table())
    meta = store.head(KEY)
    store.delete_many([KEY])
    with pytest.raises(ObjectNotFoundError):
        read_json_checkpoint(store, meta, VERSION, UnknownContent.IGNORE, parallelism=1)
    with pytest.raises(ObjectNotFoundError):
        read_part_names(store, meta)
