"""The field ids of a table: in which commits they are recorded, and that no commit loses or reuses one."""

import json

import msgspec
import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import InvalidOptionError, InvalidSchemaError, ProtocolUpgradeError
from indextables.log.actions import Metadata, ProtocolAction
from indextables.log.paths import version_key
from indextables.ops.read import scan
from indextables.ops.restore import RestoreRequest, restore
from indextables.ops.write import append as append_rows
from indextables.ops.write import set_metadata, set_properties, upgrade_protocol
from indextables.schema import (
    canonical_schema,
    from_spark_json,
    new_field_ids,
    record_field_ids,
    recorded_field_ids,
    to_spark_json,
)
from indextables.table import load_snapshot
from indextables.table.field_ids import MAX_FIELD_ID_PROPERTY, field_ids_of, max_field_id
from support.row_tables import rows
from support.schema_samples import clutter
from support.tables import (
    CONVERT,
    FORMATS,
    SCHEMA,
    append,
    checkpoint,
    context,
    do,
    jvm_table,
    memory_store,
    new_table,
    overwrite,
    remove,
    write_version,
)

NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"comment": "the key"}),
        pa.field("who", pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))])),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
    ]
)


@pytest.fixture
def store():
    return memory_store()


def recorded(snapshot) -> tuple[int, ...]:
    return recorded_field_ids(snapshot.metadata.schema_string)


def put_splits(store, *paths: str) -> None:
    """Files for the paths of adds: a restore looks for them."""
    for path in paths:
        store.put(path, b"")


def with_schema(metadata: Metadata, schema: pa.Schema, ids: tuple[int, ...], last_id: int) -> Metadata:
    """The metadata after a change of the schema by a writer that maintains ids."""
    return msgspec.structs.replace(
        metadata,
        schema_string=record_field_ids(to_spark_json(schema), ids),
        configuration={**metadata.configuration, MAX_FIELD_ID_PROPERTY: str(last_id)},
    )


def test_a_new_table_has_ids_for_all_columns_and_a_clean_schema(tmp_path):
    table = IndexTable.create(tmp_path / "t", NESTED)
    assert recorded_field_ids(table.metadata.schema_string) == tuple(range(1, 9))
    assert table.metadata.configuration[MAX_FIELD_ID_PROPERTY] == "8"
    assert table.schema.equals(canonical_schema(NESTED), check_metadata=True)
    table.append(
        pa.table({"id": [1], "who": [{"name": "a", "tags": ["x"]}], "counts": [[("k", 1)]]}, schema=NESTED)
    )
    found = table.to_arrow()
    assert found.schema.equals(table.schema, check_metadata=True)
    assert not any(clutter(column.type) for column in found.columns)
    assert found.to_pylist() == [{"id": 1, "who": {"name": "a", "tags": ["x"]}, "counts": [("k", 1)]}]


def test_ids_of_the_files_that_a_schema_was_taken_from_are_not_those_of_the_table(tmp_path):
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "77", "parquet.field.id": "78"})
    table = IndexTable.create(tmp_path / "t", pa.schema([field]))
    assert recorded_field_ids(table.metadata.schema_string) == (1,)
    assert table.schema.field("id").metadata is None
    assert IndexTable.create(tmp_path / "t", pa.schema([field])).version == 0


@pytest.mark.parametrize("form", FORMATS)
def test_checkpoints_of_every_form_keep_the_ids(store, form):
    table = do(new_table(store), append("a")).snapshot
    table = do(table, append("b")).snapshot
    checkpoint(store, form)
    store.delete_many([version_key(version) for version in range(table.version + 1)])
    loaded = load_snapshot(context(store))
    assert loaded.metadata == table.metadata
    assert loaded.shape == table.shape
    assert loaded.shape.field_ids == (1, 2, 3)
    assert recorded(do(loaded, append("c")).snapshot) == (1, 2, 3)


def test_no_change_of_a_table_touches_its_ids(store):
    put_splits(store, "a", "b")
    table = new_table(store)
    before = table.metadata.schema_string
    for change in (
        lambda table: do(table, append("a", "b")),
        lambda table: set_properties(table, {"owner": "me"}),
        lambda table: set_metadata(table, name="n", description="d"),
        lambda table: set_properties(table, {"owner": None}),
        lambda table: upgrade_protocol(table, 5, 5),
        lambda table: do(table, remove("a")),
        lambda table: do(table, overwrite("c")),
        lambda table: restore(table, RestoreRequest(version=1)),
    ):
        table = change(table).snapshot
        assert table.metadata.schema_string == before
        assert max_field_id(table.metadata) == 3


