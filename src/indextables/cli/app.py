"""The command-line application: which commands there are, and the entry point."""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from indextables._arrow import hide_pandas_from_pyarrow
from indextables._version import __version__
from indextables.cli.command import Command, CommandLine, examples
from indextables.cli.process import end_process, prompt_interrupts
from indextables.cli.standard_output import prepare_standard_streams

_USE: Final = "Index and search"
_INSPECT: Final = "Inspect a table"
_MAINTAIN: Final = "Maintain a table"
_LEARN: Final = "Explore IndexTables"

# Each command is a function of its name in a module of its name, in the order of the help.
COMMANDS: Final = {
    "index": _USE,
    "search": _USE,
    "count": _USE,
    "facets": _USE,
    "histogram": _USE,
    "files": _INSPECT,
    "history": _INSPECT,
    "describe": _INSPECT,
    "publish": _MAINTAIN,
    "checkpoint": _MAINTAIN,
    "prewarm": _MAINTAIN,
    "merge": _MAINTAIN,
    "purge": _MAINTAIN,
    "truncate": _MAINTAIN,
    "delete": _MAINTAIN,
    "update": _MAINTAIN,
    "upsert": _MAINTAIN,
    "alter": _MAINTAIN,
    "drop-partitions": _MAINTAIN,
    "restore": _MAINTAIN,
    "fsck": _MAINTAIN,
    "repair": _MAINTAIN,
    "sql": _MAINTAIN,
    "config": _LEARN,
    "demo": _LEARN,
}

# Spark uses pandas.
_WITH_PANDAS: Final = frozenset({"demo"})


def run() -> None:
    """Run the command line and end the process with its exit code."""
    prepare_standard_streams()
    with prompt_interrupts():
        needed = _needed_commands(sys.argv[1:])
        if not _WITH_PANDAS.intersection(needed):
            hide_pandas_from_pyarrow()
        end_process(_exit_code(build_app(needed)))


def _exit_code(app: typer.Typer) -> int:
    try:
        app()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def build_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The application with these commands. Imports only their modules, to start fast."""
    app = typer.Typer(
        name="indextables",
        cls=CommandLine,
        no_args_is_help=True,
        # `CommandLine` turns on rich help when stdout is a terminal.
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
    app.callback()(_about)
    for name in names:
        function = name.replace("-", "_")
        module = import_module(f"indextables.cli.commands.{function}")
        register = app.command(cls=Command, rich_help_panel=COMMANDS[name], epilog=module.EXAMPLES)
        register(getattr(module, function))
    return app


def _needed_commands(arguments: Sequence[str]) -> Iterable[str]:
    """The called command, or all commands if help, completion or an error message needs them."""
    if not arguments or "_INDEXTABLES_COMPLETE" in os.environ:
        return COMMANDS
    if arguments[0] == "--version":
        return []
    return [arguments[0]] if arguments[0] in COMMANDS else COMMANDS


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"indextables {__version__}")
        raise typer.Exit


def _about(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Full-text search as a table format on the data lake.

    Every command takes --json. Exit codes: 0 success, 1 the operation failed, 2 wrong usage.
    """
