import contextlib
import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from indextables.errors import LogCorruptedError, ObjectNotFoundError, TransientStorageError
from indextables.log import legacy_checkpoint
from indextables.log.checkpoint import Checkpoint
from indextables.log.decode import UnknownContent, decode_tail
from indextables.log.entries import FILE_ENTRY_SCHEMA, empty_entries
from indextables.log.fields import STRING_MAP
from indextables.log.legacy_checkpoint import (
    read_parquet_checkpoint,
    read_row_keys,
    write_parquet_checkpoint,
)
from indextables.log.paths import (
    parquet_checkpoint_info_key,
    parquet_checkpoint_key,
    parquet_checkpoint_part_key,
)
from indextables.log.replay import EMPTY_HEADER, replay_entries, replay_header
from indextables.storage import ObjectStore
from support.faults import FaultStore, Moment
from support.log_samples import FULL_ADD, METADATA, PROTOCOL, SCHEMA_STRING, add, log_file, paths, rows

VERSION = 250
ONE_FILE = 10**9
ROWS, INFO = parquet_checkpoint_key(VERSION), parquet_checkpoint_info_key(VERSION)

# The columns of the first design.
LEGACY_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", STRING_MAP),
        ("size", pa.int64()),
        ("numRecords", pa.int64()),
        ("minValues", STRING_MAP),
        ("maxValues", STRING_MAP),
        ("metadataId", pa.string()),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("format", STRING_MAP),
        ("actionType", pa.string()),
    ]
)
LEGACY_METADATA = {
    "actionType": "metadata",
    "metadataId": "legacy",
    "schemaString": SCHEMA_STRING,
    "partitionColumns": ["date"],
    "format": [("provider", "tantivy4spark"), ("codec", "x")],
}
LEGACY_ADD = {
    "actionType": "add",
    "path": "s3://bucket/table/part-0.split",
    "partitionValues": [("date", "2024-01-01")],
    "size": 7,
    "numRecords": 3,
    "minValues": [("id", "1")],
    "maxValues": [("id", "9")],
}


def table_at_version(*actions) -> Checkpoint:
    tail = decode_tail([log_file(VERSION, *actions)], UnknownContent.KEEP)
    return Checkpoint(replay_header(EMPTY_HEADER, tail.versions, {}), replay_entries(empty_entries(), tail))


def write(
    store: ObjectStore, checkpoint: Checkpoint, compression: str = "snappy", max_part_bytes: int = ONE_FILE
) -> None:
    write_parquet_checkpoint(
        store, checkpoint, compression=compression, max_part_bytes=max_part_bytes, created_ms=11
    )


def read(store: ObjectStore) -> Checkpoint:
    return read_parquet_checkpoint(store, store.head(INFO), VERSION, parallelism=1)


def parquet(some_rows: list[dict], schema: pa.Schema = LEGACY_SCHEMA) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(some_rows, schema=schema), buffer)
    return buffer.getvalue()


def put_legacy(store: ObjectStore, *some_rows: dict, size: int | None = None) -> None:
    store.put(ROWS, parquet(list(some_rows)))
    put_info(store, sum(row["actionType"] == "add" for row in some_rows) if size is None else size)


def put_info(store: ObjectStore, size: int, **fields) -> None:
    store.put(
        INFO,
        json.dumps({"version": VERSION, "size": size, "createdTime": 5, "parts": None, **fields}).encode(),
    )


# --- ours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none"])
def test_a_checkpoint_survives_a_round_trip(store, compression):
    checkpoint = table_at_version(
        PROTOCOL,
        {"metaData": {**METADATA["metaData"], "name": "two lines\u2028in one", "future": 1}},
        {"txn": {"appId": "s", "version": 4}},
        {"commitInfo": {"commitId": "c", "timestamp": 99, "operation": "WRITE"}},
        {"cdc": {"big": 2**70}},
        {"add": FULL_ADD},
        add("b", future={"x": 1}),
        add("c", partitionValues={"a": None}, minValues={}),
    )
    write(store, checkpoint, compression)
    found = read(store)
    assert found.header == checkpoint.header
    assert found.entries == checkpoint.entries
    assert found.entries.schema == FILE_ENTRY_SCHEMA


