"""`indextables demo`: a table's life in a few seconds."""

import shlex
from typing import Annotated

import typer

from indextables.cli.command_line import examples
from indextables.cli.demo_place import local_directory, make_room
from indextables.cli.demo_table import WHERE, Step, run_demo
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson
from indextables.cli.output import print_heading, print_line
from indextables.cli.people import duration

EXAMPLES = examples("indextables demo", "indextables demo /tmp/my-demo", "indextables demo --json")

DEFAULT_DIRECTORY = "./demo-table"

_HONESTLY = (
    "The demo writes the transaction log alone: the files it commits are names in the log, "
    "with no data behind them."
)


def demo(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Where to create the table: an empty or a new directory.")
    ] = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Create a small table and show what it can do.

    An earlier demo table in the same place is replaced. Any other directory that is not empty is left alone. The demo
    writes the transaction log alone, no data files.
    """
    place = local_directory(directory)
    is_replaced = make_room(place)
    steps = run_demo(str(place))
    if as_json:
        print_json(
            {
                "path": str(place),
                "replacedEarlierDemo": is_replaced,
                "writesDataFiles": False,
                "steps": [_step_document(step) for step in steps],
                "next": _next_commands(directory),
            }
        )
        return
    print_line(f"A table in {place}{', in the place of an earlier demo' if is_replaced else ''}.")
    print_line(_HONESTLY)
    for number, step in enumerate(steps, start=1):
        print_line()
        print_heading(f"{number}. {step.name} ({duration(step.seconds)})")
        for line in step.lines:
            print_line(f"   {line}")
    print_line()
    print_heading("Now try")
    for command in _next_commands(directory):
        print_line(f"   {command}")


def _step_document(step: Step) -> dict[str, object]:
    return {
        "name": step.name,
        "milliseconds": round(step.seconds * 1000, 3),
        "version": step.version,
        "lines": list(step.lines),
    }


def _next_commands(directory: str) -> list[str]:
    path = shlex.quote(directory)
    return [
        f'indextables files {path} --where "{WHERE}"',
        f"indextables history {path}",
        f"indextables describe {path} --version 2",
        f"indextables checkpoint {path} --format json",
        "indextables config checkpoint",
    ]
