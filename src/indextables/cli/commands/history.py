"""`indextables history`: the commits in the log."""

import time
from typing import Annotated, Any

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, size, when
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    Timestamp,
    Version,
    open_table,
)
from indextables.cli.output import Column, print_summary, print_table
from indextables.cli.progress import working
from indextables.cli.row_output import OutputFile, OutputFormat, RowOutput

EXAMPLES = examples(
    "indextables history ./logs",
    "indextables history ./logs --limit 5",
    "indextables history s3://bucket/logs --json",
)

_COLUMNS = (
    Column("version", "right"),
    Column("committed"),
    Column("operation"),
    Column("changes"),
)


def history(
    path: TablePath,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show only the newest N commits.")
    ] = None,
    as_json: AsJson = False,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """List the commits of a table, newest first.

    Pass a listed version to --version, or a time to --timestamp, to read the table as it was.
    """
    output = RowOutput.of(as_json, output_format, output_file)
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    with working("reading the log"):
        commits = table.history(limit)
    if not output.is_own_layout:
        output.write(commits)
        return
    now_ms = time.time_ns() // 1_000_000
    times_ms = commits["timestamp"].cast("int64").to_pylist()
    rows = [
        _row(commit, time_ms, now_ms)
        for commit, time_ms in zip(
            commits.drop_columns(["timestamp"]).to_pylist(maps_as_pydicts="lossy"), times_ms, strict=True
        )
    ]
    if rows:
        print_table(_COLUMNS, rows)
    print_summary(count(len(rows), "commit"))


def _row(commit: dict[str, Any], time_ms: int, now_ms: int) -> tuple[str, ...]:
    return (
        str(commit["version"]),
        when(time_ms, now_ms),
        commit["operation"] or "-",
        _changes(commit["operation_metrics"] or {}),
    )


def _changes(metrics: dict[str, int]) -> str:
    """A summary of a commit's changes; --json has all metrics."""
    added, removed = metrics.get("numAddedFiles"), metrics.get("numRemovedFiles")
    added_bytes = metrics.get("numAddedBytes")
    parts = (
        f"{count(added, 'file')} added" if added else None,
        size(added_bytes) if added_bytes else None,
        f"{count(removed, 'file')} removed" if removed else None,
    )
    return ", ".join(part for part in parts if part) or "-"
