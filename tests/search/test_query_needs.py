"""Queries find the same in a copy of the index that holds only what they need, and read nothing else of it."""

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidAggregationError, InvalidQueryError, SearchFailedError
from indextables.predicates import bind
from indextables.search import Aggregation
from indextables.search.compile import SearchScope, compile_with_predicate
from indextables.search.hits import count_index, matching_rows, search_index
from indextables.search.index_query import IndexField, IndexQuery
from indextables.search.parser import parse_query
from indextables.search.split_aggregate import aggregate_index, aggregate_needs
from indextables.split.cold_data import PAGE_BYTES, ColdData
from indextables.split.index_builder import DocumentEncoder
from indextables.split.needs import EVERYTHING, NOTHING, Needs
from indextables.split.prediction import rounds
from support.random_queries import (
    MAPPING,
    ROWS,
    SCHEMA,
    VOCABULARY,
    groupings,
    leaves,
    metrics,
    predicates,
    queries,
    rows_of,
)
from support.sparse_copies import SparseCopy

SCOPE = SearchScope(MAPPING, SCHEMA, default_fields=("body", "level"))


class Corpus(msgspec.Struct, frozen=True):
    """An index, its cold data, and the values that queries can ask for."""

    directory: Path
    cold: ColdData
    complete: tantivy.Searcher
    rows: pa.Table
    copies: Path
    numbers: itertools.count

    def check(self, needs: Needs, ask: Callable[[tantivy.Searcher], Any]) -> SparseCopy:
        """Check that a copy with what is needed has the same answer as the index, and that nothing else was read."""
        copy = SparseCopy(self.directory, self.copies / str(next(self.numbers)), self.cold)
        copy.fetch_needs(self.cold, needs)
        found = ask(copy.open(MAPPING))
        assert copy.touched_holes() == []
        assert found == ask(self.complete)
        return copy


# Seeds of the rows, and dictionaries that are fetched whole or in parts.
SHAPES = {
    "whole dictionaries": (1, 1_500_000),
    "large dictionaries": (3, 4_000),
    "larger dictionaries": (4, 1_000),
}


@pytest.fixture(scope="module", params=SHAPES)
def corpus(request, tmp_path_factory) -> Corpus:
    seed, whole_bytes = SHAPES[request.param]
    directory = tmp_path_factory.mktemp("index")
    rows = rows_of(seed)
    build(directory, rows)
    cold = ColdData.decode(ColdData.of(directory, whole_bytes=whole_bytes).encode())
    assert len(cold.segments) == 1
    index = tantivy.Index.open(str(directory))
    MAPPING.register_tokenizers(index)
    copies = tmp_path_factory.mktemp("copies")
    return Corpus(directory, cold, index.searcher(), rows, copies, itertools.count())


def build(directory: Path, rows: pa.Table) -> None:
    index = tantivy.Index(MAPPING.tantivy_schema(), path=str(directory))
    MAPPING.register_tokenizers(index)
    writer = index.writer(50_000_000, num_threads=1)
    [batch] = rows.combine_chunks().to_batches()
    for document in DocumentEncoder(MAPPING).documents(batch, 0):
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()


def best(query: IndexQuery, limit: int) -> Callable[[tantivy.Searcher], Any]:
    def ask(searcher: tantivy.Searcher) -> Any:
        hits = search_index(searcher, query, limit)
        return hits.rows.tolist(), hits.scores.tolist()

    return ask


def everything(query: IndexQuery) -> Callable[[tantivy.Searcher], Any]:
    return lambda searcher: (matching_rows(searcher, query).tolist(), count_index(searcher, query))


def check_query(corpus: Corpus, query: IndexQuery) -> None:
    corpus.check(query.needs_of_best_rows(), best(query, 10))
    corpus.check(query.needs_of_all_rows(), everything(query))


def compiled(text: str | None, where: Any = None) -> IndexQuery:
    bound = None if where is None else bind(where, SCHEMA)
    return compile_with_predicate(SCOPE, None if text is None else parse_query(text), bound).query


# --- random queries -----------------------------------------------------------------------------------


@settings(max_examples=15)
@given(text=queries)
def test_random_queries_read_only_what_they_need(corpus, text):
    try:
        query = compiled(text)
    except InvalidQueryError:
        return
    check_query(corpus, query)


