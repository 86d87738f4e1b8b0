"""Aggregations of values at the edges of their types agree with the rows: infinity, NaN, zero, null bytes, decimals."""

import math
import random
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import InvalidAggregationError
from indextables.search import Terms

LARGEST = sys.float_info.max
FLOATS = [math.inf, -math.inf, math.nan, LARGEST, -LARGEST, 0.0, -0.0, 1.5, None]
TEXTS = ["", "a", "a\0", "a\0b", "\0", "\0\0", "b", "ä\0ö", None]

SCHEMA = pa.schema([("x", pa.float64()), ("y", pa.float32()), ("s", pa.string()), ("kind", pa.string())])

# All rows, rows that the index finds, and rows that only the rows themselves tell.
WHERES = {
    None: lambda row: True,
    "kind = 'even'": lambda row: row["kind"] == "even",
    "kind LIKE '%v%'": lambda row: "v" in row["kind"],
}


def rows_of(seed, count):
    chance = random.Random(seed)
    # Few different values in each table, so that whole splits and groups have only infinity or NaN.
    floats, texts = chance.sample(FLOATS, 3), chance.sample(TEXTS, 4)
    return [
        {
            "x": chance.choice(floats),
            "y": chance.choice([None if x is None or math.fabs(x) == LARGEST else x for x in floats]),
            "s": chance.choice(texts),
            "kind": chance.choice(["even", "odd"]),
        }
        for _ in range(count)
    ]


def build_table(path, rows, splits=3):
    table = IndexTable.create(path, SCHEMA)
    for start in range(splits):
        table.append(pa.Table.from_pylist(rows[start::splits], SCHEMA))
    return table


def in_sparks_order(value):
    """NaN is above every number, and strings are compared by their bytes."""
    return (value != value, value.encode() if isinstance(value, str) else value)


