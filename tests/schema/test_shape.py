"""Finding columns, and the rules for partition columns."""

import pickle

import pyarrow as pa
import pytest

from indextables.errors import InvalidSchemaError
from indextables.schema import TableShape, check_partition_columns, find_column

SCHEMA = pa.schema(
    [
        ("Date", pa.date32()),
        ("region", pa.string()),
        ("raw", pa.binary()),
        ("nothing", pa.null()),
        ("tags", pa.list_(pa.string())),
    ]
)


def test_column_is_found_without_regard_to_case():
    assert find_column(SCHEMA, "Date") == find_column(SCHEMA, "DATE") == SCHEMA.field("Date")
    assert find_column(SCHEMA, "dat") is None


def test_exact_spelling_wins_over_another_case():
    schema = pa.schema([("A", pa.int8()), ("a", pa.int16())])
    assert find_column(schema, "a") == schema.field(1)


def test_partition_columns_are_returned_as_the_schema_spells_them():
    assert check_partition_columns(SCHEMA, ["REGION", "date"]) == ("region", "Date")
    assert check_partition_columns(SCHEMA, []) == ()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["regoin"], "'regoin' does not exist; did you mean 'region'"),
        (["zzz"], "'zzz' does not exist; the columns are Date, region"),
        (["region", "Region"], "'region' is named twice"),
        (["tags"], "'tags' has the type list"),
        (["raw"], "'raw' has the type binary"),
        (["nothing"], "'nothing' has the type null"),
    ],
)
def test_partition_column_that_cannot_be_one_is_refused(names, message):
    with pytest.raises(InvalidSchemaError, match=message):
        check_partition_columns(SCHEMA, names)


def test_partitioning_by_every_column_is_refused():
    with pytest.raises(InvalidSchemaError, match="leave at least one"):
        check_partition_columns(pa.schema([("a", pa.int8()), ("b", pa.int8())]), ["a", "b"])


def test_a_table_needs_a_column():
    with pytest.raises(InvalidSchemaError, match="there are no columns"):
        check_partition_columns(pa.schema([]), [])


def test_a_shape_tells_partition_columns_from_data_columns():
    shape = TableShape(pa.schema([("Day", pa.date32()), ("x", pa.int64())]), ("day",))
    assert shape.is_partitioned
    assert shape.partition_keys == {"Day": "day"}
    assert shape.type_of("Day") == pa.date32()
    assert shape.data_schema.names == ["x"]
    assert shape.checked().partition_columns == ("Day",)
    assert pickle.loads(pickle.dumps(shape)) == shape
