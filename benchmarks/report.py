"""The result as a table, as JSON, and as a Markdown page."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.benchmark import Measured
from benchmarks.figures import Figure, Verdict, amount_text
from benchmarks.sizes import Sizes

_STYLES = {Verdict.PASS: "green", Verdict.MISS: "bold red", Verdict.NONE: "dim"}
_COLUMNS = ("figure", "ours", "peer", "ratio", "goal", "")


def result_table(measured: Sequence[Measured]) -> Table:
    """One row per figure, in sections by benchmark."""
    table = Table(title="less is better; a ratio below 1 is better than the peer", title_style="dim")
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column in ("ours", "ratio") else "left")
    for benchmark in measured:
        for figure in benchmark.figures:
            verdict = figure.verdict
            table.add_row(*_cells(figure), style=_STYLES[verdict] if verdict is Verdict.MISS else None)
        table.add_section()
    return table


def result_json(measured: Sequence[Measured], machine: Mapping[str, str], sizes: Sizes) -> dict[str, Any]:
    """All measurements, including single runs."""
    return {
        "sizes": sizes.name,
        "machine": dict(machine),
        "benchmarks": [
            {
                "name": benchmark.name,
                "title": benchmark.title,
                "seconds": benchmark.seconds,
                "figures": [_figure_json(figure) for figure in benchmark.figures],
            }
            for benchmark in measured
        ],
    }


def write_json(result: Mapping[str, Any], path: Path) -> None:
    """Write the result, creating its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


def result_markdown(
    measured: Sequence[Measured],
    machine: Mapping[str, str],
    sizes: Sizes,
    charts: Sequence[Path] = (),
    page: Path = Path("BENCHMARKS.md"),
) -> str:
    """A page with the figures, the machine and the method, and charts by their paths relative to the page."""
    folder = page.resolve().parent
    pictures = [chart.resolve().relative_to(folder) for chart in charts]
    return "\n".join(_markdown_lines(measured, machine, sizes, pictures)) + "\n"


def _markdown_lines(
    measured: Sequence[Measured], machine: Mapping[str, str], sizes: Sizes, pictures: Sequence[Path]
) -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    yield (
        "Written by `make bench`. Every figure is next to a peer's, from the same run on the same generated "
        "files. Times are medians after a warm-up, with our caches disabled; memory is the peak above the idle "
        "process, measured in its own process. Less is better, and a ratio below 1 is better than the peer."
    )
    if not sizes.are_goals_judged:
        yield ""
        yield f"These are the {sizes.name} sizes, at which goals are not judged."
    yield ""
    yield from _markdown_rows(("machine", ""), machine.items())
    for picture in pictures:
        yield ""
        yield f"![{picture.stem}]({picture.as_posix()})"
    for benchmark in measured:
        yield ""
        yield f"## {benchmark.name}: {benchmark.title}"
        yield ""
        yield from _markdown_rows(_COLUMNS, map(_cells, benchmark.figures))
        notes = dict.fromkeys(figure.note for figure in benchmark.figures if figure.note)
        for note in notes:
            yield ""
            yield note


def _markdown_rows(header: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        amount_text(figure.ours, figure.unit),
        f"{figure.peer_name}: {amount_text(figure.peer, figure.unit)}",
        f"{figure.ratio:.3g}",
        figure.goal_text,
        figure.verdict.value,
    )


def _figure_json(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "unit": figure.unit.value,
        "ours": figure.ours,
        "peer_name": figure.peer_name,
        "peer": figure.peer,
        "ratio": figure.ratio,
        "goal": figure.goal_text or None,
        "verdict": figure.verdict.value,
        "note": figure.note or None,
        "samples": {name: list(values) for name, values in (figure.samples or {}).items()},
    }
