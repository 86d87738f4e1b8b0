"""The part of a predicate that the index answers and the rest for the rows are together the predicate."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.predicates import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Not,
    Operator,
    Or,
    bind,
    col,
    to_arrow_filter,
)
from indextables.search.hits import matching_rows, search_index
from indextables.search.index_query import IndexField, all_rows
from indextables.search.predicate_query import partition_predicate
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from support.search_indexes import build_index, json_field, string_field, text_field

UTC_MICROSECONDS = pa.timestamp("us", "UTC")
COLUMNS = {
    "i": (pa.int64(), [0, -1, 7, 2**63 - 1, -(2**63), None]),
    "f": (pa.float64(), [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, None]),
    "b": (pa.bool_(), [True, False, None]),
    "s": (pa.string(), ["", "a", "A", "b\nc", "日本", "z" * 300, None]),
    "d": (pa.date32(), [date(1970, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]),
    "t": (UTC_MICROSECONDS, [datetime(2024, 1, 1, 0, 0, 0, 1, UTC), datetime(1969, 1, 1, tzinfo=UTC), None]),
    "m": (pa.decimal128(18, 2), [Decimal("1.50"), Decimal("-1.50"), Decimal(0), None]),
    "g": (pa.decimal128(38, 2), [Decimal("1.50"), Decimal("-1.50"), Decimal("9" * 36 + ".99"), None]),
    "y": (pa.binary(), [b"", b"\x00", b"abc", None]),
}
SCHEMA = pa.schema([(name, data_type) for name, (data_type, _) in COLUMNS.items()])
KINDS = {
    "i": FieldKind.I64,
    "f": FieldKind.F64,
    "b": FieldKind.BOOL,
    "d": FieldKind.DATE,
    "t": FieldKind.TIMESTAMP,
    "m": FieldKind.DECIMAL,
    "g": FieldKind.BIG_DECIMAL,
    "y": FieldKind.BYTES,
}


def mapping_of(*, fast):
    fields = [
        FieldMapping(name, kind, fast=fast, scale=2 if name in "mg" else 0) for name, kind in KINDS.items()
    ]
    return DocMapping((*fields, string_field("s", fast=fast)))


def check(predicate, mapping, index, rows):
    """Check that the partitioned predicate finds the rows that Arrow finds; return the rest for the rows."""
    numbered = rows.append_column("row", pa.array(range(rows.num_rows)))
    expected = numbered.filter(to_arrow_filter(predicate))["row"].to_pylist()
    query, rest = partition_predicate(predicate, mapping)
    found = matching_rows(index, all_rows() if query is None else query)
    candidates = numbered.take(pa.array(found))
    left = candidates if rest is None else candidates.filter(to_arrow_filter(rest))
    assert left["row"].to_pylist() == expected
    return rest


values = st.one_of(*(st.tuples(st.just(name), st.sampled_from(each)) for name, (_, each) in COLUMNS.items()))
comparisons = st.builds(
    lambda value, how: Comparison(value[0], how, value[1]), values, st.sampled_from(Operator)
)
lists = st.sampled_from(sorted(COLUMNS)).flatmap(
    lambda name: st.builds(
        lambda each: In(name, tuple(each)), st.lists(st.sampled_from(COLUMNS[name][1]), max_size=3)
    )
)
columns = st.sampled_from(sorted(COLUMNS))
leaves = st.one_of(
    comparisons,
    lists,
    st.builds(IsNull, columns),
    st.builds(IsNotNull, columns),
    st.sampled_from([AlwaysTrue(), AlwaysFalse(), col("s").starts_with("a"), col("s").like("%b%")]),
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)),
    max_leaves=5,
)
tables = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(each) for name, (_, each) in COLUMNS.items()}),
    min_size=1,
    max_size=12,
).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))


@settings(max_examples=15)
@given(tables, st.lists(predicates, min_size=10, max_size=10), st.booleans())
def test_query_and_rest_are_the_predicate(rows, asked, fast):
    mapping = mapping_of(fast=fast)
    index = build_index(mapping, rows)
    for predicate in asked:
        check(bind(predicate, SCHEMA), mapping, index, rows)


def value_at(values, number):
    return values[number] if number < len(values) else None


ALL_VALUES = pa.Table.from_pylist(
    [{name: value_at(each, row) for name, (_, each) in COLUMNS.items()} for row in range(7)], SCHEMA
)


@pytest.fixture(scope="module")
def fast_index():
    mapping = mapping_of(fast=True)
    return mapping, build_index(mapping, ALL_VALUES)


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"y", "s"}))
def test_the_index_alone_answers_typed_columns(fast_index, name):
    mapping, index = fast_index
    for value in COLUMNS[name][1]:
        for how in Operator:
            assert check(Comparison(name, how, value), mapping, index, ALL_VALUES) is None
            assert check(Not(Comparison(name, how, value)), mapping, index, ALL_VALUES) is None
    assert check(IsNull(name), mapping, index, ALL_VALUES) is None
    assert check(Not(In(name, tuple(COLUMNS[name][1][:2]))), mapping, index, ALL_VALUES) is None


@pytest.mark.parametrize("how", [Operator.EQ, Operator.NE])
def test_the_index_alone_answers_equality_of_strings(fast_index, how):
    mapping, index = fast_index
    for value in COLUMNS["s"][1]:
        assert check(Comparison("s", how, value), mapping, index, ALL_VALUES) is None


def test_conjuncts_are_partitioned():
    mapping = mapping_of(fast=True)
    predicate = And(col("i") == 7, col("s").like("%b%"), col("unknown") == 1)
    query, rest = partition_predicate(predicate, mapping)
    assert query is not None
    assert rest == And(col("s").like("%b%"), col("unknown") == 1)


@pytest.mark.parametrize(
    "predicate",
    [
        col("s") > "a",
        col("s").starts_with("a"),
        col("text") == "a",
        col("json").is_null(),
        col("ip") == "10.0.0.1",
        col("y") != b"abc",
        col("y").is_null(),
        Or(col("i") == 7, col("text") == "a"),
        col("s") == "x" * 70_000,
    ],
)
def test_what_the_index_cannot_decide_is_left_to_the_rows(predicate):
    more = (text_field("text"), json_field("json"), FieldMapping("ip", FieldKind.IP))
    mapping = DocMapping((*mapping_of(fast=True).fields, *more))
    assert partition_predicate(predicate, mapping) == (None, predicate)


def test_strings_longer_than_a_term_are_not_lost():
    mapping = mapping_of(fast=True)
    rows = pa.Table.from_pylist([{"s": "a"}, {"s": "b" * 70_000}, {"s": None}], SCHEMA)
    index = build_index(mapping, rows)
    for predicate in [col("s") != "a", col("s") > "a", col("s").starts_with("b"), col("s").is_null()]:
        check(predicate, mapping, index, rows)


def test_strings_longer_than_a_configured_limit_are_not_lost():
    mapping = DocMapping((string_field("s", max_token_bytes=5),))
    rows = pa.table({"s": ["a", "muchtoolong", None]})
    index = build_index(mapping, rows)
    for predicate in [col("s") != "a", col("s") == "muchtoolong", col("s").is_null(), ~col("s").is_in(["a"])]:
        check(predicate, mapping, index, rows)


def test_always_true_excludes_nothing():
    assert partition_predicate(AlwaysTrue(), mapping_of(fast=True)) == (None, None)


def test_a_filter_does_not_change_scores(fast_index):
    mapping, index = fast_index
    query = IndexField(mapping.tantivy_schema(), mapping.find("s")).term("a")
    condition, _ = partition_predicate(col("i") < 5, mapping)
    alone, both = search_index(index, query, 5), search_index(index, query.filtered(condition), 5)
    assert both.rows.tolist() == alone.rows.tolist() == [1]
    assert both.scores.tolist() == pytest.approx(alone.scores.tolist())
    assert query.filtered(None) is query
