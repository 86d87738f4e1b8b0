"""Predicates over whole tables: scans, counts and searches agree with the filters of pyarrow."""

import random
from datetime import date, timedelta
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import IndexTable
from support.row_tables import counted

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("on", pa.date32()),
        ("b", pa.bool_()),
        ("part", pa.int64()),
    ]
)
DAYS = [date(2024, 1, 1) + timedelta(days=number) for number in range(5)]
WORDS = ["", "a", "ab", "b", "é", "zz"]
OPERATORS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@pytest.fixture(scope="module")
def everything():
    chance = random.Random(1)

    def maybe(values):
        return chance.choice([None, *values])

    return pa.Table.from_pylist(
        [
            {
                "key": key,
                "n": maybe(range(-3, 4)),
                "s": maybe(WORDS),
                "on": maybe(DAYS),
                "b": maybe([True, False]),
                "part": maybe([8, 9, 10]),
            }
            for key in range(120)
        ],
        SCHEMA,
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory, everything):
    """The rows in splits of three appends. The second append has few distinct values."""
    created = IndexTable.create(tmp_path_factory.mktemp("where") / "table", SCHEMA, partition_by=["part"])
    few = everything.filter(pc.field("n") > 1)
    others = everything.filter(~pc.coalesce(pc.field("n") > 1, False))
    for some in (others.slice(0, 40), few, others.slice(40)):
        created.append(some)
    return created


def literal(value):
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, date):
        return f"DATE '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def compared(column, operator, value):
    typed = pa.scalar(value, SCHEMA.field(column).type)
    return f"`{column}` {operator} {literal(value)}", OPERATORS[operator](pc.field(column), typed)


def among(column, values):
    # Arrow's isin is false for null, where SQL yields unknown.
    equal = [compared(column, "=", value)[1] for value in values]
    return f"`{column}` IN ({', '.join(map(literal, values))})", reduce(or_, equal)


def between(column, low, high):
    expression = compared(column, ">=", low)[1] & compared(column, "<=", high)[1]
    return f"`{column}` BETWEEN {literal(low)} AND {literal(high)}", expression


def beginning(prefix):
    return f"s LIKE '{prefix}%'", pc.starts_with(pc.field("s"), prefix)


def containing(part):
    return f"s LIKE '%{part}%'", pc.match_substring(pc.field("s"), part)


def null(column):
    return f"`{column}` IS NULL", pc.field(column).is_null()


def present(column):
    return f"`{column}` IS NOT NULL", pc.field(column).is_valid()


def both(left, right):
    return f"({left[0]} AND {right[0]})", left[1] & right[1]


def either(left, right):
    return f"({left[0]} OR {right[0]})", left[1] | right[1]


def negated(operand):
    return f"(NOT {operand[0]})", ~operand[1]


VALUES = {
    "n": st.integers(-4, 4),
    "s": st.sampled_from(WORDS),
    "on": st.sampled_from(DAYS),
    "b": st.booleans(),
    "part": st.integers(7, 12),
}
columns = st.sampled_from(list(VALUES))
operators = st.sampled_from(list(OPERATORS))
leaves = st.one_of(
    columns.flatmap(lambda name: st.builds(compared, st.just(name), operators, VALUES[name])),
    columns.flatmap(
        lambda name: st.builds(among, st.just(name), st.lists(VALUES[name], min_size=1, max_size=3))
    ),
    st.builds(between, st.sampled_from(["n", "part"]), st.integers(-4, 9), st.integers(-4, 12)),
    st.builds(beginning, st.sampled_from(["a", "z", "é"])),
    st.builds(containing, st.sampled_from(["b", "z", "é"])),
    st.builds(null, columns),
    st.builds(present, columns),
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(both, inner, inner), st.builds(either, inner, inner), st.builds(negated, inner)
    ),
    max_leaves=5,
)


@settings(max_examples=30)
@given(predicates)
def test_where_agrees_with_the_filters_of_pyarrow(table, everything, predicate):
    text, expression = predicate
    expected = everything.filter(expression)
    assert counted(table.to_arrow(where=text)) == counted(expected)
    assert table.count(where=text) == expected.num_rows
    found = table.search("*", where=text, limit=len(everything))
    assert counted(found.drop_columns(["_score"])) == counted(expected)
    (answer,) = table.aggregate(["count", "count(n)", "sum(n)", "min(on)"], where=text).to_pylist()
    assert answer == {
        "count": expected.num_rows,
        "count(n)": pc.count(expected["n"]).as_py(),
        "sum(n)": pc.sum(expected["n"]).as_py(),
        "min(on)": pc.min(expected["on"]).as_py(),
    }
