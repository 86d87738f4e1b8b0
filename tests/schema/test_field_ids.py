"""Field ids: how they are assigned, recorded in a Spark schema, and used to find columns."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidSchemaError
from indextables.schema import (
    TableShape,
    canonical_schema,
    from_spark_json,
    ids_by_path,
    names_in_file,
    new_field_ids,
    record_field_ids,
    recorded_field_ids,
    to_spark_json,
    type_in_table,
)
from indextables.schema.field_ids import with_field_ids
from support.schema_samples import clutter, schemas

NESTED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("who", pa.struct([pa.field("name", pa.string()), pa.field("tags", pa.list_(pa.string()))])),
        pa.field("counts", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ]
)


def ids_in_parquet(schema: pa.Schema) -> list[int]:
    """The ids that a Parquet file with this schema has, as its own metadata lists them."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    lines = str(pq.read_metadata(pa.BufferReader(sink.getvalue())).schema).splitlines()
    found = [int(line.split("field_id=")[1].split()[0]) for line in lines if "field_id=" in line]
    return [field_id for field_id in found if field_id != -1]


def test_ids_follow_the_schema_depth_first():
    schema = canonical_schema(NESTED)
    assert new_field_ids(schema) == tuple(range(1, 10))
    document = json.loads(record_field_ids(to_spark_json(schema), new_field_ids(schema)))
    first, who, counts = document["fields"]
    assert first["metadata"] == {"parquet.field.id": 1}
    assert who["metadata"] == {"parquet.field.id": 2}
    name, tags = who["type"]["fields"]
    assert name["metadata"] == {"parquet.field.id": 3}
    assert tags["metadata"] == {"parquet.field.id": 4, "parquet.field.nested.ids": {"tags.element": 5}}
    nested = {"counts.key": 7, "counts.value": 8, "counts.value.element": 9}
    assert counts["metadata"] == {"parquet.field.id": 6, "parquet.field.nested.ids": nested}


@settings(max_examples=60)
@given(schema=schemas, start=st.integers(0, 1000))
def test_any_schema_has_unique_ids_that_survive_json_arrow_and_parquet(schema, start):
    ids = new_field_ids(schema, last_id=start)
    assert len(set(ids)) == len(ids)
    assert list(ids) == sorted(ids)
    assert ids[0] == start + 1

    text = record_field_ids(to_spark_json(schema), ids)
    assert recorded_field_ids(text) == ids
    assert from_spark_json(text).equals(schema, check_metadata=True)
    assert to_spark_json(from_spark_json(text)) == to_spark_json(schema)
    assert record_field_ids(text, ids) == text

    with_ids = TableShape(schema, (), ids).schema_with_ids
    assert with_ids.equals(schema)
    assert ids_in_parquet(with_ids) == list(ids)
    assert canonical_schema(with_ids).equals(schema, check_metadata=True)


@settings(max_examples=60)
@given(steps=st.lists(schemas, min_size=2, max_size=6))
def test_no_id_is_given_to_a_second_field_whatever_is_dropped_and_added_again(steps):
    known: dict[tuple[tuple[str, str], ...], int] = {}
    last_id = 0
    owners: dict[int, object] = {}
    for schema in steps:
        ids = new_field_ids(schema, known, last_id)
        assert len(set(ids)) == len(ids)
        current = ids_by_path(schema, ids)
        for path, field_id in current.items():
            if path in known:
                assert field_id == known[path]  # stable as long as the field stays
            else:
                assert field_id > last_id  # also if a field of that name existed before
                assert field_id not in owners
            assert owners.setdefault(field_id, path) == path
        last_id = max(last_id, *ids)
        known = current


def test_a_field_that_becomes_another_kind_of_type_is_another_field():
    before = pa.schema([("a", pa.list_(pa.field("element", pa.int64()))), ("b", pa.int32())])
    after = pa.schema([("a", pa.struct([("element", pa.int64())])), ("b", pa.int64())])
    assert new_field_ids(after, ids_by_path(before, (1, 2, 3)), 3) == (4, 5, 3)


