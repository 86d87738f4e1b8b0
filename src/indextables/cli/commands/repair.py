"""`indextables repair`: build a new log for a table whose log is damaged or missing."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from indextables._results import Status
from indextables.cli.command import examples
from indextables.cli.formatting import count, duration, size
from indextables.cli.json_output import print_json
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
from indextables.ops.repair.report import Problem, RepairResult
from indextables.table_repair import repair_table

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
        result = repair_table(
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
        print_json(result.to_dict())
    else:
        _print(result, time.perf_counter() - started)


def _print(result: RepairResult, seconds: float) -> None:
    if result.status is Status.NO_ACTION:
        print_line("the log is intact; nothing was changed")
        return
    _print_problems("unreadable log files", result.unreadable_log_files)
    _print_problems("missing splits", result.missing_splits)
    _print_problems("unreadable splits", result.unreadable_splits)
    _print_problems("splits not included", result.left_out_splits)
    for message in result.undecided:
        print_warning(message)
    counts = result.counts
    facts = [
        ("proven version", "none" if result.proven_version is None else str(result.proven_version)),
        ("from that version", count(counts.proven, "split")),
        ("from later log files", count(counts.salvaged, "split")),
        ("from the splits themselves", count(counts.described_by_themselves, "split")),
        ("rows", "unknown" if result.num_rows is None else f"{result.num_rows:,}"),
        ("size", size(result.total_bytes)),
    ]
    if result.damaged_log is not None:
        facts.append(("old log", result.damaged_log))
    print_facts(facts)
    if result.location is None:
        print_line(f"{count(result.num_files, 'split')} can be recovered; nothing was written")
        return
    done = f"version {result.version} with {count(result.num_files, 'split')}"
    print_line(f"{result.location} has {done}, in {duration(seconds)}")


def _print_problems(title: str, problems: Sequence[Problem]) -> None:
    if not problems:
        return
    rows = [(problem.path, problem.reason) for problem in problems[:_SHOWN]]
    print_table([Column(title), Column("reason")], rows)
    if len(problems) > _SHOWN:
        print_line(f"… {_SHOWN} of {len(problems):,} shown; use --json to see all")
