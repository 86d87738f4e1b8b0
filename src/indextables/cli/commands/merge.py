"""`indextables merge`: merge small splits into larger ones."""

import time
from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, duration, size
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import print_line, print_warning
from indextables.cli.progress import progressing
from indextables.config.registry import MERGE_MAX_SOURCE_SPLITS, MERGE_TARGET_SIZE
from indextables.errors import InvalidOptionError
from indextables.ops.merge import MergeResult

EXAMPLES = examples(
    "indextables merge ./logs",
    "indextables merge ./logs --where \"date < '2026-02-01'\" --target-size 1G",
    "indextables merge s3://bucket/logs --max-dest-splits 10 --json",
)


def _check_size(text: str | None) -> str | None:
    if text is not None:
        try:
            MERGE_TARGET_SIZE.parse(text)
        except InvalidOptionError as error:
            raise typer.BadParameter(f"{text!r} is not {MERGE_TARGET_SIZE.allowed}") from error
    return text


def merge(
    path: TablePath,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Merge only partitions that satisfy this condition.")
    ] = None,
    target_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            callback=_check_size,
            help="Target size of a split, such as 100M or 1G; larger splits are not merged.",
        ),
    ] = None,
    max_dest_splits: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of new splits.")
    ] = None,
    max_source_splits: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=int(MERGE_MAX_SOURCE_SPLITS.minimum or 0),
            help="Maximum number of splits to merge into one.",
        ),
    ] = None,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Merge small splits into larger ones within each partition. Rows do not change.

    The result becomes visible in one commit. An interrupted merge leaves the table unchanged. Splits that cannot be
    read are skipped, and retried after a day.
    """
    table = open_table(path, option, storage_option)
    started = time.perf_counter()
    with progressing() as show:
        result = table.merge_splits(target_size, where, max_dest_splits, max_source_splits, progress=show)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(result.to_dict())
        return
    _print(result, seconds)


def _print(result: MergeResult, seconds: float) -> None:
    for bad in result.skipped:
        print_warning(f"{bad.path} was skipped: {bad.reason}")
    for group in result.given_up:
        print_warning(f"{count(len(group.paths), 'split')} were not merged: {group.reason}")
    if not result.merged_groups:
        print_line("nothing was merged" if result.skipped or result.given_up else "nothing to merge")
        return
    print_line(
        f"version {result.version}: {count(result.source_splits, 'split')} became {result.new_splits:,}, "
        f"in {duration(seconds)}"
    )
    print_line(
        f"{count(result.rows, 'row')}, {size(result.bytes_before)} before, {size(result.bytes_after)} after"
    )
