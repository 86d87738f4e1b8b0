"""How much memory it takes to read a large table."""

from collections.abc import Iterator

from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, Unit
from benchmarks.measure import measure_memory
from benchmarks.workshop import Workshop


def _measure(workshop: Workshop) -> Iterator[Figure]:
    files, runs = workshop.sizes.memory_files, workshop.sizes.slow_runs
    ours = measure_memory("ours", "list", str(workshop.our_table(files)), runs=runs)
    peer = measure_memory("deltalake", "list", str(workshop.delta_table(files)), runs=runs)
    yield Figure(
        name=f"peak memory of reading {files:,} entries",
        unit=Unit.BYTES,
        ours=ours.median,
        peer_name="deltalake",
        peer=peer.median,
        goal=AtMost(300e6),
        samples={"ours": ours.values, "peer": peer.values},
    )


MEMORY = Benchmark("memory", "peak memory of reading a large table", _measure)
