"""`indextables fsck`: check the integrity of a table."""

import time
from typing import Annotated

import typer

from indextables.cli.command import REFUSED, examples
from indextables.cli.formatting import count, duration
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Column, print_line, print_table
from indextables.cli.progress import progressing
from indextables.ops.fsck.report import FsckResult

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
        result = table.fsck(deep, progress=show)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result, seconds)
    if result.errors:
        raise typer.Exit(REFUSED)


def _print(result: FsckResult, seconds: float) -> None:
    if result.findings:
        columns = [Column("severity"), Column("code"), Column("object"), Column("message"), Column("remedy")]
        rows = [
            (finding.severity.value, finding.code, finding.object, finding.message, finding.remedy)
            for finding in result.findings
        ]
        print_table(columns, rows)
    summary = (
        "clean"
        if result.is_clean
        else f"{count(result.num_errors, 'error')} in {len(result.findings)} findings"
    )
    print_line(
        f"{summary}: {count(result.versions_checked, 'version')}, "
        f"{count(result.checkpoints_checked, 'checkpoint')} and {count(result.splits_checked, 'split')} checked, "
        f"in {duration(seconds)}"
    )
