"""Rewrite the state of a large table."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from deltalake import DeltaTable

from benchmarks import delta, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, MostTimes, Unit
from benchmarks.measure import Action, Preparation, measure_times
from benchmarks.workshop import Workshop


def _measure(workshop: Workshop) -> Iterator[Figure]:
    files = workshop.sizes.table_files
    times = measure_times(compaction_sides(workshop, files), runs=workshop.sizes.runs)
    time = Figure(
        name=f"compact {files:,} entries",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="deltalake",
        peer=times["deltalake"].median,
        goal=MostTimes(2),
        note="The figure of deltalake is for `create_checkpoint` on a table in memory; ours reads the table first.",
        samples={"ours": times["ours"].values, "peer": times["deltalake"].values},
    )
    yield time
    yield replace(time, name=f"compact {files:,} entries: whatever the peer's", goal=AtMost(2), note="")


def compaction_sides(workshop: Workshop, table_files: int) -> dict[str, Preparation]:
    """Rewrite the state of a table: ours by compaction, deltalake's as a checkpoint."""
    return {"ours": _our_side(workshop, table_files), "deltalake": _delta_side(workshop, table_files)}


def _our_side(workshop: Workshop, table_files: int) -> Preparation:
    path = workshop.copy_of(workshop.our_table(table_files))
    batches = count(1)

    def prepare() -> Action:
        # A compact state is not rewritten; one more file makes it necessary.
        table = ours.open_table(path, ours.NO_CHECKPOINTS)
        table.commit(adds=[ours.add_action(file) for file in workshop.generate(1, batch=next(batches))])
        return lambda: _discard(table.compact())

    return prepare


def _delta_side(workshop: Workshop, table_files: int) -> Preparation:
    path = workshop.copy_of(workshop.delta_table(table_files))
    batches = count(1)

    def prepare() -> Action:
        files = workshop.generate(1, batch=next(batches))
        delta.commit(DeltaTable(str(path)), [delta.add_action(file) for file in files])
        return DeltaTable(str(path)).create_checkpoint

    return prepare


def _discard(_: object) -> None:
    return None


COMPACTION = Benchmark("compact", "rewrite the state of a large table", _measure)
