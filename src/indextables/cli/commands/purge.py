"""`indextables purge`: delete files that no readable version of a table needs."""

import time
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from indextables.cli.command import REFUSED, examples
from indextables.cli.formatting import count, duration, size
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Column, Yes, confirm, print_line, print_table, print_warning
from indextables.cli.progress import progressing, working
from indextables.errors import InvalidOptionError
from indextables.ops.purge.report import PurgeResult, retention_hours

EXAMPLES = examples(
    "indextables purge ./logs --dry-run",
    'indextables purge ./logs --older-than "7 days" --yes',
    'indextables purge s3://bucket/logs --older-than "7 days" --log-retention "30 days" --yes --json',
)

_SHOWN = 20


def check_retention(text: str | None) -> str | None:
    """Return the text if it is a duration. Raises typer.BadParameter."""
    if text is not None:
        try:
            retention_hours(text)
        except InvalidOptionError as error:
            raise typer.BadParameter(str(error)) from error
    return text


def purge(
    path: TablePath,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_retention,
            help="Delete only files older than this, such as '7 days' or '36 hours'.",
        ),
    ] = None,
    log_retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_retention,
            help="Also delete versions and checkpoints older than this, which limits time travel.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Delete splits and log files that no readable version needs.

    The age of a removed split counts from its removal, the age of any other file from its modification.
    """
    table = open_table(path, option, storage_option)
    if not dry_run and not yes:
        with working("listing files to delete"):
            plan = table.purge(older_than, log_retention, dry_run=True)
        if plan.num_files:
            confirm(f"Delete {count(plan.num_files, 'file')} ({size(plan.size_bytes)})?", is_agreed=False)
    started = time.perf_counter()
    with progressing() as show:
        result = table.purge(older_than, log_retention, dry_run=dry_run, progress=show)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result, seconds)
    if result.failures.num_rows:
        raise typer.Exit(REFUSED)


def _print(result: PurgeResult, seconds: float) -> None:
    if result.is_dry_run and result.num_files:
        print_files(result.files)
    for row in result.failures.slice(0, _SHOWN).to_pylist():
        print_warning(f"{row['path']} could not be deleted: {row['error']}")
    done = result.num_files if result.is_dry_run else result.num_deleted
    verb = "would be deleted" if result.is_dry_run else "deleted"
    kinds = [count(number, kind.value) for kind, number in result.counts.items() if number]
    print_line(
        f"{count(done, 'file')} {verb}, {size(_bytes(result))}{_in_brackets(kinds)}"
        f"{'' if result.is_dry_run else f', in {duration(seconds)}'}"
    )
    if result.num_kept_for_time_travel:
        print_line(
            f"{count(result.num_kept_for_time_travel, 'removed split')} "
            f"({size(result.bytes_kept_for_time_travel)}) kept for time travel; --log-retention or "
            f"`indextables truncate` releases them"
        )
    if result.num_left_over:
        print_line(f"{count(result.num_left_over, 'file')} over the limit of one purge left for the next")


def print_files(files: pa.Table) -> None:
    """Print the first of the files to delete."""
    columns = [Column("path"), Column("kind"), Column("size", "right"), Column("age", "right")]
    rows = [
        (row["path"], row["kind"], size(row["size"]), f"{row['age_hours'] / 24:.1f} days")
        for row in files.slice(0, _SHOWN).to_pylist()
    ]
    print_table(columns, rows)
    if files.num_rows > _SHOWN:
        print_line(f"… {_SHOWN} of {files.num_rows:,} shown; use --json to see all")


def _bytes(result: PurgeResult) -> int:
    if result.is_dry_run:
        return result.size_bytes
    return pc.sum(result.files.filter(result.files["is_deleted"])["size"]).as_py() or 0


def _in_brackets(kinds: list[str]) -> str:
    return f" ({', '.join(kinds)})" if kinds else ""
