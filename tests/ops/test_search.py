"""Searching and counting whole tables finds what a linear scan finds, best first, across many splits."""

import random
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import IndexTable
from indextables.errors import (
    InvalidOptionError,
    InvalidPredicateError,
    InvalidQueryError,
    InvalidSchemaError,
)
from indextables.ops.read import open_ref, split_refs
from indextables.ops.search import SearchRequest, count, search
from indextables.ops.write import append
from indextables.split.index_cache import index_cache
from indextables.storage import open_store
from indextables.table import create_table, load_snapshot
from support.faults import FaultStore
from support.tables import context, memory_store

SCHEMA = pa.schema(
    [("id", pa.int64()), ("body", pa.string()), ("tag", pa.string()), ("n", pa.int32()), ("day", pa.string())]
)
WORDS = ["data", "lake", "Date", "spark", "sparks", "été", "x1", "日本", "the"]
TAGS = ["red", "Red", "red-blue", "", "x1"]
DAYS = ["2024-01-01", "2024-01-02", None]
UNCACHED = {"spark.indextables.transaction.cache.enabled": "false"}


@pytest.fixture(scope="module")
def corpus():
    chance = random.Random(7)
    return [
        {
            "id": number,
            "body": chance.choice([None, *[" ".join(chance.choices(WORDS, k=chance.randrange(7)))] * 9]),
            "tag": chance.choice([None, *TAGS]),
            "n": chance.choice([None, *range(4)]),
            "day": chance.choice(DAYS),
        }
        for number in range(150)
    ]


@pytest.fixture(scope="module")
def table(tmp_path_factory, corpus):
    """The corpus in nine splits: three appends to three partitions."""
    path = tmp_path_factory.mktemp("search") / "table"
    created = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    for start in (0, 50, 100):
        created.append(pa.Table.from_pylist(corpus[start : start + 50], SCHEMA))
    assert created.num_files == 9
    return created


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table"


def small_table(path, *bodies):
    """A table with one split per text. The id is the text's index."""
    table = IndexTable.create(path, pa.schema([("id", pa.int64()), ("body", pa.string())]), text=["body"])
    for number, body in enumerate(bodies):
        table.append(pa.table({"id": [number], "body": [body]}))
    return table


# --- the model -----------------------------------------------------------------------------------------


def tokens(text):
    return [word.lower() for word in re.findall(r"[^\W_]+", text or "")]


def word(name, text):
    """A word in a field, or in any text field. `body` is tokenized, `tag` is compared as a whole."""
    in_body = lambda row: text.lower() in tokens(row["body"])  # noqa: E731
    in_tag = lambda row: row["tag"] == text  # noqa: E731
    fields = {"body:": [in_body], "tag:": [in_tag], "": [in_body, in_tag]}[name]
    return f"{name}{text}", lambda row: any(matches(row) for matches in fields)


def phrase(words):
    wanted = [each.lower() for each in words]

    def matches(row):
        found = tokens(row["body"])
        return any(found[at : at + len(wanted)] == wanted for at in range(len(found)))

    return f'body:"{" ".join(words)}"', matches


def prefix(text):
    return f"body:{text}*", lambda row: any(each.startswith(text) for each in tokens(row["body"]))


def number(low, high):
    return f"n:[{low} TO {high}]", lambda row: row["n"] is not None and low <= row["n"] <= high


def on_day(day):
    return f'day:"{day}"', lambda row: row["day"] == day


def both(left, right):
    return f"({left[0]} AND {right[0]})", lambda row: left[1](row) and right[1](row)


def either(left, right):
    return f"({left[0]} OR {right[0]})", lambda row: left[1](row) or right[1](row)


def but_not(wanted, excluded):
    return f"({wanted[0]} AND NOT {excluded[0]})", lambda row: wanted[1](row) and not excluded[1](row)


