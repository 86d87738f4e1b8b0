"""`indextables facets`: the most frequent values of columns."""

import time
from typing import Annotated

import pyarrow as pa
import typer

from indextables.cli.bars import print_counts
from indextables.cli.command import examples
from indextables.cli.formatting import count, duration
from indextables.cli.options import (
    AsJson,
    Fields,
    OptionalQuery,
    SettingPairs,
    StoragePairs,
    TablePath,
    Timestamp,
    Version,
    Where,
    open_table,
    split_names,
)
from indextables.cli.output import print_line, print_summary
from indextables.cli.progress import working
from indextables.cli.row_formats import value_texts
from indextables.cli.row_output import OutputFile, OutputFormat, RowOutput
from indextables.errors import InvalidAggregationError
from indextables.index_table import IndexTable
from indextables.ops.search import Highlighter
from indextables.search import Terms

EXAMPLES = examples(
    "indextables facets ./logs",
    "indextables facets ./logs 'timeout' --by level,host --top 5",
    "indextables facets ./logs --where \"date = '2026-01-31'\" --json",
)

_SCHEMA = pa.schema([("column", pa.string()), ("value", pa.string()), ("count", pa.int64())])


def facets(
    path: TablePath,
    query: OptionalQuery = None,
    where: Where = None,
    fields: Fields = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="The columns; by default those with exact strings, and booleans."),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="How many values of each column.")] = 10,
    as_json: AsJson = False,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Show the most frequent values of columns, among the rows that match."""
    output = RowOutput.of(as_json, output_format, output_file)
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    started = time.perf_counter()
    names = split_names(by) or _default_columns(table)
    found = []
    for name in names:
        with working(f"counting the values of {name}"):
            answer = table.aggregate(
                "count", by=Terms(name, top), query=query, where=where, fields=split_names(fields) or ()
            )
        found.append(_facet(answer))
    if output.is_own_layout:
        for number, facet in enumerate(found):
            _print(names[number], facet, is_first=not number)
    else:
        output.write(pa.concat_tables(found))
    if not as_json:
        print_summary(f"{count(len(found), 'column')} in {duration(time.perf_counter() - started)}")


def _default_columns(table: IndexTable) -> list[str]:
    highlighter = Highlighter.of(table.snapshot, "*")
    names = [
        field.name
        for field in table.schema
        if pa.types.is_boolean(field.type)
        or (pa.types.is_string(field.type) and not highlighter.is_text(field.name))
    ]
    if not names:
        raise InvalidAggregationError(
            f"the table has no columns of exact strings or booleans; name columns with --by, such as "
            f"--by {table.schema.names[0]}"
        )
    return names


def _facet(answer: pa.Table) -> pa.Table:
    """The groups of one column as rows of the answer: values of all types are text."""
    name = answer.column_names[0]
    names = pa.repeat(pa.scalar(name), answer.num_rows)
    return pa.table([names, value_texts(answer.column(0)), answer.column(1)], schema=_SCHEMA)


def _print(name: str, facet: pa.Table, *, is_first: bool) -> None:
    if not is_first:
        print_line()
    counts = list(zip(facet["value"].to_pylist(), facet["count"].to_pylist(), strict=True))
    if not counts:
        print_line(f"{name}: no values")
        return
    print_counts(name, counts)
