"""`indextables purge`: delete files that no readable version of a table needs."""

import time
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from indextables.cli.command import REFUSED, examples
from indextables.cli.formatting import count, duration, iso, size
from indextables.cli.json_output import json_rows, print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Column, Yes, confirm, print_line, print_table, print_warning
from indextables.cli.progress import progressing, working
from indextables.errors import InvalidOptionError
from indextables.ops.purge.report import PurgeReport, retention_hours

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
        report = table.purge(older_than, log_retention, dry_run=dry_run, progress=show)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report, seconds)
    if report.failures.num_rows:
        raise typer.Exit(REFUSED)


def _as_json(report: PurgeReport) -> dict[str, object]:
    return {
        "version": report.version,
        "dryRun": report.is_dry_run,
        "cutoff": iso(report.split_cutoff_ms),
        "orphanCutoff": iso(report.orphan_cutoff_ms),
        "numFiles": report.num_files,
        "numDeleted": report.num_deleted,
        "sizeBytes": report.size_bytes,
        "keptForTimeTravel": report.kept_for_time_travel,
        "leftOver": report.left_over,
        "files": list(json_rows(report.to_arrow())),
    }


def _print(report: PurgeReport, seconds: float) -> None:
    if report.is_dry_run and report.num_files:
        print_files(report.to_arrow())
    for row in report.failures.slice(0, _SHOWN).to_pylist():
        print_warning(f"{row['path']} could not be deleted: {row['error']}")
    done = report.num_files if report.is_dry_run else report.num_deleted
    verb = "would be deleted" if report.is_dry_run else "deleted"
    kinds = [count(number, kind.value) for kind, number in report.counts.items() if number]
    print_line(
        f"{count(done, 'file')} {verb}, {size(_bytes(report))}{_in_brackets(kinds)}"
        f"{'' if report.is_dry_run else f', in {duration(seconds)}'}"
    )
    if report.kept_for_time_travel:
        print_line(
            f"{count(report.kept_for_time_travel, 'removed split')} "
            f"({size(report.kept_for_time_travel_bytes)}) kept for time travel; --log-retention or "
            f"`indextables truncate` releases them"
        )
    if report.left_over:
        print_line(f"{count(report.left_over, 'file')} over the limit of one purge left for the next")


def print_files(files: pa.Table) -> None:
    """Print the first of the files to delete."""
    columns = [Column("path"), Column("kind"), Column("size", "right"), Column("age", "right")]
    rows = [
        (row["path"], row["kind"], size(row["size"]), f"{row['ageHours'] / 24:.1f} days")
        for row in files.slice(0, _SHOWN).to_pylist()
    ]
    print_table(columns, rows)
    if files.num_rows > _SHOWN:
        print_line(f"… {_SHOWN} of {files.num_rows:,} shown; use --json to see all")


def _bytes(report: PurgeReport) -> int:
    if report.is_dry_run:
        return report.size_bytes
    return pc.sum(report.files.filter(report.files["isDeleted"])["size"]).as_py() or 0


def _in_brackets(kinds: list[str]) -> str:
    return f" ({', '.join(kinds)})" if kinds else ""
