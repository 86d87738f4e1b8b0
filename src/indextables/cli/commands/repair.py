"""`indextables repair`: build a new log for a table whose log is damaged or missing."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, duration, size
from indextables.cli.json_output import json_rows, print_json
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    parse_pairs,
    parse_settings,
)
from indextables.cli.output import Column, confirm, print_facts, print_line, print_table, print_warning
from indextables.cli.progress import progressing
from indextables.index_table import repair_table
from indextables.ops.repair.report import Problem, RepairReport, RepairStatus

EXAMPLES = examples(
    "indextables repair ./logs --dry-run",
    "indextables repair ./logs --at ./logs-repaired",
    "indextables repair s3://bucket/logs --swap --yes --json",
)

_SHOWN = 20


def repair(
    path: TablePath,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="PATH",
            help="Where to write the repaired table; the damaged table is not changed.",
        ),
    ] = None,
    swap: Annotated[
        bool,
        typer.Option("--swap", help="Replace the old log with the new one; the old log is kept beside it."),
    ] = False,
    log_only: Annotated[
        bool, typer.Option("--log-only", help="Write only the new log to --at, without copying splits.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what can be recovered.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Build a new log for a table whose log is damaged or missing.

    Uses every readable file of the log, and the splits themselves. Without --swap the table is not changed.
    """
    if sum((swap, log_only, dry_run)) > 1:
        raise typer.BadParameter("give only one of them", param_hint="'--swap', '--log-only' and '--dry-run'")
    if at is not None and (swap or dry_run):
        raise typer.BadParameter("cannot be combined with --swap or --dry-run", param_hint="'--at'")
    if swap:
        confirm(f"Replace the log of {path}? The old log is kept beside it.", is_agreed=yes)
    started = time.perf_counter()
    with progressing() as show:
        report = repair_table(
            path,
            at,
            swap=swap,
            log_only=log_only,
            dry_run=dry_run,
            storage_options=parse_pairs(storage_option),
            options=parse_settings(option),
            progress=show,
        )
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report, time.perf_counter() - started)


def _as_json(report: RepairReport) -> dict[str, object]:
    (row,) = json_rows(report.to_arrow())
    return {_camel(name): value for name, value in row.items()}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _print(report: RepairReport, seconds: float) -> None:
    if report.status is RepairStatus.NO_ACTION:
        print_line("the log is intact; nothing was changed")
        return
    _print_problems("unreadable log files", report.unreadable_log_files)
    _print_problems("missing splits", report.missing_splits)
    _print_problems("unreadable splits", report.unreadable_splits)
    _print_problems("splits not included", report.left_out_splits)
    for message in report.undecided:
        print_warning(message)
    counts = report.counts
    facts = [
        ("proven version", "none" if report.proven_version is None else str(report.proven_version)),
        ("from that version", count(counts.proven, "split")),
        ("from later log files", count(counts.salvaged, "split")),
        ("from the splits themselves", count(counts.described_by_themselves, "split")),
        ("rows", "unknown" if report.num_rows is None else f"{report.num_rows:,}"),
        ("size", size(report.total_bytes)),
    ]
    if report.damaged_log is not None:
        facts.append(("old log", report.damaged_log))
    print_facts(facts)
    if report.location is None:
        print_line(f"{count(report.num_files, 'split')} can be recovered; nothing was written")
        return
    done = f"version {report.version} with {count(report.num_files, 'split')}"
    print_line(f"{report.location} has {done}, in {duration(seconds)}")


def _print_problems(title: str, problems: Sequence[Problem]) -> None:
    if not problems:
        return
    rows = [(problem.path, problem.reason) for problem in problems[:_SHOWN]]
    print_table([Column(title), Column("reason")], rows)
    if len(problems) > _SHOWN:
        print_line(f"… {_SHOWN} of {len(problems):,} shown; use --json to see all")
