"""REPAIR keeps the field ids of a table, from its log or from its splits, and assigns none of them again."""

import msgspec
import pyarrow as pa

from indextables.log.paths import version_key
from indextables.ops.read import scan
from indextables.ops.repair.operation import repair_in_place
from indextables.ops.runner import LocalRunner
from indextables.ops.write import append
from indextables.schema import record_field_ids, recorded_field_ids, to_spark_json
from indextables.table import create_table
from indextables.table.field_ids import MAX_FIELD_ID_PROPERTY, max_field_id
from support.repair_tables import delete_log, halve, newest
from support.row_tables import rows
from support.tables import context, jvm_table, memory_store, write_version

SCHEMA = rows(1).schema


def repaired(store):
    repair_in_place(context(store), LocalRunner())
    return newest(store)


def change_schema(store, schema, ids, last_id) -> None:
    """A commit that changes the schema."""
    table = newest(store)
    metadata = msgspec.structs.replace(
        table.metadata,
        schema_string=record_field_ids(to_spark_json(schema), ids),
        configuration={**table.metadata.configuration, MAX_FIELD_ID_PROPERTY: str(last_id)},
    )
    write_version(store, table.version + 1, metadata)


def recorded(snapshot):
    return recorded_field_ids(snapshot.metadata.schema_string)


def test_ids_come_from_the_splits_if_the_log_is_lost():
    store = memory_store()
    append(create_table(context(store), SCHEMA, ["day"], {}), rows(1, 2))
    # The body is a new column, and the id is renamed.
    changed = pa.schema([("number", pa.int64()), ("day", pa.string()), ("body", pa.string())])
    change_schema(store, changed, (1, 2, 7), 9)
    data = pa.table({"number": [3], "day": ["2024-01-01"], "body": ["new"]}, schema=changed)
    before = append(newest(store), data).snapshot
    expected = scan(before, None, None).read_all().sort_by("number").to_pylist()
    assert [row["body"] for row in expected] == [None, None, "new"]

    delete_log(store)
    table = repaired(store)
    assert recorded(table)[:3] == (1, 2, 7)
    assert max_field_id(table.metadata) == 7
    assert scan(table, None, None).read_all().sort_by("number").to_pylist() == expected
    assert table.schema.names == ["number", "day", "body"]


def test_a_column_that_only_older_splits_have_keeps_its_id():
    store = memory_store()
    append(create_table(context(store), SCHEMA, [], {}), rows(1))
    narrow = pa.schema([("id", pa.int64())])
    change_schema(store, narrow, (1,), 3)
    append(newest(store), pa.table({"id": [2]}, schema=narrow))
    delete_log(store)
    table = repaired(store)
    assert (table.schema.names, recorded(table)) == (["id", "day", "body"], (1, 2, 3))
    found = scan(table, None, ["id", "body"]).read_all().sort_by("id").to_pylist()
    assert found == [{"id": 1, "body": "row 1"}, {"id": 2, "body": None}]


def test_ids_that_only_splits_know_are_not_assigned_again():
    """The version that raised the highest id is lost; a split that was written later is not."""
    store = memory_store()
    append(create_table(context(store), SCHEMA, [], {}), rows(1))
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    change_schema(store, wider, (1, 2, 3, 4), 4)
    append(newest(store), pa.table({"id": [2], "day": ["a"], "body": ["b"], "extra": [5]}, schema=wider))
    halve(store, version_key(2))
    halve(store, version_key(3))
    table = repaired(store)
    assert recorded(table) == (1, 2, 3)
    assert max_field_id(table.metadata) == 4


def test_a_log_of_the_jvm_takes_the_ids_of_the_splits_that_were_added_to_it():
    """The only version of ours, which records the ids, is lost."""
    store = memory_store()
    table = jvm_table(store)
    data = pa.table({"id": [1], "date": ["2024-01-01"], "message": ["x"]}, schema=table.schema)
    append(table, data)
    halve(store, version_key(1))
    repaired_table = repaired(store)
    assert recorded(repaired_table) == (1, 2, 3)
    assert max_field_id(repaired_table.metadata) == 3
    assert scan(repaired_table, None, None).read_all().to_pylist() == data.to_pylist()


def test_a_table_of_the_jvm_without_splits_of_ours_gets_no_ids():
    store = memory_store()
    table = jvm_table(store)
    write_version(store, 1, msgspec.structs.replace(table.metadata, name="n"))
    halve(store, version_key(1))
    assert repaired(store).metadata.schema_string == table.metadata.schema_string
