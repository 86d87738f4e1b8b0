"""`indextables drop-partitions`: remove whole partitions."""

from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Yes, confirm, print_line
from indextables.cli.progress import working
from indextables.ops.write import drop_partitions as drop_partitions_where

EXAMPLES = examples(
    "indextables drop-partitions ./logs --where \"date < '2026-01-01'\"",
    "indextables drop-partitions ./logs --where 'year = 2024 AND month BETWEEN 2 AND 11' --yes --json",
)


def drop_partitions(
    path: TablePath,
    where: Annotated[
        str,
        typer.Option(metavar="SQL", help="The partitions to remove: a condition on partition columns only."),
    ],
    yes: Yes = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Remove the partitions that satisfy a condition, in one commit.

    Older versions still have them, and their files stay until a purge.
    """
    table = open_table(path, option, storage_option)
    confirm(f"Remove all rows of {path} where {where}?", is_agreed=yes)
    with working("dropping partitions"):
        result = drop_partitions_where(table.snapshot, where)
    if as_json:
        print_json(result.to_dict())
    elif not result.is_committed:
        print_line("no partition matches; nothing was committed")
    else:
        removed = "splits" if result.removed_files is None else count(result.removed_files, "split")
        print_line(f"version {result.version}: {removed} removed")