@settings(max_examples=12)
@given(where=predicates, text=st.one_of(st.none(), leaves))
def test_random_predicates_read_only_what_they_need(corpus, where, text):
    try:
        query = compiled(text, where)
    except InvalidQueryError:
        return
    check_query(corpus, query)


@settings(max_examples=15)
@given(
    measured=st.lists(metrics, min_size=1, max_size=3, unique=True),
    by=groupings,
    text=st.one_of(st.none(), leaves),
)
def test_random_aggregations_read_only_what_they_need(corpus, measured, by, text):
    try:
        query = compiled(text)
        aggregation = Aggregation(tuple(measured), () if by is None else (by,))
        needs = aggregate_needs(query, aggregation, SCOPE)
        aggregate_index(corpus.complete, query, aggregation, SCOPE)
    except (InvalidQueryError, InvalidAggregationError):
        return

    def ask(searcher: tantivy.Searcher) -> Any:
        return repr(aggregate_index(searcher, query, aggregation, SCOPE).groups.to_pylist())

    corpus.check(needs, ask)


# --- what is fetched ----------------------------------------------------------------------------------


def test_opening_reads_only_the_pages_of_the_cold_data(corpus):
    copy = corpus.check(NOTHING, lambda searcher: (searcher.num_docs, searcher.num_segments))
    assert copy.num_rounds == 0


def test_an_unknown_need_fetches_everything(corpus):
    copy = corpus.check(EVERYTHING, best(compiled("*"), 5))
    assert copy.num_rounds == 1
    sizes = copy.sizes().values()
    assert copy.present_bytes == sum(-(-size // PAGE_BYTES) for size in sizes) * PAGE_BYTES


def test_a_missing_page_is_noticed(corpus):
    query = compiled("body:ba*")
    copy = SparseCopy(corpus.directory, corpus.copies / str(next(corpus.numbers)), corpus.cold)
    copy.fetch_needs(corpus.cold, compiled("body:zzz").needs_of_best_rows())
    with contextlib.suppress(SearchFailedError):
        search_index(copy.open(MAPPING), query, 10)
    assert copy.touched_holes()


@pytest.mark.parametrize(
    "text", ["body:ba", 'body:"ba da"', "level:warn", "attrs.ok:true", "n:5", "body:ba*"]
)
def test_dictionaries_that_are_fetched_whole_take_two_rounds(corpus, text):
    query = compiled(text)
    copy = corpus.check(query.needs_of_best_rows(), best(query, ROWS))
    is_large = any(
        field.data_offsets for segment in corpus.cold.segments for field in segment.fields.values()
    )
    assert copy.num_rounds <= (8 if is_large else 2)


def test_a_count_reads_no_norms_and_a_term_no_positions(corpus):
    def present(needs: Needs, suffix: str) -> int:
        files = SparseCopy(corpus.directory, corpus.copies / str(next(corpus.numbers)), corpus.cold)
        return sum(
            part.end - part.start
            for ranges in _fetched(files, corpus.cold, needs)
            for part in ranges
            if part.name.endswith(suffix)
        )

    term, phrase = compiled("body:ba"), compiled('body:"ba da"')
    assert present(term.needs_of_best_rows(), ".fieldnorm") == ROWS
    assert present(term.needs_of_all_rows(), ".fieldnorm") == 0
    assert present(term.needs_of_best_rows(), ".pos") == 0
    assert present(phrase.needs_of_all_rows(), ".pos") > 0
    assert present(compiled("n:[1 TO 5]").needs_of_best_rows(), ".idx") == 0


def _fetched(files: SparseCopy, cold: ColdData, needs: Needs):
    for ranges in rounds(files, cold, needs):
        yield ranges
        files.fetch(ranges)


def test_a_set_of_very_many_terms_reads_the_span_of_its_terms(corpus):
    values = VOCABULARY[:400]
    values += [f"absent{number}" for number in range(300)]
    query = IndexField(MAPPING.tantivy_schema(), MAPPING.find("slow")).one_of(values)
    check_query(corpus, query)


def test_scores_of_a_set_of_terms_are_constant_whatever_its_size(corpus):
    field = IndexField(MAPPING.tantivy_schema(), MAPPING.find("level"))
    for values in (["warn"], ["warn", "info"], ["warn", "info", *map(str, range(20))]):
        hits = search_index(corpus.complete, field.one_of(values), 10)
        assert np.unique(hits.scores).tolist() == [1.0]