def plain(value):
    """A value that equals itself, without the sign of zero."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def extremes(rows, column):
    values = sorted((row[column] for row in rows if row[column] is not None), key=in_sparks_order)
    return [plain(values[0]), plain(values[-1]), len(values)] if values else [None, None, 0]


def groups(rows, column):
    found = {}
    for row in rows:
        if row[column] is not None:
            found.setdefault(plain(row[column]), []).append(row)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_extremes_and_groups_agree_with_the_rows(tmp_path, seed):
    rows = rows_of(seed, 24)
    table = build_table(tmp_path / "table", rows)
    for is_merged in (False, True):
        if is_merged:
            table.merge_splits()
        for where, holds in WHERES.items():
            chosen = [row for row in rows if holds(row)]
            check_extremes(table, where, chosen)
            check_groups(table, where, chosen)


def check_extremes(table, where, rows):
    for column in ("x", "y", "s"):
        names = [f"min({column})", f"max({column})", f"count({column})"]
        (found,) = table.aggregate(names, where=where).to_pylist()
        assert [plain(value) for value in found.values()] == extremes(rows, column), (column, where)


def check_groups(table, where, rows):
    for column in ("x", "y", "s", "kind"):
        names = ["count", "min(x)", "max(x)", "count(x)"]
        found = table.aggregate(names, by=Terms(column, 100), where=where).to_pylist()
        expected = {key: [len(some), *extremes(some, "x")] for key, some in groups(rows, column).items()}
        assert {
            plain(row[column]): [plain(value) for value in list(row.values())[-4:]] for row in found
        } == expected, (column, where)
        assert len(found) == len(expected)


@pytest.mark.parametrize(
    "values", [[math.inf], [-math.inf], [math.nan], [math.inf, math.nan], [-math.inf, math.nan]]
)
def test_infinity_and_nan_alone_are_their_own_extremes(tmp_path, values):
    table = IndexTable.create(tmp_path / "table", pa.schema([("x", pa.float64())]))
    for value in values:
        table.append(pa.table({"x": [value, None]}))
    (found,) = table.aggregate(["min(x)", "max(x)"]).to_pylist()
    expected = extremes([{"x": value} for value in values], "x")[:2]
    assert [plain(value) for value in found.values()] == expected


def test_partition_columns_have_the_same_order_and_groups(tmp_path):
    schema = pa.schema([("n", pa.int64()), ("p", pa.float64())])
    table = IndexTable.create(tmp_path / "table", schema, partition_by=["p"])
    values = [math.nan, math.inf, -math.inf, -0.0, 0.0, 2.5, None]
    table.append(pa.table({"n": range(len(values)), "p": values}, schema))
    (found,) = table.aggregate(["min(p)", "max(p)", "count(p)"]).to_pylist()
    assert [plain(value) for value in found.values()] == [-math.inf, "NaN", 6]
    (found,) = table.aggregate(["max(p)", "sum(p)"], where="n > 1 AND n < 6").to_pylist()
    assert list(found.values()) == [2.5, -math.inf]
    counts = {plain(row["p"]): row["count"] for row in table.aggregate(by="p").to_pylist()}
    assert counts == {"NaN": 1, math.inf: 1, -math.inf: 1, 0.0: 2, 2.5: 1}


def test_a_sum_over_no_rows_of_a_partition_is_null(tmp_path):
    schema = pa.schema([("n", pa.int64()), ("p", pa.float64()), ("q", pa.int32())])
    table = IndexTable.create(tmp_path / "table", schema, partition_by=["p", "q"])
    table.append(pa.table({"n": [1], "p": [math.inf], "q": [3]}, schema))
    (found,) = table.aggregate(["sum(p)", "sum(q)", "avg(q)", "max(q)"], where="n = 2 OR n = 4").to_pylist()
    assert set(found.values()) == {None}


# Decimals of the largest precision: the sum has the type of the column, and an average four more decimal places.

WIDE = pa.decimal128(38, 2)
MOST = Decimal("9" * 36 + ".99")
LEAST = MOST.copy_negate()


@pytest.fixture(params=["column", "partition"])
def decimals(request, tmp_path):
    """A function that writes a table with these values in column d."""

    def write(*values, data_type=WIDE):
        schema = pa.schema([("n", pa.int64()), ("d", data_type)])
        partition_by = ["d"] if request.param == "partition" else []
        table = IndexTable.create(tmp_path / "table", schema, partition_by=partition_by)
        for number, value in enumerate(values):
            table.append(pa.table({"n": [number], "d": pa.array([value], data_type)}, schema))
        return table

    return write


@pytest.mark.parametrize("where", [None, "n >= 0"])
def test_sums_and_averages_of_the_widest_decimals(decimals, where):
    values = [Decimal("10.25"), Decimal(10) ** 30, -(Decimal(10) ** 30), None, Decimal("-0.75")]
    answer = decimals(*values).aggregate(["sum(d)", "avg(d)", "min(d)", "max(d)"], where=where)
    assert answer.schema.field("sum(d)").type == WIDE
    assert answer.schema.field("avg(d)").type == pa.decimal128(38, 6)
    assert list(answer.to_pylist()[0].values()) == [
        Decimal("9.50"),
        Decimal("2.375000"),
        -(Decimal(10) ** 30),
        Decimal(10) ** 30,
    ]


def test_a_sum_may_exceed_its_type_on_the_way(decimals):
    table = decimals(MOST, MOST, LEAST, LEAST, MOST)
    assert table.aggregate(["sum(d)"]).to_pylist() == [{"sum(d)": MOST}]


@pytest.mark.parametrize("metric", ["sum(d)", "avg(d)"])
def test_a_decimal_that_does_not_fit_its_type_is_an_error_that_says_so(decimals, metric):
    table = decimals(MOST, MOST, MOST)
    with pytest.raises(InvalidAggregationError, match=r"does not fit the type decimal128\(38") as raised:
        table.aggregate([metric])
    assert metric in str(raised.value)


def test_rows_that_decide_are_indexed_in_memory(tmp_path, monkeypatch):
    """A temporary directory could not always be removed: Tantivy's thread wrote to it at the same time."""
    table = build_table(tmp_path / "table", rows_of(1, 24))
    expected = table.aggregate(["count", "count(x)", "max(s)"], where="kind = 'even'")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert table.aggregate(["count", "count(x)", "max(s)"], where="kind LIKE '%v%'").equals(expected)