leaves = st.one_of(
    st.builds(word, st.sampled_from(["", "body:", "tag:"]), st.sampled_from([*WORDS, "red", "Red"])),
    st.builds(phrase, st.lists(st.sampled_from(WORDS), min_size=2, max_size=3)),
    st.builds(prefix, st.sampled_from(["d", "spark", "é", "日"])),
    st.builds(number, st.integers(-1, 3), st.integers(0, 4)),
    st.builds(on_day, st.sampled_from(["2024-01-01", "2024-01-02"])),
)
queries = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(both, inner, inner), st.builds(either, inner, inner), st.builds(but_not, inner, inner)
    ),
    max_leaves=4,
)
WHERES = {
    None: lambda row: True,
    "n >= 2": lambda row: row["n"] is not None and row["n"] >= 2,
    "day = '2024-01-01'": lambda row: row["day"] == "2024-01-01",
    "day IS NULL AND tag <> 'red'": lambda row: row["day"] is None and row["tag"] not in (None, "red"),
    "tag LIKE '%blue'": lambda row: row["tag"] is not None and row["tag"].endswith("blue"),
    "body LIKE 'd%' OR n = 1": lambda row: (row["body"] or "").startswith("d") or row["n"] == 1,
}


@settings(max_examples=60)
@given(queries, st.sampled_from(list(WHERES)))
def test_a_search_finds_what_a_linear_scan_finds(table, corpus, query, where):
    text, matches = query
    expected = [row["id"] for row in corpus if matches(row) and WHERES[where](row)]
    found = table.search(text, where=where, limit=len(corpus))
    assert sorted(found["id"].to_pylist()) == expected
    assert table.count(text, where=where) == len(expected)
    assert found["_score"].to_pylist() == sorted(found["_score"].to_pylist(), reverse=True)
    by_id = {row["id"]: row for row in corpus}
    assert found.drop_columns(["_score"]).to_pylist() == [by_id[number] for number in found["id"].to_pylist()]
    best = table.search(text, where=where, limit=5, columns=["id"])
    assert best.equals(found.select(["id", "_score"]).slice(0, 5))


# --- the best of many splits ---------------------------------------------------------------------------


def test_better_hits_come_first_whichever_split_they_are_in(path):
    table = IndexTable.create(path, pa.schema([("id", pa.int64()), ("body", pa.string())]), text=["body"])
    texts = ["word " + "filler " * 50, "word", "nothing", "word filler filler"]
    for start in (0, 10, 20):
        table.append(pa.table({"id": range(start, start + 4), "body": texts}))
    found = table.search("word")
    assert found.schema.names == ["id", "body", "_score"]
    assert found.schema.field("_score").type == pa.float32()
    numbers, scores = found["id"].to_pylist(), found["_score"].to_pylist()
    assert [number % 10 for number in numbers] == [1, 1, 1, 3, 3, 3, 0, 0, 0]
    assert len(set(numbers)) == 9
    assert scores[0] == scores[2] > scores[3] == scores[5] > scores[6] == scores[8] > 0
    assert table.search("word", limit=4).equals(found.slice(0, 4))


def test_equal_scores_come_in_the_same_order_to_every_reader(path):
    table = small_table(path, *["same words"] * 8)
    first = table.search("same", limit=5)["id"].to_pylist()
    assert len(set(first)) == 5
    assert set(table.search("same", limit=100)["id"].to_pylist()[:5]) == set(first)
    table.checkpoint()
    assert IndexTable(path, options=UNCACHED).search("same", limit=5)["id"].to_pylist() == first
    table.compact()
    assert IndexTable(path, options=UNCACHED).search("same", limit=5)["id"].to_pylist() == first


def test_equal_scores_within_a_split_come_in_the_order_of_its_rows(path):
    table = IndexTable.create(path, pa.schema([("id", pa.int64()), ("body", pa.string())]), text=["body"])
    table.append(pa.table({"id": range(1000), "body": ["same"] * 1000}))
    assert table.search("same", limit=20)["id"].to_pylist() == list(range(20))
    assert table.search("*", limit=3)["id"].to_pylist() == [0, 1, 2]


def test_a_limit_beyond_the_hits_gives_all_of_them(table):
    assert table.search("data", limit=10**9).num_rows == table.count("data")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_rejected(table, limit):
    with pytest.raises(InvalidOptionError, match="limit"):
        table.search("data", limit=limit)


def test_rows_decide_where_the_index_cannot_even_if_they_are_rare(path):
    table = IndexTable.create(path, pa.schema([("id", pa.int64()), ("tag", pa.string())]))
    count = 5000
    table.append(pa.table({"id": range(count), "tag": [f"t{number}" for number in range(count)]}))
    found = table.search("*", where="tag LIKE '%999'", limit=3)
    assert found["id"].to_pylist() == [999, 1999, 2999]
    assert table.count("*", where="tag LIKE '%999'") == 5
    assert table.search("id:[4990 TO *]", where="tag LIKE '%999'")["id"].to_pylist() == [4999]


