"""Random queries of random tables: the first one in an empty cache has the answer of a complete index."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import IndexTable
from indextables._caching import clear_process_caches
from indextables.errors import InvalidAggregationError, InvalidQueryError
from indextables.ops.read import open_ref, split_refs
from indextables.split import residency
from indextables.split.cold_data import ColdData
from indextables.split.index_cache import IndexCache, index_cache
from indextables.split.needs import EVERYTHING
from indextables.split.term_dictionary import WHOLE_DICTIONARY_BYTES
from support.random_queries import SCHEMA, groupings, leaves, metrics, predicates, queries, rows_of

pytestmark = pytest.mark.skipif(
    residency.page_cache(Path("/tmp")) is None, reason="reads of holes are not visible here"
)

SETTINGS = {
    "spark.indextables.indexing.typemap.json": "attrs,raw",
    "spark.indextables.indexing.typemap.ip": "ip,net",
    "spark.indextables.indexing.typemap.text": "body,stem,grams",
    "spark.indextables.indexing.tokenizer.en_stem": "stem",
    "spark.indextables.indexing.tokenizer.ngram": "grams",
    "spark.indextables.indexing.fastfields": "stem",
}
DEFAULTS = ["body", "slow"]


class Shape(msgspec.Struct, frozen=True):
    """How a table is made: the seeds of its appends, its partitions, and how large dictionaries are fetched whole."""

    seeds: tuple[int, ...]
    partition_by: tuple[str, ...] = ()
    whole_bytes: int = WHOLE_DICTIONARY_BYTES
    is_merged: bool = False


SHAPES = {
    "one split": Shape((1,)),
    "partitions": Shape((2,), partition_by=("level",)),
    "several splits with large dictionaries": Shape((3, 4), whole_bytes=4_000),
    "merged, with large dictionaries": Shape((5, 6), whole_bytes=1_000, is_merged=True),
}


class World(msgspec.Struct, frozen=True):
    """A table, opened with a complete index of every split, and caches for others."""

    path: str
    warm: IndexTable
    caches: Path
    numbers: Iterator[int]

    def cold(self) -> tuple[IndexTable, IndexCache]:
        """The table as a process opens it that has never searched it, and its empty cache."""
        clear_process_caches()
        options = {"spark.indextables.cache.disk.path": str(self.caches / str(next(self.numbers)))}
        table = IndexTable(self.path, options=options)
        return table, index_cache(table.snapshot.context.settings)

    def check(self, ask: Callable[[IndexTable], Any]) -> None:
        """Check that both have the same answer, or the same objection."""
        table, _ = self.cold()
        assert _answer(table, ask) == _answer(self.warm, ask)


def _answer(table: IndexTable, ask: Callable[[IndexTable], Any]) -> str:
    try:
        found = ask(table)
    except (InvalidQueryError, InvalidAggregationError) as error:
        return str(error)
    return repr(found.to_pylist() if isinstance(found, pa.Table) else found)


@pytest.fixture(scope="module", params=SHAPES)
def world(request, tmp_path_factory) -> Iterator[World]:
    shape = SHAPES[request.param]
    folder = tmp_path_factory.mktemp("world")
    path = str(folder / "table")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ColdData, "of", partial(ColdData.of, whole_bytes=shape.whole_bytes))
        table = IndexTable.create(path, SCHEMA, partition_by=shape.partition_by, options=SETTINGS)
        for seed in shape.seeds:
            table.append(rows_of(seed))
        if shape.is_merged:
            table.merge_splits()
    options = {"spark.indextables.cache.disk.path": str(folder / "complete")}
    warm = IndexTable(path, options=options)
    for ref in split_refs(warm.files()):
        cache = index_cache(warm.snapshot.context.settings)
        open_ref(warm.snapshot, ref).search_index(cache, EVERYTHING, lambda searcher: searcher.num_docs)
    return World(path, warm, folder, itertools.count())


conditions = st.one_of(st.none(), predicates)


@settings(max_examples=20)
@given(text=queries, where=conditions, limit=st.sampled_from([1, 10, 100]))
def test_a_cold_search_finds_the_rows_of_a_warm_one(world, text, where, limit):
    world.check(lambda table: table.search(text, where=where, fields=DEFAULTS, limit=limit))


@settings(max_examples=20)
@given(text=st.one_of(st.none(), queries), where=conditions)
def test_a_cold_count_is_that_of_a_warm_one(world, text, where):
    world.check(lambda table: table.count(text, where=where, fields=DEFAULTS))


@settings(max_examples=20)
@given(
    measured=st.lists(metrics, min_size=1, max_size=3, unique=True),
    by=groupings,
    text=st.one_of(st.none(), leaves),
    where=conditions,
)
def test_a_cold_aggregate_is_that_of_a_warm_one(world, measured, by, text, where):
    world.check(lambda table: table.aggregate(measured, query=text, by=by, where=where, fields=DEFAULTS))


def test_a_cold_search_fetches_a_part_of_the_index(world):
    """Otherwise, the tests above would compare complete indexes."""
    table, cache = world.cold()
    assert table.count("body:absent") == 0
    complete = index_cache(world.warm.snapshot.context.settings)
    assert 0 < cache.size() < complete.size() / 2
