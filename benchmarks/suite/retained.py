"""What a long life costs: many retained states, and commits that each span all partitions."""

import shutil
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks import ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, MostTimes, Unit
from benchmarks.files import PARTITION_COLUMN, partition_date
from benchmarks.measure import Action, Preparation, always, measure_times
from benchmarks.workshop import Workshop
from indextables.log.paths import LOG_PREFIX, state_dir

_COMMITS = 14


def _measure(workshop: Workshop) -> Iterator[Figure]:
    yield _small_commit(workshop)
    yield _scattered_partitions(workshop)


def _small_commit(workshop: Workshop) -> Figure:
    few, many = workshop.sizes.retained_states
    times = measure_times(
        {"few": _committing(workshop, few), "many": _committing(workshop, many)}, runs=workshop.sizes.runs
    )
    return Figure(
        name=f"open a table and commit one file: {many:,} retained states",
        unit=Unit.SECONDS_PER_COMMIT,
        ours=times["many"].median,
        peer_name=f"{few:,} retained states",
        peer=times["few"].median,
        goal=MostTimes(1.5),
        note="Both sides have the same versions, and list only what is newer than the hint.",
        samples={"ours": times["many"].values, "peer": times["few"].values},
    )


def _committing(workshop: Workshop, states: int) -> Preparation:
    path = _table_with_states(workshop, states)
    batches = count(1)

    def prepare() -> Action:
        (file,) = workshop.generate(1, batch=next(batches))

        def commit() -> None:
            ours.open_table(path, ours.NO_CHECKPOINTS).commit(adds=[ours.add_action(file)])

        return commit

    return prepare


def _table_with_states(workshop: Workshop, states: int) -> Path:
    """A table whose newest versions have states. Only the newest is ever read, so the others are copies of it."""
    path, versions = workshop.new_path(), max(workshop.sizes.retained_states)
    ours.build_versions(path, list(workshop.generate(versions + 1)), versions + 1)
    newest = ours.open_table(path, ours.NO_CHECKPOINTS).checkpoint().version
    for version in range(newest - states + 1, newest):
        shutil.copytree(path / LOG_PREFIX / state_dir(newest), path / LOG_PREFIX / state_dir(version))
    return path


def _scattered_partitions(workshop: Workshop) -> Figure:
    sizes, path = workshop.sizes, workshop.new_path()
    files = list(workshop.generate(sizes.table_files))
    table = ours.create_table(path)
    for batch in range(_COMMITS):
        table.commit(adds=[ours.add_action(file) for file in files[batch::_COMMITS]])
        table.checkpoint()
    compacted = workshop.copy_of(path)
    ours.compact(compacted)
    day = partition_date(0).isoformat()
    times = measure_times(
        {
            side: always(partial(ours.list_partition, place, day))
            for side, place in (("before", path), ("after", compacted))
        },
        runs=sizes.runs,
        expected_length=sizes.partition_files,
    )
    return Figure(
        name=f"one partition of {sizes.table_files:,} files that {_COMMITS} commits scattered: after COMPACT",
        unit=Unit.SECONDS,
        ours=times["after"].median,
        peer_name="before COMPACT",
        peer=times["before"].median,
        note=f"The query reads {_reads(path, day)} before COMPACT, and {_reads(compacted, day)} after it.",
        samples={"ours": times["after"].values, "peer": times["before"].values},
    )


def _reads(path: Path, day: str) -> str:
    selection = ours.open_table(path).select_files(f"{PARTITION_COLUMN} = '{day}'")
    return f"{selection.manifests - selection.manifests_skipped} of {selection.manifests} manifests"


RETAINED = Benchmark("retained", "many retained states, and partitions scattered over manifests", _measure)
