"""One partition of a table in a fresh process: the first call of a script, with what it imports on the way."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, MostTimes, Unit
from benchmarks.files import PARTITION_COLUMN, partition_date
from benchmarks.measure import PROJECT, Samples, WrongResultError
from benchmarks.workshop import Workshop

_OURS = """
import sys, time
from indextables import IndexTable
path, column, value = sys.argv[1:]
started = time.perf_counter()
found = len(IndexTable(path).files(where=f"{column} = '{value}'"))
print(found, time.perf_counter() - started)
"""
_DELTA = """
import sys, time
from deltalake import DeltaTable
path, column, value = sys.argv[1:]
started = time.perf_counter()
found = len(DeltaTable(path).file_uris(file_pruning_predicate=[(column, "=", value)]))
print(found, time.perf_counter() - started)
"""


def _measure(workshop: Workshop) -> Iterator[Figure]:
    sizes, files = workshop.sizes, workshop.sizes.table_files
    middle = partition_date(files // sizes.partition_files // 2).isoformat()
    sides = {"ours": (_OURS, workshop.our_table(files)), "deltalake": (_DELTA, workshop.delta_table(files))}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(sizes.runs + 1):
        for name, (code, path) in sides.items():
            seconds = _seconds_of_call(code, path, middle, expected_files=sizes.partition_files)
            if run:  # the first run compiles bytecode
                times[name].append(seconds)
    samples = {name: Samples(tuple(values)) for name, values in times.items()}
    yield Figure(
        name=f"one partition of {files:,} files in a fresh process",
        unit=Unit.SECONDS,
        ours=samples["ours"].median,
        peer_name="deltalake",
        peer=samples["deltalake"].median,
        goal=MostTimes(0.3),
        note="The first call in a new process, after the import of the package: open the table and list the partition.",
        samples={"ours": samples["ours"].values, "peer": samples["deltalake"].values},
    )


def _seconds_of_call(code: str, path: Path, value: str, *, expected_files: int) -> float:
    command = [sys.executable, "-c", code, str(path), PARTITION_COLUMN, value]
    finished = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True)
    found, seconds = finished.stdout.split()
    if int(found) != expected_files:
        raise WrongResultError(f"{found} files were found instead of {expected_files}")
    return float(seconds)


FRESH = Benchmark("fresh", "list one partition in a fresh process", _measure)
