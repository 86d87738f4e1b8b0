"""A state of several manifests, read concurrently."""

from collections.abc import Iterator
from functools import partial

from benchmarks import ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, Unit
from benchmarks.measure import Action, always, measure_times
from benchmarks.workshop import Workshop

_MANIFESTS = 10
_ONE_BY_ONE = {**ours.NO_CACHE, "spark.indextables.state.read.parallelism": "1"}


def _measure(workshop: Workshop) -> Iterator[Figure]:
    files = workshop.sizes.table_files
    path = workshop.new_path()
    ours.build_manifests(path, workshop.generate(files), files // _MANIFESTS)
    table_at_once: Action = partial(ours.list_files, path)
    times = measure_times(
        {
            "at once": always(table_at_once),
            "one by one": always(lambda: ours.open_table(path, _ONE_BY_ONE).files()),
        },
        runs=workshop.sizes.runs,
        expected_length=files,
    )
    yield Figure(
        name=f"read {_MANIFESTS} manifests of {files // _MANIFESTS:,} entries",
        unit=Unit.SECONDS,
        ours=times["at once"].median,
        peer_name="one by one",
        peer=times["one by one"].median,
        goal=AtMost(0.2),
        note="From a local disk, where reading files concurrently gains little.",
        samples={"ours": times["at once"].values, "peer": times["one by one"].values},
    )


MANIFESTS = Benchmark("manifests", "read the manifests of a state concurrently", _measure)
