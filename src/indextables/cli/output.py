"""Lines and tables as plain text in aligned columns, for `grep` and `less`, and which streams want that."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, TextIO

import msgspec
import typer
from rich.cells import cell_len

from indextables.cli.formatting import visible
from indextables.ops.search import Highlighter

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


# What people see: lines and tables on stdout, errors and warnings on stderr.
#
# On a terminal tables are set by rich, in colour unless NO_COLOR is set. Anywhere else they are plain text.


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


# Rows that a search has found, with the words that were looked for.


_FOUND = "bold yellow"


def print_hit(
    score: float, facts: str, texts: Mapping[str, str], highlighter: Highlighter, indent: str = ""
) -> None:
    """The score and short values on one line, then each text on a line of its own."""
    print_pieces([(indent, ""), (f"{score:.2f}", "bold"), (f"  {visible(facts)}", "")])
    for name, value in texts.items():
        print_pieces([(f"{indent}      {visible(name)}: ", "dim"), *_marked(value, name, highlighter)])


def _marked(value: str, column: str, highlighter: Highlighter) -> Iterator[Piece]:
    """A text with what the query found in it; characters that a terminal would obey are shown instead."""
    end = 0
    for span in highlighter.spans(column, value):
        yield visible(value[end : span.start]), ""
        yield visible(value[span.start : span.end]), _FOUND
        end = span.end
    yield visible(value[end:]), ""


# Asking before something goes that does not come back.


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is deleted.")]


def confirm(question: str, *, is_agreed: bool) -> None:
    """Return if the user agrees, or has done so already. Where nobody can be asked, that is wrong use.

    Raises typer.BadParameter and typer.Abort.
    """
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here; add --yes if you mean it", param_hint="'--yes'")
    typer.confirm(question, abort=True, err=True)
