"""Values of every Spark type survive a round trip through a table."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from indextables import IndexTable
from indextables.errors import InvalidSchemaError
from indextables.spark.releases import arrow_schema
from indextables.spark.types import spark_schema, table_schema
from support.spark_frames import load
from support.spark_releases import needs_sources

EVERYTHING = (
    "bool boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f32 float, f64 double, dec decimal(10,2), "
    "big decimal(38,9), text string, bytes binary, day date, at timestamp, local timestamp_ntz, "
    "nested struct<a: int, b: array<string>>, list array<int>, items map<string, bigint>, "
    "deep array<struct<k: string, v: map<string, timestamp>>>"
)

AT = dt.datetime(2026, 1, 31, 23, 59, 59, 123456)

ROWS = [
    (
        True, 1, 2, 3, 4, 1.5, 2.25, Decimal("12345678.90"), Decimal("1.000000001"), "text é", b"\x00\xff",
        dt.date(2026, 1, 31), AT, AT, (1, ["x", None]), [1, None, 3], {"a": 1, "b": None}, [("k", {"t": AT})],
    ),
    (None,) * 18,
    (
        False, -128, -32768, -(2**31), -(2**63), float("inf"), float("-inf"), Decimal("-0.01"), Decimal("0E-9"), "",
        b"", dt.date(1582, 10, 15), AT.replace(year=1970), AT.replace(year=9998), (None, []), [], {}, [],
    ),
]  # fmt: skip


def _schema(spark: SparkSession, text: str) -> StructType:
    """Spark before 4.0 has no StructType.fromDDL."""
    return spark.createDataFrame([], text).schema


def test_rows_of_every_type_round_trip(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame(ROWS, EVERYTHING)
    frame.write.format("indextables").mode("append").save(path)
    read = load(spark, path)
    assert read.schema == _schema(spark, EVERYTHING)
    assert sorted(map(repr, read.collect())) == sorted(map(repr, frame.collect()))
    assert IndexTable(path).num_rows == len(ROWS)


def test_nested_columns_that_are_not_nullable_have_the_types_that_spark_expects(
    spark: SparkSession, path: str
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
            pa.field("point", pa.struct([pa.field("x", pa.float64(), nullable=False)])),
        ]
    )
    table = IndexTable.create(path, schema)
    table.append(pa.table({"id": [1], "tags": [["a"]], "point": [{"x": 1.0}]}, schema=schema))
    read = load(spark, path)
    assert [field.nullable for field in read.schema] == [False, False, True]
    assert [row.asDict(recursive=True) for row in read.collect()] == [
        {"id": 1, "tags": ["a"], "point": {"x": 1.0}}
    ]


def test_schemas_convert_both_ways(spark: SparkSession) -> None:
    schema = _schema(spark, EVERYTHING)
    arrow = table_schema(schema)
    assert spark_schema(arrow) == schema
    assert arrow_schema(schema).names == arrow.names


@pytest.mark.parametrize("foreign", ["interval day to second", pytest.param("variant", marks=needs_sources)])
def test_unsupported_types_are_named(spark: SparkSession, foreign: str) -> None:
    with pytest.raises(InvalidSchemaError, match="'strange'"):
        table_schema(_schema(spark, f"strange {foreign}"))
