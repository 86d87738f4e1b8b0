"""From a query to row numbers: best first, merged over splits, deterministic."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tantivy import Document

from indextables.errors import SearchFailedError
from indextables.search.compile import SearchScope, compile_query
from indextables.search.hits import Hits, count_index, matching_rows, merge_hits, search_index
from indextables.search.parser import parse_query
from indextables.split.doc_mapping import ROW_FIELD, DocMapping
from indextables.split.index_builder import IndexBuilder
from indextables.split.index_opener import open_index
from indextables.split.slim_index import create_index
from support.search_indexes import build_index, text_field

MAPPING = DocMapping((text_field("body"),))


def query(text):
    return compile_query(parse_query(text), SearchScope(MAPPING))


@pytest.fixture(scope="module")
def index():
    bodies = ["spark", "spark spark", "a spark in a long text about other things", "flink", None, "spark"]
    return build_index(MAPPING, pa.table({"body": bodies}))


def test_best_first_and_ties_by_row(index):
    hits = search_index(index, query("spark"), 10)
    assert hits.rows.tolist() == [1, 0, 5, 2]
    assert hits.scores.tolist() == sorted(hits.scores.tolist(), reverse=True)
    assert hits.rows.dtype == np.int64
    assert hits.scores.dtype == np.float32


def test_scores_are_tantivys_own(index):
    raw = index.search(query("spark OR flink").query, 10).hits
    hits = search_index(index, query("spark OR flink"), 10)
    assert hits.scores.tolist() == [score for score, _ in raw]


@pytest.mark.parametrize(
    ("limit", "expected"), [(1, [1]), (2, [1, 0]), (0, []), (-1, []), (10**9, [1, 0, 5, 2])]
)
def test_limits(index, limit, expected):
    assert search_index(index, query("spark"), limit).rows.tolist() == expected


def test_all_rows_and_their_count(index):
    assert matching_rows(index, query("spark")).tolist() == [0, 1, 2, 5]
    assert count_index(index, query("spark")) == 4
    assert count_index(index, query("*")) == 6
    assert count_index(index, query("nothing")) == 0


def test_an_empty_index_has_no_hits():
    empty = build_index(MAPPING, pa.table({"body": pa.array([], pa.string())}))
    assert len(search_index(empty, query("*"), 10)) == 0
    assert matching_rows(empty, query("*")).tolist() == []
    assert count_index(empty, query("*")) == 0


def test_a_split_with_many_rows(tmp_path):
    builder = IndexBuilder(tmp_path, MAPPING, 15_000_000)
    for start in range(0, 3000, 1000):
        bodies = [f"row {number}" for number in range(start, start + 1000)]
        builder.add(pa.record_batch({"body": bodies}))
    builder.finish()
    index = open_index(tmp_path, MAPPING, "here")
    assert search_index(index, query("2345"), 10).rows.tolist() == [2345]
    assert matching_rows(index, query("row")).tolist() == list(range(3000))


def test_merged_by_score_then_split_then_row():
    first = Hits(np.array([3.0, 1.0], np.float32), np.array([7, 2]))
    second = Hits(np.array([3.0, 3.0, 2.0], np.float32), np.array([9, 1, 0]))
    merged = merge_hits([first, Hits(np.empty(0, np.float32), np.empty(0, np.int64)), second], 4)
    assert merged.scores.tolist() == [3.0, 3.0, 3.0, 2.0]
    assert merged.splits.tolist() == [0, 2, 2, 2]
    assert merged.rows.tolist() == [7, 1, 9, 0]


def test_merging_nothing():
    assert len(merge_hits([], 10)) == 0


scores = st.sampled_from([0.5, 1.0, 1.5]).map(np.float32)
answers = st.lists(scores, max_size=6).map(
    lambda found: Hits(np.array(sorted(found, reverse=True), np.float32), np.arange(len(found)))
)


@settings(max_examples=60)
@given(st.lists(answers, max_size=5), st.integers(0, 12))
def test_merging_is_sorting_all_hits(hits, limit):
    every = [
        (-float(score), split, int(row))
        for split, each in enumerate(hits)
        for score, row in zip(each.scores, each.rows, strict=True)
    ]
    merged = merge_hits(hits, limit)
    found = zip((-merged.scores).tolist(), merged.splits.tolist(), merged.rows.tolist(), strict=True)
    assert list(found) == sorted(every)[:limit]


def test_a_damaged_index_is_a_typed_error(tmp_path):
    builder = IndexBuilder(tmp_path, MAPPING, 15_000_000)
    builder.add(pa.record_batch({"body": [f"word{number}" for number in range(1000)]}))
    builder.finish()
    terms = next(tmp_path.glob("*.term"))
    terms.write_bytes(b"\xff" * 1000 + terms.read_bytes()[1000:])
    index = open_index(tmp_path, MAPPING, "here")
    for ask in (lambda: search_index(index, query("word7"), 10), lambda: count_index(index, query("word7"))):
        with pytest.raises(SearchFailedError, match="cannot be searched"):
            ask()


def test_a_tantivy_panic_is_a_typed_error(index):
    other = DocMapping((text_field("body"), text_field("more"), text_field("and_more")))
    foreign = compile_query(parse_query("and_more:x"), SearchScope(other))
    for ask in (search_index, matching_rows, count_index):
        with pytest.raises(SearchFailedError, match="Tantivy panicked"):
            ask(index, foreign, 10) if ask is search_index else ask(index, foreign)


def test_an_index_of_several_segments_is_refused(tmp_path):
    built = create_index(tmp_path, MAPPING)
    writer = built.writer(15_000_000, num_threads=1)
    for row in range(2):
        document = Document()
        document.add_text("body", "spark")
        document.add_integer(ROW_FIELD, row)
        writer.add_document(document)
        writer.commit()
    built.reload()
    with pytest.raises(SearchFailedError, match="it has 2 segments, and should have one"):
        search_index(built.searcher(), query("spark"), 10)
