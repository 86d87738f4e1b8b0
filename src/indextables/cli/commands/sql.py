"""`indextables sql`: execute a statement, without Spark."""

from typing import Annotated, Any

import pyarrow as pa
import typer

from indextables._results import Status, plain_rows
from indextables.cli.command import REFUSED, examples
from indextables.cli.formatting import count
from indextables.cli.json_output import print_json_rows
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, parse_pairs, parse_settings
from indextables.cli.output import Column, print_heading, print_line, print_table
from indextables.cli.progress import progressing
from indextables.errors import InvalidPredicateError, InvalidStatementError
from indextables.statements import Caller, run_statement
from indextables.statements.grammar import require_statement

EXAMPLES = examples(
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
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Execute a SQL statement, such as CHECKPOINT, MERGE SPLITS or PURGE. Does not ask for confirmation.

    The error for a malformed statement shows its syntax; the error for an unknown one lists all statements.
    """
    settings, storage = parse_settings(option), parse_pairs(storage_option)
    with progressing() as show:
        answer = _execute(statement, Caller(storage_options=storage, options=settings, progress=show))
    if as_json:
        print_json_rows(answer)
    else:
        _print(answer)
    if "status" in answer.column_names and Status.FAILED.value in answer["status"].to_pylist():
        raise typer.Exit(REFUSED)


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
    rows = plain_rows(answer.slice(0, _SHOWN))
    if answer.num_rows == 1:
        _print_one(next(rows))
        return
    if answer.num_rows:
        columns = [Column(field.name, _side(field.type)) for field in answer.schema]
        print_table(columns, [tuple(map(_cell, row.values())) for row in rows])
    more = f"; {_SHOWN} shown, use --json to see all" if answer.num_rows > _SHOWN else ""
    print_line(f"{count(answer.num_rows, 'row')}{more}")


def _print_one(row: dict[str, Any]) -> None:
    """Print one row vertically, then its lists."""
    print_table(
        [Column("column"), Column("value")],
        [
            (name, count(len(value), "item") if isinstance(value, list) else _cell(value))
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
            [Column(field) for field in items[0]], [tuple(map(_cell, item.values())) for item in items]
        )
        return
    for item in items:
        print_line(_cell(item))


def _side(kind: pa.DataType) -> Any:
    return "right" if pa.types.is_integer(kind) else "left"


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.2f}"
        case dict():
            return ", ".join(f"{key}={_cell(item)}" for key, item in value.items()) or "-"
        case _:
            return str(value)
