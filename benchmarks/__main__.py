"""`python -m benchmarks`: run benchmarks, print a table of ratios, and write the result as JSON."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.benchmark import Benchmark, run_benchmarks
from benchmarks.charts import draw_charts
from benchmarks.figures import check_goals
from benchmarks.machine import describe_machine
from benchmarks.report import result_json, result_markdown, result_table, write_json
from benchmarks.sizes import FULL, QUICK, TINY
from benchmarks.suite import BENCHMARKS
from benchmarks.workshop import open_workshop

_WIDTH = 140
_LATEST = Path(__file__).resolve().parent / "results" / "latest.json"
_CHARTS = Path("docs", "charts")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks, and return the exit code.

    A missed goal is an error only with --check, because times depend on the machine.
    """
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    if options.list:
        for benchmark in BENCHMARKS:
            console.print(f"{benchmark.name:<12} {benchmark.title}", highlight=False)
        return 0
    with open_workshop(options.work_dir, options.sizes, console) as workshop:
        measured = run_benchmarks(_chosen(options.only), workshop, console)
    machine = describe_machine()
    console.print(result_table(measured))
    result = result_json(measured, machine, options.sizes)
    write_json(result, options.json)
    if options.markdown is not None:
        charts = draw_charts(result, options.charts or options.markdown.parent / _CHARTS)
        options.markdown.write_text(
            result_markdown(measured, machine, options.sizes, charts, options.markdown)
        )
    if not options.check:
        return 0
    figures = [figure for benchmark in measured for figure in benchmark.figures]
    return check_goals(figures, partial(console.print, highlight=False))


def _chosen(names: Sequence[str] | None) -> tuple[Benchmark, ...]:
    return tuple(benchmark for benchmark in BENCHMARKS if names is None or benchmark.name in names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="run only these benchmarks")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure misses its goal")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and exit")
    parser.add_argument(
        "--work-dir", type=Path, metavar="DIR", help="keep the generated tables here for reuse"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=_LATEST, help="where to write the result"
    )
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="also write the result as a Markdown page"
    )
    parser.add_argument(
        "--charts",
        type=Path,
        metavar="DIR",
        help=f"where to write the page's charts; default: {_CHARTS} beside it",
    )
    parser.set_defaults(sizes=FULL)
    parser.add_argument(
        "--quick",
        dest="sizes",
        action="store_const",
        const=QUICK,
        help="smaller sizes, without judging goals",
    )
    parser.add_argument("--tiny", dest="sizes", action="store_const", const=TINY, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