@pytest.mark.parametrize("value", ["9", None])
def test_the_highest_id_cannot_be_set_by_hand(store, value):
    with pytest.raises(InvalidOptionError, match="maxFieldId records the ids"):
        set_properties(new_table(store), {MAX_FIELD_ID_PROPERTY: value})


# --- tables without ids -----------------------------------------------------------------------------


def test_a_table_of_the_jvm_stays_as_it_is_until_a_split_of_ours_is_added(store):
    put_splits(store, "a", "b")
    table = jvm_table(store, "a", "b", settings=CONVERT)
    before = table.metadata.schema_string
    assert table.shape.field_ids == (1, 2, 3)
    for change in (
        lambda table: set_properties(table, {"owner": "me"}),
        lambda table: set_metadata(table, name="n"),
        lambda table: do(table, remove("a")),
        lambda table: restore(table, RestoreRequest(version=2)),
        lambda table: do(table, append()),
    ):
        table = change(table).snapshot
        assert table.metadata.schema_string == before
        assert MAX_FIELD_ID_PROPERTY not in table.metadata.configuration
    checkpoint(store)
    table = load_snapshot(context(store, CONVERT))
    assert table.metadata.schema_string == before

    converted = do(table, append("ours")).snapshot
    assert recorded(converted) == (1, 2, 3)
    assert max_field_id(converted.metadata) == 3
    assert converted.schema.equals(table.schema, check_metadata=True)
    assert converted.shape == table.shape


def test_without_consent_a_table_of_the_jvm_gets_no_ids(store):
    table = jvm_table(store, "a")
    with pytest.raises(ProtocolUpgradeError):
        do(table, append("ours"))
    assert load_snapshot(context(store)).metadata == table.metadata


def test_foreign_ids_in_a_schema_of_the_jvm_mean_nothing_and_are_replaced(store):
    text = record_field_ids(to_spark_json(SCHEMA), (9, 9, 2))
    table = jvm_table(store)
    metadata = msgspec.structs.replace(table.metadata, schema_string=text)
    write_version(store, 1, metadata)
    table = load_snapshot(context(store))
    assert table.shape.field_ids == (1, 2, 3)
    assert table.schema.equals(SCHEMA, check_metadata=True)
    assert recorded(do(table, append("ours")).snapshot) == (1, 2, 3)


def test_what_only_the_jvm_writes_into_a_schema_survives_the_ids(store):
    table = jvm_table(store)
    document = json.loads(table.metadata.schema_string)
    document["fields"][2]["type"] = "varchar(20)"
    document["fields"][2]["metadata"] = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(20)", "n": 1}
    write_version(store, 1, msgspec.structs.replace(table.metadata, schema_string=json.dumps(document)))
    converted = do(load_snapshot(context(store)), append("ours")).snapshot
    field = json.loads(converted.metadata.schema_string)["fields"][2]
    assert field["type"] == "varchar(20)"
    assert field["metadata"] == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(20)", "n": 1, "parquet.field.id": 3}


def test_two_writers_that_both_add_the_first_split_agree_on_the_ids(store):
    start = jvm_table(store, "a", settings=CONVERT)
    first = do(start, append("b")).snapshot
    second = do(start, append("c"))
    assert second.tries == 2
    assert second.snapshot.metadata.schema_string == first.metadata.schema_string
    assert recorded(second.snapshot) == (1, 2, 3)


@pytest.mark.parametrize("intent", [overwrite("c"), remove("a")])
def test_recording_ids_is_no_change_that_other_transactions_conflict_with(store, intent):
    # The protocol is raised beforehand, which conflicts.
    start = upgrade_protocol(jvm_table(store, "a"), 5, 5).snapshot
    do(start, append("b"))
    assert do(start, intent).tries == 2


