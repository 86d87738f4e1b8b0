"""What people see: lines and tables on stdout, errors and warnings on stderr.

On a terminal tables are set by rich, in colour unless NO_COLOR is set. Anywhere else they are plain text.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.cells import cell_len

from indextables.cli.people import visible
from indextables.cli.plain import (
    GAP,
    Column,
    Piece,
    padded,
    print_plain_line,
    print_plain_table,
    takes_style,
)

_SHOWN_AS_IS = "  "


def is_terminal() -> bool:
    """Whether people watch: stdout is a terminal."""
    return sys.stdout.isatty()


def print_line(text: str = "") -> None:
    """A line on stdout."""
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def print_pieces(pieces: Iterable[Piece]) -> None:
    """A line on stdout of visible texts, each in its style where the terminal can show it."""
    _print_pieces(sys.stdout, pieces)


def print_heading(text: str) -> None:
    """A line on stdout that stands out where the terminal can show it."""
    print_pieces([(visible(text), "bold")])


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout."""
    cells = [[visible(cell) for cell in row] for row in rows]
    if is_terminal():
        from indextables.cli.terminal import print_wrapped_table  # see _print_pieces

        print_wrapped_table(sys.stdout, columns, cells)
    else:
        print_plain_table(sys.stdout, columns, cells)
    sys.stdout.flush()


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Names and values on stdout, one pair a line."""
    width = max((cell_len(name) for name, _ in facts), default=0)
    for name, value in facts:
        print_pieces([(padded(visible(name), width), "bold"), (GAP + visible(value), "")])


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
    shown = [visible(line) for line in lines if line.startswith(_SHOWN_AS_IS)]
    text = "\n".join([visible(" ".join(words)), *shown])
    _print_pieces(sys.stderr, [(f"{label}: ", style), (text, "")])


def _print_pieces(stream: TextIO, pieces: Iterable[Piece]) -> None:
    if takes_style(stream):
        # Here, because rich takes its time to import, and a pipe takes no style.
        from indextables.cli.terminal import print_styled_line

        print_styled_line(stream, pieces)
    else:
        print_plain_line(stream, pieces)
    stream.flush()
