"""Random queries on shared views, alone and from eight threads at once, give the rows that Spark finds in Parquet."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from indextables import IndexTable
from indextables.spark import deleted_rows
from support.spark_conditions import random_condition, random_value
from support.spark_frames import load

ENGINE = "spark.indextables.read.engine"
THREADS = 8
SCHEMA = "id int, n int, x double, t string, d date, at timestamp, b boolean, part string, day date"
DELETED = "n IN (1, 5, 7) OR id < 10"
KINDS = ("n", "x", "t", "d", "at", "b")


@pytest.fixture(scope="module")
def places(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same random rows as a table with two partition columns, in several versions, and as Parquet.

    In the last version rows of most splits are deleted.
    """
    dice = random.Random(3)
    rows = [
        (
            number,
            *(random_value(dice, kind) for kind in KINDS),
            dice.choice([None, "", "a%", "b"]),
            dice.choice([None, random_value(random.Random(number % 2), "d")]),
        )
        for number in range(200)
    ]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    folder: Path = tmp_path_factory.mktemp("queries")
    ours, parquet = (folder / "ours").as_posix(), (folder / "parquet").as_posix()
    for piece in (frame.where("id < 120"), frame.where("id >= 120")):
        piece.write.format("indextables").partitionBy("part", "day").mode("append").save(ours)
    IndexTable(ours).delete(DELETED)
    frame.write.parquet(parquet)
    return ours, parquet


def _filtered(dice: random.Random) -> str:
    columns = ", ".join(dice.sample(["id", "n", "t", "part", "day", "at"], 3))
    return f"SELECT {columns} FROM {{view}} WHERE {random_condition(dice)}"


def _aggregated(dice: random.Random) -> str:
    key = dice.choice(["part", "day", "n", "b"])
    measures = "count(*), min(id), max(at), sum(n), max(part), count(DISTINCT t)"
    return f"SELECT {key}, {measures} FROM {{view}} WHERE {random_condition(dice)} GROUP BY {key}"


def _united(dice: random.Random) -> str:
    parts = (f"SELECT id, part, n FROM {{view}} WHERE {random_condition(dice)}" for _ in range(2))
    return " UNION ALL ".join(parts)


def _joined(dice: random.Random) -> str:
    key = dice.choice(["n", "part", "day"])
    condition = random_condition(dice)
    return (
        f"SELECT l.id, r.id AS other, l.{key} FROM (SELECT * FROM {{view}} WHERE {condition}) l "
        f"JOIN (SELECT * FROM {{view}} WHERE id % 7 = {dice.randint(0, 6)}) r ON l.{key} = r.{key}"
    )


def _nested(dice: random.Random) -> str:
    return (
        f"SELECT id, t FROM {{view}} WHERE part IN (SELECT part FROM {{view}} WHERE {random_condition(dice)}) "
        f"AND id > (SELECT min(id) FROM {{view}} WHERE n > {dice.randint(0, 8)})"
    )


SHAPES: tuple[Callable[[random.Random], str], ...] = (_filtered, _aggregated, _united, _joined, _nested)


@pytest.mark.parametrize(
    ("engine", "is_deleted", "num_queries"),
    [("native", False, THREADS), ("native", True, 2 * THREADS), ("python", True, THREADS)],
)
def test_queries_of_shared_views_give_the_rows_of_parquet(
    spark: SparkSession,
    places: tuple[str, str],
    engine: str,
    is_deleted: bool,
    num_queries: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dice = random.Random(29)
    queries = [SHAPES[number % len(SHAPES)](dice) for number in range(num_queries)]
    ours, parquet = places
    # Half of the partitions: the other half lists its few deleted rows in a condition.
    monkeypatch.setattr(deleted_rows, "_MAX_LISTED", 20)
    version = {} if is_deleted else {"versionAsOf": 2}
    load(spark, ours, **{ENGINE: engine, **version}).createOrReplaceTempView("random_ours")
    expected_rows = spark.read.parquet(parquet)
    if is_deleted:
        expected_rows = expected_rows.where(f"NOT coalesce({DELETED}, false)")
    expected_rows.createOrReplaceTempView("random_parquet")

    def answer(query: str, view: str = "random_ours") -> list[str]:
        return sorted(map(repr, spark.sql(query.format(view=view)).collect()))

    expected = [answer(query, "random_parquet") for query in queries]
    assert any(expected)
    alone = [answer(query) for query in queries[: len(SHAPES)]]
    assert alone == expected[: len(SHAPES)], queries
    with ThreadPoolExecutor(THREADS) as threads:
        together = list(threads.map(answer, queries))
    wrong = [query for query, found, right in zip(queries, together, expected, strict=True) if found != right]
    assert wrong == []
