"""Skipping never loses a row: random typed tables, random files, random predicates.

A file is kept if any of its rows matches. The rows are matched by Arrow filters, which have their own oracle.
Statistics come from our writer, and from imitations of careless writers that exist in the field.
"""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import combinations_with_replacement, product

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.predicates import (
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
    to_arrow_filter,
)
from indextables.pruning import (
    Bounds,
    BoundsOrder,
    StatisticsOptions,
    column_statistics,
    format_value,
    match_partitions,
    merge_statistics,
    partition_bounds,
    prune_files,
    prune_manifests,
)
from indextables.schema import TableShape

STRING_MAP = pa.map_(pa.string(), pa.string())

# Few values for each type, so that rows, bounds and literals meet: the borders of types, of zero, of the basic
# plane and the surrogates (where orders of text disagree), and texts that are cut in the middle of a pair.
LONG = "a" * 31
TEXTS = ["", "a", "ab", "a?", "é", "a\ud7ff", "a\ue000", "a\uffff", "a\U00010000", "a\U0010ffff", "aaab"]
TEXTS += [LONG + end for end in ("", "a", "z", "za", "\U00010000", "\uffff\uffff")]
FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 3.0]
NOON = datetime(2024, 1, 1, 12)
MOMENTS = [NOON + timedelta(microseconds=n) for n in (-1, 0, 1, 999, 1000, 1001, 500_000)]
MOMENTS += [datetime.min + timedelta(days=2), datetime.max - timedelta(days=2)]
INSTANTS = [moment.replace(tzinfo=UTC) for moment in MOMENTS]
DAYS = [date.min, date(2023, 12, 31), date(2024, 1, 1), date(2024, 1, 9), date.max]
CENTS = [Decimal(text) for text in ("-9.50", "0.00", "9.50", "9.51", "10.00", "9999.99")]
# One and its neighbours, which a double cannot tell apart.
ATTOS = [Decimal(10**18 + n).scaleb(-18) for n in (-1000, -1, 0, 1, 2, 1000)]
INTEGERS = [-9, 0, 1, 2, 9, 10, 12, 100]

COLUMNS = {
    "i": (pa.int64(), [*INTEGERS, -(2**63), 2**63 - 1]),
    "short": (pa.int16(), INTEGERS),
    "f": (pa.float64(), FLOATS),
    "g": (pa.float32(), [*FLOATS, 0.10000000149011612]),
    "d": (pa.decimal128(6, 2), CENTS),
    "wide": (pa.decimal128(38, 18), ATTOS),
    "b": (pa.bool_(), [False, True]),
    "s": (pa.string(), TEXTS),
    "day": (pa.date32(), DAYS),
    "ts": (pa.timestamp("us", "UTC"), INSTANTS),
    "local": (pa.timestamp("us"), MOMENTS),
}
PARTITIONS = {
    "p_int": (pa.int32(), INTEGERS),
    "p_text": (pa.string(), ["100", "25", "9", "", "null", "a\ue000", "a\uffff", "a\U00010000"]),
    "p_float": (pa.float64(), FLOATS),
    "p_dec": (pa.decimal128(6, 2), CENTS),
    "p_day": (pa.date32(), DAYS),
    "p_ts": (pa.timestamp("us", "UTC"), INSTANTS),
    "p_flag": (pa.bool_(), [False, True]),
}
POOLS = {name: values for name, (_, values) in {**COLUMNS, **PARTITIONS}.items()}
SCHEMA = pa.schema([(name, data_type) for name, (data_type, _) in {**COLUMNS, **PARTITIONS}.items()])


def leaves(name):
    """Every simple predicate over a column."""
    found = [Comparison(name, how, value) for how in Operator for value in [*POOLS[name], None]]
    found += [In(name, (value, extra)) for value in POOLS[name] for extra in (POOLS[name][0], None)]
    found += [IsNull(name), IsNotNull(name), In(name, ()), In(name, (None,))]
    if SCHEMA.field(name).type == pa.string():
        found += [StartsWith(name, text) for text in POOLS[name]]
        found += [Like(name, text + end) for text in POOLS[name] for end in ("%z", "_", "%a%")]
    return found


def with_negations(predicates):
    # The negation of a comparison is another comparison.
    return [
        *predicates,
        *(Not(predicate) for predicate in predicates if not isinstance(predicate, Comparison)),
    ]


def trees(names):
    return st.recursive(
        st.sampled_from([leaf for name in names for leaf in leaves(name)]),
        lambda inner: (
            inner.map(Not)
            | st.lists(inner, min_size=2, max_size=3).map(lambda operands: And(*operands))
            | st.lists(inner, min_size=2, max_size=3).map(lambda operands: Or(*operands))
        ),
        max_leaves=3,
    )


