"""`indextables delete`: delete rows."""

from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Yes, confirm, print_line
from indextables.cli.progress import working
from indextables.cli.row_changes import print_partitions, spoken_rows
from indextables.ops.delete import DeleteRequest, DeleteResult
from indextables.ops.delete import delete as delete_rows
from indextables.table_reader import as_predicate

EXAMPLES = examples(
    "indextables delete ./logs --where \"level = 'DEBUG'\" --dry-run",
    "indextables delete ./logs --query 'customer AND 4711' --yes",
)


def delete(
    path: TablePath,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Delete rows that satisfy this condition; 'true' means all rows."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Delete rows that match this full-text query.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Delete the rows that satisfy a condition and match a query, in one commit.

    Older versions still have them until a purge.
    """
    if where is None and query is None:
        raise typer.BadParameter(
            "say which rows to delete, with --where or --query; --where true means all",
            param_hint="'--where'",
        )
    table = open_table(path, option, storage_option)
    request = DeleteRequest(as_predicate(where), query, dry_run=True)
    if dry_run or not yes:
        with working("searching rows"):
            plan = delete_rows(table.snapshot, request)
        if dry_run:
            _print(plan, as_json=as_json)
            return
        if plan.partitions:
            confirm(f"Delete {spoken_rows(plan.deleted_rows)} of {path}?", is_agreed=False)
    with working("deleting rows"):
        result = delete_rows(table.snapshot, DeleteRequest(request.where, query))
    _print(result, as_json=as_json)


def _print(result: DeleteResult, *, as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict())
        return
    if result.is_dry_run:
        print_partitions(result.partitions)
        print_line(f"{spoken_rows(result.deleted_rows)} would be deleted")
    elif not result.is_committed:
        print_line("no row matches; nothing was committed")
    else:
        print_line(f"version {result.version}: {spoken_rows(result.deleted_rows)} deleted")
