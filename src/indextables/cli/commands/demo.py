"""`indextables demo`: a tour of the main features on this machine."""

import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.demo.place import local_directory, make_room
from indextables.cli.formatting import duration
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson
from indextables.cli.output import Column, print_heading, print_hit, print_line, print_table
from indextables.cli.progress import working
from indextables.index_table import IndexTable

if TYPE_CHECKING:
    from indextables.cli.demo.story import Hit, Step

EXAMPLES = examples("indextables demo", "indextables demo /tmp/my-demo", "indextables demo --json")

DEFAULT_DIRECTORY = "./demo-table"


def demo(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Where to create the table: a new or empty directory.")
    ] = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Index, search, stream, merge and more, on real text.

    Indexes the source code of Python's standard library with a local Spark session (needs Java 17). Replaces an earlier
    demo table in the same directory; refuses any other directory that is not empty.
    """
    # Help must work without Spark.
    from indextables.cli.demo.story import Demo

    place = local_directory(directory)
    is_replaced = make_room(place)
    started = time.perf_counter()
    steps = Demo(str(place)).run(working)
    if as_json:
        print_json(
            {
                "path": str(place),
                "replacedEarlierDemo": is_replaced,
                "steps": [_step_document(step) for step in steps],
                "next": _next_commands(directory),
            }
        )
        return
    print_line(f"Table: {place}{' (replaces an earlier demo)' if is_replaced else ''}")
    figures: list[tuple[str, str]] = []
    for number, step in enumerate(steps, start=1):
        _print_step(number, step, str(place))
        figures.extend(step.outcome.figures)
    figures.append(("total time", duration(time.perf_counter() - started)))
    print_line()
    print_table([Column("figure"), Column("", "right")], figures)
    print_line()
    print_heading("The table is still there. Try:")
    for command in _next_commands(directory):
        print_line(f"   {command}")


def _print_step(number: int, step: "Step", path: str) -> None:
    print_line()
    print_heading(f"{number}. {step.name} ({duration(step.seconds)})")
    for line in step.outcome.lines:
        print_line(f"   {line}")
    if step.outcome.hits:
        _print_hits(step.outcome.hits, path)


def _print_hits(hits: "tuple[Hit, ...]", path: str) -> None:
    highlighter = IndexTable(path).highlighter(" OR ".join({hit.query for hit in hits}))
    for hit in hits:
        print_hit(hit.score, f"{hit.place}", {"text": hit.text.strip()}, highlighter, indent="   ")
    sys.stdout.flush()


def _step_document(step: "Step") -> dict[str, object]:
    return {
        "name": step.name,
        "milliseconds": round(step.seconds * 1000, 3),
        "version": step.version,
        "lines": list(step.outcome.lines),
        "hits": [{"place": hit.place, "score": hit.score, "text": hit.text} for hit in step.outcome.hits],
        "figures": dict(step.outcome.figures),
    }


def _next_commands(directory: str) -> list[str]:
    path = shlex.quote(directory)
    return [
        f"indextables search {path} 'def AND async' --where \"package = 'asyncio'\"",
        f"indextables search {path} '\"raise NotImplementedError\"' --limit 3",
        f"indextables history {path}",
        f"indextables files {path} --where \"package = 'email'\"",
        f"indextables describe {path}",
        f"indextables sql \"DESCRIBE INDEXTABLES TRANSACTION LOG '{directory}'\"",
        f"indextables purge {path} --dry-run",
        f"indextables fsck {path}",
    ]
