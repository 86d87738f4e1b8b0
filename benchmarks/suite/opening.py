"""Open a table and list its files, from each kind of checkpoint."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks import delta, iceberg, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, MostTimes, Unit
from benchmarks.measure import always, measure_times
from benchmarks.workshop import Workshop

_STATE_FORMATS = {"avro": "Avro state", "json": "JSON checkpoint", "parquet": "Parquet checkpoint"}


def _measure(workshop: Workshop) -> Iterator[Figure]:
    for state_format, name in _STATE_FORMATS.items():
        figure = _against_delta(workshop, state_format, name)
        yield figure
        if figure.goal is not None:
            yield replace(figure, name=f"{figure.name}, whatever the peer's", goal=AtMost(0.5))
    yield _against_iceberg(workshop, workshop.sizes.table_files)


def _against_delta(workshop: Workshop, state_format: str, name: str) -> Figure:
    files = workshop.sizes.table_files
    times = measure_times(
        {
            "ours": always(partial(ours.list_files, workshop.our_table(files, state_format))),
            "deltalake": always(partial(delta.list_files, workshop.delta_table(files))),
        },
        # The other formats have no goal.
        runs=workshop.sizes.runs if state_format == "avro" else workshop.sizes.slow_runs,
        expected_length=files,
    )
    return Figure(
        name=f"open and list {files:,} files: {name}",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="deltalake",
        peer=times["deltalake"].median,
        goal=MostTimes(0.5) if name == "Avro state" else None,
        samples={"ours": times["ours"].values, "peer": times["deltalake"].values},
    )


def _against_iceberg(workshop: Workshop, files: int) -> Figure:
    times = measure_times(
        {
            "ours": always(partial(ours.list_files, workshop.our_table(files))),
            "pyiceberg": always(partial(iceberg.list_files, workshop.iceberg_table(files))),
        },
        runs=workshop.sizes.slow_runs,
        expected_length=files,
    )
    return Figure(
        name=f"open and list {files:,} files: Avro state",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="pyiceberg",
        peer=times["pyiceberg"].median,
        goal=MostTimes(0.05),
        samples={"ours": times["ours"].values, "peer": times["pyiceberg"].values},
    )


OPENING = Benchmark("open", "open a table and list all its files", _measure)
