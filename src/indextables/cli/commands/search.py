"""`indextables search`: the best rows for a query, with matches highlighted."""

import re
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, duration
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    Timestamp,
    Version,
    open_table,
)
from indextables.cli.output import print_hint, print_hit, print_summary
from indextables.cli.progress import working
from indextables.cli.row_output import OutputFile, OutputFormat, RowOutput
from indextables.ops.search import SCORE, TOTAL_HITS, Highlighter

EXAMPLES = examples(
    "indextables search ./logs 'timeout AND level:ERROR'",
    "indextables search ./logs 'message:\"connection reset\"' --where \"date = '2026-01-31'\"",
    "indextables search ./logs 'timeout' --sort ts:desc --offset 10",
    "indextables search s3://bucket/logs 'hel*' --columns message --limit 100 --json",
)

_FIELD: Final = re.compile(r"\w:")


def search(
    path: TablePath,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Terms, fields, phrases or ranges; * matches every row.")
    ],
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Search only rows that satisfy this condition.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="The columns to show, separated by commas.")
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Columns that terms without a field search; default: all text columns; * means all columns.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of rows.")] = 10,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Columns to sort by instead of the score: ts, or ts:desc; nulls come last."
        ),
    ] = None,
    offset: Annotated[
        int, typer.Option(metavar="N", min=0, help="The number of best rows to leave out.")
    ] = 0,
    as_json: AsJson = False,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Search the rows of a table, best first."""
    output = RowOutput.of(as_json, output_format, output_file)
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    started = time.perf_counter()
    names = _names(fields) or ()
    with working("searching"):
        found = table.search(
            query,
            where=where,
            columns=_names(columns),
            limit=limit,
            fields=names,
            sort=_names(sort) or None,
            offset=offset,
            count=not as_json,
        )
    total = int((found.schema.metadata or {}).get(TOTAL_HITS, found.num_rows))
    found = found.replace_schema_metadata(None)
    seconds = time.perf_counter() - started
    highlighter = table.highlighter(query, names)
    if output.is_own_layout:
        for row in found.to_pylist(maps_as_pydicts="lossy"):
            _print_hit(row, highlighter)
    else:
        output.write(found)
    if as_json:
        return
    print_summary(f"{found.num_rows:,} of {count(total, 'hit')} in {duration(seconds)}")
    if not found.num_rows:
        for hint in _hints(query, table.schema.names, highlighter):
            print_hint(hint)


def _names(columns: str | None) -> list[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


def _print_hit(row: dict[str, Any], highlighter: Highlighter) -> None:
    score = row.pop(SCORE.name, None)
    texts = {name: value for name, value in row.items() if highlighter.is_text(name) and value is not None}
    facts = "  ".join(f"{name}={value}" for name, value in row.items() if name not in texts)
    print_hit(score, facts, texts, highlighter)


def _hints(query: str, columns: Sequence[str], highlighter: Highlighter) -> Iterator[str]:
    """Why a query may have found fewer rows than expected."""
    if not _FIELD.search(query):
        words = [name for name in columns if highlighter.is_text(name)]
        values = [name for name in highlighter.default_columns() if name not in words]
        others = [name for name in columns if name not in (*words, *values)]
        if words:
            yield f"searched for words in {', '.join(words)}"
        if values:
            yield (
                f"searched for exact values in {', '.join(values)}; use {values[0]}:abc* to search by prefix"
            )
        if others:
            yield f"not searched: {', '.join(others)}; search a column by name, as in {others[0]}:VALUE"
