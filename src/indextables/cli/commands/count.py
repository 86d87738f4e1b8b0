"""`indextables count`: how many rows match, in all or by the values of columns."""

import time
from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count as counted
from indextables.cli.formatting import duration
from indextables.cli.json_output import print_json
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
from indextables.cli.output import print_line, print_summary, print_table
from indextables.cli.progress import working
from indextables.cli.row_formats import text_cells, text_columns
from indextables.cli.row_output import OutputFile, OutputFormat, RowOutput

EXAMPLES = examples(
    "indextables count ./logs",
    "indextables count ./logs 'timeout AND level:ERROR' --where \"date = '2026-01-31'\"",
    "indextables count ./logs --by level,host --format csv",
)


def count(
    path: TablePath,
    query: OptionalQuery = None,
    where: Where = None,
    fields: Fields = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Count for each combination of the values of these columns."),
    ] = None,
    as_json: AsJson = False,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Count the rows that match a query and a condition.

    Without either, the log answers. Rows without a value in a column of --by are in no group.
    """
    output = RowOutput.of(as_json, output_format, output_file)
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    started = time.perf_counter()
    names = split_names(fields) or ()
    groups = split_names(by)
    if groups is None and output.is_own_layout:
        with working("counting"):
            number = table.count(query, where=where, fields=names)
        print_line(str(number))
        print_summary(f"{counted(number, 'row')} in {duration(time.perf_counter() - started)}")
        return
    with working("counting"):
        answer = table.aggregate("count", by=groups, query=query, where=where, fields=names)
    if groups is None and as_json and output.file is None:
        print_json(answer.to_pylist()[0])
    elif output.is_own_layout:
        print_table(text_columns(answer.schema), text_cells(answer))
    else:
        output.write(answer)
    if not as_json:
        print_summary(f"{counted(answer.num_rows, 'group')} in {duration(time.perf_counter() - started)}")
