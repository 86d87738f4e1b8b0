"""Listing everything, as a table grows."""

from collections.abc import Iterator
from functools import partial

from benchmarks import delta, iceberg, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, Unit
from benchmarks.measure import always, measure_times
from benchmarks.workshop import Workshop


def _measure(workshop: Workshop) -> Iterator[Figure]:
    for files in workshop.sizes.curve_files:
        yield from _measure_size(workshop, files)


def _measure_size(workshop: Workshop, files: int) -> Iterator[Figure]:
    sides = {
        "ours": always(partial(ours.list_files, workshop.our_table(files))),
        "deltalake": always(partial(delta.list_files, workshop.delta_table(files))),
    }
    if files <= workshop.sizes.most_iceberg_files:
        sides["pyiceberg"] = always(partial(iceberg.list_files, workshop.iceberg_table(files)))
    times = measure_times(sides, runs=workshop.sizes.slow_runs, expected_length=files)
    for peer in list(sides)[1:]:
        yield Figure(
            name=f"list {files:,} files",
            unit=Unit.SECONDS,
            ours=times["ours"].median,
            peer_name=peer,
            peer=times[peer].median,
            samples={"ours": times["ours"].values, "peer": times[peer].values},
        )


CURVE = Benchmark("curve", "list everything, as a table grows", _measure)
