"""Aggregations agree with Arrow over the rows, have the right types, and merge over splits."""

import math
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidAggregationError
from indextables.search import Aggregation, Histogram, Metric, MetricFunction, Terms
from indextables.search.aggregation import PartialAggregate, partial_schema
from indextables.search.compile import SearchScope, compile_query
from indextables.search.merge_aggregates import merge_aggregates
from indextables.search.parser import parse_query
from indextables.search.split_aggregate import MAX_GROUPS, BeyondIndexError, aggregate_index
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from support.search_indexes import build_index, json_field, string_field, text_field

COUNT, VALUE_COUNT, MIN, MAX, SUM, AVG, *_ = MetricFunction
UTC_MICROSECONDS = pa.timestamp("us", "UTC")

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float64()),
        ("h", pa.float32()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", UTC_MICROSECONDS),
        ("m", pa.decimal128(10, 2)),
        ("g", pa.decimal128(38, 2)),
        ("ip", pa.string()),
        ("text", pa.string()),
    ]
)
MAPPING = DocMapping(
    (
        FieldMapping("i", FieldKind.I64),
        FieldMapping("l", FieldKind.I64),
        FieldMapping("f", FieldKind.F64),
        FieldMapping("h", FieldKind.F64),
        FieldMapping("b", FieldKind.BOOL),
        string_field("s"),
        FieldMapping("d", FieldKind.DATE),
        FieldMapping("t", FieldKind.TIMESTAMP),
        FieldMapping("m", FieldKind.DECIMAL, scale=2),
        FieldMapping("g", FieldKind.BIG_DECIMAL, scale=2),
        FieldMapping("ip", FieldKind.IP),
        text_field("text"),
    )
)
SCOPE = SearchScope(MAPPING, SCHEMA)


def table(rows):
    return pa.Table.from_pylist(rows, SCHEMA)


def aggregated(splits, aggregation, text="*", scope=SCOPE):
    """Aggregate several splits."""
    query = compile_query(parse_query(text), scope)
    partials = [
        aggregate_index(build_index(scope.mapping, rows), query, aggregation, scope) for rows in splits
    ]
    return merge_aggregates(aggregation, partials, scope.schema)


def one(splits, function, column, text="*"):
    answer = aggregated(splits, Aggregation((Metric(function, column),)), text)
    assert answer.num_rows == 1
    return answer.column(0)[0]


def groups(splits, by, *metrics, **options):
    answer = aggregated(splits, Aggregation(metrics or (Metric(COUNT),), (by,)), **options)
    return [tuple(row.values()) for row in answer.to_pylist()]


NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
ROWS = [
    {"i": 1, "l": 2**62 + 1, "f": 1.5, "h": 0.1, "b": True, "s": "a", "d": date(2024, 1, 1), "t": NOON},
    {"i": -2, "l": 2**62 + 3, "f": -2.0, "h": 0.2, "b": False, "s": "b", "d": date(9999, 12, 31)},
    {"i": 4, "l": -5, "m": Decimal("1.25"), "g": Decimal("9" * 36 + ".99"), "ip": "10.0.0.1", "text": "x"},
    {"i": 1, "m": Decimal("-0.50"), "g": Decimal("-1.00"), "s": "a", "ip": "::1"},
    {},
]
SPLITS = [table(ROWS[:2]), table(ROWS[2:]), table([])]


@pytest.mark.parametrize(
    ("function", "column", "expected", "data_type"),
    [
        (COUNT, "i", 4, pa.int64()),
        (MIN, "i", -2, pa.int32()),
        (MAX, "i", 4, pa.int32()),
        (SUM, "i", 4, pa.int64()),
        (AVG, "i", 1.0, pa.float64()),
        (MAX, "l", 2**62 + 3, pa.int64()),
        (MIN, "l", -5, pa.int64()),
        (SUM, "f", -0.5, pa.float64()),
        (AVG, "f", -0.25, pa.float64()),
        (MAX, "h", pa.scalar(0.2, pa.float32()).as_py(), pa.float32()),
        (MIN, "b", False, pa.bool_()),
        (MAX, "b", True, pa.bool_()),
        (COUNT, "b", 2, pa.int64()),
        (MIN, "s", "a", pa.string()),
        (MAX, "s", "b", pa.string()),
        (COUNT, "s", 3, pa.int64()),
        (MIN, "d", date(2024, 1, 1), pa.date32()),
        (MAX, "d", date(9999, 12, 31), pa.date32()),
        (MAX, "t", NOON, UTC_MICROSECONDS),
        (SUM, "m", Decimal("0.75"), pa.decimal128(20, 2)),
        (AVG, "m", Decimal("0.375000"), pa.decimal128(14, 6)),
        (MIN, "m", Decimal("-0.50"), pa.decimal128(10, 2)),
        (MAX, "g", Decimal("9" * 36 + ".99"), pa.decimal128(38, 2)),
        (MIN, "g", Decimal("-1.00"), pa.decimal128(38, 2)),
        (SUM, "g", Decimal("9" * 35 + "8.99"), pa.decimal128(38, 2)),
        (COUNT, "ip", 2, pa.int64()),
    ],
)
def test_metrics_over_splits_are_exact_and_typed(function, column, expected, data_type):
    found = one(SPLITS, function, column)
    assert found.as_py() == expected
    assert found.type == data_type


