"""Field ids and Spark: DataFrames have none, and Spark's own Parquet source finds columns by them."""

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from indextables import IndexTable
from indextables.errors import CommitConflictError
from indextables.schema import TableShape, new_field_ids, record_field_ids, recorded_field_ids
from indextables.spark.source import IndexTablesSource
from indextables.spark.types import parquet_schema, table_schema
from indextables.storage import open_store
from indextables.table.field_ids import MAX_FIELD_ID_PROPERTY
from support.row_tables import split_files
from support.spark_frames import load
from support.split_samples import write_splits
from support.tables import write_version

NESTED = "id long, who struct<name: string, tags: array<string>>, counts map<string, int>"


def test_a_frame_has_no_ids_whatever_it_was_written_with(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame([(1, ("a", ["x"]), {"k": 1})], NESTED)
    foreign = frame.withMetadata("id", {"parquet.field.id": 70, "comment": "the key"})
    foreign.write.format("indextables").mode("append").save(path)
    assert recorded_field_ids(IndexTable(path).metadata.schema_string) == tuple(range(1, 9))
    read = load(spark, path)
    assert read.schema["id"].metadata == {"comment": "the key"}
    assert [field.metadata for field in read.schema["who"].dataType] == [{}, {}]
    read.write.format("indextables").mode("append").save(path)
    assert load(spark, path).collect() == frame.collect() * 2


def test_sparks_parquet_source_reads_renamed_columns_by_id(spark: SparkSession, tmp_path: Path) -> None:
    store = open_store(tmp_path / "table")
    who = pa.struct([("name", pa.string()), ("tags", pa.list_(pa.field("element", pa.string())))])
    table = pa.table({"id": [1, 2], "who": pa.array([{"name": "a", "tags": ["x"]}, None], who)})
    (file,) = write_splits(store, table, field_ids=new_field_ids(table.schema))
    rows = tmp_path / "table" / file.path

    renamed = pa.struct([("nick", pa.string()), ("tags", pa.list_(pa.field("element", pa.string())))])
    shape = TableShape(pa.schema([("number", pa.int64()), ("person", renamed)]), (), (1, 2, 3, 4, 5))
    schema = parquet_schema(shape)
    assert schema["number"].metadata == {"parquet.field.id": 1}
    assert spark.conf.get("spark.sql.parquet.fieldId.read.enabled") == "true"  # on an enabled session
    found = spark.read.schema(schema).parquet(rows.as_posix()).orderBy("number").collect()
    assert [row.asDict(recursive=True) for row in found] == [
        {"number": 1, "person": {"nick": "a", "tags": ["x"]}},
        {"number": 2, "person": None},
    ]


def test_a_table_that_was_created_meanwhile_with_other_ids_rejects_the_splits(
    spark: SparkSession, path: str
) -> None:
    """The splits have the ids of a new table, and the table has others for the same columns."""
    schema = StructType([StructField("a", LongType()), StructField("b", LongType())])
    writer = IndexTablesSource({"path": path}).writer(schema, overwrite=False)
    message = writer.write(iter([pa.record_batch({"a": [1], "b": [2]})]))
    table = IndexTable.create(path, table_schema(schema))
    # The column b was dropped and added again.
    text = record_field_ids(table.metadata.schema_string, (1, 3))
    metadata = replace(table.metadata, schema_string=text, configuration={MAX_FIELD_ID_PROPERTY: "3"})
    write_version(open_store(path), 1, metadata)
    with pytest.raises(CommitConflictError, match="write again"):
        writer.commit([message])
    assert IndexTable(path).version == 1
    assert not split_files(Path(path))
