"""Measurement: both sides in the same way, in turns, so that noise affects them equally."""

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path

Action = Callable[[], Sized | None]
"""The timed action. Its result is released after the clock stops."""

Preparation = Callable[[], Action]
"""Prepares each run, untimed; returns the action."""

PROJECT = Path(__file__).resolve().parent.parent
"""The folder to import this package from."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The runs of one side."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median run."""
        return statistics.median(self.values)


class WrongResultError(Exception):
    """A side returned a wrong result, so its time is meaningless."""


def always(action: Action) -> Preparation:
    """An action without preparation."""
    return lambda: action


def measure_times(
    sides: Mapping[str, Preparation],
    *,
    runs: int,
    expected_length: int | None = None,
    warm_up: int | None = None,
) -> dict[str, Samples]:
    """Seconds of each side, after warm-up runs. Raises WrongResultError."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    # Memory that a process has never touched is slow; a few runs touch all that is needed.
    warm_up = max(1, runs // 5) if warm_up is None else warm_up
    for run in range(warm_up + runs):
        for name, prepare in sides.items():
            seconds = _timed(name, prepare, expected_length)
            if run >= warm_up:
                times[name].append(seconds)
    return {name: Samples(tuple(values)) for name, values in times.items()}


def measure_memory(side: str, task: str, *arguments: str, runs: int) -> Samples:
    """Peak resident memory above the idle process in bytes, each run in a new process."""
    command = [sys.executable, "-m", "benchmarks.memory_probe", side, task, *arguments]
    peaks: list[float] = []
    for _ in range(runs):
        finished = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE)
        peaks.append(json.loads(finished.stdout)["peak_bytes"])
    return Samples(tuple(peaks))


def measure_starts(commands: Mapping[str, Sequence[str]], *, runs: int) -> dict[str, Samples]:
    """Seconds from the start of each command to its first output, in turns; the first run of each does not count.

    Raises WrongResultError for a command that fails.
    """
    times: dict[str, list[float]] = {name: [] for name in commands}
    for run in range(runs + 1):
        for name, command in commands.items():
            seconds = _seconds_to_output(command)
            if run:
                times[name].append(seconds)
    return {name: Samples(tuple(values)) for name, values in times.items()}


def _seconds_to_output(command: Sequence[str]) -> float:
    # Bytecode is kept, as it is wherever a package is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None  # it is a pipe
    first = process.stdout.read(1)
    seconds = time.perf_counter() - started
    _, error = process.communicate()
    if process.returncode or not first:
        raise WrongResultError(f"{' '.join(command)} failed: {error.decode()}")
    return seconds


def _timed(name: str, prepare: Preparation, expected_length: int | None) -> float:
    action = prepare()
    gc.collect()
    started = time.perf_counter()
    result = action()
    seconds = time.perf_counter() - started
    if expected_length is not None and (result is None or len(result) != expected_length):
        found = "nothing" if result is None else str(len(result))
        raise WrongResultError(f"{name} found {found} instead of {expected_length}")
    return seconds
