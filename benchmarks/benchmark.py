"""The definition of a benchmark, and a runner for a selection of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from benchmarks.figures import Figure
from benchmarks.workshop import Workshop


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: its name for --only, a title, and the function that measures."""

    name: str
    title: str
    measure: Callable[[Workshop], Iterator[Figure]]


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one benchmark, and how long it took, including building tables."""

    name: str
    title: str
    seconds: float
    figures: tuple[Figure, ...]


def run_benchmarks(
    benchmarks: Sequence[Benchmark], workshop: Workshop, console: Console
) -> tuple[Measured, ...]:
    """Run benchmarks one after the other, and print the progress."""
    return tuple(_run(benchmark, workshop, console) for benchmark in benchmarks)


def _run(benchmark: Benchmark, workshop: Workshop, console: Console) -> Measured:
    console.print(f"[bold]{benchmark.name}[/bold]: {benchmark.title}")
    started = time.perf_counter()
    figures: list[Figure] = []
    for figure in benchmark.measure(workshop):
        figures.append(replace(figure, is_goal_judged=workshop.sizes.are_goals_judged))
        workshop.say(f"{figure.name}: {figure.ratio:.3g} times {figure.peer_name}")
    workshop.discard_scratch()
    seconds = time.perf_counter() - started
    workshop.say(f"done in {seconds:.0f} s")
    return Measured(benchmark.name, benchmark.title, seconds, tuple(figures))
