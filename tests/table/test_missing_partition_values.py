"""An add without partitionValues in a partitioned table is damage; null is an absent key of an existing map."""

import io
import json

import fastavro
import pyarrow.parquet as pq
import pytest

from indextables.errors import LogCorruptedError, ManifestCorruptedError
from indextables.log.decode import decode_tail
from indextables.log.paths import (
    LOG_PREFIX,
    json_checkpoint_key,
    parquet_checkpoint_key,
    state_manifest_key,
    version_key,
)
from indextables.log.version_file import decompress
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.fsck.operation import fsck
from indextables.ops.read import scan
from indextables.ops.repair.operation import repair_in_place
from indextables.ops.runner import LocalRunner
from indextables.ops.write import append as append_rows
from indextables.pruning import map_values
from indextables.state.state_manifest import decode_state_manifest
from indextables.storage import ObjectStore
from indextables.table import changes_since, create_table, load_snapshot
from indextables.table.conflict import concurrent_commit_of
from indextables.table.load import catch_up
from support.log_samples import log_file
from support.row_tables import SCHEMA as ROW_SCHEMA
from support.row_tables import counted, rows
from support.tables import (
    FORMATS,
    SCHEMA,
    after,
    append,
    checkpoint,
    context,
    live,
    memory_store,
    new_table,
    write_version,
)

INCOMPLETE = '{"add":{"path":"x.split","size":1}}\n'
MESSAGE = (
    r"memory://.*version 2 adds 'x\.split' without partitionValues.*partitioned by date.*REPAIR INDEXFILES"
)


@pytest.fixture
def store() -> ObjectStore:
    """Version 1 is ours; version 2 adds a split without saying in which partition it is."""
    store = memory_store()
    after(new_table(store), append("a"))
    write_version(store, 2, more=INCOMPLETE)
    return store


def test_a_version_that_adds_without_partition_values_is_refused(store):
    with pytest.raises(LogCorruptedError, match=MESSAGE):
        _ = load_snapshot(context(store)).entries
    assert live(load_snapshot(context(store), 1)) == {"a": 10}


@pytest.mark.parametrize("has_loaded_entries", [True, False])
def test_a_reader_that_follows_the_table_refuses_it_too(store, has_loaded_entries):
    before = load_snapshot(context(store), 1)
    if has_loaded_entries:
        _ = before.entries
    with pytest.raises(LogCorruptedError, match=MESSAGE):
        _ = catch_up(before).snapshot.entries


def test_changes_refuse_it(store):
    table = catch_up(load_snapshot(context(store), 1)).snapshot
    with pytest.raises(LogCorruptedError, match=MESSAGE):
        changes_since(table, 1)


@pytest.mark.parametrize("form", FORMATS)
def test_a_checkpoint_does_not_turn_it_into_nulls(store, form):
    table = catch_up(load_snapshot(context(store, FORMATS[form]), 1)).snapshot
    with pytest.raises(LogCorruptedError, match=MESSAGE):
        write_checkpoint(table)


@pytest.mark.parametrize("values", ["{}", '{"date":null}'])
def test_a_null_is_an_absent_key_and_legal(values):
    store = memory_store()
    new_table(store)
    write_version(store, 1, more=f'{{"add":{{"path":"x.split","size":1,"partitionValues":{values}}}}}\n')
    for _ in range(2):
        entries = load_snapshot(context(store)).entries
        assert map_values(entries["partitionValues"], "date").to_pylist() == [None]
        checkpoint(store)  # the state says the same


def test_a_table_without_partition_columns_needs_no_partition_values():
    store = memory_store()
    create_table(context(store), SCHEMA, (), {})
    write_version(store, 1, more=INCOMPLETE)
    assert live(load_snapshot(context(store))) == {"x.split": 1}


