"""Rows that a search has found, with the words that were looked for."""

from collections.abc import Iterator, Mapping

from indextables.cli.output import print_pieces
from indextables.cli.people import visible
from indextables.cli.plain import Piece
from indextables.ops.search import Highlighter

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
