"""One partition of a table in a fresh process: what a script pays that lists files once, imports included."""

import sys
from collections.abc import Iterator

from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, MostTimes, Unit
from benchmarks.files import PARTITION_COLUMN, partition_date
from benchmarks.measure import measure_starts
from benchmarks.workshop import Workshop

_OURS = """
import sys
from indextables import IndexTable
path, column, value = sys.argv[1:]
print(len(IndexTable(path).files(where=f"{column} = '{value}'")))
"""
_DELTA = """
import sys
from deltalake import DeltaTable
path, column, value = sys.argv[1:]
print(len(DeltaTable(path).file_uris(file_pruning_predicate=[(column, "=", value)])))
"""


def _measure(workshop: Workshop) -> Iterator[Figure]:
    sizes, files = workshop.sizes, workshop.sizes.table_files
    middle = partition_date(files // sizes.partition_files // 2).isoformat()
    sides = {"ours": (_OURS, workshop.our_table(files)), "deltalake": (_DELTA, workshop.delta_table(files))}
    times = measure_starts(
        {
            name: [sys.executable, "-c", code, str(path), PARTITION_COLUMN, middle]
            for name, (code, path) in sides.items()
        },
        runs=sizes.runs,
        expected_output=str(sizes.partition_files),
    )
    yield Figure(
        name=f"one partition of {files:,} files in a fresh process",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="deltalake",
        peer=times["deltalake"].median,
        goal=MostTimes(0.3),
        note="From the start of the process to its output, with bytecode compiled before.",
        samples={"ours": times["ours"].values, "peer": times["deltalake"].values},
    )


FRESH = Benchmark("fresh", "list one partition in a fresh process", _measure)