def test_several_metrics_are_the_columns_of_one_row():
    metrics = (Metric(COUNT), Metric(MIN, "i"), Metric(MAX, "i"), Metric(AVG, "f"))
    answer = aggregated(SPLITS, Aggregation(metrics))
    assert answer.to_pylist() == [{"count": 5, "min(i)": -2, "max(i)": 4, "avg(f)": -0.25}]


def test_only_matching_rows_count():
    assert one(SPLITS, COUNT, None, "i:>0").as_py() == 3
    assert one(SPLITS, SUM, "i", "s:a").as_py() == 2


@pytest.mark.parametrize("splits", [[], [table([])], SPLITS])
def test_metrics_of_nothing_are_null(splits):
    functions = (COUNT, VALUE_COUNT, MIN, MAX, SUM, AVG)
    metrics = tuple(Metric(function, column) for function in functions for column in ("i", "f", "m"))
    row = aggregated(splits, Aggregation((Metric(COUNT), *metrics)), "s:nothing").to_pylist()[0]
    assert all(value == 0 if "count" in name else value is None for name, value in row.items())


def test_sums_beyond_the_precision_of_doubles_are_exact():
    values = [2**62 + 1, 2**53 + 1, -(2**62), 3]
    assert one([table([{"l": value} for value in values])], SUM, "l").as_py() == sum(values)


def test_small_values_whose_sum_is_beyond_the_precision_of_doubles_are_exact():
    values = [2**52 + 1] * 5
    assert one([table([{"l": value} for value in values])], SUM, "l").as_py() == sum(values)


def test_a_sum_of_floats_over_many_splits_is_always_the_same():
    aggregation = Aggregation((Metric(SUM, "f"),))
    columns = partial_schema(aggregation, SCHEMA)
    values = [1e16 if number % 7 == 0 else number / 3 for number in range(400)]
    partials = [
        PartialAggregate(
            pa.Table.from_pylist(
                [{"rows": 1, "count0": 1, "nan0": 0, "sum0": value, "min0": value, "max0": value}], columns
            )
        )
        for value in values
    ]
    answers = {merge_aggregates(aggregation, partials, SCHEMA)[0][0].as_py() for _ in range(50)}
    assert len(answers) == 1


def test_a_sum_that_does_not_fit_is_an_error_and_not_a_wrong_number():
    with pytest.raises(InvalidAggregationError, match="does not fit"):
        one([table([{"l": 2**63 - 1}, {"l": 1}])], SUM, "l")


def test_averages_of_integers_do_not_overflow():
    assert one([table([{"l": 2**63 - 1}, {"l": 2**63 - 3}])], AVG, "l").as_py() == float(2**63 - 2)


def test_nan_is_above_every_number():
    some, only = [{"f": 1.0}, {"f": math.nan}, {"f": -math.inf}], [{"f": math.nan}]
    assert math.isnan(one([table(some)], MAX, "f").as_py())
    assert one([table(some)], MIN, "f").as_py() == -math.inf
    assert math.isnan(one([table(only), table([])], MIN, "f").as_py())
    assert one([table(only), table([{"f": 2.0}])], MIN, "f").as_py() == 2.0
    assert one([table([{"f": math.inf}, {"f": -math.inf}])], MAX, "f").as_py() == math.inf


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("i", [(1, 2), (-2, 1), (4, 1)]),
        ("l", [(-5, 1), (2**62 + 1, 1), (2**62 + 3, 1)]),
        ("f", [(-2.0, 1), (1.5, 1)]),
        ("b", [(False, 1), (True, 1)]),
        ("s", [("a", 2), ("b", 1)]),
        ("d", [(date(2024, 1, 1), 1), (date(9999, 12, 31), 1)]),
        ("t", [(NOON, 1)]),
        ("m", [(Decimal("-0.50"), 1), (Decimal("1.25"), 1)]),
        ("g", [(Decimal("-1.00"), 1), (Decimal("9" * 36 + ".99"), 1)]),
        ("ip", [("10.0.0.1", 1), ("::1", 1)]),
    ],
)
def test_terms_merge_over_splits_and_keep_the_columns_type(column, expected):
    answer = aggregated(SPLITS, Aggregation(by=(Terms(column),)))
    assert [tuple(row.values()) for row in answer.to_pylist()] == expected
    assert answer.schema.field(column).type == SCHEMA.field(column).type


