"""Foreign fields in the manifests of other writers: they are read, and a rewrite keeps them."""

import io

import fastavro
import pyarrow as pa
import pytest

from indextables.errors import InvalidSchemaError
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.state.avro import decode
from indextables.state.manifest_reader import read_manifest
from indextables.state.manifest_writer import write_manifest
from support.manifest_samples import (
    FULL_VALUES,
    REQUIRED_VALUES,
    avro_schema,
    entries,
    fastavro_file,
    fastavro_rows,
    numbered_entries,
)

pytestmark = pytest.mark.usefixtures("each_decoder")

SPECIFIED = avro_schema(write_manifest(entries([REQUIRED_VALUES])))["fields"]

STRUCT = {
    "type": "record",
    "name": "S",
    "fields": [{"name": "x", "type": ["null", "long"]}, {"name": "y", "type": "string"}],
}

COLUMNAR = [
    ("boolean", True, True),
    ("int", -5, -5),
    ("long", 2**62, 2**62),
    ("float", 1.5, 1.5),
    ("double", -2.5e300, -2.5e300),
    ("string", "ü", "ü"),
    ("bytes", b"\x00\xff", b"\x00\xff"),
    (["null", "string"], "x", "x"),
    (["long", "null"], 5, 5),
    ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "array", "items": "string"}, ["a", ""], ["a", ""]),
    ({"type": "array", "items": ["null", "long"]}, [1, None], [1, None]),
    ({"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["A", "B"]}}, ["B"], ["B"]),
    ({"type": "map", "values": "long"}, {"k": 1}, [("k", 1)]),
    ({"type": "map", "values": ["null", "string"]}, {"k": None}, [("k", None)]),
    ({"type": "map", "values": {"type": "array", "items": "int"}}, {"k": [1, 2]}, [("k", [1, 2])]),
    (STRUCT, {"x": None, "y": "z"}, {"x": None, "y": "z"}),
    (["null", STRUCT], {"x": 3, "y": "z"}, {"x": 3, "y": "z"}),
    ({"type": "array", "items": STRUCT}, [{"x": 1, "y": "a"}, {"x": None, "y": "b"}],
     [{"x": 1, "y": "a"}, {"x": None, "y": "b"}]),
    ({"type": "long", "logicalType": "timestamp-micros"}, 5, 5),
    ({"type": "string", "logicalType": "uuid"}, "00000000-0000-0000-0000-000000000001",
     "00000000-0000-0000-0000-000000000001"),
]  # fmt: skip

# Types without an Arrow equivalent; values of several types are kept as JSON text.
ODD = [
    (["null", "string", "long"], "x", '"x"'),
    (["null", "string", "long"], 4, "4"),
    (["string"], "x", '"x"'),
    (["bytes", "long"], b"\xff", '"ÿ"'),
    ({"type": "array", "items": ["string", "long"]}, ["x", 4], ['"x"', "4"]),
    ({"type": "record", "name": "Empty", "fields": []}, {}, {}),
    ("null", None, None),
]


def foreign_file(avro_type, values, field_id=900):
    fields = [*SPECIFIED, {"name": "foreign", "type": avro_type, "field-id": field_id}]
    schema = {"type": "record", "name": "FileEntry", "namespace": "com.example", "fields": fields}
    rows = [{**{field["name"]: None for field in SPECIFIED}, **REQUIRED_VALUES, "foreign": v} for v in values]
    return fastavro_file(schema, rows)


@pytest.mark.parametrize(("avro_type", "value", "expected"), COLUMNAR + ODD, ids=str)
def test_unknown_field_becomes_a_column(avro_type, value, expected):
    table = read_manifest(foreign_file(avro_type, [value, value]))
    assert table.column_names == [*FILE_ENTRY_SCHEMA.names, "foreign"]
    assert table["foreign"].to_pylist() == [expected, expected]
    field = table.schema.field("foreign")
    assert field.metadata[b"field-id"] == b"900"
    is_annotated = isinstance(avro_type, dict) and "logicalType" in avro_type
    assert (b"logical-type" in field.metadata) is is_annotated
    assert field.nullable


@pytest.mark.parametrize(("avro_type", "value", "expected"), COLUMNAR, ids=str)
def test_both_decoders_agree_on_unknown_fields(avro_type, value, expected, monkeypatch):
    data = foreign_file(avro_type, [value] * 3)
    fast = read_manifest(data)
    monkeypatch.setattr(decode, "_is_columnar", lambda schema: False)
    slow = read_manifest(data)
    assert fast.equals(slow)
    assert fast.schema.equals(slow.schema, check_metadata=True)


@pytest.mark.parametrize(("avro_type", "value", "expected"), COLUMNAR + ODD[:5], ids=str)
def test_rewrite_keeps_unknown_fields_and_their_ids(avro_type, value, expected):
    original = read_manifest(foreign_file(avro_type, [value] * 3))
    rewritten = write_manifest(original)
    field = next(field for field in avro_schema(rewritten)["fields"] if field["name"] == "foreign")
    assert field["field-id"] == 900
    assert field["type"][0] == "null"
    assert len(fastavro_rows(rewritten)) == 3
    again = read_manifest(rewritten)
    assert again.equals(original)
    assert again.schema.equals(original.schema, check_metadata=True)


def test_entries_of_several_writers_share_a_manifest():
    foreign = read_manifest(foreign_file("long", [1, 2]))
    together = pa.concat_tables([foreign, numbered_entries(2)], promote_options="default")
    again = read_manifest(write_manifest(together))
    assert again["foreign"].to_pylist() == [1, 2, None, None]
    assert again.equals(together)


def test_unknown_structs_with_null_parents_are_written_without_their_children():
    struct = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string(), nullable=False)])
    column = pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}], struct)
    table = numbered_entries(3).append_column(pa.field("foreign", struct), column)
    rows = fastavro_rows(write_manifest(table))
    assert [row["foreign"] for row in rows] == [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]


