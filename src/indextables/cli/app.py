"""The command line put together, and its entry point."""

import io
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from indextables._version import __version__
from indextables.cli.command_line import Command, CommandLine, examples
from indextables.cli.commands import (
    checkpoint,
    config,
    demo,
    describe,
    files,
    history,
    index,
    search,
)
from indextables.cli.interrupts import prompt_interrupts

USE = "Index and search"
LOOK = "Look at a table"
MAINTAIN = "Look after a table"
LEARN = "Get to know IndexTables"

app = typer.Typer(
    name="indextables",
    cls=CommandLine,
    no_args_is_help=True,
    # Help on a terminal is rich all the same: `CommandLine` decides when it is asked for.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=examples(
        "indextables demo",
        "indextables search ./logs 'timeout AND level:ERROR'",
        "indextables files ./logs --where \"date = '2026-01-31'\"",
        "indextables describe s3://bucket/logs --json",
    ),
)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding does not have is shown escaped; it must not end the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with prompt_interrupts():
        app()


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"indextables {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the release and exit."),
    ] = False,
) -> None:
    """Full-text search as a table format on the data lake.

    Every command takes --json. Exit codes: 0 done, 1 the table says no, 2 wrong use.
    """


def _add(group: str, command: Callable[..., None], epilog: str) -> None:
    app.command(cls=Command, rich_help_panel=group, epilog=epilog)(command)


_add(USE, index.index, index.EXAMPLES)
_add(USE, search.search, search.EXAMPLES)
_add(LOOK, files.files, files.EXAMPLES)
_add(LOOK, history.history, history.EXAMPLES)
_add(LOOK, describe.describe, describe.EXAMPLES)
_add(MAINTAIN, checkpoint.checkpoint, checkpoint.EXAMPLES)
_add(LEARN, config.config, config.EXAMPLES)
_add(LEARN, demo.demo, demo.EXAMPLES)