def test_an_empty_table_has_a_checkpoint(store):
    checkpoint = table_at_version(PROTOCOL, METADATA)
    write(store, checkpoint)
    assert read(store).header == checkpoint.header
    assert read(store).entries == empty_entries()


def test_other_readers_find_the_columns_of_the_first_design(store):
    write(store, table_at_version(PROTOCOL, METADATA, {"add": FULL_ADD}, add("b")))
    table = pq.read_table(io.BytesIO(store.get(ROWS)))
    assert set(LEGACY_SCHEMA.names) <= set(table.column_names)
    by_type = {row["actionType"]: row for row in table.to_pylist()}
    assert by_type["metadata"]["metadataId"] == METADATA["metaData"]["id"]
    assert by_type["metadata"]["schemaString"] == SCHEMA_STRING
    assert by_type["metadata"]["partitionColumns"] == []
    assert dict(by_type["metadata"]["format"]) == {"provider": "indextables"}
    adds = [row for row in table.to_pylist() if row["actionType"] == "add"]
    assert [row["path"] for row in adds] == [FULL_ADD["path"], "b"]
    assert dict(adds[0]["minValues"]) == FULL_ADD["minValues"]
    assert adds[0]["splitTags"] == FULL_ADD["splitTags"]
    assert json.loads(store.get(INFO)) == {"version": VERSION, "size": 2, "createdTime": 11, "parts": None}


def test_the_file_that_makes_it_valid_is_written_last(store):
    watched = FaultStore(store)
    write(watched, table_at_version(METADATA))
    assert [(call.operation, call.key) for call in watched.calls if "put" in call.operation] == [
        ("put", ROWS),
        ("put_if_absent", INFO),
    ]


def test_an_existing_checkpoint_is_kept(store):
    write(store, table_at_version(METADATA, add("a")))
    before = store.get(ROWS), store.get(INFO)
    write(store, table_at_version(METADATA, add("a")), "none")
    assert (store.get(ROWS), store.get(INFO)) == before


def test_rows_of_an_unfinished_write_are_replaced(store):
    store.put(ROWS, b"half of a file")
    checkpoint = table_at_version(METADATA, add("a"))
    write(store, checkpoint)
    assert read(store).entries == checkpoint.entries


def test_a_crash_at_any_call_leaves_no_checkpoint_or_a_whole_one(store):
    checkpoint = table_at_version(METADATA, add("a"))
    watched = FaultStore(store)
    write(watched, checkpoint)
    for index in range(len(watched.calls)):
        for moment in Moment:
            store.delete_many([ROWS, INFO])
            with contextlib.suppress(TransientStorageError):
                write(FaultStore(store, fail_call=(index, moment)), checkpoint)
            if any(meta.key == INFO for meta in store.list("")):
                assert read(store).entries == checkpoint.entries


# --- in parts -----------------------------------------------------------------------------------------


def large_table(count: int = 200) -> Checkpoint:
    """A table whose entries compress badly: about 200 bytes each."""
    actions = [PROTOCOL, METADATA, {"txn": {"appId": "s", "version": 4}}]
    noise = random.Random(0)
    adds = (add(f"part-{number}", stats=noise.randbytes(200).hex()) for number in range(count))
    return table_at_version(*actions, *adds)


def row_keys(store: ObjectStore) -> tuple[str, ...]:
    return read_row_keys(store, store.head(INFO), VERSION)


