"""Several processes that commit to one table as fast as they can.

Each runs a module that calls `be_a_writer`: it opens the table, reports that it is ready, waits for a line, commits,
and prints its start and end by the clock that all processes share.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.files import DataFile, generate_files
from benchmarks.measure import PROJECT, WrongResultError

Commit = Callable[[DataFile], object]


def race(module: str, path: Path, *, writers: int, commits: int) -> float:
    """Seconds from the first start to the last end of a writer. Raises WrongResultError if one failed."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_Writer.started(module, path, number, commits)) for number in range(writers)
        ]
        for process in processes:
            process.wait_until_ready()
        for process in processes:
            process.go()
        laps = [process.finished() for process in processes]
    return max(ended for _, ended in laps) - min(started for started, _ in laps)


def commit_all(commit: Commit, files: Sequence[DataFile]) -> None:
    """Commit each file separately."""
    for file in files:
        commit(file)


def be_a_writer(open_writer: Callable[[str], Commit], arguments: Sequence[str]) -> None:
    """The main function of a racing process; arguments: table, writer number, number of commits."""
    path, number, commits = arguments
    files = list(generate_files(int(commits), int(commits), batch=int(number) + 1))
    commit = open_writer(path)
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.monotonic()
    commit_all(commit, files)
    print(json.dumps([started, time.monotonic()]), flush=True)


@dataclass(frozen=True, slots=True)
class _Writer:
    """A writer process, as the race sees it."""

    name: str
    process: subprocess.Popen[str]

    @classmethod
    def started(cls, module: str, path: Path, number: int, commits: int) -> "_Writer":
        command = [sys.executable, "-m", module, str(path), str(number), str(commits)]
        process = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return cls(f"writer {number} of {module}", process)

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *_: object) -> None:
        # If another writer failed, this one may still be waiting for its start.
        self.process.kill()
        self.process.communicate()

    def wait_until_ready(self) -> None:
        self._line()

    def go(self) -> None:
        assert self.process.stdin is not None  # it is a pipe
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def finished(self) -> tuple[float, float]:
        started, ended = json.loads(self._line())
        return started, ended

    def _line(self) -> str:
        assert self.process.stdout is not None  # it is a pipe
        line = self.process.stdout.readline()
        if not line:
            raise WrongResultError(f"{self.name} failed with the exit code {self.process.wait()}")
        return line
