"""Splits: the time to write and scan rows, and their size."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from benchmarks import our_rows, raw_tantivy
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, MostTimes, Unit
from benchmarks.measure import Action, Preparation, always, measure_times
from benchmarks.rows import SCHEMA, TEXT_COLUMN
from benchmarks.workshop import Workshop
from indextables.ingest.operation import IngestRequest, ingest

# At least 0.6 times the documents per second.
_INDEXING_GOAL = MostTimes(1 / 0.6)


def _measure(workshop: Workshop) -> Iterator[Figure]:
    yield _indexing(workshop)
    yield _json_lines(workshop)
    yield _scan(workshop)
    yield from _sizes(workshop)


def _indexing(workshop: Workshop) -> Figure:
    count = workshop.sizes.rows
    times = measure_times(
        {"ours": _our_indexing(workshop), "tantivy": _raw_indexing(workshop)}, runs=workshop.sizes.slow_runs
    )
    return Figure(
        name=f"index {count:,} rows",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="tantivy",
        peer=times["tantivy"].median,
        goal=_INDEXING_GOAL,
        note="Ours is a complete append: rows, statistics, index, checksums and the commit, flushed to disk. The "
        "tantivy figure is the index alone, with the same fields, on one thread.",
        samples={"ours": times["ours"].values, "peer": times["tantivy"].values},
    )


def _our_indexing(workshop: Workshop) -> Preparation:
    rows = workshop.rows(workshop.sizes.rows)

    def prepare() -> Action:
        table = our_rows.create_table(workshop.new_path())

        def append() -> None:
            table.append(rows)

        return append

    return prepare


def _raw_indexing(workshop: Workshop) -> Preparation:
    rows = workshop.rows(workshop.sizes.rows)
    return lambda: partial(raw_tantivy.build_index, workshop.new_path(), rows)


def _json_lines(workshop: Workshop) -> Figure:
    count = 2 * workshop.sizes.rows
    file = _write_json_lines(workshop.rows(count), workshop.new_path())
    times = measure_times(
        {
            "ours": lambda: partial(_ingest, file, workshop.new_path()),
            "peer": lambda: partial(_read_and_index, file, workshop.new_path()),
        },
        runs=workshop.sizes.slow_runs,
    )
    return Figure(
        name=f"index {count:,} JSON lines",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="pyarrow and tantivy",
        peer=times["peer"].median,
        goal=MostTimes(1.5),
        note="Ours reads the file twice: for the columns and types of all lines, and for the rows, with every value "
        "checked. It then writes a complete table. The peers read the file into memory and write the index alone.",
        samples={"ours": times["ours"].values, "peer": times["peer"].values},
    )


def _write_json_lines(rows: pa.Table, path: Path) -> Path:
    path.mkdir()
    times = pc.strftime(rows["ts"], "%Y-%m-%dT%H:%M:%SZ")
    plain = rows.set_column(rows.schema.get_field_index("ts"), "ts", times)
    with (path / "rows.jsonl").open("wb") as file:
        for batch in plain.to_batches(10_000):
            file.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in batch.to_pylist())
    return path / "rows.jsonl"


def _ingest(file: Path, path: Path) -> None:
    ingest(IngestRequest(places=(str(file),), path=str(path), text=(TEXT_COLUMN,)))


def _read_and_index(file: Path, path: Path) -> None:
    rows = pa_json.read_json(file)
    raw_tantivy.build_index(path, rows.set_column(2, "ts", rows["ts"].cast(SCHEMA.field("ts").type)))


def _scan(workshop: Workshop) -> Figure:
    count = workshop.sizes.rows
    table = our_rows.open_table(workshop.our_rows(count), workshop.new_path())
    split = our_rows.split_file(workshop.our_rows(count))
    times = measure_times(
        {
            "ours": always(table.to_arrow),
            "pyarrow": always(partial(pq.read_table, split)),
        },
        runs=workshop.sizes.runs,
        expected_length=count,
    )
    return Figure(
        name=f"scan {count:,} rows",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="pyarrow",
        peer=times["pyarrow"].median,
        goal=MostTimes(1.3),
        note="Both read our split, which is a Parquet file; ours verifies the checksums of its pages.",
        samples={"ours": times["ours"].values, "peer": times["pyarrow"].values},
    )


def _sizes(workshop: Workshop) -> Iterator[Figure]:
    count = workshop.sizes.rows
    folder = workshop.new_path()
    folder.mkdir()
    pq.write_table(workshop.rows(count), folder / "rows.parquet", compression="zstd")
    ours = _size(workshop.our_rows(count))
    peers = {
        "Parquet alone": (folder, MostTimes(2)),
        "Lance with its index": (workshop.lance_rows(count), MostTimes(1)),
    }
    for name, (path, goal) in peers.items():
        yield Figure(f"size of {count:,} rows", Unit.BYTES, ours, name, _size(path), goal)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


SPLITS = Benchmark("splits", "write and scan rows, and their size", _measure)
