"""The replay curve: a log of many versions, with and without a checkpoint."""

from collections.abc import Iterator
from functools import partial

from deltalake import DeltaTable

from benchmarks import delta, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, Unit
from benchmarks.measure import Samples, always, measure_times
from benchmarks.workshop import Workshop

_MANY_VERSIONS = 1_000
_VERY_MANY_VERSIONS = 10_000


def _measure(workshop: Workshop) -> Iterator[Figure]:
    for versions in workshop.sizes.replayed_versions:
        yield from _measure_versions(workshop, versions)


def _measure_versions(workshop: Workshop, versions: int) -> Iterator[Figure]:
    files = list(workshop.generate(versions))
    our_log, delta_log = workshop.new_path(), workshop.new_path()
    ours.build_versions(our_log, files, versions)
    delta.build_versions(delta_log, files, versions)
    our_checkpoint, delta_checkpoint = workshop.copy_of(our_log), workshop.copy_of(delta_log)
    ours.open_table(our_checkpoint).checkpoint()
    DeltaTable(str(delta_checkpoint)).create_checkpoint()
    runs = workshop.sizes.slow_runs if versions >= _MANY_VERSIONS else workshop.sizes.runs
    # Runs that take seconds hardly differ.
    runs = 1 if versions >= _VERY_MANY_VERSIONS else runs
    times = measure_times(
        {
            "our replay": always(partial(ours.list_files, our_log)),
            "our checkpoint": always(partial(ours.list_files, our_checkpoint)),
            "delta replay": always(partial(delta.list_files, delta_log)),
            "delta checkpoint": always(partial(delta.list_files, delta_checkpoint)),
        },
        runs=runs,
        # Version 0 of both logs creates the table, without a file.
        expected_length=versions - 1,
    )
    yield _figure(f"{versions:,} versions, replayed", times["our replay"], times["delta replay"])
    yield _figure(
        f"{versions:,} versions, from a checkpoint", times["our checkpoint"], times["delta checkpoint"]
    )


def _figure(name: str, our_times: Samples, delta_times: Samples) -> Figure:
    return Figure(
        name=name,
        unit=Unit.SECONDS,
        ours=our_times.median,
        peer_name="deltalake",
        peer=delta_times.median,
        samples={"ours": our_times.values, "peer": delta_times.values},
    )


REPLAY = Benchmark("replay", "open a log of many small versions, with and without a checkpoint", _measure)
