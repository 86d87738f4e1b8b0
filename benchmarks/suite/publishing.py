"""Publish a table as Delta Lake: what it adds to a commit, and what other engines read."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import deltalake
import pyarrow as pa

from benchmarks import ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, MostTimes, Unit
from benchmarks.measure import Action, Preparation, WrongResultError, always, measure_times
from benchmarks.workshop import Workshop

_PUBLISHED = {"spark.indextables.publish.delta.enabled": "true"}


def _measure(workshop: Workshop) -> Iterator[Figure]:
    yield _commit(workshop)
    yield _scan(workshop)


def _commit(workshop: Workshop) -> Figure:
    sizes = workshop.sizes
    times = measure_times(
        {
            "published": _adding(workshop, ours.CHECKPOINT_EVERY_COMMIT | _PUBLISHED),
            "alone": _adding(workshop, ours.CHECKPOINT_EVERY_COMMIT),
        },
        runs=sizes.runs,
    )
    return Figure(
        name=f"add {sizes.added_files} files to {sizes.table_files:,}, and publish the commit as Delta",
        unit=Unit.SECONDS,
        ours=times["published"].median,
        peer_name="the commit and its state alone",
        peer=times["alone"].median,
        goal=MostTimes(1.5),
        samples={"ours": times["published"].values, "peer": times["alone"].values},
    )


def _adding(workshop: Workshop, options: dict[str, str]) -> Preparation:
    path = workshop.copy_of(workshop.our_table(workshop.sizes.table_files))
    ours.open_table(path).publish()
    batches = count(1)

    def prepare() -> Action:
        table = ours.open_table(path, options)
        files = workshop.generate(workshop.sizes.added_files, batch=next(batches))
        return partial(table.commit, [ours.add_action(file) for file in files])

    return prepare


def _scan(workshop: Workshop) -> Figure:
    rows = workshop.rows(workshop.sizes.rows)
    published, own = workshop.copy_of(workshop.our_rows(workshop.sizes.rows)), workshop.new_path()
    ours.open_table(published).publish()
    deltalake.write_deltalake(str(own), rows)
    times = measure_times(
        {name: always(partial(_read, path)) for name, path in (("published", published), ("own", own))},
        runs=workshop.sizes.slow_runs,
    )
    if _read(published) != rows.num_rows:
        raise WrongResultError("deltalake reads another number of rows from the published table")
    return Figure(
        name=f"deltalake reads {rows.num_rows:,} rows of a published table",
        unit=Unit.SECONDS,
        ours=times["published"].median,
        peer_name="the same rows in files of deltalake",
        peer=times["own"].median,
        goal=MostTimes(1.1),
        samples={"ours": times["published"].values, "peer": times["own"].values},
    )


def _read(path: Path) -> int:
    table = deltalake.DeltaTable(str(path))
    found = deltalake.QueryBuilder().register("rows", table).execute("SELECT * FROM rows")
    return sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(found))


PUBLISHING = Benchmark("publish", "publish a table as Delta Lake", _measure)