def test_a_large_checkpoint_is_written_in_parts_and_read_back(store):
    checkpoint = large_table()
    write(store, checkpoint)
    whole_bytes = store.head(ROWS).size
    store.delete_many([ROWS, INFO])
    limit = whole_bytes * 3 // 4
    write(store, checkpoint, max_part_bytes=limit)
    parts = row_keys(store)
    assert len(parts) > 1
    assert all(store.head(part).size <= limit for part in parts)
    assert {meta.key for meta in store.list("")} == {*parts, INFO}
    info = json.loads(store.get(INFO))
    assert (info["parts"], info["size"]) == (len(parts), 200)
    assert parts == tuple(
        parquet_checkpoint_part_key(VERSION, info["checkpointId"], number + 1) for number in range(len(parts))
    )
    found = read(store)
    assert found.header == checkpoint.header
    assert found.entries.combine_chunks() == checkpoint.entries.combine_chunks()


def test_each_row_larger_than_the_limit_becomes_its_own_part(store):
    checkpoint = table_at_version(METADATA, add("a"), add("b", stats="x" * 5000))
    write(store, checkpoint, max_part_bytes=1)
    tables = [pq.read_table(io.BytesIO(store.get(key))) for key in row_keys(store)]
    assert {table.num_rows for table in tables} == {1}
    assert paths(read(store).entries) == ["a", "b"]


def test_other_readers_read_all_parts_as_one_table(store, tmp_path):
    write(store, large_table(), max_part_bytes=20_000)
    for number, key in enumerate(row_keys(store)):
        (tmp_path / f"{number}.parquet").write_bytes(store.get(key))
    rows_of_all = dataset(tmp_path, format="parquet").to_table()
    assert set(LEGACY_SCHEMA.names) <= set(rows_of_all.column_names)
    is_add = [kind == "add" for kind in rows_of_all["actionType"].to_pylist()]
    names = rows_of_all.filter(pa.array(is_add))["path"].to_pylist()
    assert sorted(names) == sorted(f"part-{number}" for number in range(200))


def test_the_loser_of_a_race_deletes_only_its_own_parts(store):
    class Late(FaultStore):
        """A store in which another writer publishes its checkpoint just before this writer does."""

        def put_if_absent(self, key, data):
            write(store, large_table(), max_part_bytes=20_000)
            self.before = {meta.key: store.get(meta.key) for meta in store.list("")}
            return super().put_if_absent(key, data)

    late = Late(store)
    write(late, large_table(), max_part_bytes=15_000)
    mine = {call.key for call in late.calls if call.operation == "put"}
    assert len(mine) > 1
    kept = {key: data for key, data in late.before.items() if key not in mine}
    assert {meta.key: store.get(meta.key) for meta in store.list("")} == kept
    assert read(store).entries.num_rows == 200


def test_a_crash_at_any_call_leaves_no_checkpoint_in_parts_or_a_whole_one(store):
    checkpoint = large_table(8)
    watched = FaultStore(store)
    write(watched, checkpoint, max_part_bytes=1)
    for index in range(len(watched.calls)):
        for moment in Moment:
            store.delete_many([meta.key for meta in store.list("")])
            with contextlib.suppress(TransientStorageError):
                write(FaultStore(store, fail_call=(index, moment)), checkpoint, max_part_bytes=1)
            if any(meta.key == INFO for meta in store.list("")):
                assert paths(read(store).entries) == paths(checkpoint.entries)


def test_a_missing_part_is_not_found(store):
    write(store, large_table(), max_part_bytes=20_000)
    for key in row_keys(store):
        data = store.get(key)
        store.delete_many([key])
        with pytest.raises(ObjectNotFoundError, match=key):
            read(store)
        store.put(key, data)
    assert read(store).entries.num_rows == 200


def test_a_damaged_part_is_refused_by_name(store):
    write(store, large_table(), max_part_bytes=20_000)
    for key in row_keys(store):
        whole = store.get(key)
        for data in (whole[:-5], b"", b"not parquet"):
            store.put(key, data)
            with pytest.raises(LogCorruptedError, match=key):
                read(store)
        store.put(key, whole)


