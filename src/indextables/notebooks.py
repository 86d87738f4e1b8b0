"""What notebooks show: a table with its columns, and hits with their matches highlighted. All values are escaped.

Hits are Arrow tables, which have no HTML of their own. In IPython, a formatter for Arrow tables finds out whether a
table is one of the hits that the last searches returned, and leaves all others alone.
"""

import html
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from indextables import ops
from indextables._caching import register_cache
from indextables.errors import IndexTablesError
from indextables.table import Snapshot

if TYPE_CHECKING:
    from indextables.search.highlight import Span

_SHOWN_HITS: Final = 100
_SHOWN_CHARACTERS: Final = 2000
_MORE: Final = "…"

Highlight = Callable[[str, str], Iterable["Span"]]
"""The parts of a text of a column to mark, by the column and the text, in order and without overlaps."""


def html_of_table(snapshot: Snapshot) -> str:
    """A table's name, version and size, and its columns with how each can be searched. No split is opened."""
    name = snapshot.metadata.name or snapshot.context.url
    rows = "" if snapshot.num_rows is None else f"{_count(snapshot.num_rows, 'row')} in "
    facts = f"version {snapshot.version} · {rows}{_count(snapshot.num_files, 'split')} · {snapshot.total_bytes:,} bytes"
    search = ops.describe.column_search(snapshot)
    columns = [(field.name, str(field.type), search.get(field.name, "")) for field in snapshot.schema]
    return (
        f"<div><strong>{html.escape(name)}</strong><br>{facts}"
        f"{_table(('column', 'type', 'search'), [list(map(html.escape, column)) for column in columns])}</div>"
    )


def html_of_hits(hits: pa.Table, highlight: Highlight) -> str:
    """The first hits as a table, with the matches in `<mark>`. Long texts are cut off."""
    shown = hits.slice(0, _SHOWN_HITS)
    columns = [
        [_cell(value, name, highlight) for value in shown[name].to_pylist()] for name in hits.column_names
    ]
    more = hits.num_rows - shown.num_rows
    footer = f"{_count(hits.num_rows, 'hit')}{f'; the first {shown.num_rows} are shown' if more else ''}"
    rows = [list(row) for row in zip(*columns, strict=True)]
    return f"<div>{_table([html.escape(name) for name in hits.column_names], rows)}{footer}</div>"


def _cell(value: object, column: str, highlight: Highlight) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if not isinstance(value, str):
        text = str(value)
        return html.escape(text[:_SHOWN_CHARACTERS]) + (_MORE if len(text) > _SHOWN_CHARACTERS else "")
    shown = value[:_SHOWN_CHARACTERS]
    pieces: list[str] = []
    end = 0
    for span in highlight(column, shown):
        pieces += [
            html.escape(shown[end : span.start]),
            f"<mark>{html.escape(shown[span.start : span.end])}</mark>",
        ]
        end = span.end
    return "".join([*pieces, html.escape(shown[end:]), _MORE if len(value) > len(shown) else ""])


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# --- Hits in IPython ----------------------------------------------------------------------------------

# The hits that are still in use, by their identity, because Arrow tables have no hash.
_HITS: dict[int, Highlight] = {}
register_cache(
    "notebooks.hits", "highlights of hits in a notebook", "one per result of a search in use", _HITS.clear
)


def show_highlighted(hits: pa.Table, make_highlight: Callable[[], Highlight]) -> None:
    """In IPython, show these hits with their matches from now on. Elsewhere, do nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    formatter = shell.display_formatter.formatters["text/html"]
    if pa.Table not in formatter:  # a formatter of the user's own stays
        formatter.for_type(pa.Table, _html_of_known_hits)
    _HITS[id(hits)] = make_highlight()
    weakref.finalize(hits, _HITS.pop, id(hits), None).atexit = False


def _html_of_known_hits(table: pa.Table) -> str | None:
    highlight = _HITS.get(id(table))
    if highlight is None:
        return None
    try:
        return html_of_hits(table, highlight)
    except IndexTablesError:
        return None  # splits were indexed in other ways than the settings say now