def test_case_of_a_name_does_not_matter_for_its_id():
    known = ids_by_path(pa.schema([("Level", pa.string())]), (1,))
    assert new_field_ids(pa.schema([("new", pa.string()), ("level", pa.string())]), known, 1) == (2, 1)


def test_recording_ids_replaces_foreign_ids_and_keeps_all_else():
    text = json.dumps(
        {
            "type": "struct",
            "fields": [
                {
                    "name": "a",
                    "type": {"type": "array", "elementType": "char(3)", "containsNull": False},
                    "nullable": False,
                    "metadata": {"comment": "x", "parquet.field.id": 7, "parquet.field.nested.ids": {"z": 1}},
                },
                {
                    "name": "p",
                    "type": {
                        "type": "udt",
                        "class": "x.Y",
                        "sqlType": {"type": "struct", "fields": [{"name": "x", "type": "double"}]},
                    },
                },
            ],
        }
    )
    first, second = json.loads(record_field_ids(text, (1, 2, 3, 4)))["fields"]
    assert first["type"] == {"type": "array", "elementType": "char(3)", "containsNull": False}
    nested = {"a.element": 2}
    assert first["metadata"] == {"comment": "x", "parquet.field.id": 1, "parquet.field.nested.ids": nested}
    assert second["type"]["class"] == "x.Y"
    assert second["type"]["sqlType"]["fields"][0]["metadata"] == {"parquet.field.id": 4}


def test_a_schema_without_ids_records_none():
    assert recorded_field_ids(to_spark_json(NESTED)) == ()


@pytest.mark.parametrize("bad", [None, 0, -1, True, "3", 1.5, 2**31, 2])
def test_a_missing_invalid_or_repeated_id_is_an_error(bad):
    schema = canonical_schema(NESTED)
    document = json.loads(record_field_ids(to_spark_json(schema), new_field_ids(schema)))
    document["fields"][0]["metadata"]["parquet.field.id"] = bad
    with pytest.raises(InvalidSchemaError, match="field id"):
        recorded_field_ids(json.dumps(document))


@pytest.mark.parametrize("bad", [[], 3, "x", {"counts.key": 7}])
def test_damaged_ids_of_elements_are_an_error(bad):
    schema = canonical_schema(NESTED)
    document = json.loads(record_field_ids(to_spark_json(schema), new_field_ids(schema)))
    document["fields"][2]["metadata"]["parquet.field.nested.ids"] = bad
    with pytest.raises(InvalidSchemaError, match=r"field id|not an object"):
        recorded_field_ids(json.dumps(document))


def test_columns_of_a_file_are_found_by_id_and_not_by_name():
    stored = with_field_ids(pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())]), (1, 2, 3))
    wanted = with_field_ids(pa.schema([("b", pa.int64()), ("a", pa.int64()), ("c", pa.int64())]), (1, 2, 4))
    assert names_in_file(stored, wanted) == {"b": "a", "a": "b"}


@pytest.mark.parametrize(("file_ids", "table_ids"), [((), (1, 2)), ((7, 8), ()), ((), ())])
def test_columns_are_found_by_name_unless_both_sides_have_ids(file_ids, table_ids):
    stored = with_field_ids(pa.schema([("Level", pa.string()), ("id", pa.int64())]), file_ids)
    wanted = with_field_ids(pa.schema([("level", pa.string()), ("new", pa.int64())]), table_ids)
    assert names_in_file(stored, wanted) == {"level": "Level"}


@settings(max_examples=60)
@given(schema=schemas, other=schemas)
def test_types_of_a_file_lose_their_ids_and_keep_their_layout(schema, other):
    with_ids = with_field_ids(schema, new_field_ids(schema))
    for field in with_ids:
        same = type_in_table(field.type, field.type)
        assert same.equals(field.type)
        assert not clutter(same)
        for wanted in with_field_ids(other, new_field_ids(other)):
            found = type_in_table(field.type, wanted.type)
            assert not clutter(found)
            assert found.num_fields == field.type.num_fields
