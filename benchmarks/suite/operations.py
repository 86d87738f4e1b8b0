"""Maintenance: merging small splits, and purging removed files."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import garbage, our_spark, raw_tantivy, small_splits
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, Goal, MostTimes, Unit
from benchmarks.files import DataFile
from benchmarks.measure import Action, Preparation, Samples, WrongResultError, always, measure_times
from benchmarks.workshop import Workshop
from indextables.errors import SparkUnavailableError
from indextables.ops.runner import Runner
from indextables.spark.jobs import SparkRunner

_MERGE_GOAL = MostTimes(1.5)

_NOTE_ON_MERGES = (
    "Our merge reads the rows, indexes them again, and commits the new splits. The tantivy figure is the index alone, "
    "of all rows at once, on one thread."
)
_NOTE_ON_PURGES = (
    "All files were removed from the table before. Both sides list the storage and read the log; deltalake runs a "
    "full vacuum. Files are empty, so that deleting them costs as little as possible."
)


def _measure(workshop: Workshop) -> Iterator[Figure]:
    yield _merge(workshop, "threads", None)
    try:
        with our_spark.running_spark() as spark:
            yield _merge(workshop, "Spark", SparkRunner(spark))
    except SparkUnavailableError as error:
        workshop.say(f"skipped: {error}")
    yield from _purge(workshop)


def _merge(workshop: Workshop, workers: str, runner: Runner | None) -> Figure:
    sizes = workshop.sizes
    rows = workshop.rows(sizes.merged_rows)
    table = workshop.built(
        f"small-splits-{sizes.merged_splits}-of-{sizes.merged_rows}",
        f"ours with {sizes.merged_splits:,} splits",
        lambda path: small_splits.build_table(path, rows, sizes.merged_partitions, sizes.merged_splits),
    )

    def merge(path: Path) -> None:
        report = small_splits.merge(path, runner)
        if (report.new_splits, report.rows) != (sizes.merged_partitions, sizes.merged_rows):
            raise WrongResultError(f"{report.rows} rows were merged to {report.new_splits} splits")

    times = measure_times(
        {
            "ours": lambda: partial(merge, workshop.copy_of(table)),
            "tantivy": lambda: partial(raw_tantivy.build_index, workshop.new_path(), rows),
        },
        runs=sizes.slow_runs,
        # Work on fresh copies does not get faster by a warm-up.
        warm_up=0,
    )
    splits = f"{sizes.merged_splits:,} splits in {sizes.merged_partitions} partitions"
    name = f"merge {sizes.merged_rows:,} rows of {splits}, on {workers}"
    rates = " and ".join(
        f"{sizes.merged_rows / samples.median:,.0f} ({side})" for side, samples in times.items()
    )
    note = f"{_NOTE_ON_MERGES} Rows per second, on {workers}: {rates}."
    return _figure(name, times["ours"], "tantivy", times["tantivy"], note, _MERGE_GOAL)


def _purge(workshop: Workshop) -> Iterator[Figure]:
    count = workshop.sizes.purged_files
    files = list(workshop.generate(count))
    our_path, delta_path, raw_path = workshop.new_path(), workshop.new_path(), workshop.new_path()
    garbage.build_our_table(our_path, files)
    garbage.build_delta_table(delta_path, files)
    for path in (our_path, delta_path):
        garbage.put_files(path, files)
    plans = measure_times(
        {
            "ours": always(partial(garbage.plan_ours, our_path)),
            "deltalake": always(partial(garbage.plan_delta, delta_path)),
        },
        runs=workshop.sizes.slow_runs,
        expected_length=count,
    )
    name = f"purge {count:,} files"
    yield _figure(f"{name}: plan", plans["ours"], "deltalake", plans["deltalake"], _NOTE_ON_PURGES)
    times = measure_times(
        {
            "ours": _refilled(our_path, files, partial(garbage.purge_ours, our_path)),
            "deltalake": _refilled(delta_path, files, partial(garbage.purge_delta, delta_path)),
            "unlink": lambda: partial(garbage.unlink_all, garbage.put_files(raw_path, files)),
        },
        # Creating the files takes longer than any measurement.
        runs=1,
        warm_up=0,
        expected_length=count,
    )
    for peer in ("deltalake", "unlink"):
        yield _figure(f"{name}: plan and delete", times["ours"], peer, times[peer], _NOTE_ON_PURGES)


def _refilled(path: Path, files: Sequence[DataFile], action: Action) -> Preparation:
    def prepare() -> Action:
        garbage.put_files(path, files)
        return action

    return prepare


def _figure(
    name: str, ours: Samples, peer_name: str, peer: Samples, note: str, goal: Goal | None = None
) -> Figure:
    return Figure(
        name=name,
        unit=Unit.SECONDS,
        ours=ours.median,
        peer_name=peer_name,
        peer=peer.median,
        goal=goal,
        note=note,
        samples={"ours": ours.values, "peer": peer.values},
    )


OPERATIONS = Benchmark("operations", "merge small splits, and purge removed files", _measure)
