"""The first search of tables with many splits: its cost must grow with their number and not faster."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import small_splits
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, MostTimes, Unit
from benchmarks.measure import PROJECT, Samples, WrongResultError
from benchmarks.workshop import Workshop

_ROWS_PER_SPLIT = 10

_FIRST_SEARCH = """
import sys, time
from indextables import IndexTable
path, cache = sys.argv[1:]
table = IndexTable(path, options={"spark.indextables.cache.disk.path": cache})
started = time.perf_counter()
found = table.count("*")
print(found, time.perf_counter() - started)
"""


def _measure(workshop: Workshop) -> Iterator[Figure]:
    splits = workshop.sizes.searched_splits
    tables = {count: _table(workshop, count) for count in (splits, 2 * splits)}
    times: dict[int, list[float]] = {count: [] for count in tables}
    for _ in range(workshop.sizes.slow_runs):
        for count, path in tables.items():
            times[count].append(_seconds_of_search(workshop, path, count) / count)
    few, many = (Samples(tuple(times[count])) for count in tables)
    yield Figure(
        name=f"first search of {2 * splits:,} splits, per split",
        unit=Unit.SECONDS,
        ours=many.median,
        peer_name=f"{splits:,} splits",
        peer=few.median,
        goal=MostTimes(1.3),
        note="In a fresh process, with an empty index cache. Both figures are ours: twice the splits must take twice "
        "the time.",
        samples={"ours": many.values, "peer": few.values},
    )


def _table(workshop: Workshop, splits: int) -> Path:
    rows = workshop.rows(splits * _ROWS_PER_SPLIT)
    return workshop.built(
        f"many-splits-{splits}",
        f"ours with {splits:,} splits",
        lambda path: small_splits.build_table(path, rows, partitions=splits, splits=splits),
    )


def _seconds_of_search(workshop: Workshop, path: Path, splits: int) -> float:
    command = [sys.executable, "-c", _FIRST_SEARCH, str(path), str(workshop.new_path())]
    finished = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True)
    found, seconds = finished.stdout.split()
    if int(found) != splits * _ROWS_PER_SPLIT:
        raise WrongResultError(f"{found} rows were found instead of {splits * _ROWS_PER_SPLIT}")
    return float(seconds)


MANY_SPLITS = Benchmark("many-splits", "the first search of many splits", _measure)