def test_a_json_checkpoint_without_partition_values_is_damaged():
    store = memory_store()
    after(new_table(store), append("a"))
    checkpoint(store, "json")
    key = json_checkpoint_key(1)
    actions = [json.loads(line) for line in decompress(store.get(key), key).splitlines()]
    for action in actions:
        action.get("add", {}).pop("partitionValues", None)
    store.put(key, "".join(f"{json.dumps(action)}\n" for action in actions).encode())
    assert live(load_snapshot(context(store))) == {"a": 10}  # from the version files
    store.delete_many([version_key(0)])
    with pytest.raises(LogCorruptedError):
        load_snapshot(context(store))


def test_a_parquet_checkpoint_without_partition_values_is_damaged():
    store = memory_store()
    after(new_table(store), append("a"))
    checkpoint(store, "parquet")
    key = parquet_checkpoint_key(1)
    table = pq.read_table(io.BytesIO(store.get(key))).drop_columns(["partitionValues"])
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    store.put(key, buffer.getvalue())
    assert live(load_snapshot(context(store))) == {"a": 10}  # from the version files
    store.delete_many([version_key(0)])
    with pytest.raises(LogCorruptedError):
        load_snapshot(context(store))


def test_a_manifest_without_partition_values_is_damaged():
    store = memory_store()
    after(new_table(store), append("a"))
    checkpoint(store)
    store.delete_many([version_key(0), version_key(1)])
    key = state_manifest_key(1)
    (info,) = decode_state_manifest(store.get(key), key).manifests
    manifest = LOG_PREFIX + info.path
    reader = fastavro.reader(io.BytesIO(store.get(manifest)))
    entries = [{**entry} for entry in reader]
    schema = dict(reader.writer_schema)
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "partitionValues"]
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, entries)
    store.put(manifest, buffer.getvalue())
    with pytest.raises(ManifestCorruptedError, match=f"{info.path}.*no field partitionValues"):
        _ = load_snapshot(context(store)).entries


def test_fsck_names_the_version():
    store = memory_store()
    table = create_table(context(store), ROW_SCHEMA, ["day"], {})
    table = append_rows(table, rows(1, day="a")).snapshot
    write_version(store, 2, more='{"add":{"path":"x.split","size":1}}\n{"remove":{"path":"x.split"}}\n')
    store.put("x.split", b"x")
    # A checkpoint of a writer that did not mind.
    lines = decompress(store.get(version_key(0)), "0") + decompress(store.get(version_key(1)), "1")
    store.put(json_checkpoint_key(2), lines)
    found = fsck(context(store), LocalRunner(), deep=False).findings
    assert {finding.code: finding.object for finding in found}["version-unreadable"] == version_key(2)


def test_repair_takes_the_partition_from_the_split():
    store = memory_store()
    table = create_table(context(store), ROW_SCHEMA, ["day"], {})
    for number, day in ((1, "a"), (2, "b")):
        table = append_rows(table, rows(number, day=day)).snapshot
    expected = counted(scan(table, None, None).read_all())
    actions = [json.loads(line) for line in decompress(store.get(version_key(2)), "2").splitlines()]
    for action in actions:
        action.get("add", {}).pop("partitionValues", None)
    store.put(version_key(2), "".join(f"{json.dumps(action)}\n" for action in actions).encode())
    with pytest.raises(LogCorruptedError, match="without partitionValues"):
        load_snapshot(context(store))
    repair_in_place(context(store), LocalRunner(1))
    assert counted(scan(load_snapshot(context(store)), None, None).read_all()) == expected


@pytest.mark.parametrize("text", ["{}", '{"dataChange":null}'])
def test_an_add_without_data_change_changes_data(text):
    """In the log, in a manifest (see test_manifest_reader) and for a concurrent writer."""
    file = log_file(1, {"add": {"path": "a", "size": 1, "partitionValues": {}, **json.loads(text)}})
    assert decode_tail([file]).adds["dataChange"].to_pylist() == [True]
    assert concurrent_commit_of(file).changes_data
