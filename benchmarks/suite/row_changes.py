"""Delete scattered rows, and upsert rows by key: in our table, and in one of deltalake with the same rows."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, Goal, MostTimes, Unit
from benchmarks.measure import Action, Samples, WrongResultError, measure_times
from benchmarks.rows import generate_rows
from benchmarks.workshop import Workshop
from indextables import IndexTable

_Change = Callable[[Path], None]

_SEED = 20_260_131

_NOTE_ON_DELETES = (
    "Each side opens the table and deletes the rows with these ids, which lie everywhere in it, in one commit. "
    "deltalake writes the files without them again."
)
_NOTE_ON_UPSERTS = (
    "Half of the rows have keys that are there, everywhere in the table; the others are inserted. Our new rows are "
    "indexed for full-text search."
)


def _measure(workshop: Workshop) -> Iterator[Figure]:
    sizes = workshop.sizes
    ours = workshop.our_rows(sizes.changed_rows)
    theirs = workshop.built(
        f"deltalake-{sizes.changed_rows}-rows",
        f"deltalake with {sizes.changed_rows:,} rows",
        lambda path: write_deltalake(path, workshop.rows(sizes.changed_rows)),
    )
    yield _delete(workshop, ours, theirs)
    yield _upsert(workshop, ours, theirs)


def _delete(workshop: Workshop, ours: Path, theirs: Path) -> Figure:
    total, count = workshop.sizes.changed_rows, workshop.sizes.deleted_rows
    where = f"id IN ({', '.join(map(str, _scattered(total, count)))})"

    def delete_ours(path: Path) -> None:
        IndexTable(str(path)).delete(where=where)

    def delete_theirs(path: Path) -> None:
        DeltaTable(path).delete(where)

    times = _in_turns(
        workshop, {"ours": (ours, delete_ours), "deltalake": (theirs, delete_theirs)}, rows=total - count
    )
    name = f"delete {count:,} scattered rows of {total:,}"
    return _figure(name, times, MostTimes(0.5), _NOTE_ON_DELETES)


def _upsert(workshop: Workshop, ours: Path, theirs: Path) -> Figure:
    total, count = workshop.sizes.changed_rows, workshop.sizes.upserted_rows
    source = _source(total, count)

    def merge_ours(path: Path) -> None:
        IndexTable(str(path)).merge(source, on="id")

    def merge_theirs(path: Path) -> None:
        merger = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    times = _in_turns(
        workshop,
        {"ours": (ours, merge_ours), "deltalake": (theirs, merge_theirs)},
        rows=total + count - count // 2,
    )
    return _figure(f"upsert {count:,} rows into {total:,}", times, MostTimes(1), _NOTE_ON_UPSERTS)


def _source(total: int, count: int) -> pa.Table:
    """Rows to upsert: every second one replaces one of the table, the others are new."""
    known = _scattered(total, count // 2)
    ids = np.concatenate([known, np.arange(total, total + count - len(known))])
    rows = generate_rows(count)
    return rows.set_column(
        0, rows.schema.field("id"), pa.array(np.random.default_rng(_SEED).permutation(ids))
    )


def _scattered(total: int, count: int) -> npt.NDArray[np.int64]:
    return np.sort(np.random.default_rng(_SEED).choice(total, count, replace=False))


def _in_turns(workshop: Workshop, sides: dict[str, tuple[Path, _Change]], rows: int) -> dict[str, Samples]:
    """Change fresh copies of the tables. Raises WrongResultError unless they have so many rows then."""
    copies: dict[str, Path] = {}

    def prepare(name: str) -> Action:
        table, change = sides[name]
        copies[name] = workshop.copy_of(table)
        return partial(change, copies[name])

    times = measure_times(
        {name: partial(prepare, name) for name in sides},
        runs=workshop.sizes.slow_runs,
    )
    found = {
        "ours": IndexTable(str(copies["ours"])).count(),
        "deltalake": DeltaTable(copies["deltalake"]).count(),
    }
    for name, number in found.items():
        if number != rows:
            raise WrongResultError(f"{name} has {number} rows instead of {rows}")
    return times


def _figure(name: str, times: dict[str, Samples], goal: Goal, note: str) -> Figure:
    ours, theirs = times["ours"], times["deltalake"]
    return Figure(
        name=name,
        unit=Unit.SECONDS,
        ours=ours.median,
        peer_name="deltalake",
        peer=theirs.median,
        goal=goal,
        note=note,
        samples={"ours": ours.values, "peer": theirs.values},
    )


ROW_CHANGES = Benchmark("row-changes", "delete and upsert rows", _measure)