# --- columns and fields --------------------------------------------------------------------------------


def test_columns_are_chosen_checked_and_may_be_none_at_all(table):
    assert table.search("data", columns=["N", "day"], limit=1).schema.names == ["n", "day", "_score"]
    assert table.search("data", columns=["day"], limit=3).num_rows == 3
    scores = table.search("data", columns=[], limit=3)
    assert (scores.schema.names, scores.num_rows) == (["_score"], 3)
    with pytest.raises(InvalidSchemaError, match="'nope'"):
        table.search("data", columns=["nope"])
    with pytest.raises(InvalidSchemaError, match="twice"):
        table.search("data", columns=["id", "id"])


def test_fields_are_searched_for_words_without_a_field(table, corpus):
    in_tag = sum(row["tag"] == "x1" for row in corpus)
    in_body = sum("x1" in tokens(row["body"]) for row in corpus)
    in_any = sum(row["tag"] == "x1" or "x1" in tokens(row["body"]) for row in corpus)
    assert (
        table.search("x1", fields=["tag"], limit=500).num_rows == table.count("x1", fields=["tag"]) == in_tag
    )
    assert table.count("x1", fields=["body"]) == in_body
    assert table.count("x1") == table.count("x1", fields=["body", "tag"]) == in_any


# --- invalid queries -----------------------------------------------------------------------------------


def ask_everything(table, query, **arguments):
    return [
        lambda: table.search(query, **arguments),
        lambda: table.count(query, **arguments),
        lambda: table.aggregate(query=query, **arguments),
    ]


@pytest.mark.parametrize("where", [None, "day = 'nowhere'"], ids=["all splits", "no splits"])
def test_an_unknown_field_is_refused_with_its_position_even_if_no_split_is_asked(table, where):
    for ask in ask_everything(table, "data AND bodi:lake", where=where):
        with pytest.raises(InvalidQueryError, match="did you mean body") as failure:
            ask()
        assert failure.value.position == 9


def test_an_empty_table_rejects_the_same_queries(path):
    table = small_table(path)
    assert table.search("word").schema.names == ["id", "body", "_score"]
    assert table.search("word").num_rows == table.count("word") == 0
    for ask in ask_everything(table, "nope:word"):
        with pytest.raises(InvalidQueryError, match="'nope'"):
            ask()
    with pytest.raises(InvalidQueryError, match="'nope'"):
        table.search("word", fields=["nope"])
    with pytest.raises(InvalidPredicateError, match="nope"):
        table.search("word", where="nope = 1")


@pytest.mark.parametrize("query", ["", "(data", 'body:"open', "data AND"])
def test_a_query_that_cannot_be_read_is_refused(table, query):
    with pytest.raises(InvalidQueryError):
        table.search(query)


# --- what is read --------------------------------------------------------------------------------------


class RangeStore(FaultStore):
    """A store that records which ranges of splits were read."""

    def __init__(self, inner):
        super().__init__(inner)
        self.ranges = []

    def get_range(self, key, start, end):
        if key.endswith(".split"):
            self.ranges.append((key, start, end))
        return super().get_range(key, start, end)

    def get_ranges(self, key, ranges):
        if key.endswith(".split"):
            self.ranges += [(key, start, end) for start, end in ranges]
        return super().get_ranges(key, ranges)

    def taken(self):
        """The ranges read since the last call."""
        ranges, self.ranges = self.ranges, []
        return ranges

    def has_read_any(self, parts):
        """Whether any of the given ranges was read since the last call."""
        read = self.taken()
        return any(key == k and start < e and s < end for key, start, end in parts for k, s, e in read)


def bodies(count, day):
    return pa.table(
        {"id": range(count), "body": [f"word w{i % 10}" for i in range(count)], "day": [day] * count},
    )


def table_on(store, settings, rows=100):
    """A table of two partitions with so many rows, on a store that records reads."""
    schema = pa.schema([("id", pa.int64()), ("body", pa.string()), ("day", pa.string())])
    properties = {"spark.indextables.indexing.typemap.text": "body"}
    snapshot = create_table(context(store, settings), schema, ("day",), properties)
    for day in ("a", "b"):
        snapshot = append(snapshot, bodies(rows, day)).snapshot
    store.taken()
    return snapshot


