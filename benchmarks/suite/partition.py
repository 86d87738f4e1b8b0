"""List one partition of a huge table without reading the rest."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks import delta, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, MostTimes, Unit
from benchmarks.files import partition_date
from benchmarks.measure import always, measure_memory, measure_times
from benchmarks.workshop import Workshop


def _measure(workshop: Workshop) -> Iterator[Figure]:
    sizes, files = workshop.sizes, workshop.sizes.large_table_files
    our_path, delta_path = workshop.our_table(files), workshop.delta_table(files)
    middle = partition_date(files // sizes.partition_files // 2).isoformat()
    name = f"one partition of {sizes.partition_files:,} files in {files:,}"
    times = measure_times(
        {
            "ours": always(partial(ours.list_partition, our_path, middle)),
            "deltalake": always(partial(delta.list_partition, delta_path, middle)),
        },
        runs=sizes.slow_runs,
        expected_length=sizes.partition_files,
    )
    time = Figure(
        name=f"{name}: time",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="deltalake",
        peer=times["deltalake"].median,
        goal=MostTimes(0.1),
        samples={"ours": times["ours"].values, "peer": times["deltalake"].values},
    )
    yield time
    yield replace(time, name=f"{name}: time, whatever the peer's", goal=AtMost(0.1))
    our_memory = measure_memory("ours", "partition", str(our_path), middle, runs=sizes.slow_runs)
    delta_memory = measure_memory("deltalake", "partition", str(delta_path), middle, runs=1)
    yield Figure(
        name=f"{name}: peak memory",
        unit=Unit.BYTES,
        ours=our_memory.median,
        peer_name="deltalake",
        peer=delta_memory.median,
        goal=AtMost(50e6),
        samples={"ours": our_memory.values, "peer": delta_memory.values},
    )


PARTITION = Benchmark("partition", "list one partition of a huge table", _measure)
