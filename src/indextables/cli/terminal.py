"""What a terminal shows: lines in styles, and tables, both set by rich."""

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from indextables.cli.output import Column, Piece, takes_style


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


def print_styled_line(stream: TextIO, pieces: Iterable[Piece]) -> None:
    """A line of pieces, each in its style."""
    console_for(stream).print(Text.assemble(*pieces))


def print_wrapped_table(stream: TextIO, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the terminal at most."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title, justify=column.justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # A table wraps its cells to the terminal's width, which lines of text leave to the terminal.
    console_for(stream).print(table, soft_wrap=False)
