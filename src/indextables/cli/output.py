"""Text output: lines, tables and search hits on stdout; errors, warnings, hints, summaries and questions on stderr.

On a terminal, rich lays out tables, with colors unless NO_COLOR is set. Elsewhere tables are plain text in aligned
columns, for `grep` and `less`.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import msgspec
import typer
from rich.cells import cell_len

from indextables.cli.formatting import visible

if TYPE_CHECKING:
    from indextables.ops.search import Highlighter

Piece = tuple[str, str]
"""A part of a line, and its style on a terminal."""

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_GAP = "  "
_VERBATIM_INDENT = "  "
_MATCH_STYLE = "bold yellow"


class Column(msgspec.Struct, frozen=True):
    """A column of a table; numbers are justified right."""

    title: str
    justify: Literal["left", "right"] = "left"


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def takes_style(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user has not turned styles off."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_line(text: str = "") -> None:
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def print_pieces(pieces: Iterable[Piece]) -> None:
    """Print a line of pieces, which must be visible text, each in its style if the terminal supports it."""
    _print_pieces(sys.stdout, pieces)


def print_summary(text: str) -> None:
    """Print a line about the answer of a command, to stderr: the answer alone goes to stdout."""
    sys.stdout.flush()
    _print_pieces(sys.stderr, [(visible(text), "dim")])


def print_heading(text: str) -> None:
    print_pieces([(visible(text), "bold")])


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    if is_terminal():
        from indextables.cli.terminal import print_wrapped_table  # see _print_pieces

        print_wrapped_table(sys.stdout, columns, [[visible(cell) for cell in row] for row in rows])
    else:
        sys.stdout.write(text_of_table(columns, rows)[0])
    sys.stdout.flush()


def text_of_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int] = ()
) -> tuple[str, list[int]]:
    """Return lines in which each column is as wide as its widest cell, and the widths.

    With widths, these are the next rows of a table: they get the same widths, and no titles.
    """
    lines = [[visible(cell) for cell in row] for row in rows]
    if not widths:
        lines.insert(0, [visible(column.title) for column in columns])
        widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    texts: list[str] = []
    for line in lines:
        cells = [
            _padded(cell, width, column.justify)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        texts.append(f"{_GAP.join(cells).rstrip()}\n")
    return "".join(texts), list(widths)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    width = max((cell_len(name) for name, _ in facts), default=0)
    for name, value in facts:
        print_pieces([(_padded(visible(name), width), "bold"), (_GAP + visible(value), "")])


def print_hit(
    score: float | None, facts: str, texts: Mapping[str, str], highlighter: "Highlighter", indent: str = ""
) -> None:
    """Print a search hit: score, if it has one, and short values on one line; then texts with highlighted matches."""
    scored = [] if score is None else [(f"{score:.2f}", "bold"), ("  ", "")]
    print_pieces([(indent, ""), *scored, (visible(facts), "")])
    for name, value in texts.items():
        print_pieces([(f"{indent}      {visible(name)}: ", "dim"), *_highlighted(value, name, highlighter)])


def print_error(message: str) -> None:
    """Print one paragraph to stderr, with the label "error"."""
    _print_labelled("error", "bold red", message)


def print_warning(message: str) -> None:
    """Print one paragraph to stderr, with the label "warning"."""
    _print_labelled("warning", "bold yellow", message)


def print_hint(message: str) -> None:
    """Print one paragraph to stderr, with the label "hint"."""
    _print_labelled("hint", "bold cyan", message)


def print_interrupted() -> None:
    """Print the last line of a command that was stopped with Ctrl-C."""
    _print_labelled("interrupted", "bold red", "stopped by the user")


def confirm(question: str, *, is_agreed: bool) -> None:
    """Ask the user to confirm; returns if the user agrees or has passed --yes.

    Raises typer.Abort if the user does not agree, and typer.BadParameter if stdin is not a terminal.
    """
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("not a terminal: pass --yes to confirm", param_hint="'--yes'")
    typer.confirm(question, abort=True, err=True)


def _print_labelled(label: str, style: str, message: str) -> None:
    lines = message.splitlines()
    # Indented lines quote a text and point at a place in it. All other lines form one paragraph.
    words = [word for line in lines if not line.startswith(_VERBATIM_INDENT) for word in line.split()]
    quoted = [visible(line) for line in lines if line.startswith(_VERBATIM_INDENT)]
    text = "\n".join([visible(" ".join(words)), *quoted])
    _print_pieces(sys.stderr, [(f"{label}: ", style), (text, "")])


def _print_pieces(stream: TextIO, pieces: Iterable[Piece]) -> None:
    if takes_style(stream):
        # rich is slow to import, and a pipe does not need it.
        from indextables.cli.terminal import print_styled_line

        print_styled_line(stream, pieces)
    else:
        stream.write("".join(text for text, _ in pieces) + "\n")
    stream.flush()


def _padded(text: str, width: int, justify: Literal["left", "right"] = "left") -> str:
    """Pad a text to a width in terminal cells."""
    padding = " " * (width - cell_len(text))
    return text + padding if justify == "left" else padding + text


def _highlighted(value: str, column: str, highlighter: "Highlighter") -> Iterator[Piece]:
    end = 0
    for span in highlighter.spans(column, value):
        yield visible(value[end : span.start]), ""
        yield visible(value[span.start : span.end]), _MATCH_STYLE
        end = span.end
    yield visible(value[end:]), ""
