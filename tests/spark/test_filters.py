"""Filters in Spark select the same rows as on Parquet, natively, and in Python whether or not Spark offers them."""

import random
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.spark_conditions import random_condition, random_value
from support.spark_frames import ids, load

ENGINE = "spark.indextables.read.engine"
KINDS = ("n", "x", "t", "d", "at", "b")
PARTS = (None, "", "a%")


@pytest.fixture(scope="module")
def places(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same random rows as an IndexTables table partitioned by a string, and as Parquet."""
    dice = random.Random(7)
    rows = [
        (number, *(random_value(dice, kind) for kind in KINDS), dice.choice(PARTS)) for number in range(120)
    ]
    schema = "id int, n int, x double, t string, d date, at timestamp, b boolean, part string"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    folder: Path = tmp_path_factory.mktemp("random")
    ours, parquet = (folder / "ours").as_posix(), (folder / "parquet").as_posix()
    for piece in (frame.where("id < 60"), frame.where("id >= 60")):
        piece.write.format("indextables").partitionBy("part").mode("append").save(ours)
    frame.write.parquet(parquet)
    return ours, parquet


def _answers(frames: list[DataFrame]) -> list[tuple[int, int]]:
    """The ids of each frame, read by one query."""
    numbered = [frame.selectExpr(f"{number} as frame", "id") for number, frame in enumerate(frames)]
    return sorted((row.frame, row.id) for row in reduce(DataFrame.union, numbered).collect())


@pytest.mark.parametrize(("engine", "is_pushed"), [("native", False), ("python", True), ("python", False)])
def test_filters_give_the_same_rows_as_on_parquet(
    spark: SparkSession, places: tuple[str, str], engine: str, is_pushed: bool
) -> None:
    dice = random.Random(11)
    conditions = [random_condition(dice) for _ in range(4 if is_pushed else 12)]
    ours, parquet = places
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(is_pushed).lower())
    try:
        frame = load(spark, ours, **{ENGINE: engine})
        found = _answers([frame.where(condition) for condition in conditions])
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    expected = _answers([spark.read.parquet(parquet).where(condition) for condition in conditions])
    assert found == expected, conditions


def test_one_frame_serves_scans_with_different_filters(spark: SparkSession, places: tuple[str, str]) -> None:
    frame = load(spark, places[0], **{ENGINE: "python"})
    conditions = ["n = 3", "t = 'a'", "part = 'a%'", "true"]
    expected = [spark.read.parquet(places[1]).where(condition) for condition in conditions]
    assert _answers([frame.where(condition) for condition in conditions]) == _answers(expected)
    assert frame.where("id = 7").count() == 1
    assert frame.count() == 120


WIDE = "1234567890123456789012345678.0123456789"


@pytest.fixture(scope="module")
def wide(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Decimals of 38 digits: `WIDE` and its neighbours. Python's default context would make them equal."""
    path = str(tmp_path_factory.mktemp("wide") / "table")
    rows = spark.sql(
        "SELECT id, CAST(d AS DECIMAL(38, 10)) AS d "
        f"FROM VALUES (1L, '{WIDE[:-1]}8'), (2L, '{WIDE}'), (3L, '{WIDE[:-2]}90') AS t(id, d)"
    )
    rows.coalesce(1).write.format("indextables").mode("append").save(path)
    return path


@pytest.mark.parametrize("engine", ["native", "python"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [("d = {}", [2]), ("d <= {}", [1, 2]), ("d IN ({}, 1)", [2]), ("d >= {}", [2, 3]), ("d <> {}", [1, 3])],
)
def test_decimals_beyond_28_digits_are_found(
    spark: SparkSession, wide: str, condition: str, expected: list[int], engine: str
) -> None:
    """By a filter of Spark, and by the option `where` of the source."""
    frame = load(spark, wide, **{ENGINE: engine})
    assert ids(frame.where(condition.format(f"CAST('{WIDE}' AS DECIMAL(38, 10))"))) == expected
    assert ids(load(spark, wide, where=condition.format(WIDE), **{ENGINE: engine})) == expected
