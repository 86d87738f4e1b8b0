"""Spark schema JSON to Arrow and back."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidSchemaError
from indextables.schema import canonical_schema, from_spark_json, to_spark_json

# As Spark's `df.schema.json()` prints it.
SPARK_TEXT = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":false,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{"comment":"der Tag — é"}},'
    '{"name":"price","type":"decimal(10,2)","nullable":true,"metadata":{}},'
    '{"name":"at","type":"timestamp","nullable":true,"metadata":{}},'
    '{"name":"local","type":"timestamp_ntz","nullable":true,"metadata":{}},'
    '{"name":"tags","type":{"type":"array","elementType":"string","containsNull":false},'
    '"nullable":true,"metadata":{}},'
    '{"name":"scores","type":{"type":"map","keyType":"string","valueType":"double","valueContainsNull":true},'
    '"nullable":true,"metadata":{}},'
    '{"name":"who","type":{"type":"struct","fields":['
    '{"name":"name","type":"string","nullable":true,"metadata":{"n":3,"ok":true}}]},"nullable":true,"metadata":{}},'
    '{"name":"nothing","type":"void","nullable":true,"metadata":{}}]}'
)


def test_spark_text_round_trips_byte_for_byte():
    assert to_spark_json(from_spark_json(SPARK_TEXT)) == SPARK_TEXT


def test_every_atomic_type_has_its_arrow_type():
    names = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "decimal(38,18)": pa.decimal128(38, 18),
        "void": pa.null(),
    }
    fields = [{"name": n, "type": n, "nullable": True, "metadata": {}} for n in names]
    schema = from_spark_json(json.dumps({"type": "struct", "fields": fields}))
    assert dict(zip(schema.names, schema.types, strict=True)) == names
    assert json.loads(to_spark_json(schema))["fields"] == fields


@pytest.mark.parametrize("spark_type", ["char(3)", "varchar(20)", "string collate UTF8_LCASE"])
def test_character_types_are_read_as_string(spark_type):
    assert one_column(spark_type).type == pa.string()


def test_user_defined_type_is_read_as_its_storage():
    assert one_column({"type": "udt", "class": "x.Y", "sqlType": "double"}).type == pa.float64()


def test_field_metadata_is_kept_both_ways():
    spark = {"comment": "é", "n": 1, "text": "1", "nested": {"a": [1, None]}}
    field = one_column("string", metadata=spark)
    assert field.metadata[b"comment"] == "é".encode()
    assert json.loads(to_spark_json(pa.schema([field])))["fields"][0]["metadata"] == spark

    arrow = pa.field("a", pa.string(), metadata={"comment": "x", "unit": "1"})
    assert canonical_schema(pa.schema([arrow])).field("a").metadata == {b"comment": b"x", b"unit": b"1"}


def test_notes_about_a_physical_file_do_not_enter_the_schema():
    field = pa.field("a", pa.string(), metadata={"PARQUET:field_id": "7", "comment": "x"})
    assert canonical_schema(pa.schema([field])).field("a").metadata == {b"comment": b"x"}


def test_metadata_that_is_not_text_is_refused_with_the_column():
    field = pa.field("raw", pa.string(), metadata={b"k": b"\xff"})
    with pytest.raises(InvalidSchemaError, match=r"'raw'.*'k'|'raw'.*b'k'"):
        to_spark_json(pa.schema([field]))


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ms", "Europe/Paris"), pa.timestamp("us", "UTC")),
        (pa.decimal256(38, 3), pa.decimal128(38, 3)),
        (pa.large_list(pa.uint8()), pa.list_(pa.field("element", pa.int16()))),
        (pa.list_(pa.int32(), 3), pa.list_(pa.field("element", pa.int32()))),
    ],
)
def test_arrow_type_without_a_twin_maps_where_nothing_is_lost(given_type, kept):
    assert canonical_schema(pa.schema([("a", given_type)])).field("a").type == kept


@pytest.mark.parametrize(
    ("given_type", "remedy"),
    [
        (pa.timestamp("ns"), r"timestamp\('us'\)"),
        (pa.timestamp("ns", "UTC"), r"timestamp\('us', tz='UTC'\)"),
        (pa.time64("us"), "string"),
        (pa.duration("ms"), "int64"),
        (pa.month_day_nano_interval(), "int64"),
        (pa.decimal256(50, 2), "decimal128"),
        (pa.decimal128(5, -2), "decimal128"),
        (pa.dense_union([pa.field("a", pa.int8())]), "a struct"),
        (pa.uuid(), "fixed_size_binary"),
    ],
)
def test_arrow_type_that_would_lose_values_is_refused_with_the_cast(given_type, remedy):
    with pytest.raises(InvalidSchemaError, match=rf"column 'outer\.when'.*cast it to .*{remedy}"):
        to_spark_json(pa.schema([("outer", pa.struct([("when", given_type)]))]))


def test_names_that_differ_only_in_case_are_refused_at_every_level():
    with pytest.raises(InvalidSchemaError, match="'Id' and 'id'"):
        to_spark_json(pa.schema([("Id", pa.int64()), ("id", pa.int64())]))
    with pytest.raises(InvalidSchemaError, match=r"struct 's'.*'a' and 'a'"):
        to_spark_json(pa.schema([("s", pa.struct([("a", pa.int64()), ("a", pa.int64())]))]))
    twice = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("A", "a")]
    with pytest.raises(InvalidSchemaError, match="'A' and 'a'"):
        from_spark_json(json.dumps({"type": "struct", "fields": twice}))


def test_column_without_a_name_is_refused():
    with pytest.raises(InvalidSchemaError, match="without a name"):
        to_spark_json(pa.schema([("", pa.int64())]))


@pytest.mark.parametrize("depth", [65, 500, 5000, 200_000])
def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack(depth):
    opening, closing = '{"type":"array","containsNull":true,"elementType":', "}"
    text = (
        '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":'
        + opening * depth
        + '"long"'
        + closing * depth
        + "}]}"
    )
    with pytest.raises(InvalidSchemaError):
        from_spark_json(text)


def test_deep_arrow_type_is_refused():
    nested: pa.DataType = pa.int64()
    for _ in range(80):
        nested = pa.list_(nested)
    with pytest.raises(InvalidSchemaError, match="column 'deep' is nested"):
        to_spark_json(pa.schema([("deep", nested)]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '"string"',
        '{"type":"array"}',
        '{"type":"struct"}',
        '{"type":"struct","fields":{}}',
        '{"type":"struct","fields":[1]}',
        '{"type":"struct","fields":[{"name":1,"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a"}]}',
        '{"type":"struct","fields":[{"name":"a","type":null}]}',
        '{"type":"struct","fields":[{"name":"a","type":"interval day"}]}',
        '{"type":"struct","fields":[{"name":"a","type":"decimal(39,2)"}]}',
        '{"type":"struct","fields":[{"name":"a","type":"decimal(x)"}]}',
        '{"type":"struct","fields":[{"name":"a","type":{"type":"variant"}}]}',
        '{"type":"struct","fields":[{"name":"a","type":"long","metadata":[1]}]}',
    ],
)
def test_text_that_is_no_spark_schema_is_a_typed_error(text):
    with pytest.raises(InvalidSchemaError):
        from_spark_json(text)


ARROW_TYPES = st.recursive(
    st.sampled_from(
        [
            pa.bool_(),
            pa.int8(),
            pa.int64(),
            pa.float32(),
            pa.string(),
            pa.binary(),
            pa.date32(),
            pa.timestamp("us", "UTC"),
            pa.timestamp("us"),
            pa.decimal128(12, 4),
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda t, n: pa.list_(pa.field("element", t, n)), inner, st.booleans()),
        st.builds(
            lambda t, n: pa.map_(pa.field("key", pa.string(), False), pa.field("value", t, n)),
            inner,
            st.booleans(),
        ),
        st.builds(lambda t: pa.struct([("a", t), ("é.b", t)]), inner),
    ),
    max_leaves=6,
)


@settings(max_examples=100)
@given(st.lists(st.tuples(ARROW_TYPES, st.booleans()), min_size=1, max_size=5))
def test_canonical_schemas_round_trip(columns):
    schema = pa.schema([pa.field(f"c{i}", t, nullable) for i, (t, nullable) in enumerate(columns)])
    assert from_spark_json(to_spark_json(schema)) == schema


@settings(max_examples=100)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.just("struct"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["type", "fields", "name", "nullable"]), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_any_json_is_a_schema_or_a_typed_error(document):
    try:
        from_spark_json(json.dumps(document))
    except InvalidSchemaError:
        return


def one_column(spark_type, metadata=None):
    field = {"name": "a", "type": spark_type, "nullable": True, "metadata": metadata or {}}
    return from_spark_json(json.dumps({"type": "struct", "fields": [field]})).field("a")
