"""`indextables fsck`: check the integrity of a table."""

import time
from typing import Annotated

import typer

from indextables.cli.command import REFUSED, examples
from indextables.cli.formatting import count, duration
from indextables.cli.json_output import json_rows, print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Column, print_line, print_table
from indextables.cli.progress import progressing
from indextables.ops.fsck.report import FsckReport

EXAMPLES = examples(
    "indextables fsck ./logs",
    "indextables fsck s3://bucket/logs --deep --json",
)


def fsck(
    path: TablePath,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of the live splits.")] = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Check the integrity of a table: versions, counts and splits. Changes nothing.

    The exit code is 1 if data is missing or corrupt.
    """
    table = open_table(path, option, storage_option)
    started = time.perf_counter()
    with progressing() as show:
        report = table.fsck(deep, progress=show)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report, seconds)
    if report.errors:
        raise typer.Exit(REFUSED)


def _as_json(report: FsckReport) -> dict[str, object]:
    return {
        "version": report.version,
        "clean": report.is_clean,
        "deep": report.is_deep,
        "versionsChecked": report.versions_checked,
        "checkpointsChecked": report.checkpoints_checked,
        "splitsChecked": report.splits_checked,
        "findings": list(json_rows(report.to_arrow())),
    }


def _print(report: FsckReport, seconds: float) -> None:
    if report.findings:
        columns = [Column("severity"), Column("code"), Column("object"), Column("message"), Column("remedy")]
        print_table(columns, [tuple(row.values()) for row in report.to_arrow().to_pylist()])
    result = (
        "clean"
        if report.is_clean
        else f"{count(len(report.errors), 'error')} in {len(report.findings)} findings"
    )
    print_line(
        f"{result}: {count(report.versions_checked, 'version')}, {count(report.checkpoints_checked, 'checkpoint')} and "
        f"{count(report.splits_checked, 'split')} checked, in {duration(seconds)}"
    )
