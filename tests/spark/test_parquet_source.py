"""Spark's own Parquet source reads splits: rows of every type, pruned columns, filters that lose no row."""

import math
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from indextables import IndexTable
from indextables.storage import open_store
from support.split_samples import EVERY_TYPE, EVERY_TYPE_OPTIONS, null_row, ordinary_row, write_split

# Spark has no column without a type in Parquet files.
TYPES = pa.schema([field for field in EVERY_TYPE if field.name != "void"])


@pytest.fixture(scope="module")
def every_type(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pa.Table]:
    """The path of a split with every type, and its rows."""
    folder = tmp_path_factory.mktemp("every")
    rows = [{**(ordinary_row() if number % 3 else null_row()), "long": number} for number in range(3000)]
    table = pa.Table.from_pylist(rows, schema=TYPES)
    return (folder / write_split(open_store(folder), table, EVERY_TYPE_OPTIONS).path).as_posix(), table


def test_rows_of_every_type(spark: SparkSession, every_type: tuple[str, pa.Table]) -> None:
    path, table = every_type
    found = spark.read.parquet(path).orderBy("long").toArrow().cast(table.schema)
    assert found.to_pylist() == table.to_pylist()


def test_a_filter_skips_row_groups_and_finds_its_rows(
    spark: SparkSession, every_type: tuple[str, pa.Table]
) -> None:
    path, _ = every_type
    frame = spark.read.parquet(path)
    assert frame.where("long = 1234").select("string").collect() == [("exact value",)]
    assert frame.where("long > 2997").select("long", "array").orderBy("long").first()["long"] == 2998


def test_filters_on_nan_lose_no_row(spark: SparkSession, tmp_path: Path) -> None:
    values = [math.nan if number % 10 == 0 else float(number) for number in range(2000)]
    table = pa.table({"id": range(2000), "x": values, "point": [{"y": value} for value in values]})
    frame = spark.read.parquet((tmp_path / write_split(open_store(tmp_path), table).path).as_posix())
    assert frame.where("x > 5000").count() == 200
    assert frame.where("point.y > 5000").count() == 200
    assert frame.where("x = double('NaN')").count() == 200


def test_the_live_files_of_a_partitioned_table_are_a_table_for_spark(spark: SparkSession, path: str) -> None:
    rows = pa.table({"day": ["2026-01-30", "2026-01-31"], "message": ["disk full", "disk empty"]})
    table = IndexTable.create(path, rows.schema, partition_by=["day"], text=["message"])
    table.append(rows)
    table.overwrite(rows.slice(1))
    live = [f"{path}/{name}" for name in table.files()["path"].to_pylist()]
    found = spark.read.option("basePath", path).parquet(*live)
    assert [(str(row.day), row.message) for row in found.collect()] == [("2026-01-31", "disk empty")]
