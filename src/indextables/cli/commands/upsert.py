"""`indextables upsert`: update, delete and insert rows by the rows of a source with the same keys."""

from typing import Annotated

import typer
from msgspec.structs import replace

from indextables.cli.command import examples
from indextables.cli.formatting import count
from indextables.cli.json_output import print_json
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    open_table,
    parse_pairs,
    parse_settings,
)
from indextables.cli.output import Yes, confirm, print_line
from indextables.cli.progress import working
from indextables.cli.row_changes import parse_assignments, print_partitions
from indextables.ops.upsert import UpsertRequest, UpsertResult
from indextables.ops.upsert import upsert as upsert_rows
from indextables.ops.upsert_clauses import key_columns, when_matched, when_not_matched

EXAMPLES = examples(
    "indextables upsert ./users changes.csv --on id --dry-run",
    "indextables upsert ./users changes.parquet --on id,region --delete-where 'source.is_deleted' --yes",
    "indextables upsert ./counts new.jsonl --on word --set 'n = target.n + source.n' --yes",
)


def upsert(
    path: TablePath,
    source: Annotated[
        str,
        typer.Argument(help="Another table, or files in a format that `indextables index` reads."),
    ],
    on: Annotated[str, typer.Option(metavar="A,B", help="The key columns.")],
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="COLUMN=SQL",
            help="Set only this column of a matched row, to a SQL expression over target and source. Repeatable.",
        ),
    ] = None,
    delete_where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL", help="Delete matched rows for which a condition over target and source is true."
        ),
    ] = None,
    no_update: Annotated[bool, typer.Option("--no-update", help="Leave matched rows as they are.")] = False,
    no_insert: Annotated[
        bool, typer.Option("--no-insert", help="Leave out rows that match no row of the table.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Update and insert rows by key, in one commit.

    A row with the key of a row of the source takes its values; the other rows of the source are inserted.
    """
    if no_update and assignments:
        raise typer.BadParameter(
            "--set updates matched rows; leave out one of the two", param_hint="'--no-update'"
        )
    # Imported here, because the readers of files are slow to import.
    from indextables.ingest.rows import read_rows

    table = open_table(path, option, storage_option)
    with working("reading the source"):
        rows = read_rows(source, parse_pairs(storage_option), parse_settings(option))
    update = False if no_update else (parse_assignments(assignments) if assignments else True)
    request = UpsertRequest(
        rows,
        key_columns([name.strip() for name in on.split(",")]),
        when_matched(update, False if delete_where is None else delete_where),
        when_not_matched(not no_insert),
        dry_run=True,
    )
    if dry_run or not yes:
        with working("searching rows"):
            plan = upsert_rows(table.snapshot, request)
        if dry_run:
            _print(plan, as_json=as_json)
            return
        if plan.partitions:
            confirm(f"{_totals(plan).capitalize()} in {path}?", is_agreed=False)
    with working("changing rows"):
        result = upsert_rows(table.snapshot, replace(request, dry_run=False))
    _print(result, as_json=as_json)


def _print(result: UpsertResult, *, as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict())
        return
    if result.is_dry_run:
        print_partitions(result.partitions)
        print_line(f"would {_totals(result)}")
    elif not result.is_committed:
        print_line("nothing to change; nothing was committed")
    else:
        print_line(
            f"version {result.version}: {count(result.updated_rows, 'row')} updated, {result.deleted_rows:,} deleted, "
            f"{result.inserted_rows:,} inserted"
        )


def _totals(result: UpsertResult) -> str:
    return (
        f"update {count(result.updated_rows, 'row')}, delete {result.deleted_rows:,} and insert "
        f"{result.inserted_rows:,}"
    )