def test_a_part_in_place_of_another_is_refused(store):
    write(store, large_table(), max_part_bytes=15_000)
    first, second, *_ = row_keys(store)
    store.put(second, store.get(first))
    with pytest.raises(LogCorruptedError):
        read(store)


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": None, "checkpointId": "abc"},
        {"parts": 0, "checkpointId": "abc"},
        {"parts": -1, "checkpointId": "abc"},
        {"parts": 10**9, "checkpointId": "abc"},
        {"parts": 2, "checkpointId": "../../../x"},
        {"parts": 2, "checkpointId": ""},
    ],
)
def test_a_list_of_parts_that_cannot_be_is_refused_unread(store, fields):
    put_info(store, 1, **fields)
    watched = FaultStore(store)
    with pytest.raises(LogCorruptedError, match=INFO):
        read_parquet_checkpoint(watched, store.head(INFO), VERSION, parallelism=1)
    assert [call.key for call in watched.calls] == [INFO]


def test_a_folder_of_spark_with_a_missing_file_is_refused(store):
    store.put(f"{ROWS}/part-00000-a.snappy.parquet", parquet([LEGACY_METADATA, LEGACY_ADD]))
    put_info(store, 1, parts=2)
    with pytest.raises(LogCorruptedError, match="has 1 of its 2 parts"):
        read(store)


# --- those of other writers ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2], ids=["size counts files", "size counts rows"])
def test_the_first_design_is_read(store, size):
    put_legacy(store, LEGACY_METADATA, LEGACY_ADD, size=size)
    found = read(store)
    modified_ms = store.head(INFO).last_modified_ms
    assert rows(found.entries) == [
        {
            "path": "s3://bucket/table/part-0.split",
            "partitionValues": {"date": "2024-01-01"},
            "size": 7,
            "modificationTime": 0,
            "dataChange": True,
            "minValues": {"id": "1"},
            "maxValues": {"id": "9"},
            "numRecords": 3,
            "hasFooterOffsets": False,
            "addedAtVersion": VERSION,
            "addedAtTimestamp": modified_ms,
        }
    ]
    header = found.header
    assert (header.version, header.timestamp_ms, header.protocol) == (VERSION, modified_ms, None)
    assert header.metadata is not None
    assert (header.metadata.id, header.metadata.schema_string) == ("legacy", SCHEMA_STRING)
    assert header.metadata.partition_columns == ("date",)
    assert (header.metadata.format.provider, header.metadata.format.options) == (
        "tantivy4spark",
        {"codec": "x"},
    )


def test_a_folder_of_files_as_spark_writes_it_is_read(store):
    smaller = pa.schema(
        [pa.field("size", pa.int32()) if field.name == "size" else field for field in LEGACY_SCHEMA]
    )
    store.put(f"{ROWS}/part-00000-a.snappy.parquet", parquet([LEGACY_METADATA, LEGACY_ADD]))
    store.put(f"{ROWS}/part-00001-a.snappy.parquet", parquet([{**LEGACY_ADD, "path": "b"}], smaller))
    store.put(f"{ROWS}/part-00002-a.snappy.parquet", parquet([]))
    store.put(f"{ROWS}/_SUCCESS", b"")
    put_info(store, 2)
    assert paths(read(store).entries) == [LEGACY_ADD["path"], "b"]


def test_other_string_and_number_types_are_read(store):
    fields = {
        "path": pa.large_string(),
        "size": pa.int32(),
        "actionType": pa.dictionary(pa.int8(), pa.string()),
    }
    schema = pa.schema([field.with_type(fields.get(field.name, field.type)) for field in LEGACY_SCHEMA])
    store.put(ROWS, parquet([LEGACY_METADATA, LEGACY_ADD], schema))
    put_info(store, 1)
    assert read(store).entries.schema == FILE_ENTRY_SCHEMA
    assert paths(read(store).entries) == [LEGACY_ADD["path"]]