def test_the_most_frequent_terms_only():
    assert groups(SPLITS, Terms("i", size=1)) == [(1, 2)]


def test_metrics_of_groups():
    found = groups(SPLITS, Terms("s"), Metric(COUNT), Metric(SUM, "i"), Metric(MAX, "f"), Metric(MIN, "b"))
    assert found == [("a", 2, 2, 1.5, True), ("b", 1, -2, -2.0, False)]


def test_nan_in_groups():
    rows = [{"s": "a", "f": 1.0}, {"s": "a", "f": math.nan}, {"s": "b", "f": 2.0}, {"s": "c", "f": math.nan}]
    found = groups([table(rows)], Terms("s"), Metric(MAX, "f"), Metric(MIN, "f"))
    assert [key for key, _, _ in found] == ["a", "b", "c"]
    assert [math.isnan(highest) for _, highest, _ in found] == [True, False, True]
    assert [lowest for _, _, lowest in found][:2] == [1.0, 2.0]
    assert math.isnan(found[2][2])


def test_nan_is_one_group():
    rows = [{"f": math.nan}, {"f": -math.nan}, {"f": 0.0}, {"f": -0.0}, {"f": 1.0}]
    found = groups([table(rows), table(rows)], Terms("f"))
    assert [count for _, count in found] == [4, 4, 2]
    assert found[0][0] == 0.0
    assert math.isnan(found[1][0])


def test_terms_beyond_the_limit_are_left_to_the_rows(monkeypatch):
    monkeypatch.setattr("indextables.search.split_aggregate.MAX_GROUPS", 2)
    with pytest.raises(BeyondIndexError, match="more than 2 values"):
        aggregated([table([{"s": value} for value in "aaabbc"])], Aggregation(by=(Terms("s"),)))


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (Histogram("i", 2), [(-2, 1), (0, 2), (4, 1)]),
        (Histogram("i", 2, offset=1), [(-3, 1), (1, 2), (3, 1)]),
        (Histogram("i", 2, offset=-5), [(-3, 1), (1, 2), (3, 1)]),
        (Histogram("f", 0.5), [(-2.0, 1), (1.5, 1)]),
        (Histogram("m", Decimal("0.5")), [(Decimal("-0.50"), 1), (Decimal("1.00"), 1)]),
        (Histogram("m", 0.5), [(Decimal("-0.50"), 1), (Decimal("1.00"), 1)]),
        (Histogram("t", timedelta(hours=5)), [(datetime(2024, 1, 31, 8, tzinfo=UTC), 1)]),
        (Histogram("t", timedelta(days=1)), [(datetime(2024, 1, 31, tzinfo=UTC), 1)]),
        (
            Histogram("d", timedelta(weeks=1), offset=timedelta(days=4)),
            [(date(2024, 1, 1), 1), (date(9999, 12, 27), 1)],
        ),
    ],
)
def test_histograms(by, expected):
    answer = aggregated(SPLITS, Aggregation(by=(by,)))
    assert [tuple(row.values()) for row in answer.to_pylist()] == expected


def test_histogram_edges_are_exact_for_timestamps():
    moments = [NOON - timedelta(microseconds=1), NOON, NOON + timedelta(microseconds=1)]
    found = groups([table([{"t": moment} for moment in moments])], Histogram("t", timedelta(hours=1)))
    assert found == [(NOON - timedelta(hours=1), 1), (NOON, 2)]


def test_histogram_keys_may_lie_outside_the_columns_type():
    schema = pa.schema([("x", pa.int8())])
    scope = SearchScope(DocMapping((FieldMapping("x", FieldKind.I64),)), schema)
    answer = aggregated(
        [pa.table({"x": pa.array([-128], pa.int8())})], Aggregation(by=(Histogram("x", 100),)), scope=scope
    )
    assert answer.to_pylist() == [{"x": -200, "count": 1}]


