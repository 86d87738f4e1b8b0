"""An absolute and a relative spelling of one file are one file: in replay, states, changes, purge and fsck."""

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from indextables.errors import UnsafePathError
from indextables.log.decode import decode_tail
from indextables.log.file_keys import tail_with_keys, with_keys
from indextables.log.paths import LOG_PREFIX, state_manifest_key, version_key
from indextables.log.version_file import decompress
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.fsck.operation import fsck
from indextables.ops.purge import PurgeRequest, purge
from indextables.ops.read import scan
from indextables.ops.runner import LocalRunner
from indextables.ops.write import append as append_rows
from indextables.storage import ObjectStore, open_store
from indextables.table import changes_since, create_table, load_snapshot
from indextables.table.load import catch_up
from support.log_samples import add, json_lines, log_file, remove
from support.row_tables import SCHEMA as ROW_SCHEMA
from support.row_tables import counted, rows
from support.tables import FORMATS, after, append, checkpoint, context, live, new_table, paths, write_version
from support.tables import remove as remove_files

ROOTS = {
    "path": "{root}/",
    "file:": "file:{root}/",
    "file://": "file://{root}/",
    "localhost": "file://localhost{root}/",
}
VALUES = {"date": "2024-01-01"}


@pytest.fixture
def store(tmp_path) -> ObjectStore:
    store = open_store(tmp_path / "table")
    new_table(store)
    return store


@pytest.fixture(params=ROOTS)
def prefix(request, tmp_path) -> str:
    return ROOTS[request.param].format(root=tmp_path / "table")


def commit_lines(store: ObjectStore, version: int, *actions: dict[str, Any]) -> None:
    write_version(store, version, more=json_lines(*actions).decode())


def an_add(path: str, size: int = 1, **fields: Any) -> dict[str, Any]:
    return add(path, size=size, partitionValues=VALUES, **fields)


def test_a_remove_finds_the_file_under_either_spelling(store, prefix):
    commit_lines(store, 1, an_add(f"{prefix}a.split"), an_add("b.split"), an_add("c.split"))
    before = load_snapshot(context(store))
    assert paths(before) == {"a.split", "b.split", "c.split"}
    commit_lines(store, 2, remove("a.split"), remove(f"{prefix}b.split"))
    assert live(load_snapshot(context(store))) == {"c.split": 1}
    assert live(catch_up(before).snapshot) == {"c.split": 1}
    found = changes_since(load_snapshot(context(store)), 1)
    assert (found.adds.num_rows, found.removes["path"].to_pylist()) == (0, ["a.split", "b.split"])


def test_a_file_that_is_added_under_both_spellings_is_there_once(store, prefix):
    commit_lines(store, 1, an_add(f"{prefix}a.split", size=1), an_add("b.split", size=1))
    commit_lines(store, 2, an_add("a.split", size=2), an_add(f"{prefix}b.split", size=3))
    assert live(load_snapshot(context(store))) == {"a.split": 2, "b.split": 3}


@pytest.mark.parametrize("form", FORMATS)
def test_checkpoints_hold_one_spelling(store, prefix, form):
    commit_lines(store, 1, an_add(f"{prefix}a.split"), an_add("b.split"), an_add(f"{prefix}c.split"))
    checkpoint(store, form)
    commit_lines(store, 2, remove("a.split"), remove(f"{prefix}b.split"), an_add("d.split"))
    checkpoint(store, form)
    store.delete_many([version_key(version) for version in range(3)])
    assert live(load_snapshot(context(store))) == {"c.split": 1, "d.split": 1}


@pytest.mark.parametrize("then", [write_checkpoint, compact])
def test_a_state_of_another_writer_with_absolute_paths(store, prefix, then):
    after(load_snapshot(context(store)), append("a", "b", "c"))
    checkpoint(store)
    respell(store, 1, lambda path: f"{prefix}{path}" if path != "c" else path)
    # Its tombstone has the other spelling than the entry that it hides.
    rewrite_state(store, 1, tombstones=["a", f"{prefix}c"], numFiles=1, totalBytes=10)
    store.delete_many([version_key(version) for version in range(2)])
    assert set(load_snapshot(context(store)).entries["path"].to_pylist()) == {"b"}
    table = after(load_snapshot(context(store)), append("a", "d"), remove_files(f"{prefix}d"))
    then(table)
    store.delete_many([version_key(version) for version in range(2, 4)])
    assert paths(load_snapshot(context(store))) == {"a", "b"}
    then(after(load_snapshot(context(store)), remove_files("b")))
    assert paths(load_snapshot(context(store))) == {"a"}


