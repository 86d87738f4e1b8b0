"""Counts of groups: with bars on a terminal, as an aligned table elsewhere."""

import shutil
import sys
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from indextables.cli.formatting import visible
from indextables.cli.output import Column, Piece, is_terminal, print_pieces, print_table

_EIGHTHS = "▏▎▍▌▋▊▉█"
_ASCII = "#"
_GAP = "  "
_STYLE = "cyan"
# A narrower bar shows nothing.
_MIN_BAR = 4
_MAX_LABEL_SHARE = 0.5


def print_counts(title: str, counts: Sequence[tuple[str, int]]) -> None:
    """Print a line per group, with its label and its number of rows."""
    if not is_terminal():
        print_table(
            [Column(title), Column("count", "right")], [(label, str(count)) for label, count in counts]
        )
        return
    width = shutil.get_terminal_size().columns
    labels = [visible(label) for label, _ in counts]
    numbers = [f"{count:,}" for _, count in counts]
    number_width = max(map(len, numbers), default=0)
    label_width = min(max(map(cell_len, labels), default=0), max(int(width * _MAX_LABEL_SHARE), 1))
    bar_width = width - label_width - number_width - 2 * len(_GAP)
    most = max((count for _, count in counts), default=0)
    for label, number, (_, count) in zip(labels, numbers, counts, strict=True):
        line: list[Piece] = [(f"{_cut(label, label_width)}{_GAP}{number:>{number_width}}", "")]
        if bar_width >= _MIN_BAR:
            line.append((f"{_GAP}{bar(count, most, bar_width)}", _STYLE))
        print_pieces(line)


def bar(count: int, most: int, width: int) -> str:
    """A bar whose length is the share of the largest count; a count above zero has at least the thinnest one."""
    if not count:
        return ""
    if not _has_blocks():
        return _ASCII * max(1, count * width // most)
    full, eighths = divmod(max(1, count * width * 8 // most), 8)
    return _EIGHTHS[-1] * full + (_EIGHTHS[eighths - 1] if eighths else "")


def _cut(label: str, width: int) -> str:
    """A label in this width; what does not fit ends in an ellipsis."""
    if cell_len(label) <= width:
        return set_cell_size(label, width)
    end = "…" if _has_blocks() else "."
    return set_cell_size(label, width - 1) + end


def _has_blocks() -> bool:
    try:
        f"{_EIGHTHS}…".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
