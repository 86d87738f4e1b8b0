"""Charts of the result: times by number of files and rows, and indexing rates."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt  # the backend must be set before pyplot is imported

_OURS = "IndexTables"
_OURS_ON_SPARK = "IndexTables on Spark"
_COLOURS = {
    _OURS: "#0b6e4f",
    _OURS_ON_SPARK: "#57a773",
    "deltalake": "#1f77b4",
    "pyiceberg": "#9467bd",
    "Lance": "#d95f02",
    "tantivy": "#7f7f7f",
    "tantivy on every core": "#bdbdbd",
}
_LISTING = re.compile(r"list ([\d,]+) files")
_SEARCHING = re.compile(r"the 10 best of ([\d,]+) rows, all columns")
_INDEXING = re.compile(r"index ([\d,]+) rows")
_INDEXING_ON_SPARK = re.compile(r"index ([\d,]+) rows on Spark")

Curves = Mapping[str, Mapping[int, float]]


def draw_charts(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write one SVG per chart that the result has figures for; returns their paths."""
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
        _draw_rates(folder / "indexing.svg", indexing_rates(result)),
    ]
    return [path for path in drawn if path is not None]


def indexing_rates(result: Mapping[str, Any]) -> dict[str, float]:
    """Rows per second of each side: with one writer, and on Spark if measured."""
    curves = {**_curves(result, _INDEXING), **_curves(result, _INDEXING_ON_SPARK, _OURS_ON_SPARK)}
    return {name: max(size / seconds for size, seconds in points.items()) for name, points in curves.items()}


def _curves(result: Mapping[str, Any], pattern: re.Pattern[str], our_name: str = _OURS) -> Curves:
    """Seconds by side and size, of all figures whose full name matches a pattern."""
    curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for figure, size in _matching(result, pattern.fullmatch):
        curves[our_name][size] = figure["ours"]
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


def _draw_rates(path: Path, rates: Mapping[str, float]) -> Path | None:
    if not rates:
        return None
    figure, axes = plt.subplots(figsize=(6.4, 2.4))
    axes.barh(list(rates), list(rates.values()), color=[_COLOURS.get(name) for name in rates])
    axes.set(xlabel="rows per second", title="indexing")
    axes.invert_yaxis()
    return _saved(figure, path)


def _saved(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