def scenario(names):
    """Some files, each with its partition and rows, and a predicate, all over the same few columns."""
    values = {name: st.none() | st.sampled_from(POOLS[name]) for name in names}
    partition = st.fixed_dictionaries({name: values[name] for name in names if name in PARTITIONS})
    row = st.fixed_dictionaries({name: values[name] for name in names if name in COLUMNS})
    files = st.lists(st.tuples(partition, st.lists(row, max_size=4)), min_size=1, max_size=5)
    return st.tuples(st.just(names), files, trees(names))


def scenarios(*groups):
    # Made once for each group: making a strategy takes longer than drawing from it.
    made = [scenario(names) for names in groups]
    return st.integers(0, len(made) - 1).flatmap(made.__getitem__)


PARTITION_GROUPS = [("p_int", "p_text"), ("p_float", "p_day", "p_flag"), ("p_dec", "p_ts")]
COLUMN_GROUPS = [("i", "s", "f"), ("d", "ts", "b"), ("g", "day", "local"), ("wide", "short")]
MIXED_GROUPS = [("p_int", "i", "s"), ("p_text", "f"), ("p_day", "p_flag", "ts"), ("p_float", "d")]


def our_statistics(table):
    # Texts are cut to three characters, so that cuts are common. Two batches, so that they are merged.
    options = StatisticsOptions(max_length=3)
    half = table.num_rows // 2
    parts = [column_statistics(part, options, list(PARTITIONS)) for part in (table[:half], table[half:])]
    merged = merge_statistics(*parts, SCHEMA)
    return merged.min_values, merged.max_values


def careless_statistics(table):
    """What writers on the JVM have left: other orders, cuts, detours over doubles, no NaN."""
    minima, maxima = {}, {}
    for name in set(table.column_names) & set(COLUMNS):
        data_type = COLUMNS[name][0]
        values = [v for v in table.column(name).to_pylist() if v is not None]
        if pa.types.is_floating(data_type):
            values = [v for v in values if not math.isnan(v)]
        if not values:
            continue
        least, greatest = min(values, key=jvm_rank), max(values, key=jvm_rank)
        if name in ("short", "d", "local"):
            least = greatest = values[0]
        minima[name], maxima[name] = jvm_text(name, least), jvm_text(name, greatest)
    return minima, maxima


def jvm_rank(value):
    return value.encode("utf-16-be") if isinstance(value, str) else value


def jvm_text(name, value):
    match value:
        case str():
            units = value.encode("utf-16-be")[:64]
            cut = units.decode("utf-16-be", "surrogatepass")
            return "".join("?" if "\ud800" <= c <= "\udfff" else c for c in cut)
        case datetime():
            return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + (
                "Z" if name == "ts" else ""
            )
        case Decimal() if name == "wide":
            return repr(float(value)).removesuffix(".0")
        case bool():
            return str(value).lower()
    return str(value)


def typed_bounds(values, names):
    return partition_bounds(values, TableShape(SCHEMA, tuple(names)))


def text_order_bounds(values, names):
    """As writers have computed them that compare every value as text, in UTF-16."""
    found = {}
    for name in names:
        texts = [text for text in pc.map_lookup(values, name, "first").to_pylist() if text is not None]
        ends = (end(texts, key=jvm_rank, default=None) for end in (min, max))
        found[name] = Bounds(*ends)
    return found


def no_statistics(table):
    return {}, {}


