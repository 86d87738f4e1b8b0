"""Several processes that commit to one table as fast as they can."""

import multiprocessing
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from deltalake import DeltaTable

from benchmarks import delta, ours
from benchmarks.files import DataFile, generate_files
from benchmarks.measure import WrongResultError

_START_TIMEOUT_SECONDS = 120
_RACE_TIMEOUT_SECONDS = 600

Commit = Callable[[DataFile], None]


@dataclass(frozen=True, slots=True)
class _Lap:
    """When a writer started and ended, by the clock that all processes share; or what went wrong."""

    started: float
    ended: float
    error: str = ""


def race(side: str, path: Path, *, writers: int, commits: int) -> float:
    """Seconds from the first writer's start to the last one's end. Raises WrongResultError if one failed."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(writers)
    laps: Queue[_Lap] = context.Queue()
    processes = [
        context.Process(target=_write, args=(side, str(path), number, commits, barrier, laps), daemon=True)
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    finished = [laps.get(timeout=_RACE_TIMEOUT_SECONDS) for _ in processes]
    for process in processes:
        process.join()
    errors = [lap.error for lap in finished if lap.error]
    if errors:
        raise WrongResultError(f"{side}: a writer failed:\n{errors[0]}")
    return max(lap.ended for lap in finished) - min(lap.started for lap in finished)


def our_writer(path: str | Path) -> Commit:
    """One file per commit, from where the last commit left the table."""
    table = ours.open_table(path, ours.PATIENT)
    return lambda file: _discard(table.commit(adds=[ours.add_action(file)]))


def delta_writer(path: str | Path) -> Commit:
    """The same; a commit leaves the object at the version before, so that it has to be brought up to date."""
    table = DeltaTable(str(path))

    def commit(file: DataFile) -> None:
        delta.commit(table, [delta.add_action(file)])
        table.update_incremental()

    return commit


def commit_all(commit: Commit, files: Sequence[DataFile]) -> None:
    """Each file in a commit of its own."""
    for file in files:
        commit(file)


_WRITERS: Mapping[str, Callable[[str], Commit]] = {"ours": our_writer, "deltalake": delta_writer}


def _write(side: str, path: str, number: int, commits: int, barrier: Barrier, laps: "Queue[_Lap]") -> None:
    try:
        files = list(generate_files(commits, commits, batch=number + 1))
        commit = _WRITERS[side](path)
        barrier.wait(_START_TIMEOUT_SECONDS)
        started = time.monotonic()
        commit_all(commit, files)
        laps.put(_Lap(started, time.monotonic()))
    except Exception:  # noqa: BLE001  # whatever it is, the parent must hear of it
        barrier.abort()
        laps.put(_Lap(0, 0, traceback.format_exc()))


def _discard(_: object) -> None:
    return None
