"""The columnar encoder against fastavro's, record by record."""

import io

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.state.avro.encode import back_to_back, encode_records
from indextables.state.avro.types import parse_schema
from support.manifest_samples import LONGS, TEXTS

POINT = {
    "type": "record",
    "name": "Point",
    "fields": [
        {"name": "x", "type": ["null", "long"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
ARROW_POINT = pa.struct(
    [pa.field("x", pa.int64()), pa.field("tags", pa.list_(pa.field("item", pa.string(), False)), False)]
)
POINTS = st.fixed_dictionaries({"x": st.none() | LONGS, "tags": st.lists(TEXTS, max_size=2)})
MAPS = st.dictionaries(TEXTS, st.none() | LONGS, max_size=3)

# Avro type, Arrow type, values
CASES = {
    "boolean": ("boolean", pa.bool_(), st.booleans()),
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", pa.int64(), LONGS),
    "float": ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": ("double", pa.float64(), st.floats(allow_nan=False)),
    "bytes": ("bytes", pa.binary(), st.binary(max_size=100)),
    "string": ("string", pa.string(), TEXTS),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, pa.binary(2), st.binary(min_size=2, max_size=2)),
    "null first": (["null", "string"], pa.string(), st.none() | TEXTS),
    "null second": (["long", "null"], pa.int64(), st.none() | LONGS),
    "array": (["null", {"type": "array", "items": "string"}], pa.list_(pa.string()),
              st.none() | st.lists(TEXTS, max_size=3)),
    "array of nullable": ({"type": "array", "items": ["null", "long"]}, pa.list_(pa.int64()),
                          st.lists(st.none() | LONGS, max_size=3)),
    "array of arrays": ({"type": "array", "items": {"type": "array", "items": "long"}},
                        pa.list_(pa.list_(pa.int64())), st.lists(st.lists(LONGS, max_size=2), max_size=3)),
    "map": (["null", {"type": "map", "values": ["null", "long"]}], pa.map_(pa.string(), pa.int64()),
            st.none() | MAPS),
    "map with the same keys": ({"type": "map", "values": "string"}, pa.map_(pa.string(), pa.string()),
                               st.fixed_dictionaries({"id": TEXTS, "": TEXTS, "né": TEXTS})),
    "map with nearly the same keys": ({"type": "map", "values": ["null", "long"]}, pa.map_(pa.string(), pa.int64()),
                                      st.fixed_dictionaries({"a": st.none() | LONGS}, optional={"b": LONGS})),
    "map with keys of the same length": ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()),
                                         st.dictionaries(st.sampled_from("abc"), LONGS, min_size=1, max_size=1)),
    "record": (POINT, ARROW_POINT, POINTS),
    "optional record": (["null", POINT], ARROW_POINT, st.none() | POINTS),
    "array of records": ({"type": "array", "items": POINT}, pa.list_(ARROW_POINT), st.lists(POINTS, max_size=2)),
}  # fmt: skip


def expected(schema, values):
    stream = io.BytesIO()
    for value in values:
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"field": value})
    return stream.getvalue()


def arrow_form(value):
    return list(value.items()) if isinstance(value, dict) and set(value) != {"x", "tags"} else value


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_columns_are_encoded_as_fastavro_encodes_values(case, data):
    avro_type, arrow_type, strategy = CASES[case]
    values = data.draw(st.lists(strategy, max_size=6))
    start = data.draw(st.integers(0, len(values)))
    schema = {"type": "record", "name": "R", "fields": [{"name": "field", "type": avro_type}]}
    column = pa.array([arrow_form(value) for value in values], arrow_type).slice(start)
    encoded = back_to_back(encode_records(parse_schema(orjson.dumps(schema)), [column]))
    assert encoded.to_pybytes() == expected(schema, values[start:])


@pytest.mark.parametrize("power", range(64))
def test_varints_at_every_length(power):
    values = [2**power - 1, -(2**power), 2 ** max(power - 1, 0), -(2 ** max(power - 1, 0)) - 1]
    longs = [value for value in values if -(2**63) <= value < 2**63]
    schema = {"type": "record", "name": "R", "fields": [{"name": "field", "type": "long"}]}
    encoded = back_to_back(
        encode_records(parse_schema(orjson.dumps(schema)), [pa.array(np.array(longs, np.int64))])
    )
    assert encoded.to_pybytes() == expected(schema, longs)