def test_rows_of_both_kinds_of_splits_are_read_after_the_first_write_of_ours(store):
    table = jvm_table(store)
    schema = pa.schema([("id", pa.int64()), ("date", pa.string()), ("message", pa.string())])
    data = pa.table({"id": [1], "date": ["2024-01-01"], "message": ["x"]}, schema=schema)
    table = append_rows(table, data).snapshot
    table = append_rows(table, data).snapshot
    assert recorded(table) == (1, 2, 3)
    assert scan(table, None, None).read_all().to_pylist() == data.to_pylist() * 2


# --- changed schemas --------------------------------------------------------------------------------


def test_a_column_that_the_metadata_renames_is_read_from_older_splits(tmp_path):
    table = IndexTable.create(tmp_path / "t", rows(1).schema, partition_by=["day"])
    table.append(rows(1, 2))
    renamed = pa.schema([("number", pa.int64()), ("day", pa.string()), ("text", pa.string())])
    metadata = with_schema(table.metadata, renamed, (1, 2, 3), 3)
    write_version(table._snapshot.context.store, 2, metadata)
    table = IndexTable(tmp_path / "t")
    assert table.schema.names == ["number", "day", "text"]
    table.append(pa.table({"number": [3], "day": ["2024-01-01"], "text": ["row 3"]}, schema=renamed))
    found = table.to_arrow(where="number >= 2", columns=["text", "number"]).sort_by("number")
    assert found.to_pylist() == [{"text": "row 2", "number": 2}, {"text": "row 3", "number": 3}]
    table.merge_splits(target_size="1G")
    assert table.num_files == 1
    assert table.to_arrow(columns=["number"])["number"].to_pylist() in ([1, 2, 3], [3, 1, 2])


def test_restore_never_lowers_the_highest_id(store):
    start = new_table(store)
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    write_version(store, 1, with_schema(start.metadata, wider, (1, 2, 3, 4), 4))
    restored = restore(load_snapshot(context(store)), RestoreRequest(version=0)).snapshot
    assert recorded(restored) == (1, 2, 3)
    assert max_field_id(restored.metadata) == 4
    again = restore(restored, RestoreRequest(version=0))
    assert not again.is_committed


def test_a_version_of_the_jvm_that_is_restored_keeps_the_ids_of_today(store):
    start = jvm_table(store, settings=CONVERT)
    converted = do(start, append("b")).snapshot
    renamed = pa.schema([("id", pa.int64()), ("date", pa.string()), ("text", pa.string())])
    write_version(store, 2, with_schema(converted.metadata, renamed, (1, 2, 3), 7))
    restored = restore(load_snapshot(context(store)), RestoreRequest(version=0)).snapshot
    assert restored.schema.names == SCHEMA.names
    assert recorded(restored) == (1, 2, 8)
    assert max_field_id(restored.metadata) == 8


@pytest.mark.parametrize("ids", [(), (1, 2, 4)], ids=["all ids are gone", "an id is above the highest"])
def test_damaged_ids_are_an_error_and_not_other_rows(store, ids):
    table = do(new_table(store), append("a")).snapshot
    text = record_field_ids(to_spark_json(SCHEMA), ids) if ids else to_spark_json(SCHEMA)
    write_version(store, 2, msgspec.structs.replace(table.metadata, schema_string=text))
    damaged = load_snapshot(context(store))
    with pytest.raises(InvalidSchemaError, match="restore an older version"):
        _ = damaged.shape
    restored = restore(damaged, RestoreRequest(version=0)).snapshot
    assert restored.shape.field_ids == (1, 2, 3)


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "²"])
def test_a_damaged_highest_id_is_an_error(value):
    ids = new_field_ids(SCHEMA)
    metadata = Metadata(
        id="x",
        schema_string=record_field_ids(to_spark_json(SCHEMA), ids),
        configuration={MAX_FIELD_ID_PROPERTY: value},
    )
    with pytest.raises(InvalidSchemaError, match="maxFieldId"):
        field_ids_of(metadata)


def test_the_schema_of_a_version_is_independent_of_later_ids(store):
    start = jvm_table(store)
    do(start, append("b"))
    older = load_snapshot(context(store), 0)
    assert older.metadata == start.metadata
    assert older.protocol == ProtocolAction(min_reader_version=4, min_writer_version=4)
    assert from_spark_json(older.metadata.schema_string).equals(SCHEMA)