def test_nested_types_of_similar_names_do_not_collide():
    struct = pa.struct([pa.field("b", pa.struct([pa.field("x", pa.int64())]))])
    table = numbered_entries(1)
    table = table.append_column(pa.field("a", struct), pa.array([{"b": {"x": 1}}], struct))
    other = struct.field("b").type
    table = table.append_column(pa.field("a_b", other), pa.array([{"x": 2}], other))
    (row,) = fastavro_rows(write_manifest(table))
    assert (row["a"], row["a_b"]) == ({"b": {"x": 1}}, {"x": 2})


def test_unknown_column_without_values_is_left_out():
    table = numbered_entries(2).append_column("foreign", pa.nulls(2, pa.int64()))
    assert "foreign" not in [field["name"] for field in avro_schema(write_manifest(table))["fields"]]


def test_projection_excludes_unknown_fields():
    data = foreign_file("long", [1])
    assert read_manifest(data, columns=["path"]).column_names == ["path"]
    assert read_manifest(data, columns=["foreign"])["foreign"].to_pylist() == [1]


@pytest.mark.parametrize(
    "arrow_type", [pa.uint64(), pa.duration("s"), pa.map_(pa.int64(), pa.string())], ids=str
)
def test_column_that_avro_cannot_represent_is_refused(arrow_type):
    value = [(1, "x")] if pa.types.is_map(arrow_type) else 1
    table = numbered_entries(1).append_column("foreign", pa.array([value], arrow_type))
    with pytest.raises(InvalidSchemaError, match="'foreign'"):
        write_manifest(table)


def test_column_name_that_avro_cannot_represent_is_refused():
    table = numbered_entries(1).append_column("not a name", pa.array([1]))
    with pytest.raises(InvalidSchemaError, match="not a name"):
        write_manifest(table)


def test_reader_with_only_the_specified_fields_skips_the_others():
    table = entries([FULL_VALUES, REQUIRED_VALUES])
    data = write_manifest(table)
    written = avro_schema(data)
    names = [field["name"] for field in SPECIFIED]
    assert len(written["fields"]) > len(names)
    older = {**written, "fields": [field for field in written["fields"] if field["name"] in names]}
    rows = list(fastavro.reader(io.BytesIO(data), reader_schema=older))
    assert rows == [{name: row.get(name) for name in names} for row in (FULL_VALUES, REQUIRED_VALUES)]
