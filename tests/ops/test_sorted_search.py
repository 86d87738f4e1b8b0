"""Searches in the order of columns: random rows and orders, pages, splits that are skipped, and deleted rows."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cmp_to_key

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import IndexTable
from indextables.errors import InvalidOptionError
from indextables.ops.search import TOTAL_HITS

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("text", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("huge", pa.decimal128(38, 2)),
        ("raw", pa.binary()),
    ]
)
SORTABLE = ["n", "x", "s", "b", "d", "ts", "price", "huge", "raw", "text", "part"]
NUM_ROWS = 60


def value(column: str, number: int):
    """One of a few values of a column, or null; with many ties."""
    few = number % 7
    if few == 6:
        return None
    return {
        "text": f"apple w{few}" if number % 3 else f"pear w{few}",
        "n": few * 10 - 25,
        "x": [1.5, math.nan, -math.inf, math.inf, -2.5, 0.0][few],
        "s": ["b", "B", "", "ä", "aa", "a"][few],
        "b": bool(few % 2),
        "d": date(2026, 1, 1 + few),
        "ts": datetime(2026, 1, 1, few, tzinfo=UTC),
        "price": Decimal(few * 7 - 20).scaleb(-2),
        "huge": Decimal(few - 3) * 10**30,
        "raw": bytes([few, 255 - few]),
        "part": "pq"[few % 2],
    }[column]


def make_rows() -> list[dict]:
    rows = []
    for number in range(NUM_ROWS):
        seed = number * 2654435761 % 1000
        row = {name: value(name, seed // (place + 1)) for place, name in enumerate(SORTABLE)}
        rows.append({"id": number, **row, "text": row["text"] or "apple"})
    return rows


ROWS = make_rows()


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> IndexTable:
    """Several splits per partition, some of whose rows are deleted."""
    path = str(tmp_path_factory.mktemp("sorted") / "t")
    table = IndexTable.create(path, SCHEMA, partition_by=["part"], text=["text"])
    for start in range(0, NUM_ROWS, 15):
        table.append(pa.Table.from_pylist(ROWS[start : start + 15], SCHEMA))
    table.delete(where="id IN (3, 17, 18, 44)")
    return table


def order_of(row: dict, other: dict, sort: list[str]) -> int:
    for key in sort:
        name, sign = key.removeprefix("-"), -1 if key.startswith("-") else 1
        left, right = row[name], other[name]
        if (left is None) != (right is None):
            return 1 if left is None else -1
        if left is None or left == right or (left != left and right != right):
            continue
        is_less = (right != right) or (left == left and _plain(left) < _plain(right))
        return -sign if is_less else sign
    return 0


def _plain(each):
    return each.encode() if isinstance(each, str) else each


def expected(sort: list[str], matches) -> list[dict]:
    rows = [row for row in ROWS if row["id"] not in (3, 17, 18, 44) and matches(row)]
    return sorted(rows, key=cmp_to_key(lambda left, right: order_of(left, right, sort)))


sorts = st.lists(st.sampled_from(SORTABLE), min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(*(st.sampled_from([name, f"-{name}"]) for name in names)).map(list)
)
questions = st.sampled_from(
    [
        ("*", None, lambda row: True),
        ("apple", None, lambda row: "apple" in row["text"]),
        ("pear", "n > -10", lambda row: "pear" in row["text"] and row["n"] is not None and row["n"] > -10),
        ("*", "s >= 'a'", lambda row: row["s"] is not None and row["s"] >= "a"),
        ("absent", None, lambda row: False),
    ]
)


@settings(max_examples=60, deadline=None)
@given(sorts, questions, st.integers(1, 70), st.integers(0, 20))
def test_rows_come_in_order_with_nulls_last(table, sort, question, limit, offset):
    query, where, matches = question
    found = table.search(query, where, limit=limit, sort=sort, offset=offset, count=True)
    wanted = expected(sort, matches)
    names = [key.removeprefix("-") for key in sort]
    page = wanted[offset : offset + limit]
    keys = [[_comparable(row[name]) for name in names] for row in found.to_pylist()]
    assert keys == [[_comparable(row[name]) for name in names] for row in page]
    assert int(found.schema.metadata[TOTAL_HITS]) == len(wanted)


def _comparable(value):
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@settings(max_examples=30, deadline=None)
@given(sorts, questions, st.integers(1, 25))
def test_pages_follow_each_other_and_have_every_row_once(table, sort, question, limit):
    query, where, _ = question
    whole = table.search(query, where, columns=["id"], limit=100, sort=sort)["id"].to_pylist()
    page = table.search(query, where, columns=["id"], limit=limit, sort=sort)
    by_cursor: list[int] = []
    while page.num_rows and len(by_cursor) < NUM_ROWS:
        by_cursor += page["id"].to_pylist()
        page = table.search(query, where, columns=["id"], limit=limit, sort=sort, search_after=page)
    assert by_cursor == whole
    by_offset = [
        number
        for start in range(0, len(whole), limit)
        for number in table.search(query, where, columns=["id"], limit=limit, sort=sort, offset=start)[
            "id"
        ].to_pylist()
    ]
    assert by_offset == whole


def test_pages_by_score_are_cut_from_the_same_order(table):
    whole = table.search("apple w3", columns=["id"], limit=100)["id"].to_pylist()
    pages = [table.search("apple w3", columns=["id"], limit=7, offset=at) for at in range(0, len(whole), 7)]
    assert [number for page in pages for number in page["id"].to_pylist()] == whole
    counted = table.search("apple w3", limit=2, count=True)
    assert int(counted.schema.metadata[TOTAL_HITS]) == len(whole) == table.count("apple w3")


def test_matching_parts_are_a_column(table):
    found = table.search("apple", columns=["id", "text"], limit=1, sort="id", highlight=True)
    [row] = found.to_pylist()
    assert [row["text"][span["start"] : span["end"]] for span in row["_highlight"]["text"]] == ["apple"]
    assert table.search("apple", columns=["id"], limit=2, highlight=True)["_highlight"].to_pylist() == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": "tss"}, "there is no column 'tss' to sort by: did you mean 'ts'"),
        ({"sort": ["n", "-n"]}, "sorted by twice"),
        ({"sort": "n", "offset": -1}, "offset is -1"),
        ({"sort": "n", "limit": 0}, "limit is 0"),
        ({"search_after": "{}"}, "search_after needs a sort"),
        ({"sort": "n", "search_after": "{}"}, "not the cursor of a page"),
        ({"sort": "n", "search_after": pa.table({"n": [1]})}, "not a page of a sorted search"),
    ],
)
def test_wrong_pages_are_errors_with_a_remedy(table, options, message):
    with pytest.raises(InvalidOptionError, match=message):
        table.search("*", **options)


def test_a_cursor_belongs_to_one_order_and_one_version(tmp_path):
    table = IndexTable.create(
        str(tmp_path / "t"), pa.schema([("n", pa.int64()), ("l", pa.list_(pa.int64()))])
    )
    table.append(pa.table({"n": [1, 2, 3]}))
    page = table.search("*", sort="n", limit=1)
    with pytest.raises(InvalidOptionError, match="another order"):
        table.search("*", sort="-n", search_after=page)
    table.append(pa.table({"n": [0]}))
    with pytest.raises(InvalidOptionError, match="version=1"):
        table.search("*", sort="n", search_after=page)
    old = IndexTable(str(tmp_path / "t"), version=1)
    assert old.search("*", sort="n", search_after=page)["n"].to_pylist() == [2, 3]
    with pytest.raises(InvalidOptionError, match="no order"):
        table.search("*", sort="l")


def test_splits_that_cannot_reach_the_page_are_not_opened(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    table = IndexTable.create(path, pa.schema([("n", pa.int64())]))
    for start in range(0, 400, 10):
        table.append(pa.table({"n": range(start, start + 10)}))
    few = {"spark.indextables.read.parallelism": "2"}
    table = IndexTable(path, options=few)
    missing = table.files(columns=["path"], where="n BETWEEN 100 AND 300")["path"].to_pylist()
    for name in missing:
        (tmp_path / "t" / name).unlink()
    assert table.search("*", sort="n", limit=12)["n"].to_pylist() == list(range(12))
    assert table.search("*", sort="-n", limit=12)["n"].to_pylist() == list(range(399, 387, -1))


def test_a_column_that_was_renamed_and_widened_is_sorted_over_old_and_new_splits(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), pa.schema([("n", pa.int32()), ("f", pa.float32())]))
    table.append(pa.table({"n": pa.array([3, 1], pa.int32()), "f": pa.array([0.5, -1], pa.float32())}))
    table.rename_column("n", "number")
    table.alter_column("number", pa.int64())
    table.alter_column("f", pa.float64())
    table.add_column("added", pa.int64(), default=7)
    table.append(pa.table({"number": [2, 2**40], "f": [0.75, -2.0], "added": [1, None]}))
    assert table.search("*", sort="number")["number"].to_pylist() == [1, 2, 3, 2**40]
    assert table.search("*", sort="-f", limit=3)["f"].to_pylist() == [0.75, 0.5, -1]
    assert table.search("*", sort=["-added", "number"])["number"].to_pylist() == [1, 3, 2, 2**40]


@pytest.mark.parametrize("limit", [3, 9, 100])
def test_nan_among_many_numbers_of_one_split_is_above_all_of_them(tmp_path, limit):
    values = [
        math.nan,
        1.5,
        math.nan,
        -2.25,
        None,
        math.nan,
        0.5,
        math.inf,
        math.nan,
        -math.inf,
        3.0,
        None,
        math.nan,
    ]
    table = IndexTable.create(tmp_path / "t", pa.schema([("x", pa.float64())]))
    table.append([{"x": value} for value in values])
    numbers = sorted(value for value in values if value is not None and not math.isnan(value))
    for sort, expected in (
        ("x", [*numbers, *[math.nan] * 5, None, None]),
        ("-x", [*[math.nan] * 5, *reversed(numbers), None, None]),
    ):
        found = table.search("*", sort=sort, limit=limit)["x"].to_pylist()
        assert repr(found) == repr(expected[:limit])
