"""The result as pictures: how times grow with files and rows, and how fast rows are indexed."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt  # the way of drawing is chosen first

_OURS = "IndexTables"
_COLOURS = {
    _OURS: "#0b6e4f",
    "deltalake": "#1f77b4",
    "pyiceberg": "#9467bd",
    "Lance": "#d95f02",
    "tantivy": "#7f7f7f",
}
_LISTING = re.compile(r"list ([\d,]+) files")
_SEARCHING = re.compile(r"the 10 best of ([\d,]+) rows, all columns")
_INDEXING = re.compile(r"index ([\d,]+) rows")

Curves = Mapping[str, Mapping[int, float]]


def draw_charts(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write one SVG for each chart that the result has figures for; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [
        _draw_curves(
            folder / "listing.svg", "open a table and list all files", "files", _curves(result, _LISTING)
        ),
        _draw_curves(
            folder / "searching.svg",
            "the ten best rows with all columns",
            "rows",
            _curves(result, _SEARCHING),
        ),
        _draw_rates(folder / "indexing.svg", _curves(result, _INDEXING)),
    ]
    return [path for path in drawn if path is not None]


def _curves(result: Mapping[str, Any], pattern: re.Pattern[str]) -> Curves:
    """Seconds by side and size, of all figures whose whole name is of a pattern."""
    curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for figure, size in _matching(result, pattern.fullmatch):
        curves[_OURS][size] = figure["ours"]
        curves[figure["peer_name"]][size] = figure["peer"]
    return curves


def _matching(
    result: Mapping[str, Any], match: Callable[[str], re.Match[str] | None]
) -> Iterator[tuple[Mapping[str, Any], int]]:
    for benchmark in result["benchmarks"]:
        for figure in benchmark["figures"]:
            found = match(figure["name"])
            if found is not None:
                yield figure, int(found[1].replace(",", ""))


def _draw_curves(path: Path, title: str, unit: str, curves: Curves) -> Path | None:
    if not curves:
        return None
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for name, points in curves.items():
        sizes = sorted(points)
        milliseconds = [points[size] * 1_000 for size in sizes]
        axes.plot(sizes, milliseconds, marker="o", label=name, color=_COLOURS.get(name))
    axes.set(xscale="log", yscale="log", xlabel=unit, ylabel="milliseconds", title=title)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    return _saved(figure, path)


def _draw_rates(path: Path, curves: Curves) -> Path | None:
    if not curves:
        return None
    figure, axes = plt.subplots(figsize=(6.4, 2.4))
    rates = {name: max(size / seconds for size, seconds in points.items()) for name, points in curves.items()}
    axes.barh(list(rates), list(rates.values()), color=[_COLOURS.get(name) for name in rates])
    axes.set(xlabel="rows per second, one writer", title="indexing")
    axes.invert_yaxis()
    return _saved(figure, path)


def _saved(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
