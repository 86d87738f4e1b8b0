"""Lines and tables as plain text in aligned columns, for `grep` and `less`, and which streams want that."""

import os
from collections.abc import Iterable, Sequence
from typing import Literal, TextIO

import msgspec
from rich.cells import cell_len

GAP = "  "

Piece = tuple[str, str]
"""A part of a line, and the style in which a terminal shows it."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table; numbers belong on the right."""

    title: str
    justify: Literal["left", "right"] = "left"


def takes_style(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user has not asked for plain text."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_plain_line(stream: TextIO, pieces: Iterable[Piece]) -> None:
    """A line of pieces without their styles."""
    stream.write("".join(text for text, _ in pieces) + "\n")


def print_plain_table(stream: TextIO, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table in which each column is as wide as its widest cell."""
    lines = [[column.title for column in columns], *rows]
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            padded(cell, width, column.justify)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        stream.write(f"{GAP.join(cells).rstrip()}\n")


def padded(text: str, width: int, justify: Literal["left", "right"] = "left") -> str:
    """A text with blanks that make it as wide as `width` characters are on a screen."""
    padding = " " * (width - cell_len(text))
    return text + padding if justify == "left" else padding + text
