"""Arrow filters against an independent three-valued evaluation in plain Python."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidPredicateError
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
    StartsWith,
    bind,
    col,
    columns_of,
    parse_predicate,
    to_arrow_filter,
)

SCHEMA = pa.schema(
    [
        ("i", pa.int16()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(6, 2)),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
    ]
)

EPOCH = datetime(2024, 1, 1)
TEXTS = st.text(alphabet="aAb%_\\é\uffff\U0001f600\n", max_size=3)
VALUES = {
    "i": st.integers(-3, 3),
    "f": st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 3.0]),
    "g": st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 3.0]),
    "d": st.integers(-300, 300).map(lambda n: Decimal(n).scaleb(-2)),
    "b": st.booleans(),
    "s": TEXTS,
    "raw": st.binary(max_size=2),
    "day": st.integers(-3, 3).map(lambda n: date(2024, 1, 1) + timedelta(days=n)),
    "ts": st.integers(-3, 3).map(lambda n: EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=n)),
    "local": st.integers(-3, 3).map(lambda n: EPOCH + timedelta(microseconds=n)),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | v for name, v in VALUES.items()}), max_size=12)


def leaves(name):
    value = st.none() | VALUES[name]
    found = [
        st.builds(Comparison, st.just(name), st.sampled_from(Operator), value),
        st.builds(In, st.just(name), st.lists(value, max_size=4).map(tuple)),
        st.just(IsNull(name)),
        st.just(IsNotNull(name)),
    ]
    if name == "s":
        found.append(st.builds(StartsWith, st.just("s"), TEXTS))
        pattern = st.lists(st.sampled_from(["%", "_", "a", "é", "\\%", "\\\\", "\n", "😀"]), max_size=4)
        found.append(pattern.map(lambda parts: col("s").like("".join(parts))))
        found.append(pattern.map(lambda parts: Like("s", "".join(parts))))
    return st.one_of(found)


PREDICATES = st.recursive(
    st.one_of([leaves(name) for name in VALUES]) | st.sampled_from([AlwaysTrue(), AlwaysFalse()]),
    lambda inner: (
        inner.map(Not)
        | st.lists(inner, min_size=2, max_size=3).map(lambda operands: And(*operands))
        | st.lists(inner, min_size=2, max_size=3).map(lambda operands: Or(*operands))
    ),
    max_leaves=6,
)


@settings(max_examples=150)
@given(ROWS, PREDICATES)
def test_filter_keeps_exactly_the_rows_that_sql_keeps(rows, predicate):
    table = pa.Table.from_pylist(rows, SCHEMA).append_column("n", pa.array(range(len(rows)), pa.int64()))
    expression = to_arrow_filter(bind(predicate, SCHEMA))
    kept = table.filter(expression).column("n").to_pylist()
    # The values of a float column are those that it stores, here all exact.
    assert kept == [n for n, row in enumerate(rows) if truth(predicate, row) is True]
    assert ds.dataset(table).to_table(filter=expression).column("n").to_pylist() == kept


@settings(max_examples=60)
@given(ROWS, PREDICATES)
def test_negation_swaps_true_and_false_and_leaves_unknown(rows, predicate):
    table = pa.Table.from_pylist(rows, SCHEMA).append_column("n", pa.array(range(len(rows)), pa.int64()))
    kept = table.filter(to_arrow_filter(bind(Not(predicate), SCHEMA))).column("n").to_pylist()
    assert kept == [n for n, row in enumerate(rows) if truth(predicate, row) is False]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x > 1.5", [2, 3]),
        ("x <> 1.5", [0, 1, 2, 3]),
        ("x < 1000", [0, 1, 2, 3]),
        ("x > 1000", []),
        ("NOT (x = 1000)", [0, 1, 2, 3]),
        ("x NOT IN (1, NULL)", []),
        ("x IN (1, NULL)", [1]),
        ("NOT (x <=> NULL)", [0, 1, 2, 3]),
        ("NOT (x <=> 1)", [0, 2, 3, None]),
        ("x = NULL OR x = 2", [2]),
        ("x IS NOT NULL", [0, 1, 2, 3]),
        ("x IS NULL", [None]),
    ],
)
def test_sql_text_filters_a_byte_column_with_a_null(text, kept):
    table = pa.table({"x": pa.array([0, 1, 2, 3, None], pa.int8())})
    assert (
        table.filter(to_arrow_filter(bind(parse_predicate(text), table.schema))).column("x").to_pylist()
        == kept
    )


def test_is_not_null_as_the_only_predicate_still_filters():
    table = pa.table({"x": pa.array([None, "", "null"], pa.string())})
    assert table.filter(to_arrow_filter(IsNotNull("x"))).column("x").to_pylist() == ["", "null"]


def test_float_column_compares_as_double():
    table = pa.table({"x": pa.array([0.1, 0.5], pa.float32())})
    for text, count in [
        ("x = 0.1", 0),
        ("x = 0.1f", 1),
        ("x > 0.1", 2),
        ("x IN (0.5)", 1),
        ("x < '1e39'", 2),
    ]:
        assert table.filter(to_arrow_filter(bind(parse_predicate(text), table.schema))).num_rows == count, (
            text
        )


def test_wide_predicates_do_not_crash_the_process():
    table = pa.table({"x": pa.array([1, 2, None], pa.int64()), "y": pa.array([1, 1, 1], pa.int64())})
    text = " OR ".join(f"(x = {n} AND y <> {n})" for n in range(3000))
    assert table.filter(to_arrow_filter(bind(parse_predicate(text), table.schema))).num_rows == 1


def test_deep_predicates_do_not_crash_the_process():
    predicate = col("x") == 1
    for n in range(49):
        predicate = (predicate | (col("x") == n)) & (col("x") != -n - 1)
    table = pa.table({"x": pa.array([1, 99, None], pa.int64())})
    assert table.filter(to_arrow_filter(bind(predicate, table.schema))).num_rows == 1


def test_longest_pattern_can_be_matched():
    table = pa.table({"s": ["é" * 3000, "x"]})
    pattern = "%".join(["é" * 5] * 680)
    assert table.filter(to_arrow_filter(bind(col("s").like(pattern), table.schema))).num_rows == 0
    assert table.filter(to_arrow_filter(bind(col("s").like("_" * 3000), table.schema))).num_rows == 1


def test_something_that_is_no_predicate_is_refused():
    with pytest.raises(InvalidPredicateError, match="not a predicate"):
        to_arrow_filter("x = 1")


# --- the oracle: SQL's truth of one predicate for one row, None is unknown -----------------------------


def truth(predicate, row):
    match predicate:
        case AlwaysTrue():
            return True
        case AlwaysFalse():
            return False
        case And(operands=operands):
            found = [truth(operand, row) for operand in operands]
            return False if False in found else None if None in found else True
        case Or(operands=operands):
            found = [truth(operand, row) for operand in operands]
            return True if True in found else None if None in found else False
        case Not(operand=operand):
            found = truth(operand, row)
            return None if found is None else not found
    (column,) = columns_of(predicate)
    return leaf_truth(predicate, row[column])


def leaf_truth(predicate, value):
    match predicate:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
    if value is None:
        return None
    match predicate:
        case Comparison(value=None):
            return None
        case Comparison(operator=how, value=literal):
            return compared(how, rank(value), rank(literal))
        case In(values=values):
            found = rank(value) in [rank(v) for v in values if v is not None]
            return True if found else None if None in values else False
        case StartsWith(prefix=prefix):
            return value.startswith(prefix)
        case Like(pattern=pattern):
            return matches(value, pattern)


def compared(how, left, right):
    return {
        Operator.EQ: left == right,
        Operator.NE: left != right,
        Operator.LT: left < right,
        Operator.LE: left <= right,
        Operator.GT: left > right,
        Operator.GE: left >= right,
    }[how]


def rank(value):
    """A key with Spark's order: NaN is equal to itself and above everything; text by code points."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value


def matches(text, pattern):
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(matches(text[n:], pattern[1:]) for n in range(len(text) + 1))
    if not text:
        return False
    if pattern[0] == "_":
        return matches(text[1:], pattern[1:])
    if pattern[0] == "\\":
        pattern = pattern[1:]
    return text[0] == pattern[0] and matches(text[1:], pattern[1:])
