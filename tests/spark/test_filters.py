"""Filters in Spark select the same rows as on Parquet, whether or not Spark offers them to the source."""

import random
from datetime import date, datetime
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.spark_frames import ids, load


def _value(dice: random.Random, kind: str) -> object:
    if dice.random() < 0.15:
        return None
    match kind:
        case "n":
            return dice.randint(-3, 12)
        case "x":
            return dice.choice([0.0, -0.0, 1.5, -2.25, float("nan"), float("inf")])
        case "t":
            return dice.choice(["", "a", "ab", "abc", "a%", "a_b", "B\n", "é", "10", "9", "\\"])
        case "d":
            return date(2026, 1, dice.randint(1, 28))
        case "at":
            return datetime(2026, 1, dice.randint(1, 28), 12, 30, 0, dice.randint(0, 999_999))
        case _:
            return dice.choice([True, False])


KINDS = ("n", "x", "t", "d", "at", "b")
PARTS = (None, "", "a%")


@pytest.fixture(scope="module")
def places(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same random rows as an IndexTables table partitioned by a string, and as Parquet."""
    dice = random.Random(7)
    rows = [(number, *(_value(dice, kind) for kind in KINDS), dice.choice(PARTS)) for number in range(120)]
    schema = "id int, n int, x double, t string, d date, at timestamp, b boolean, part string"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    folder: Path = tmp_path_factory.mktemp("random")
    ours, parquet = (folder / "ours").as_posix(), (folder / "parquet").as_posix()
    for piece in (frame.where("id < 60"), frame.where("id >= 60")):
        piece.write.format("indextables").partitionBy("part").mode("append").save(ours)
    frame.write.parquet(parquet)
    return ours, parquet


def _literal(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool() | int():
            return str(value).lower()
        case float():
            return f"double('{value}')"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"'{escaped}'"
        case datetime():
            return f"timestamp'{value}'"
        case _:
            return f"date'{value}'"


def _condition(dice: random.Random, depth: int = 0) -> str:
    choice = dice.random()
    if depth < 2 and choice < 0.35:
        how = dice.choice(["and", "and", "or"])
        return f"({_condition(dice, depth + 1)} {how} {_condition(dice, depth + 1)})"
    if choice < 0.5:
        return f"not ({_condition(dice, depth + 1)})" if depth < 2 else "b"
    column = dice.choice([*KINDS, "part"])
    value = _literal(_value(dice, "t" if column == "part" else column))
    forms = [f"{column} {operator} {value}" for operator in ("=", "<=>", "<", "<=", ">", ">=", "<>")]
    forms += [f"{column} is null", f"{column} is not null"]
    forms.append(f"{column} in ({value}, {_literal(_value(dice, 't' if column == 'part' else column))})")
    if column in ("t", "part") and value != "null":
        forms += [f"{function}({column}, {value})" for function in ("startswith", "endswith", "contains")]
    return dice.choice(forms)


def _answers(frames: list[DataFrame]) -> list[tuple[int, int]]:
    """The ids of each frame, read by one query."""
    numbered = [frame.selectExpr(f"{number} as frame", "id") for number, frame in enumerate(frames)]
    return sorted((row.frame, row.id) for row in reduce(DataFrame.union, numbered).collect())


@pytest.mark.parametrize("is_pushed", [True, False])
def test_filters_give_the_same_rows_as_on_parquet(
    spark: SparkSession, places: tuple[str, str], is_pushed: bool
) -> None:
    dice = random.Random(11)
    conditions = [_condition(dice) for _ in range(4 if is_pushed else 12)]
    ours, parquet = places
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(is_pushed).lower())
    try:
        found = _answers([load(spark, ours).where(condition) for condition in conditions])
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    expected = _answers([spark.read.parquet(parquet).where(condition) for condition in conditions])
    assert found == expected, conditions


def test_one_frame_serves_scans_with_different_filters(spark: SparkSession, places: tuple[str, str]) -> None:
    frame = load(spark, places[0])
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


@pytest.mark.parametrize("is_pushed", [True, False])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [("d = {}", [2]), ("d <= {}", [1, 2]), ("d IN ({}, 1)", [2]), ("d >= {}", [2, 3]), ("d <> {}", [1, 3])],
)
def test_decimals_beyond_28_digits_are_found(
    spark: SparkSession, wide: str, condition: str, expected: list[int], is_pushed: bool
) -> None:
    """By a filter of Spark, and by the option `where` of the source."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(is_pushed).lower())
    try:
        by_filter = load(spark, wide).where(condition.format(f"CAST('{WIDE}' AS DECIMAL(38, 10))"))
        assert ids(by_filter) == expected
        assert ids(load(spark, wide, where=condition.format(WIDE))) == expected
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
