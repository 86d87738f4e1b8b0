"""`indextables update`: set columns of rows."""

from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.json_output import print_json
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    open_table,
)
from indextables.cli.output import Yes, confirm, print_line
from indextables.cli.progress import working
from indextables.cli.row_changes import parse_assignments, print_partitions, spoken_rows
from indextables.ops.update import UpdateRequest, UpdateResult
from indextables.ops.update import update as update_rows
from indextables.table_reader import as_predicate

EXAMPLES = examples(
    "indextables update ./logs --set \"level = 'WARN'\" --where \"level = 'INFO'\" --dry-run",
    "indextables update ./logs --set 'message = upper(message)' --query timeout --yes",
)


def update(
    path: TablePath,
    assignments: Annotated[
        list[str],
        typer.Option(
            "--set", metavar="COLUMN=SQL", help="Set a column to a SQL expression over the row. Repeatable."
        ),
    ],
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Update rows that satisfy this condition; 'true' means all rows."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Update rows that match this full-text query.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Set columns of rows, in one commit."""
    if where is None and query is None:
        raise typer.BadParameter(
            "say which rows to update, with --where or --query; --where true means all",
            param_hint="'--where'",
        )
    values = parse_assignments(assignments)
    table = open_table(path, option, storage_option)
    if dry_run or not yes:
        with working("searching rows"):
            plan = update_rows(
                table.snapshot, UpdateRequest(values, as_predicate(where), query, dry_run=True)
            )
        if dry_run:
            _print(plan, as_json=as_json)
            return
        if plan.partitions:
            confirm(f"Update {spoken_rows(plan.updated_rows)} of {path}?", is_agreed=False)
    with working("updating rows"):
        result = update_rows(table.snapshot, UpdateRequest(values, as_predicate(where), query))
    _print(result, as_json=as_json)


def _print(result: UpdateResult, *, as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict())
        return
    if result.is_dry_run:
        print_partitions(result.partitions)
        print_line(f"{spoken_rows(result.updated_rows)} would be updated")
    elif not result.is_committed:
        print_line("no row matches; nothing was committed")
    else:
        print_line(f"version {result.version}: {spoken_rows(result.updated_rows)} updated")