def respell(store: ObjectStore, version: int, spelling) -> None:
    """Rewrite the entries of a state as a writer of absolute paths would have written them."""
    (state,) = fastavro.reader(io.BytesIO(store.get(state_manifest_key(version))))
    for info in state["manifests"]:
        key = LOG_PREFIX + info["path"]
        reader = fastavro.reader(io.BytesIO(store.get(key)))
        entries = [{**entry, "path": spelling(entry["path"])} for entry in reader]
        put_avro(store, key, reader.writer_schema, entries)


def rewrite_state(store: ObjectStore, version: int, **changes: Any) -> None:
    """Rewrite a state manifest without what only our own writer records."""
    key = state_manifest_key(version)
    reader = fastavro.reader(io.BytesIO(store.get(key)))
    (state,) = reader
    ours = {"hasTypedBounds": False, "firstPath": None, "lastPath": None, "liveEntryCount": -1}
    state["manifests"] = [{**info, **ours} for info in state["manifests"]]
    put_avro(store, key, reader.writer_schema, [{**state, **changes}])


def put_avro(store: ObjectStore, key: str, schema: Any, records: list[dict[str, Any]]) -> None:
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, records)
    store.put(key, buffer.getvalue())


def test_purge_and_fsck_know_the_file_under_either_spelling(tmp_path, prefix):
    """The log names every live split by an absolute path; another version removed one by its relative path."""
    store = open_store(tmp_path / "table")
    table = create_table(context(store), ROW_SCHEMA, ["day"], {})
    for number in range(3):
        table = append_rows(table, rows(number, day="a")).snapshot
    names = sorted(table.entries["path"].to_pylist())
    for version in (1, 2, 3):
        lines = decompress(store.get(version_key(version)), "x").decode()
        store.put(version_key(version), lines.replace('"path":"', f'"path":"{prefix}').encode())
    commit_lines(store, 4, {"remove": {"path": names[0], "deletionTimestamp": 1, "dataChange": True}})
    expected = counted(scan(load_snapshot(context(store)), None, None).read_all())
    assert len(expected) == 2
    write_checkpoint(load_snapshot(context(store)))
    report = fsck(context(store), LocalRunner(1), deep=True)
    assert report.findings == ()
    purge(load_snapshot(context(store)), PurgeRequest(dry_run=False), LocalRunner(1))
    assert counted(scan(load_snapshot(context(store)), None, None).read_all()) == expected


def test_a_skip_ends_when_its_file_is_removed_under_the_other_spelling(store, prefix):
    skip = {"path": f"{prefix}a.split", "skipTimestamp": 1, "reason": "r", "operation": "merge"}
    commit_lines(store, 1, an_add("a.split"), {"mergeskip": skip})
    before = load_snapshot(context(store))
    assert list(before.header.skips) == ["a.split"]
    commit_lines(store, 2, remove("a.split"))
    assert not load_snapshot(context(store)).header.skips
    assert not catch_up(before).snapshot.header.skips


def test_a_path_outside_of_the_table_stays_what_it_is(store, tmp_path):
    commit_lines(store, 1, an_add(f"{tmp_path}/other/a.split"), an_add("a.split"))
    table = load_snapshot(context(store))
    assert paths(table) == {f"{tmp_path}/other/a.split", "a.split"}
    with pytest.raises(UnsafePathError):
        scan(table, None, None).read_all()


@pytest.mark.parametrize("url", ["s3://bucket/table", "s3a://bucket/table", "s3n://bucket/table"])
def test_every_spelling_of_a_bucket_is_the_same_bucket(url):
    tail = tail_with_keys(decode_tail([log_file(1, add(f"{url}/d=1/x.split"))]), "s3://bucket/table")
    assert tail.adds["path"].to_pylist() == ["d=1/x.split"]


def test_relative_paths_are_not_touched():
    entries = pa.table({"path": ["a.split", "d=2024-01-01T00%3A00/b.split", "x:y"]})
    assert with_keys(entries, "s3://bucket/table") is entries


def test_a_root_that_only_starts_alike_is_another_table(tmp_path):
    entries = pa.table({"path": [f"{tmp_path}/table2/a.split"]})
    assert with_keys(entries, f"file://{tmp_path}/table")["path"].to_pylist() == [
        f"{tmp_path}/table2/a.split"
    ]
