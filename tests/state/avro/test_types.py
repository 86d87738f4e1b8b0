"""Avro schemas of other writers: what the parser accepts and what it refuses."""

import fastavro
import orjson
import pytest

from indextables.state.avro.types import (
    MAX_NAME_LENGTH,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    MAX_SCHEMA_TYPES,
    Array,
    AvroFormatError,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    RecordField,
    Union,
    parse_schema,
    schema_json,
)


def schema(*types, names="abcdefgh"):
    fields = [{"name": name, "type": avro_type} for name, avro_type in zip(names, types, strict=False)]
    return {"type": "record", "name": "R", "namespace": "n", "fields": fields}


def parse(*types, **options):
    return parse_schema(orjson.dumps(schema(*types, **options)))


def test_every_kind_of_type_is_parsed():
    parsed = parse(
        "long",
        {"type": "string"},
        ["null", {"type": "map", "values": "bytes"}],
        {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["X"]}},
        {"type": "fixed", "name": "F", "size": 2},
        {"type": {"type": "long", "logicalType": "timestamp-millis"}},
    )
    assert [field.type for field in parsed.fields] == [
        Primitive("long"),
        Primitive("string"),
        Union((Primitive("null"), Map(Primitive("bytes")))),
        Array(Enum(("X",))),
        Fixed(2),
        Primitive("long"),
    ]


def test_field_ids_are_kept():
    fields = [{"name": "a", "type": "int", "field-id": 7}, {"name": "b", "type": "int", "field-id": "8"}]
    parsed = parse_schema(orjson.dumps({"type": "record", "name": "R", "fields": fields}))
    assert parsed == Record(
        (RecordField("a", Primitive("int"), 7), RecordField("b", Primitive("int"), None)),
    )


@pytest.mark.parametrize("reference", ["F", "n.F"])
def test_types_are_referred_to_by_name(reference):
    parsed = parse({"type": "fixed", "name": "F", "size": 2}, reference)
    assert parsed.fields[1].type == Fixed(2)


def test_rendered_schema_has_the_same_structure_and_is_valid():
    parsed = parse(
        {"type": "fixed", "name": "F", "size": 2}, "F", ["null", "F"], {"type": "map", "values": "F"}
    )
    rendered = schema_json(parsed)
    fastavro.parse_schema(rendered)
    assert parse_schema(orjson.dumps(rendered)) == parsed


@pytest.mark.parametrize(
    ("avro_type", "reason"),
    [
        ("unknown", "unknown type 'unknown'"),
        (None, "NoneType where a type should be"),
        (5, "int where a type should be"),
        ({}, "NoneType where a type should be"),
        ([], "union that is empty"),
        ([["null"]], "directly inside a union"),
        ("R", "recursive type n.R"),
        ({"type": "array", "items": ["null", "R"]}, "recursive type n.R"),
        ({"type": "array", "items": "null"}, "items take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "items take no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "items take no bytes"),
        ({"type": "fixed", "name": "F", "size": -1}, "fixed type of -1 bytes"),
        ({"type": "fixed", "name": "F", "size": 2**40}, "fixed type of 1099511627776 bytes"),
        ({"type": "fixed", "size": 1}, "fixed without a name"),
        ({"type": "enum", "name": "E", "symbols": []}, "enum without symbols"),
        ({"type": "enum", "name": "E", "symbols": ["a b"]}, "a name that is not one"),
        ({"type": "record", "name": "E", "fields": {}}, "without a list of fields"),
        ({"type": "record", "name": "E", "fields": [5]}, "without a list of fields"),
        ({"type": "record", "name": "R", "fields": []}, "defines 'n.R' twice"),
    ],
    ids=str,
)
def test_unacceptable_types_are_refused(avro_type, reason):
    with pytest.raises(AvroFormatError, match=reason):
        parse(avro_type)


def test_fields_of_one_name_are_refused():
    with pytest.raises(AvroFormatError, match="two fields of one name"):
        parse("int", "int", names="aa")


@pytest.mark.parametrize("name", ["", "1a", "a b", "a.b", "é", "a" * (MAX_NAME_LENGTH + 1)])
def test_invalid_names_are_refused(name):
    with pytest.raises(AvroFormatError, match="a name that is not one"):
        parse("int", names=[name])


def test_deep_schemas_are_refused():
    nested = "int"
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        nested = {"type": "array", "items": nested}
    with pytest.raises(AvroFormatError, match="levels deep"):
        parse(nested)


def test_exponentially_growing_schemas_are_refused():
    """Each record holds the previous one twice: a kilobyte of schema would describe a million fields."""
    fields = [
        {"name": "t0", "type": {"type": "record", "name": "T0", "fields": [{"name": "x", "type": "int"}]}}
    ]
    for level in range(1, 20):
        twice = [{"name": name, "type": f"T{level - 1}"} for name in ("a", "b")]
        fields.append({"name": f"t{level}", "type": {"type": "record", "name": f"T{level}", "fields": twice}})
    with pytest.raises(AvroFormatError, match=f"more than {MAX_SCHEMA_TYPES} types"):
        parse_schema(orjson.dumps({"type": "record", "name": "R", "fields": fields}))


def test_large_enums_count_wherever_they_are_used():
    enum = {"type": "enum", "name": "E", "symbols": [f"s{number}" for number in range(1000)]}
    with pytest.raises(AvroFormatError, match=f"more than {MAX_SCHEMA_TYPES} types"):
        parse(enum, *["E"] * 6)


def test_large_schemas_are_refused():
    with pytest.raises(AvroFormatError, match="bytes, more than"):
        parse_schema(orjson.dumps({**schema("int"), "doc": "x" * MAX_SCHEMA_BYTES}))
