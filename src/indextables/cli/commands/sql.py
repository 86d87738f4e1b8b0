"""`indextables sql`: execute a statement, without Spark."""

from typing import Annotated, Any

import pyarrow as pa
import typer

from indextables._results import Status, plain_rows
from indextables.cli.command import REFUSED, examples
from indextables.cli.formatting import count
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, parse_pairs, parse_settings
from indextables.cli.output import Column, print_heading, print_line, print_summary, print_table
from indextables.cli.progress import progressing
from indextables.cli.row_formats import cell_text, text_cells, text_columns
from indextables.cli.row_output import OutputFile, OutputFormat, RowOutput
from indextables.errors import InvalidPredicateError, InvalidStatementError
from indextables.statements import Caller, is_select, run_statement, select_rows
from indextables.statements.grammar import require_statement

EXAMPLES = examples(
    "indextables sql \"SELECT level, count(*) FROM './logs' WHERE _query = 'timeout' GROUP BY 1\"",
    "indextables sql \"DESCRIBE INDEXTABLES STATE './logs'\"",
    "indextables sql \"MERGE SPLITS './logs' WHERE date < '2026-02-01' TARGET SIZE 1G\"",
    "indextables sql \"PURGE INDEXTABLE 's3://bucket/logs' OLDER THAN 7 DAYS DRY RUN\" --json",
)

_SHOWN = 1000


def sql(
    statement: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="A statement, with the table's path in quotes.")
    ],
    as_json: AsJson = False,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Execute a SELECT, or a statement such as CHECKPOINT, MERGE SPLITS or PURGE. Does not ask for confirmation.

    In a SELECT, tables and Parquet files are paths in quotes, and WHERE _query = '…' searches. The error for a
    malformed statement shows its syntax; the error for an unknown one lists all statements.
    """
    output = RowOutput.of(as_json, output_format, output_file)
    settings, storage = parse_settings(option), parse_pairs(storage_option)
    if is_select(statement):
        _select(statement, Caller(storage_options=storage, options=settings), output)
        return
    with progressing() as show:
        answer = _execute(statement, Caller(storage_options=storage, options=settings, progress=show))
    if output.is_own_layout:
        _print(answer)
    else:
        output.write(answer)
    if "status" in answer.column_names and Status.FAILED.value in answer["status"].to_pylist():
        raise typer.Exit(REFUSED)


def _select(text: str, caller: Caller, output: RowOutput) -> None:
    try:
        rows = select_rows(text, caller)
        if not output.is_own_layout:
            output.write(rows)
            return
        taken: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in taken) <= _SHOWN and (batch := next(rows, None)) is not None:
            taken.append(batch)
    except InvalidStatementError as error:
        raise _wrong_usage(error) from error
    answer = pa.Table.from_batches(taken, rows.schema)
    shown = answer.slice(0, _SHOWN)
    if shown.num_rows:
        print_table(text_columns(shown.schema), text_cells(shown))
    is_cut = answer.num_rows > _SHOWN
    print_summary(
        f"the first {count(_SHOWN, 'row')}; use --format table to see all"
        if is_cut
        else count(shown.num_rows, "row")
    )


def _execute(text: str, caller: Caller) -> pa.Table:
    """Execute a statement. Only its syntax can be wrong usage: a condition that does not fit the table exits with 1."""
    try:
        statement = require_statement(text)
    except (InvalidStatementError, InvalidPredicateError) as error:
        raise _wrong_usage(error) from error
    try:
        return run_statement(statement, caller)
    except InvalidStatementError as error:
        raise _wrong_usage(error) from error


def _wrong_usage(error: Exception) -> typer.BadParameter:
    return typer.BadParameter(str(error), param_hint="'STATEMENT'")


def _print(answer: pa.Table) -> None:
    if answer.num_rows == 1:
        _print_one(next(plain_rows(answer)))
        return
    if answer.num_rows:
        print_table(text_columns(answer.schema), text_cells(answer.slice(0, _SHOWN)))
    more = f"; {_SHOWN:,} shown, use --format table to see all" if answer.num_rows > _SHOWN else ""
    print_summary(f"{count(answer.num_rows, 'row')}{more}")


def _print_one(row: dict[str, Any]) -> None:
    """Print one row vertically, then its lists."""
    print_table(
        [Column("column"), Column("value")],
        [
            (name, count(len(value), "item") if isinstance(value, list) else cell_text(value))
            for name, value in row.items()
        ],
    )
    for name, items in row.items():
        if isinstance(items, list) and items:
            print_line()
            print_heading(name)
            _print_items(items[:_SHOWN])


def _print_items(items: list[Any]) -> None:
    if isinstance(items[0], dict):
        print_table(
            [Column(field) for field in items[0]], [tuple(map(cell_text, item.values())) for item in items]
        )
        return
    for item in items:
        print_line(cell_text(item))
