"""What people see: lines and tables on stdout, errors and warnings on stderr.

On a terminal tables are set by rich, in colour unless NO_COLOR is set. Anywhere else they are plain text in
aligned columns, for `grep` and `less`.
"""

import os
import sys
from collections.abc import Sequence
from typing import Literal, TextIO

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from indextables.cli.people import visible

_GAP = "  "
_SHOWN_AS_IS = "  "


class Column(msgspec.Struct, frozen=True):
    """A column of a table; numbers belong on the right."""

    title: str
    justify: Literal["left", "right"] = "left"


def is_terminal() -> bool:
    """Whether people watch: stdout is a terminal."""
    return sys.stdout.isatty()


def takes_style(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user has not asked for plain text."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def console_for(stream: TextIO) -> Console:
    """A rich console that styles nothing unless the stream takes it, and leaves long lines to the terminal."""
    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        color_system="auto" if takes_style(stream) else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def print_line(text: str = "") -> None:
    """A line on stdout."""
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def print_heading(text: str) -> None:
    """A line on stdout that stands out where the terminal can show it."""
    console_for(sys.stdout).print(Text(visible(text), style="bold"))
    sys.stdout.flush()


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout."""
    cells = [[visible(cell) for cell in row] for row in rows]
    if is_terminal():
        _print_rich_table(columns, cells)
    else:
        _print_plain_table(columns, cells)
    sys.stdout.flush()


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Names and values on stdout, one pair a line."""
    width = max((cell_len(name) for name, _ in facts), default=0)
    console = console_for(sys.stdout)
    for name, value in facts:
        line = Text(_padded(visible(name), width, "left"), style="bold")
        line.append(_GAP + visible(value), style="not bold")
        console.print(line)
    sys.stdout.flush()


def print_error(message: str) -> None:
    """What went wrong, as one paragraph on stderr."""
    _print_labelled("error", "bold red", message)


def print_warning(message: str) -> None:
    """What the user should know, as one paragraph on stderr."""
    _print_labelled("warning", "bold yellow", message)


def print_hint(message: str) -> None:
    """What the user could do instead, as one paragraph on stderr."""
    _print_labelled("hint", "bold cyan", message)


def print_interrupted() -> None:
    """The last line of a command that was stopped with Ctrl-C."""
    _print_labelled("interrupted", "bold red", "nothing more is done")


def _print_labelled(label: str, style: str, message: str) -> None:
    lines = message.splitlines()
    # Indented lines show a text and point at a place in it; all others are one paragraph.
    words = [word for line in lines if not line.startswith(_SHOWN_AS_IS) for word in line.split()]
    text = Text(f"{label}: ", style=style)
    text.append(visible(" ".join(words)), style="not bold default")
    for line in lines:
        if line.startswith(_SHOWN_AS_IS):
            text.append(f"\n{visible(line)}", style="not bold default")
    console_for(sys.stderr).print(text)
    sys.stderr.flush()


def _print_rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title, justify=column.justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # A table wraps its cells to the terminal's width, which lines of text leave to the terminal.
    console_for(sys.stdout).print(table, soft_wrap=False)


def _print_plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    lines = [[column.title for column in columns], *rows]
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            _padded(cell, width, column.justify)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        sys.stdout.write(f"{_GAP.join(cells).rstrip()}\n")


def _padded(text: str, width: int, justify: Literal["left", "right"]) -> str:
    padding = " " * (width - cell_len(text))
    return text + padding if justify == "left" else padding + text