def asked(snapshot, query=None, where=None):
    return SearchRequest.of(snapshot, query, where)


def index_ranges(snapshot):
    """The ranges of the indexes of all splits."""
    found = set()
    for ref in split_refs(snapshot.entries):
        members = open_ref(snapshot, ref)._bundle.members
        found |= {(ref.path, member.start, member.end) for member in members.values()}
    return found


def test_the_log_alone_counts_rows_and_partitions():
    store = RangeStore(memory_store())
    table = IndexTable.__new__(IndexTable)
    table._bind(table_on(store, {}), is_pinned=False)
    assert table.count() == 200
    assert table.count(where="day = 'a'") == 100
    assert table.count(where="day IN ('a', 'b') AND day <> 'b'") == 100
    assert table.count(where="day > 'b'") == 0
    assert store.taken() == []
    assert table.count(where="day = 'a' AND id < 10") == 10
    assert {key.partition("/")[0] for key, _, _ in store.taken()} == {"day=a"}


def check_cache(store, cache):
    # What a search needs of a smaller index is read with the footer.
    snapshot = table_on(store, {"cache.disk.path": str(cache)}, rows=20_000)
    indexes = index_ranges(snapshot)
    store.taken()
    first = search(snapshot, asked(snapshot, "w3"), None, 100)
    assert store.has_read_any(indexes)
    again = search(load_snapshot(snapshot.context), asked(snapshot, "w3"), None, 100)
    assert not store.has_read_any(indexes)
    assert first.equals(again)
    assert (first.num_rows, count(snapshot, asked(snapshot, "w3"))) == (100, 4000)
    assert index_cache(snapshot.context.settings).flush() > 0
    store.taken()
    assert search(snapshot, asked(snapshot, "w3"), None, 100).equals(first)
    assert store.has_read_any(indexes)


def test_indexes_are_fetched_once_and_again_after_a_flush(tmp_path):
    check_cache(RangeStore(memory_store()), tmp_path / "cache")


def test_indexes_on_s3_are_fetched_once_and_again_after_a_flush(tmp_path, s3_server):
    url = f"s3://{s3_server.make_bucket()}/table"
    store = open_store(url, storage_options=s3_server.storage_options)
    check_cache(RangeStore(store), tmp_path / "cache")


def test_a_table_on_s3_is_written_searched_and_overwritten(tmp_path, s3_server):
    url = f"s3://{s3_server.make_bucket()}/some/table"
    access = {
        "storage_options": s3_server.storage_options,
        "options": {"spark.indextables.cache.disk.path": str(tmp_path / "cache")},
    }
    schema = pa.schema([("id", pa.int64()), ("body", pa.string()), ("day", pa.string())])
    created = IndexTable.create(url, schema, partition_by=["day"], text=["body"], **access)
    created.append(bodies(30, "ü/x"))
    created.append(bodies(30, None))
    table = IndexTable(url, **access)
    assert table.to_arrow(where="day = 'ü/x'").equals(bodies(30, "ü/x").cast(schema))
    assert table.search("w3 AND word", where="day IS NULL", limit=100)["id"].to_pylist() == [3, 13, 23]
    created.overwrite(bodies(5, "ü/x"), where="day = 'ü/x'")
    assert table.refresh().count("word") == 35
    assert IndexTable(url, version=2, **access).count("word") == 60


def test_an_index_larger_than_the_cache_is_still_searchable(tmp_path, path):
    options = {
        "spark.indextables.cache.disk.path": str(tmp_path / "cache"),
        "spark.indextables.cache.disk.maxSize": "1M",
    }
    schema = pa.schema([("body", pa.string())])
    chance = random.Random(3)
    texts = [" ".join(f"{chance.getrandbits(64):x}" for _ in range(12)) for _ in range(10_000)]
    table = IndexTable.create(path, schema, text=["body"], options=options)
    table.append(pa.table({"body": texts}))
    table.append(pa.table({"body": ["small"]}))
    wanted = texts[77].split()[0]
    for _ in range(2):
        assert table.search(wanted)["body"].to_pylist() == [texts[77]]
        assert table.count("small") == 1
    assert index_cache(table._snapshot.context.settings).size() <= 1024**2
