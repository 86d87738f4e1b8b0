"""Full-text search, returning row numbers or rows with all columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import count as count_from
from pathlib import Path

import pyarrow as pa

from benchmarks import lance_rows, our_rows, raw_tantivy
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, Goal, MostTimes, Unit
from benchmarks.measure import Action, Preparation, Samples, WrongResultError, always, measure_times
from benchmarks.rows import generate_queries
from benchmarks.s3_server import S3Server, running_s3
from benchmarks.workshop import Workshop

Search = Callable[[str], Sized]

_BEST = 10
_MANY = 1_000
# A run should be longer than the noise of the machine.
_ROUNDS = 3
# How long a request to a store in the same region takes.
_REQUEST_SECONDS = 0.03

_NOTE = (
    "Times are per query, starting from the query text. Tables are open and warm, except for the first search. Unless "
    "queries are new, the same ones ran before: we then have them parsed, and the pages of their rows in memory (up to "
    "128 MB); Lance has its own caches."
)


def _measure(workshop: Workshop) -> Iterator[Figure]:
    sizes = workshop.sizes
    yield from _row_numbers(workshop)
    yield from _sorted_rows(workshop)
    yield from _counted_rows(workshop)
    yield from _best_rows(workshop, sizes.rows, _BEST, MostTimes(2))
    yield from _best_rows(workshop, sizes.few_rows, _BEST, MostTimes(1))
    for rows in sizes.curve_rows:
        yield from _best_rows(workshop, rows, _BEST, None)
    yield from _best_rows(workshop, sizes.rows, _MANY, None)
    yield _first_search(workshop)
    with running_s3() as server, server.at_a_distance(_REQUEST_SECONDS) as options:
        yield _first_search_of_store(workshop, server, options)


def _row_numbers(workshop: Workshop) -> Iterator[Figure]:
    count = workshop.sizes.rows
    search_ours = our_rows.open_search(workshop.our_rows(count), workshop.new_path(), _BEST)
    search_raw = raw_tantivy.open_search(workshop.tantivy_rows(count), _BEST)
    batch = partial(_mixed_queries, workshop, count)
    for query in batch(0):
        if search_ours(query) != search_raw(query):
            raise WrongResultError(f"ours and tantivy disagree about {query!r}")
    name = f"search {count:,} rows, to row numbers"
    yield from _compared(
        workshop, name, search_ours, "tantivy", search_raw, batch, MostTimes(1.3), MostTimes(1.5)
    )


def _sorted_rows(workshop: Workshop) -> Iterator[Figure]:
    count = workshop.sizes.rows
    table = our_rows.open_table(workshop.our_rows(count), workshop.new_path())
    search_ours = partial(our_rows.latest_ids, table, limit=_BEST)
    search_raw = raw_tantivy.open_sorted_search(workshop.tantivy_rows(count), _BEST)
    batch = partial(_word_queries, workshop, count)
    for query in batch(0):
        if search_ours(query) != search_raw(query):
            raise WrongResultError(f"ours and tantivy disagree about the latest rows for {query!r}")
    name = f"the {_BEST} latest of {count:,} rows, one column"
    yield from _compared(workshop, name, search_ours, "tantivy", search_raw, batch, MostTimes(2))


def _counted_rows(workshop: Workshop) -> Iterator[Figure]:
    count = workshop.sizes.rows
    table = our_rows.open_table(workshop.our_rows(count), workshop.new_path())
    counted = partial(our_rows.counted_search, table, limit=_BEST)
    alone = partial(our_rows.search, table, limit=_BEST)
    batch = partial(_word_queries, workshop, count)
    name = f"the {_BEST} best of {count:,} rows and the number of hits"
    yield from _compared(workshop, name, counted, "without the number", alone, batch, MostTimes(1.3))


def _best_rows(workshop: Workshop, count: int, limit: int, goal: Goal | None) -> Iterator[Figure]:
    table = our_rows.open_table(workshop.our_rows(count), workshop.new_path())
    dataset = lance_rows.open_dataset(workshop.lance_rows(count))
    search_ours = partial(our_rows.search, table, limit=limit)
    search_lance = partial(lance_rows.search, dataset, limit=limit)
    batch = partial(_word_queries, workshop, count)
    for query in batch(0):
        ours, theirs = search_ours(query), search_lance(query)
        if (len(ours), ours.num_columns) != (len(theirs), theirs.num_columns):
            raise WrongResultError(f"ours and Lance disagree about {query!r}")
    name = f"the {limit:,} best of {count:,} rows, all columns"
    yield from _compared(workshop, name, search_ours, "Lance", search_lance, batch, goal, limit=limit)


def _compared(
    workshop: Workshop,
    name: str,
    search_ours: Search,
    peer: str,
    search_peer: Search,
    batch: Callable[[int], Sequence[str]],
    goal: Goal | None,
    goal_of_new_queries: Goal | None = None,
    limit: int = _BEST,
) -> Iterator[Figure]:
    """The same queries in each run, then new queries in each run."""
    # Slow queries without a goal run less often.
    runs = workshop.sizes.slow_runs if limit == _MANY else workshop.sizes.runs
    queries = batch(0)
    rounds = [*queries] * _ROUNDS
    times = measure_times(
        {"ours": always(_asking(search_ours, rounds)), peer: always(_asking(search_peer, rounds))}, runs=runs
    )
    yield _per_query(name, times["ours"], peer, times[peer], len(rounds), goal)
    times = measure_times(
        {"ours": _asking_anew(search_ours, batch), peer: _asking_anew(search_peer, batch)}, runs=runs
    )
    yield _per_query(
        f"{name}: new queries", times["ours"], peer, times[peer], len(queries), goal_of_new_queries
    )


def _first_search(workshop: Workshop) -> Figure:
    count = workshop.sizes.rows
    our_path, lance_path = workshop.our_rows(count), workshop.lance_rows(count)
    query = _word_queries(workshop, count, 0)[0]
    times = measure_times(
        {
            # A table that this process has never opened, and an empty index cache.
            "ours": lambda: partial(
                _open_and_search_ours, workshop.copy_of(our_path), workshop.new_path(), query
            ),
            "Lance": lambda: partial(_open_and_search_lance, workshop.copy_of(lance_path), query),
        },
        runs=workshop.sizes.slow_runs,
    )
    name = f"open a table of {count:,} rows and search it for the first time"
    return _per_query(name, times["ours"], "Lance", times["Lance"], 1, MostTimes(1.5))


def _first_search_of_store(workshop: Workshop, server: S3Server, options: Mapping[str, str]) -> Figure:
    count = workshop.sizes.rows
    our_path, lance_path = workshop.our_rows(count), workshop.lance_rows(count)
    query = _word_queries(workshop, count, 0)[0]

    def prepare_ours() -> Action:
        url = server.upload(workshop.copy_of(our_path))
        return partial(_open_and_search_ours, url, workshop.new_path(), query, options)

    def prepare_lance() -> Action:
        return partial(_open_and_search_lance, server.upload(workshop.copy_of(lance_path)), query, options)

    times = measure_times({"ours": prepare_ours, "Lance": prepare_lance}, runs=workshop.sizes.slow_runs)
    name = f"open a table of {count:,} rows on a slow store and search it for the first time"
    note = (
        f"{_NOTE} The slow store is MiniStack with {_REQUEST_SECONDS * 1000:.0f} ms more for every request."
    )
    return _per_query(name, times["ours"], "Lance", times["Lance"], 1, MostTimes(1), note)


def _open_and_search_ours(
    path: Path | str, cache: Path, query: str, storage_options: Mapping[str, str] | None = None
) -> pa.Table:
    return our_rows.search(our_rows.open_table(path, cache, storage_options), query, _BEST)


def _open_and_search_lance(
    path: Path | str, query: str, storage_options: Mapping[str, str] | None = None
) -> pa.Table:
    return lance_rows.search(lance_rows.open_dataset(path, storage_options), query, _BEST)


def _mixed_queries(workshop: Workshop, rows: int, batch: int) -> Sequence[str]:
    return generate_queries(workshop.sizes.queries, rows, batch=batch).mixed


def _word_queries(workshop: Workshop, rows: int, batch: int) -> Sequence[str]:
    return generate_queries(workshop.sizes.queries, rows, batch=batch).words


def _asking_anew(search: Search, batch: Callable[[int], Sequence[str]]) -> Preparation:
    """Each run uses another batch of queries; both sides use the same batches."""
    batches = count_from(1)
    return lambda: _asking(search, batch(next(batches)))


def _asking(search: Search, queries: Sequence[str]) -> Action:
    return lambda: [search(query) for query in queries]


def _per_query(
    name: str,
    ours: Samples,
    peer_name: str,
    peer: Samples,
    queries: int,
    goal: Goal | None,
    note: str = _NOTE,
) -> Figure:
    return Figure(
        name=name,
        unit=Unit.SECONDS,
        ours=ours.median / queries,
        peer_name=peer_name,
        peer=peer.median / queries,
        goal=goal,
        note=note,
        samples={
            "ours": tuple(seconds / queries for seconds in ours.values),
            "peer": tuple(seconds / queries for seconds in peer.values),
        },
    )


SEARCH = Benchmark("search", "full-text search, to row numbers and to rows", _measure)