# --- damage -------------------------------------------------------------------------------------------


def test_a_file_that_is_cut_off_is_refused(store):
    write(store, table_at_version(PROTOCOL, METADATA, {"add": FULL_ADD}))
    data = store.get(ROWS)
    for length in range(0, len(data), 97):
        store.put(ROWS, data[:length])
        with pytest.raises(LogCorruptedError, match=ROWS):
            read(store)


def test_a_file_with_flipped_bits_is_read_or_raises_log_corrupted(store):
    write(store, table_at_version(PROTOCOL, METADATA, {"add": FULL_ADD}, add("b", future=1)), "none")
    data, meta = store.get(ROWS), store.head(INFO)
    generator = random.Random(5)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 3)):
            damaged[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        store.put(ROWS, bytes(damaged))
        try:
            read_parquet_checkpoint(store, meta, VERSION, parallelism=1).entries.validate(full=True)
        except LogCorruptedError:
            refused += 1
    assert refused > 50


def test_a_missing_file_of_a_folder_is_detected(store):
    store.put(f"{ROWS}/part-0.parquet", parquet([LEGACY_METADATA, LEGACY_ADD]))
    put_info(store, 3)
    with pytest.raises(
        LogCorruptedError, match=f"holds 1 file entries of version 250, but .*{INFO} records 3 of version 250"
    ):
        read(store)


def test_missing_rows_are_not_found(store):
    put_info(store, 0)
    with pytest.raises(ObjectNotFoundError):
        read(store)


@pytest.mark.parametrize(
    "some_rows",
    [
        [LEGACY_ADD],
        [LEGACY_METADATA, {**LEGACY_ADD, "path": None}],
        [LEGACY_METADATA, {**LEGACY_ADD, "size": None}],
        [{**LEGACY_METADATA, "schemaString": None}, LEGACY_ADD],
        [{**LEGACY_METADATA, "metadataId": None}, LEGACY_ADD],
    ],
    ids=["no metadata", "no path", "no size", "no schema", "no id"],
)
def test_rows_without_required_content_are_refused(store, some_rows):
    put_legacy(store, *some_rows)
    with pytest.raises(LogCorruptedError, match=ROWS):
        read(store)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"path": ["a"]}),
        pa.table({"actionType": ["add"], "path": [1.5], "size": ["x"]}),
        pa.table({"actionType": [1]}),
        pa.table({"actionType": ["metaData"], "actionJson": ["not json"]}),
        pa.table({"actionType": ["metaData"], "actionJson": [5]}),
        pa.table({"actionType": ["metaData"], "actionJson": ['{"metaData":' + "[" * 100_000]}),
    ],
)
def test_parquet_files_of_something_else_are_refused(store, table):
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    store.put(ROWS, buffer.getvalue())
    put_info(store, 1)
    with pytest.raises(LogCorruptedError, match=ROWS):
        read(store)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"version":250}', b"\xff", b"[" * 100_000])
def test_an_unreadable_info_file_is_refused(store, data):
    write(store, table_at_version(METADATA))
    store.put(INFO, data)
    with pytest.raises(LogCorruptedError, match=f"{INFO}: not the metadata of a checkpoint"):
        read(store)


def test_an_info_file_of_another_version_is_refused(store):
    put_legacy(store, LEGACY_METADATA, LEGACY_ADD)
    put_info(store, 1, version=9)
    with pytest.raises(LogCorruptedError, match="of version 9"):
        read(store)


def test_a_file_that_claims_too_many_rows_is_refused_unread(store, monkeypatch):
    put_legacy(store, LEGACY_METADATA, LEGACY_ADD)
    monkeypatch.setattr(legacy_checkpoint, "MAX_CHECKPOINT_ROWS", 1)
    with pytest.raises(LogCorruptedError, match="2 rows exceed the limit of 1"):
        read(store)
