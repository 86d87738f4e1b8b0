"""Add a few files to a large table: time and bytes of the commit and the new state."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from deltalake import DeltaTable

from benchmarks import delta, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, MostTimes, Unit
from benchmarks.measure import Action, Preparation, WrongResultError, measure_times
from benchmarks.workshop import Workshop
from indextables import AddAction
from indextables.log.paths import state_manifest_key


def _measure(workshop: Workshop) -> Iterator[Figure]:
    sizes = workshop.sizes
    name = f"add {sizes.added_files} files to {sizes.table_files:,}"
    times = measure_times(adding_sides(workshop, sizes.table_files), runs=sizes.runs)
    time = Figure(
        name=f"{name}: commit and state",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="deltalake",
        peer=times["deltalake"].median,
        goal=MostTimes(1),
        note="Ours is a commit with its automatic checkpoint, deltalake's a commit alone, without a checkpoint.",
        samples={"ours": times["ours"].values, "peer": times["deltalake"].values},
    )
    yield time
    yield replace(time, name=f"{name}: whatever the peer's", goal=AtMost(0.1), note="")
    yield _bytes_written(workshop, name)


def adding_sides(workshop: Workshop, table_files: int) -> dict[str, Preparation]:
    """Commit some files to a table: ours with its state, and deltalake's without."""
    return {"ours": _our_side(workshop, table_files), "deltalake": _delta_side(workshop, table_files)}


def _our_side(workshop: Workshop, table_files: int) -> Preparation:
    path = workshop.copy_of(workshop.our_table(table_files))
    batches = count(1)

    def prepare() -> Action:
        table = ours.open_table(path, ours.CHECKPOINT_EVERY_COMMIT)
        return partial(table.commit, _our_adds(workshop, next(batches)))

    return prepare


def _delta_side(workshop: Workshop, table_files: int) -> Preparation:
    path = workshop.copy_of(workshop.delta_table(table_files))
    batches = count(1)

    def prepare() -> Action:
        files = workshop.generate(workshop.sizes.added_files, batch=next(batches))
        return partial(delta.commit, DeltaTable(str(path)), [delta.add_action(file) for file in files])

    return prepare


def _bytes_written(workshop: Workshop, name: str) -> Figure:
    path = workshop.copy_of(workshop.our_table(workshop.sizes.table_files))
    table = ours.open_table(path, ours.CHECKPOINT_EVERY_COMMIT)
    before = _file_stamps(path)
    state_bytes = ours.state_bytes(path, table.version)
    version = table.commit(_our_adds(workshop, 1))
    if not (path / state_manifest_key(version)).exists():
        raise WrongResultError(f"the commit of version {version} wrote no state")
    written = sum(size for file, (size, _) in (_file_stamps(path) - before))
    return Figure(
        name=f"{name}: bytes written",
        unit=Unit.BYTES,
        ours=written,
        peer_name="the whole state",
        peer=state_bytes,
        goal=MostTimes(0.02),
    )


def _our_adds(workshop: Workshop, batch: int) -> list[AddAction]:
    files = workshop.generate(workshop.sizes.added_files, batch=batch)
    return [ours.add_action(file) for file in files]


def _file_stamps(path: Path) -> set[tuple[Path, tuple[int, int]]]:
    """Every file below a path with its size and time, to find written files."""
    files = ((file, file.stat()) for file in path.rglob("*") if file.is_file())
    return {(file, (status.st_size, status.st_mtime_ns)) for file, status in files}


ADDING = Benchmark("add", "add a few files to a large table", _measure)
