"""How every command runs and explains itself: exit codes, errors and warnings, help on any kind of stdout.

Exit codes: 0 done; 1 the table says no, which is any IndexTablesError; 2 wrong use; 130 stopped with Ctrl-C.
"""

import sys
from collections import defaultdict
from typing import Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from indextables.cli.complaints import complaints_as_lines
from indextables.cli.interrupts import INTERRUPTED, announce_interrupt, is_interrupt
from indextables.cli.output import print_error
from indextables.cli.plain import takes_style
from indextables.errors import IndexTablesError

REFUSED = 1


class CommandLine(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what it raises becomes a line on stderr and an exit code."""
        with complaints_as_lines():
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
        """Help with colours and panels on a terminal, and plain anywhere else."""
        self.rich_markup_mode = _markup_mode()
        super().format_help(ctx, formatter)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Plain help: the commands by group, as the panels show them."""
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
        """Help with colours and panels on a terminal, and plain anywhere else."""
        self.rich_markup_mode = _markup_mode()
        super().format_help(ctx, formatter)

    def format_epilog(self, _: Any, formatter: Any) -> None:
        """Plain help: the examples, line by line."""
        _write_lines(self.epilog, formatter)


def examples(*lines: str) -> str:
    """The epilog of a command: what one would type."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def _markup_mode() -> Literal["rich"] | None:
    return "rich" if takes_style(sys.stdout) else None


def _write_lines(text: str | None, formatter: Any) -> None:
    if text:
        formatter.write_paragraph()
        formatter.write(f"{text}\n")
