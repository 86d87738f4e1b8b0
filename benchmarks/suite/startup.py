"""The command line: the time to the first output of a command, in its own process."""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, Unit
from benchmarks.measure import measure_starts
from benchmarks.rows import word_found_in
from benchmarks.workshop import Workshop

_CACHE_PATH = "spark.indextables.cache.disk.path"
_PEER = "import pyarrow"
_HITS = 10
_NOTE = (
    "From the start of the process to the first byte of its output, with compiled bytecode. The peer is a Python "
    "process that imports pyarrow, which every reader of Arrow tables needs, and then prints a line."
)


def _measure(workshop: Workshop) -> Iterator[Figure]:
    count = workshop.sizes.rows
    table = str(workshop.our_rows(count))
    cache = f"{_CACHE_PATH}={workshop.new_path()}"
    ours = {
        "describe": ("describe", table),
        "files": ("files", table),
        "search": ("search", table, f"message:{word_found_in(_HITS, count)}", "--option", cache),
    }
    commands = {name: [*_our_command(), *arguments] for name, arguments in ours.items()}
    # Prints when the import is done.
    commands[_PEER] = [sys.executable, "-c", f"{_PEER}; print('done')"]
    times = measure_starts(commands, runs=workshop.sizes.runs)
    for name in ours:
        yield Figure(
            name=f"first output of `indextables {name}`",
            unit=Unit.SECONDS,
            ours=times[name].median,
            peer_name=_PEER,
            peer=times[_PEER].median,
            goal=AtMost(0.5),
            note=_NOTE,
            samples={"ours": times[name].values, "peer": times[_PEER].values},
        )


def _our_command() -> list[str]:
    script = Path(sys.executable).with_name("indextables")
    return [str(script)] if script.exists() else [sys.executable, "-m", "indextables"]


STARTUP = Benchmark("startup", "the first output of commands", _measure)