def test_histograms_ignore_values_without_an_interval():
    rows = [{"f": math.nan}, {"f": math.inf}, {"f": None}, {"f": 1.0}]
    assert groups([table(rows)], Histogram("f", 1.0)) == [(1.0, 1)]


def test_partition_columns_group_and_are_measured():
    schema = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("year", pa.int32())])
    mapping = DocMapping((FieldMapping("n", FieldKind.I64),))
    partials = []
    metrics = (Metric(COUNT), Metric(SUM, "n"), Metric(SUM, "year"), Metric(MAX, "day"))
    aggregation = Aggregation(metrics, (Terms("day"),))
    for number, day in enumerate([date(2024, 1, 1), date(2024, 1, 2), None, date(2024, 1, 1)]):
        partition = pa.table({"day": pa.array([day], pa.date32()), "year": pa.array([2024], pa.int32())})
        scope = SearchScope(mapping, schema, partition)
        index = build_index(mapping, pa.table({"n": [number, 10]}))
        query = compile_query(parse_query("*"), scope)
        partials.append(aggregate_index(index, query, aggregation, scope))
    answer = merge_aggregates(aggregation, partials, schema)
    assert [tuple(row.values()) for row in answer.to_pylist()] == [
        (date(2024, 1, 1), 4, 23, 8096, date(2024, 1, 1)),
        (date(2024, 1, 2), 2, 11, 4048, date(2024, 1, 2)),
    ]


def test_columns_that_a_split_does_not_have_are_null_there():
    schema = pa.schema([("n", pa.int64()), ("later", pa.int64())])
    scope = SearchScope(DocMapping((FieldMapping("n", FieldKind.I64),)), schema)
    metrics = (Metric(COUNT), Metric(COUNT, "later"), Metric(MAX, "later"))
    answer = aggregated([pa.table({"n": [1, 2]})], Aggregation(metrics), scope=scope)
    assert answer.to_pylist() == [{"count": 2, "count(later)": 0, "max(later)": None}]
    assert groups([pa.table({"n": [1, 2]})], Terms("later"), scope=scope) == []


def test_counts_of_columns_without_fast_values():
    schema = pa.schema([("n", pa.int64())])
    scope = SearchScope(DocMapping((FieldMapping("n", FieldKind.I64, fast=False),)), schema)
    rows = pa.table({"n": [1, None, 3]})
    assert aggregated([rows], Aggregation((Metric(COUNT, "n"),)), scope=scope).to_pylist() == [
        {"count(n)": 2}
    ]
    with pytest.raises(InvalidAggregationError, match="fast"):
        aggregated([rows], Aggregation((Metric(MAX, "n"),)), scope=scope)


@pytest.mark.parametrize(
    ("aggregation", "reason"),
    [
        (Aggregation((Metric(MAX, "nope"),)), "no column 'nope'"),
        (Aggregation((Metric(SUM, "s"),)), "does not apply to the type string"),
        (Aggregation((Metric(AVG, "d"),)), "does not apply to the type date32"),
        (Aggregation((Metric(MAX, "text"),)), "no fast values"),
        (Aggregation((Metric(MIN, "ip"),)), "addresses"),
        (Aggregation((Metric(SUM, "g"),), (Terms("s"),)), "values are text"),
        (Aggregation(by=(Terms("text"),)), "no fast values"),
        (Aggregation((Metric(MAX, "l"),), (Terms("s"),)), "beyond 2\\^53"),
        (Aggregation((Metric(MAX, "s"),), (Terms("i"),)), "values are text"),
        (Aggregation(by=(Histogram("s", 1),)), "cannot group"),
        (Aggregation(by=(Histogram("g", 1),)), "holds text"),
        (Aggregation(by=(Histogram("l", 1),)), "beyond 2\\^53"),
        (Aggregation(by=(Histogram("i", 0.5),)), "more decimal places"),
        (Aggregation(by=(Histogram("i", timedelta(days=1)),)), "as a number"),
        (Aggregation(by=(Histogram("d", 1),)), "as a timedelta"),
        (Aggregation(by=(Histogram("d", timedelta(hours=1)),)), "not a multiple"),
    ],
)
def test_unanswerable_aggregations_are_typed_errors(aggregation, reason):
    with pytest.raises(InvalidAggregationError, match=reason):
        aggregated(SPLITS, aggregation)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Metric(MAX), "needs a column"),
        (lambda: Terms("s", 0), "at least 1"),
        (lambda: Histogram("i", 0), "above zero"),
        (lambda: Histogram("i", -1.5), "above zero"),
        (lambda: Histogram("f", math.nan), "above zero"),
        (lambda: Aggregation(()), "needs at least one metric"),
        (lambda: Aggregation((Metric(COUNT), Metric(COUNT))), "twice"),
        (lambda: Metric.parse("median(x)"), "not a metric"),
        (lambda: Metric.parse("max(x"), "not a metric"),
    ],
)
def test_invalid_requests_are_rejected(build, reason):
    with pytest.raises(InvalidAggregationError, match=reason):
        build()


