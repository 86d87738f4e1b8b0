"""Rows that a search has found, with the words that were looked for."""

import sys
from collections.abc import Mapping

from rich.text import Text

from indextables.cli.output import console_for
from indextables.cli.people import visible
from indextables.ops.search import Highlighter

_FOUND = "bold yellow"


def print_hit(
    score: float, facts: str, texts: Mapping[str, str], highlighter: Highlighter, indent: str = ""
) -> None:
    """The score and short values on one line, then each text on a line of its own."""
    console = console_for(sys.stdout)
    console.print(Text.assemble(indent, (f"{score:.2f}", "bold"), "  ", visible(facts)))
    for name, value in texts.items():
        line = Text(f"{indent}      {visible(name)}: ", style="dim")
        line.append_text(_marked(value, name, highlighter))
        console.print(line)
    sys.stdout.flush()


def _marked(value: str, column: str, highlighter: Highlighter) -> Text:
    """A text with what the query found in it; characters that a terminal would obey are shown instead."""
    marked = Text(style="not dim")
    end = 0
    for span in highlighter.spans(column, value):
        marked.append(visible(value[end : span.start]))
        marked.append(visible(value[span.start : span.end]), style=_FOUND)
        end = span.end
    marked.append(visible(value[end:]))
    return marked
