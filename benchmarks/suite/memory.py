"""Peak memory of reading a large table and of rewriting its state."""

from collections.abc import Callable, Iterator
from pathlib import Path

from deltalake import DeltaTable

from benchmarks import delta, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, Unit
from benchmarks.measure import Samples, measure_memory
from benchmarks.workshop import Workshop


def _measure(workshop: Workshop) -> Iterator[Figure]:
    files, runs = workshop.sizes.memory_files, workshop.sizes.slow_runs
    our_path, delta_path = workshop.our_table(files), workshop.delta_table(files)
    yield _figure(
        f"peak memory of reading {files:,} entries",
        measure_memory("ours", "list", str(our_path), runs=runs),
        measure_memory("deltalake", "list", str(delta_path), runs=runs),
        AtMost(300e6),
    )
    yield _figure(
        f"peak memory of compacting {files:,} entries",
        _of_compaction(workshop, "ours", our_path, _change_ours),
        _of_compaction(workshop, "deltalake", delta_path, _change_delta),
        AtMost(1e9),
    )


def _figure(name: str, our_peaks: Samples, peer_peaks: Samples, goal: AtMost) -> Figure:
    return Figure(
        name=name,
        unit=Unit.BYTES,
        ours=our_peaks.median,
        peer_name="deltalake",
        peer=peer_peaks.median,
        goal=goal,
        samples={"ours": our_peaks.values, "peer": peer_peaks.values},
    )


def _of_compaction(
    workshop: Workshop, side: str, table: Path, change: Callable[[Workshop, Path], None]
) -> Samples:
    """Every run needs a table that has changed since its last state, because compaction rewrites it only once."""
    peaks: list[float] = []
    for _ in range(workshop.sizes.slow_runs):
        path = workshop.copy_of(table)
        change(workshop, path)
        peaks.extend(measure_memory(side, "compact", str(path), runs=1).values)
    return Samples(tuple(peaks))


def _change_ours(workshop: Workshop, path: Path) -> None:
    table = ours.open_table(path, ours.NO_CHECKPOINTS)
    table.commit(adds=[ours.add_action(file) for file in workshop.generate(1, batch=1)])


def _change_delta(workshop: Workshop, path: Path) -> None:
    delta.commit(DeltaTable(str(path)), [delta.add_action(file) for file in workshop.generate(1, batch=1)])


MEMORY = Benchmark("memory", "peak memory of reading a large table, and of compacting it", _measure)
