"""How every command runs: exit codes, errors and warnings as single lines, and help with or without a terminal.

Exit codes: 0 success; 1 the operation failed (any IndexTablesError); 2 wrong usage; 130 interrupted with Ctrl-C.
"""

import logging
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from indextables.cli.output import print_error, print_warning, takes_style
from indextables.cli.process import INTERRUPTED, announce_interrupt, is_interrupt
from indextables.config import SettingWarning
from indextables.errors import IndexTablesError

REFUSED = 1

_PACKAGE_LOGGER = "indextables"


class CommandLine(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Its error becomes a line on stderr and an exit code."""
        with warnings_as_lines():
            try:
                return super().invoke(ctx)
            except (Exception, KeyboardInterrupt) as error:
                if is_interrupt(error):
                    announce_interrupt()
                    raise typer.Exit(INTERRUPTED) from error
                if isinstance(error, IndexTablesError):
                    print_error(str(error))
                    raise typer.Exit(REFUSED) from error
                raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Colors and panels on a terminal, plain text elsewhere."""
        self.rich_markup_mode = _markup_mode()
        super().format_help(ctx, formatter)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Plain help: the commands by group, as in the panels."""
        groups: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for name, command in self.commands.items():
            panel: str = getattr(command, "rich_help_panel", None) or "Commands"
            groups[panel].append((name, command.get_short_help_str(formatter.width)))
        for panel, rows in groups.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def format_epilog(self, _: Any, formatter: Any) -> None:
        """Plain help: the examples, line by line."""
        _write_lines(self.epilog, formatter)


class Command(TyperCommand):
    """One command."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Colors and panels on a terminal, plain text elsewhere."""
        self.rich_markup_mode = _markup_mode()
        super().format_help(ctx, formatter)

    def format_epilog(self, _: Any, formatter: Any) -> None:
        """Plain help: the examples, line by line."""
        _write_lines(self.epilog, formatter)


def examples(*lines: str) -> str:
    """The epilog of a command's help: example command lines."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def _markup_mode() -> Literal["rich"] | None:
    return "rich" if takes_style(sys.stdout) else None


def _write_lines(text: str | None, formatter: Any) -> None:
    if text:
        formatter.write_paragraph()
        formatter.write(f"{text}\n")


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Within this context, warnings of Python and of our loggers go to stderr as "warning: …", each once."""
    shown: set[str] = set()

    def show_once(message: str) -> None:
        if message not in shown:
            shown.add(message)
            print_warning(message)

    def show_warning(message: Warning | str, *_: object, **__: object) -> None:
        show_once(str(message))

    handler = _LineHandler(show_once)
    logger = logging.getLogger(_PACKAGE_LOGGER)
    with warnings.catch_warnings():
        warnings.simplefilter("always", SettingWarning)
        warnings.showwarning = show_warning
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


class _LineHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())