def make_files(names, files, statistics):
    """Return the rows of each file as a table, and the entries of all files."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    tables, columns = [], {"partitionValues": [], "minValues": [], "maxValues": []}
    for partition, rows in files:
        table = pa.Table.from_pylist([{**row, **partition} for row in rows], schema)
        minima, maxima = statistics(table)
        tables.append(table)
        texts = {name: format_value(table[name][0]) for name in partition if table.num_rows}
        columns["partitionValues"].append([(k, v) for k, v in texts.items() if v is not None])
        columns["minValues"].append(list(minima.items()) or None)
        columns["maxValues"].append(list(maxima.items()) or None)
    entries = pa.table({name: pa.array(values, STRING_MAP) for name, values in columns.items()})
    return tables, entries


def matching(tables, predicate):
    expression = to_arrow_filter(bind(predicate, SCHEMA))
    return [table.filter(expression).num_rows > 0 for table in tables]


def check_files(names, files, predicate, statistics):
    tables, entries = make_files(names, files, statistics)
    result = prune_files(entries, bind(predicate, SCHEMA), TableShape(SCHEMA, tuple(PARTITIONS)))
    kept = result.keep.to_pylist()
    lost = [n for n, match in enumerate(matching(tables, predicate)) if match and not kept[n]]
    assert not lost, entries.slice(lost[0], 1).to_pylist()
    assert result.candidates == len(files)
    assert result.skipped_by_partition + result.skipped_by_statistics == kept.count(False)


def keeps_all_that_match(tables, predicates, prune):
    """Check many predicates over the same places; each place is a table of rows."""
    rows = pa.concat_tables(
        [
            table.append_column("place", pa.array([n] * len(table), pa.int64()))
            for n, table in enumerate(tables)
        ]
    )
    rows = rows.combine_chunks()
    for predicate in predicates:
        found = rows.filter(to_arrow_filter(bind(predicate, SCHEMA)))["place"]
        kept = pa.array(range(len(tables)), pa.int64()).filter(prune(predicate))
        lost = found.filter(pc.invert(pc.is_in(found, value_set=kept)))
        assert not len(lost), (predicate, tables[lost[0].as_py()].to_pylist())


@pytest.mark.parametrize("statistics", [our_statistics, careless_statistics])
@pytest.mark.parametrize("name", COLUMNS)
def test_no_row_is_lost_among_all_files_of_two_rows(name, statistics):
    files = [
        ({}, [{name: first}, {name: second}]) for first, second in product([*POOLS[name], None], repeat=2)
    ]
    tables, entries = make_files([name], files, statistics)
    predicates = with_negations(leaves(name))
    keeps_all_that_match(
        tables, predicates, lambda p: prune_files(entries, bind(p, SCHEMA), TableShape(SCHEMA)).keep
    )


@pytest.mark.parametrize("bounds_of", [typed_bounds, text_order_bounds])
@pytest.mark.parametrize("name", PARTITIONS)
def test_no_row_is_lost_among_all_manifests_of_three_files(name, bounds_of):
    tables, bounds = [], []
    for values in combinations_with_replacement([*POOLS[name], None], 3):
        of_files, entries = make_files([name], [({name: value}, [{}]) for value in values], no_statistics)
        tables.append(pa.concat_tables(of_files))
        bounds.append(bounds_of(entries["partitionValues"].combine_chunks(), [name]))
    predicates = with_negations(leaves(name))
    orders = [BoundsOrder.UNKNOWN, BoundsOrder.TYPED] if bounds_of is typed_bounds else [BoundsOrder.UNKNOWN]
    for order in orders:
        keeps_all_that_match(
            tables,
            predicates,
            lambda p, order=order: prune_manifests(
                bind(p, SCHEMA), bounds, TableShape(SCHEMA, (name,)), order=order
            ),
        )


@settings(max_examples=80)
@given(scenarios(*COLUMN_GROUPS, *MIXED_GROUPS))
def test_no_row_is_lost_with_statistics_of_our_writer(drawn):
    check_files(*drawn, our_statistics)


@settings(max_examples=80)
@given(scenarios(*COLUMN_GROUPS))
def test_no_row_is_lost_with_statistics_of_careless_writers(drawn):
    check_files(*drawn, careless_statistics)


@settings(max_examples=40)
@given(scenarios(*PARTITION_GROUPS))
def test_partition_predicates_are_decided_exactly(drawn):
    names, files, predicate = drawn
    tables, entries = with_one_row_each(names, files)
    expected = matching(tables, predicate)
    result = prune_files(entries, bind(predicate, SCHEMA), TableShape(SCHEMA, tuple(PARTITIONS)))
    assert result.keep.to_pylist() == expected
    assert result.skipped_by_partition == expected.count(False)
    assert (
        match_partitions(entries, bind(predicate, SCHEMA), TableShape(SCHEMA, tuple(PARTITIONS))).to_pylist()
        == expected
    )


@settings(max_examples=40)
@given(scenarios(*PARTITION_GROUPS), st.integers(0, 5), st.sampled_from(BoundsOrder))
def test_no_row_is_lost_by_skipping_manifests(drawn, cut, order):
    check_manifests(*drawn, cut, order, typed_bounds)


@settings(max_examples=40)
@given(scenarios(*PARTITION_GROUPS), st.integers(0, 5))
def test_no_row_is_lost_with_bounds_that_were_compared_as_text(drawn, cut):
    check_manifests(*drawn, cut, BoundsOrder.UNKNOWN, text_order_bounds)


def check_manifests(names, files, predicate, cut, order, bounds_of):
    tables, entries = with_one_row_each(names, files)
    manifests = [slice(0, cut), slice(cut, None)]
    values = entries["partitionValues"].combine_chunks()
    bounds = [bounds_of(values[part], names) for part in manifests]
    kept = prune_manifests(
        bind(predicate, SCHEMA), bounds, TableShape(SCHEMA, tuple(PARTITIONS)), order=order
    ).to_pylist()
    for part, is_kept in zip(manifests, kept, strict=True):
        assert is_kept or not any(matching(tables[part], predicate))


def with_one_row_each(names, files):
    return make_files(names, [(partition, [{}]) for partition, _ in files], no_statistics)
