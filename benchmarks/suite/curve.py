"""Tables of several sizes: list all files or one partition, add files, compact, and peak memory."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from benchmarks import delta, iceberg, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, Unit
from benchmarks.files import partition_date
from benchmarks.measure import Preparation, always, measure_memory, measure_times
from benchmarks.suite.adding import adding_sides
from benchmarks.suite.compaction import compaction_sides
from benchmarks.workshop import Workshop

# The goals of the specification's test plan.
_LISTING_GOALS = {100_000: AtMost(0.7)}


def _measure(workshop: Workshop) -> Iterator[Figure]:
    sizes = workshop.sizes
    for files in sizes.curve_files:
        # Runs that take seconds hardly differ.
        runs = sizes.slow_runs if files < sizes.large_table_files else 1
        compared = partial(_compared, runs=runs)
        listing = f"list {files:,} files"
        figure = compared(listing, _listing_sides(workshop, files), expected_length=files)
        yield replace(figure, goal=_LISTING_GOALS.get(files))
        if files <= sizes.most_iceberg_files:
            runs = sizes.slow_runs if files < sizes.most_iceberg_files else 1
            yield _compared(listing, _iceberg_sides(workshop, files), runs=runs, expected_length=files)
        yield compared(
            f"one partition of {sizes.partition_files:,} files in {files:,}",
            _partition_sides(workshop, files),
            expected_length=sizes.partition_files,
        )
        yield compared(f"add {sizes.added_files} files to {files:,}", adding_sides(workshop, files))
        yield compared(f"compact {files:,} entries", compaction_sides(workshop, files))
        yield _memory(workshop, files)


def _listing_sides(workshop: Workshop, files: int) -> dict[str, Preparation]:
    return {
        "ours": always(partial(ours.list_files, workshop.our_table(files))),
        "deltalake": always(partial(delta.list_files, workshop.delta_table(files))),
    }


def _iceberg_sides(workshop: Workshop, files: int) -> dict[str, Preparation]:
    return {
        "ours": always(partial(ours.list_files, workshop.our_table(files))),
        "pyiceberg": always(partial(iceberg.list_files, workshop.iceberg_table(files))),
    }


def _partition_sides(workshop: Workshop, files: int) -> dict[str, Preparation]:
    middle = partition_date(files // workshop.sizes.partition_files // 2).isoformat()
    return {
        "ours": always(partial(ours.list_partition, workshop.our_table(files), middle)),
        "deltalake": always(partial(delta.list_partition, workshop.delta_table(files), middle)),
    }


def _compared(
    name: str, sides: Mapping[str, Preparation], *, runs: int, expected_length: int | None = None
) -> Figure:
    times = measure_times(sides, runs=runs, expected_length=expected_length)
    (peer,) = sides.keys() - {"ours"}
    return Figure(
        name=name,
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name=peer,
        peer=times[peer].median,
        samples={"ours": times["ours"].values, "peer": times[peer].values},
    )


def _memory(workshop: Workshop, files: int) -> Figure:
    ours_ = measure_memory("ours", "list", str(workshop.our_table(files)), runs=1)
    peer = measure_memory("deltalake", "list", str(workshop.delta_table(files)), runs=1)
    return Figure(
        name=f"peak memory of reading {files:,} entries",
        unit=Unit.BYTES,
        ours=ours_.median,
        peer_name="deltalake",
        peer=peer.median,
        samples={"ours": ours_.values, "peer": peer.values},
    )


CURVE = Benchmark("curve", "listing, adding, compacting and memory as a table grows", _measure)
