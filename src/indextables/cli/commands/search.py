"""`indextables search`: the best rows for a query, with the words that were found."""

import time
from typing import Annotated, Any

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, duration
from indextables.cli.json_output import print_json_rows
from indextables.cli.nothing_found import hints
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    Timestamp,
    Version,
    open_table,
)
from indextables.cli.output import print_hint, print_hit, print_line
from indextables.cli.progress import working
from indextables.ops.search import SCORE, Highlighter

EXAMPLES = examples(
    "indextables search ./logs 'timeout AND level:ERROR'",
    "indextables search ./logs 'message:\"connection reset\"' --where \"date = '2026-01-31'\"",
    "indextables search s3://bucket/logs 'hel*' --columns message --limit 100 --json",
)


def search(
    path: TablePath,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words, fields, phrases, ranges; * matches every row.")
    ],
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only rows for which this is true.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="The columns to show, separated by commas.")
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Where words without a field are looked for; otherwise in all texts."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many rows, the best first.")] = 10,
    as_json: AsJson = False,
    version: Version = None,
    timestamp: Timestamp = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Search the rows of a table, best first."""
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    started = time.perf_counter()
    with working("searching"):
        found = table.search(
            query, where=where, columns=_names(columns), limit=limit, fields=_names(fields) or ()
        )
    seconds = time.perf_counter() - started
    if as_json:
        print_json_rows(found)
        return
    highlighter = table.highlighter(query, _names(fields) or ())
    for row in found.to_pylist(maps_as_pydicts="lossy"):
        _print_hit(row, highlighter)
    print_line(f"{count(found.num_rows, 'row')} in {duration(seconds)}")
    if not found.num_rows:
        for hint in hints(query, table.schema.names, highlighter):
            print_hint(hint)


def _names(columns: str | None) -> list[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


def _print_hit(row: dict[str, Any], highlighter: Highlighter) -> None:
    score = row.pop(SCORE.name)
    texts = {name: value for name, value in row.items() if highlighter.is_text(name) and value is not None}
    facts = "  ".join(f"{name}={value}" for name, value in row.items() if name not in texts)
    print_hit(score, facts, texts, highlighter)
