"""The first search of tables with many splits: its cost must grow with their number and not faster."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import lance_rows, small_splits
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, MostTimes, Unit
from benchmarks.measure import PROJECT, Samples, WrongResultError
from benchmarks.rows import word_found_in
from benchmarks.workshop import Workshop

_ROWS_PER_SPLIT = 10
_BEST = 10
# Only some splits are written; the others are copies of them.
_COPIES = 20

_OURS = """
import sys, time
from indextables import IndexTable
path, cache, word = sys.argv[1:]
table = IndexTable(path, options={"spark.indextables.cache.disk.path": cache})
started = time.perf_counter()
found = {QUESTION}
print(found, time.perf_counter() - started)
"""
_QUESTIONS = {
    "searched": f"len(table.search(word, fields=['message'], limit={_BEST}))",
    "counted": "table.count('*')",
    "aggregated": "table.aggregate(['count', 'max(id)'])['count'][0].as_py()",
}
_LANCE = f"""
import sys, time
import lance
path, _, word = sys.argv[1:]
dataset = lance.dataset(path)
started = time.perf_counter()
found = len(dataset.scanner(full_text_query=word, limit={_BEST}).to_table())
print(found, time.perf_counter() - started)
"""
_NOTE = (
    "In a fresh process, with an empty index cache; the table is open. Where both figures are ours, ten times the "
    "splits must take ten times the time. Lance has one index of all its fragments; each of our splits has its own."
)


def _measure(workshop: Workshop) -> Iterator[Figure]:
    few, many = workshop.sizes.searched_splits
    tables = {count: _our_table(workshop, count) for count in (few, many)}
    searches: dict[int, Samples] = {}
    for name, question in _QUESTIONS.items():
        programs = {count: (_OURS.replace("{QUESTION}", question), path) for count, path in tables.items()}
        samples = _seconds_per_split(workshop, programs, None if name == "searched" else _ROWS_PER_SPLIT)
        searches = searches or samples
        yield _figure(
            f"{many:,} splits {name} for the first time, per split",
            samples[many],
            f"{few:,} splits",
            samples[few],
        )
    for count in (few, many):
        lance = _seconds_per_split(workshop, {count: (_LANCE, _lance_table(workshop, count))}, None)
        name = f"{count:,} splits searched for the first time, per split"
        yield _figure(name, searches[count], "Lance with as many fragments", lance[count], is_judged=False)


def _seconds_per_split(
    workshop: Workshop, programs: Mapping[int, tuple[str, Path]], rows_per_split: int | None
) -> dict[int, Samples]:
    """The time of programs for tables with so many splits, in turns; a search finds its best rows."""
    times: dict[int, list[float]] = {count: [] for count in programs}
    for _ in range(workshop.sizes.slow_runs):
        for count, (program, path) in programs.items():
            expected = _BEST if rows_per_split is None else count * rows_per_split
            # In most splits.
            word = word_found_in(count * _ROWS_PER_SPLIT, count * _ROWS_PER_SPLIT)
            times[count].append(_seconds(workshop, program, path, word, expected) / count)
    return {count: Samples(tuple(values)) for count, values in times.items()}


def _seconds(workshop: Workshop, program: str, path: Path, word: str, expected: int) -> float:
    command = [sys.executable, "-c", program, str(path), str(workshop.new_path()), word]
    finished = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True)
    found, seconds = finished.stdout.split()
    if int(found) != expected:
        raise WrongResultError(f"{found} rows were found instead of {expected}")
    return float(seconds)


def _our_table(workshop: Workshop, splits: int) -> Path:
    written = max(splits // _COPIES, 1)
    rows = workshop.rows(written * _ROWS_PER_SPLIT)

    def build(path: Path) -> None:
        small_splits.build_table(path, rows, partitions=written, splits=written)
        small_splits.multiply(path, splits // written)

    return workshop.built(f"many-splits-{splits}", f"ours with {splits:,} splits", build)


def _lance_table(workshop: Workshop, fragments: int) -> Path:
    rows = workshop.rows(fragments * _ROWS_PER_SPLIT)
    return workshop.built(
        f"many-fragments-{fragments}",
        f"Lance with {fragments:,} fragments",
        lambda path: lance_rows.build_dataset(path, rows, fragment_rows=_ROWS_PER_SPLIT),
    )


def _figure(name: str, ours: Samples, peer_name: str, peer: Samples, *, is_judged: bool = True) -> Figure:
    return Figure(
        name=name,
        unit=Unit.SECONDS,
        ours=ours.median,
        peer_name=peer_name,
        peer=peer.median,
        goal=MostTimes(1.3) if is_judged else None,
        note=_NOTE,
        samples={"ours": ours.values, "peer": peer.values},
    )


MANY_SPLITS = Benchmark("many-splits", "the first search, count and aggregation of many splits", _measure)
