"""Full-text search: to row numbers, and to rows with all their columns."""

from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks import lance_rows, our_rows, raw_tantivy
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, Goal, MostTimes, Unit
from benchmarks.measure import Action, Samples, WrongResultError, always, measure_times
from benchmarks.rows import generate_queries
from benchmarks.workshop import Workshop

_BEST = 10
_MANY = 1_000


def _measure(workshop: Workshop) -> Iterator[Figure]:
    sizes = workshop.sizes
    yield from _row_numbers(workshop)
    yield _best_rows(workshop, sizes.rows, _BEST, MostTimes(2))
    yield _best_rows(workshop, sizes.few_rows, _BEST, MostTimes(1))
    yield _best_rows(workshop, sizes.rows, _MANY, None)
    yield _first_search(workshop)


def _row_numbers(workshop: Workshop) -> Iterator[Figure]:
    count = workshop.sizes.rows
    queries = generate_queries(workshop.sizes.queries, count)
    search_ours = our_rows.open_search(workshop.our_rows(count), workshop.new_path(), _BEST)
    search_raw = raw_tantivy.open_search(workshop.tantivy_rows(count), _BEST)
    for query in queries.mixed:
        if search_ours(query) != search_raw(query):
            raise WrongResultError(f"ours and tantivy disagree about {query!r}")
    kinds: tuple[tuple[str, Sequence[str], Goal | None], ...] = (
        ("words, pairs and phrases", queries.mixed, MostTimes(1.3)),
        ("words", queries.words, None),
    )
    for kind, texts, goal in kinds:
        times = measure_times(
            {"ours": always(_asking(search_ours, texts)), "tantivy": always(_asking(search_raw, texts))},
            runs=workshop.sizes.runs,
        )
        name = f"search {count:,} rows for {kind}, to row numbers"
        yield _per_query(name, times["ours"], "tantivy", times["tantivy"], len(texts), goal)


def _best_rows(workshop: Workshop, count: int, limit: int, goal: Goal | None) -> Figure:
    table = our_rows.open_table(workshop.our_rows(count), workshop.new_path())
    dataset = lance_rows.open_dataset(workshop.lance_rows(count))
    queries = generate_queries(workshop.sizes.queries, count).words
    search_ours = partial(our_rows.search, table, limit=limit)
    search_lance = partial(lance_rows.search, dataset, limit=limit)
    for query in queries:
        ours, theirs = search_ours(query), search_lance(query)
        if (len(ours), ours.num_columns) != (len(theirs), theirs.num_columns):
            raise WrongResultError(f"ours and Lance disagree about {query!r}")
    times = measure_times(
        {"ours": always(_asking(search_ours, queries)), "Lance": always(_asking(search_lance, queries))},
        runs=workshop.sizes.runs,
    )
    name = f"the {limit:,} best of {count:,} rows, all columns"
    return _per_query(name, times["ours"], "Lance", times["Lance"], len(queries), goal)


def _first_search(workshop: Workshop) -> Figure:
    count = workshop.sizes.rows
    our_path, lance_path = workshop.our_rows(count), workshop.lance_rows(count)
    query = generate_queries(1, count).words[0]
    times = measure_times(
        {
            # An empty cache each time: the index is fetched from the split.
            "ours": lambda: partial(_open_and_search_ours, our_path, workshop.new_path(), query),
            "Lance": always(partial(_open_and_search_lance, lance_path, query)),
        },
        runs=workshop.sizes.slow_runs,
    )
    name = f"open a table of {count:,} rows and search it for the first time"
    return _per_query(name, times["ours"], "Lance", times["Lance"], 1, None)


def _open_and_search_ours(path: Path, cache: Path, query: str) -> pa.Table:
    return our_rows.search(our_rows.open_table(path, cache), query, _BEST)


def _open_and_search_lance(path: Path, query: str) -> pa.Table:
    return lance_rows.search(lance_rows.open_dataset(path), query, _BEST)


def _asking(search: Callable[[str], Sized], queries: Sequence[str]) -> Action:
    return lambda: [search(query) for query in queries]


def _per_query(
    name: str, ours: Samples, peer_name: str, peer: Samples, queries: int, goal: Goal | None
) -> Figure:
    return Figure(
        name=name,
        unit=Unit.SECONDS,
        ours=ours.median / queries,
        peer_name=peer_name,
        peer=peer.median / queries,
        goal=goal,
        note="Times of searches are those of one query, from the text of the query on; the first search apart, "
        "tables are open and have answered the same queries before.",
        samples={
            "ours": tuple(seconds / queries for seconds in ours.values),
            "peer": tuple(seconds / queries for seconds in peer.values),
        },
    )


SEARCH = Benchmark("search", "full-text search, to row numbers and to rows", _measure)
