"""Output on a terminal: styled lines and tables, rendered by rich.

`output` and `progress` import this module only when they write to a terminal, because rich takes time to import.
"""

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from indextables.cli.output import Column, Piece, takes_style


def console_for(stream: TextIO) -> Console:
    """A rich console that styles only if the stream takes styles, and leaves long lines to the terminal."""
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
    console_for(stream).print(Text.assemble(*pieces))


def print_wrapped_table(stream: TextIO, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table no wider than the terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title, justify=column.justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # Tables wrap cells to the terminal's width; lines of text do not.
    console_for(stream).print(table, soft_wrap=False)
