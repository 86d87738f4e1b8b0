"""The story that the demo tells, step by step, through the same API that everybody uses."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from indextables.cli.demo_place import DEMO_MARK, DEMO_PROPERTY
from indextables.cli.people import count, iso, size
from indextables.index_table import IndexTable
from indextables.log.actions import AddAction

WHERE = "date = '2026-01-31' AND latency_ms > 500"

_DAYS = ("2026-01-29", "2026-01-30", "2026-01-31")
_SCHEMA = pa.schema(
    [
        pa.field("date", pa.date32()),
        pa.field("level", pa.string()),
        pa.field("latency_ms", pa.int64()),
        pa.field("message", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the demo did: what there is to say about it, and how long the work took."""

    name: str
    lines: tuple[str, ...]
    seconds: float
    version: int


def run_demo(path: str) -> Iterator[Step]:
    """Do the steps one by one, in a directory that has room for a table. Raises what IndexTable raises."""
    started = time.perf_counter()
    table = _create(path)
    yield Step("create a table", _about(table), time.perf_counter() - started, table.version)
    for name, tell in _STEPS:
        started = time.perf_counter()
        lines = tell(table, path)
        yield Step(name, lines, time.perf_counter() - started, table.version)


def _create(path: str) -> IndexTable:
    return IndexTable.create(
        path,
        _SCHEMA,
        partition_by=["date"],
        text=["message"],
        properties={DEMO_PROPERTY: DEMO_MARK},
    )


def _about(table: IndexTable) -> tuple[str, ...]:
    columns = ", ".join(f"{field.name} {field.type}" for field in table.schema)
    return (f"columns: {columns}", f"partitioned by {', '.join(table.partition_columns)}")


def _append(table: IndexTable, _: str) -> tuple[str, ...]:
    lines = []
    for day in _DAYS:
        fast, slow = _split(day, "fast", 1, 480), _split(day, "slow", 510, 9_000)
        version = table.commit(adds=[fast, slow])
        lines.append(f"version {version} adds two files for {day}")
    return (*lines, _totals(table))


def _replace(table: IndexTable, _: str) -> tuple[str, ...]:
    day = _DAYS[0]
    merged = _split(day, "merged", 1, 9_000)
    version = table.commit(adds=[merged], removes=[_path(day, "fast"), _path(day, "slow")])
    return (
        f"version {version} puts one file in the place of two, in one step for every reader",
        _totals(table),
    )


def _remove(table: IndexTable, _: str) -> tuple[str, ...]:
    version = table.commit(removes=[_path(_DAYS[1], "slow")])
    return (f"version {version} removes a file", _totals(table))


def _travel_by_version(table: IndexTable, path: str) -> tuple[str, ...]:
    earlier = IndexTable(path, version=len(_DAYS))
    now, then = count(table.num_files, "file"), count(earlier.num_files, "file")
    return (f"version {earlier.version} still has {then}, version {table.version} has {now}",)


def _travel_by_time(table: IndexTable, path: str) -> tuple[str, ...]:
    commits = table.history()
    wanted = commits["version"].to_pylist().index(1)
    moment = iso(commits["timestamp"].cast("int64")[wanted].as_py())
    earlier = IndexTable(path, timestamp=moment)
    return (
        f"at {moment} the table was at version {earlier.version}, with {count(earlier.num_files, 'file')}",
    )


def _skip_files(table: IndexTable, _: str) -> tuple[str, ...]:
    found = table.files(where=WHERE, columns=["path"])
    skipped = f"{table.num_files - found.num_rows} of {table.num_files} skipped by partition and statistics"
    return (f"for {WHERE}", f"{count(found.num_rows, 'file')} may match, {skipped}")


def _list_history(table: IndexTable, _: str) -> tuple[str, ...]:
    commits = table.history().select(["version", "operation"]).to_pylist()
    return tuple(f"version {commit['version']}: {commit['operation']}" for commit in commits)


def _checkpoint(table: IndexTable, _: str) -> tuple[str, ...]:
    report = table.checkpoint()
    return (
        f"version {report.version} in the format {report.new_format}: readers start there and need not replay the log",
    )


def _describe_state(_: IndexTable, path: str) -> tuple[str, ...]:
    # Opened anew, as the next reader does it: by way of the checkpoint.
    state = IndexTable(path).describe_state()
    pairs = zip(state["property"].to_pylist(), state["value"].to_pylist(), strict=True)
    return tuple(f"{name}: {'-' if value is None else value}" for name, value in pairs)


_STEPS: tuple[tuple[str, Callable[[IndexTable, str], tuple[str, ...]]], ...] = (
    ("append files", _append),
    ("replace files", _replace),
    ("remove a file", _remove),
    ("travel back by version", _travel_by_version),
    ("travel back in time", _travel_by_time),
    ("skip files", _skip_files),
    ("list the history", _list_history),
    ("write a checkpoint", _checkpoint),
    ("describe the state", _describe_state),
)


def _split(day: str, name: str, fastest_ms: int, slowest_ms: int) -> AddAction:
    return AddAction(
        path=_path(day, name),
        partition_values={"date": day},
        size=4_200_000 + slowest_ms,
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        num_records=120_000,
        min_values={"latency_ms": str(fastest_ms)},
        max_values={"latency_ms": str(slowest_ms)},
    )


def _path(day: str, name: str) -> str:
    return f"date={day}/{name}.split"


def _totals(table: IndexTable) -> str:
    return f"the table has {count(table.num_files, 'file')}, {size(table.total_bytes)}"