def test_metrics_by_name():
    assert Metric.parse("count") == Metric(COUNT)
    assert Metric.parse(" MAX( price )") == Metric(MAX, "price")


def test_column_names_may_be_tantivy_keywords():
    names = ["rows", "key", "doc_count", "groups", "metric0"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    scope = SearchScope(DocMapping(tuple(FieldMapping(name, FieldKind.I64) for name in names)), schema)
    rows = pa.table({name: [number, 1] for number, name in enumerate(names)})
    metrics = tuple(Metric(SUM, name) for name in names)
    assert aggregated([rows], Aggregation(metrics), scope=scope).to_pylist() == [
        {f"sum({name})": number + 1 for number, name in enumerate(names)}
    ]
    assert groups([rows], Terms("key"), Metric(MAX, "doc_count"), scope=scope) == [(1, 2)]


def test_requests_and_partial_results_pickle():
    aggregation = Aggregation((Metric(COUNT), Metric(AVG, "m")), (Histogram("t", timedelta(days=1)),))
    query = compile_query(parse_query("*"), SCOPE)
    partial = aggregate_index(build_index(MAPPING, SPLITS[0]), query, aggregation, SCOPE)
    again = pickle.loads(pickle.dumps((aggregation, partial)))
    assert again[0] == aggregation
    assert again[1].groups.equals(partial.groups)


values = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3),
        "l": st.none() | st.integers(-(2**62), 2**62),
        "s": st.none() | st.sampled_from(["a", "b", "é"]),
        "m": st.none() | st.integers(-500, 500).map(lambda unscaled: Decimal(unscaled).scaleb(-2)),
        "d": st.none() | st.dates(date(1960, 1, 1), date(2030, 1, 1)),
        "f": st.none() | st.integers(-8, 8).map(lambda eighths: eighths / 8),
    }
)


@settings(max_examples=15)
@given(st.lists(st.lists(values, max_size=8).map(table), min_size=1, max_size=3))
def test_aggregations_agree_with_arrow(splits):
    rows = pa.concat_tables(splits)
    metrics = [
        Metric(function, column) for column in ("i", "l", "m", "f", "d") for function in (COUNT, MIN, MAX)
    ]
    metrics += [Metric(SUM, column) for column in ("i", "m", "f")]
    found = aggregated(splits, Aggregation(tuple(metrics))).to_pylist()[0]
    expected = rows.group_by([]).aggregate([(metric.column, metric.function.value) for metric in metrics])
    assert found == {
        metric.name: expected[f"{metric.column}_{metric.function.value}"][0].as_py() for metric in metrics
    }

    by_term = groups(splits, Terms("s"), Metric(COUNT), Metric(SUM, "m"), Metric(MAX, "d"))
    grouped = (
        rows.filter(rows["s"].is_valid())
        .group_by("s")
        .aggregate([([], "count_all"), ("m", "sum"), ("d", "max")])
    )
    wanted = [(row["s"], row["count_all"], row["m_sum"], row["d_max"]) for row in grouped.to_pylist()]
    assert by_term == sorted(wanted, key=lambda row: (-row[1], row[0]))


def test_json_columns_are_rejected():
    schema = pa.schema([("j", pa.struct([("a", pa.int64())]))])
    scope = SearchScope(DocMapping((json_field("j"),)), schema)
    rows = pa.table({"j": pa.array([{"a": 1}], schema.field("j").type)})
    with pytest.raises(InvalidAggregationError, match="cannot group"):
        aggregated([rows], Aggregation(by=(Terms("j"),)), scope=scope)


def test_more_groups_than_tantivy_allows():
    schema = pa.schema([("n", pa.int64())])
    scope = SearchScope(DocMapping((FieldMapping("n", FieldKind.I64),)), schema)
    rows = pa.table({"n": range(MAX_GROUPS + 1)})
    index, query = build_index(scope.mapping, rows), compile_query(parse_query("*"), scope)
    for by in (Terms("n", size=3), Histogram("n", 1)):
        with pytest.raises(BeyondIndexError, match=r"more than 65,000"):
            aggregate_index(index, query, Aggregation(by=(by,)), scope)
