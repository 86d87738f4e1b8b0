"""Conditions of Spark have the three truth values of the predicates that they are made from, for every row."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.functions import col as spark_column

from indextables.predicates import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    bind,
    to_arrow_filter,
)
from indextables.spark.conditions import spark_condition

NAN, INFINITY = float("nan"), float("inf")
WIDE = Decimal("1234567890123456789012345678.0123456789")

# Values of each column, and literals that need not be values of its type.
COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "byte": (pa.int8(), [-128, 0, 7, 127], [7, 300, -300, 1.5, "7"]),
    "short": (pa.int16(), [-300, 5], [5, 5.5, 10**9]),
    "int": (pa.int32(), [-5, 0, 2**31 - 1], [0, 2**31, -1.5]),
    "long": (pa.int64(), [-(2**63), 0, 2**63 - 1], [0, 2**63, 2**53 + 1]),
    "float": (pa.float32(), [0.1, 1.5, -0.0, NAN, INFINITY], [0.1, 1.5, 0.0, NAN, INFINITY, 10**400]),
    "double": (pa.float64(), [0.1, -0.0, NAN, -INFINITY], [0.1, 0, NAN, -INFINITY, Decimal("0.1")]),
    "decimal": (
        pa.decimal128(10, 2),
        [Decimal("1.50"), Decimal("-0.01")],
        [1.5, Decimal("1.505"), 10**9, -0.01],
    ),
    "wide": (pa.decimal128(38, 10), [WIDE, -WIDE, Decimal(0)], [WIDE, 0, WIDE + 1]),
    "text": (pa.string(), ["", "a", "a%", "a_b", "é", "\\", "A", "ab\n"], ["", "a", "a%", "é", "\\"]),
    "raw": (pa.binary(), [b"", b"\x00\xff", b"a"], [b"a", "a", b"\x00"]),
    "flag": (pa.bool_(), [True, False], [True, "false"]),
    "day": (
        pa.date32(),
        [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
        [date(2024, 2, 29), "2024-03-01"],
    ),
    "at": (
        pa.timestamp("us", tz="UTC"),
        [datetime(2024, 11, 3, 5, 30, tzinfo=UTC), datetime(1890, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
        [
            "2024-11-03T05:30:00Z",
            "2024-11-03 05:30:00",
            "1890-01-01",
            datetime(2024, 11, 3, 5, 30, tzinfo=UTC),
        ],
    ),
    "local": (
        pa.timestamp("us"),
        [datetime(2024, 3, 10, 2, 30), datetime(1890, 1, 1)],
        ["2024-03-10 02:30:00", datetime(1890, 1, 1)],
    ),
}
PATTERNS = ["a%", "%b", "a\\%", "_", "%", "a\\_b", "\\\\", "%é%", "a_%"]


def _predicate(dice: random.Random, depth: int = 0) -> Predicate:
    if depth < 3 and dice.random() < 0.4:
        operands = [_predicate(dice, depth + 1) for _ in range(dice.randint(2, 3))]
        return dice.choice([And, Or])(*operands) if dice.random() < 0.7 else Not(operands[0])
    name = dice.choice(list(COLUMNS))
    literals = [*COLUMNS[name][2], None]
    simple: list[Predicate] = [
        *(Comparison(name, operator, dice.choice(literals)) for operator in Operator),
        In(name, tuple(dice.choices(literals, k=3))),
        In(name, ()),
        IsNull(name),
        IsNotNull(name),
        Like("text", dice.choice(PATTERNS)),
        StartsWith("text", dice.choice(["", "a", "a%", "é"])),
        dice.choice([AlwaysTrue(), AlwaysFalse()]),
    ]
    return dice.choice(simple)


def test_conditions_are_true_false_and_unknown_for_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(19)
    values = {
        name: pa.array([dice.choice([*values, None]) for _ in range(40)], data_type)
        for name, (data_type, values, _) in COLUMNS.items()
    }
    rows = pa.table({"id": pa.array(range(40)), **values})
    pq.write_table(rows, tmp_path / "rows.parquet")
    bound = [bind(_predicate(dice), rows.schema) for _ in range(150)]
    conditions = [
        spark_condition(predicate, rows.schema, spark_column).alias(f"c{number}")
        for number, predicate in enumerate(bound)
    ]
    found = spark.read.parquet(str(tmp_path)).select("id", *conditions).orderBy("id").toArrow()
    expected = ds.dataset(rows).to_table(
        columns={f"c{number}": to_arrow_filter(predicate) for number, predicate in enumerate(bound)}
    )
    for number, predicate in enumerate(bound):
        column = f"c{number}"
        assert found[column].to_pylist() == expected[column].to_pylist(), predicate


def test_a_long_chain_of_conditions_is_not_deep(spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64())])
    many = Or(*(Comparison("id", Operator.EQ, number) for number in range(0, 1000, 2)))
    condition = spark_condition(bind(many, schema), schema, spark_column)
    assert spark.range(10).where(condition).count() == 5
