"""`indextables restore`: restore an older version as the newest one."""

from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, check_timestamp, open_table
from indextables.cli.output import Yes, confirm, print_line
from indextables.cli.progress import working
from indextables.ops.restore import RestoreRequest
from indextables.ops.restore import restore as restore_version

EXAMPLES = examples(
    "indextables restore ./logs --version 7",
    "indextables restore ./logs --timestamp 2026-01-31T12:00:00Z --yes --json",
)


def restore(
    path: TablePath,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=0, help="The version to restore.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp",
            metavar="T",
            callback=check_timestamp,
            help="The time to restore the table to, such as 2026-01-31T12:00:00Z.",
        ),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Restore a table to an older version.

    Restores rows, columns and properties in a new commit. Versions in between are kept, and can be restored too.
    """
    if (version is None) == (timestamp is None):
        raise typer.BadParameter("give exactly one of them", param_hint="'--version' and '--timestamp'")
    table = open_table(path, option, storage_option)
    wanted = f"version {version}" if version is not None else f"the version of {timestamp}"
    confirm(f"Restore {path} to {wanted}?", is_agreed=yes)
    with working(f"restoring {wanted}"):
        result = restore_version(table.snapshot, RestoreRequest(version, timestamp))
    if as_json:
        print_json(result.to_dict())
    elif not result.is_committed:
        print_line(f"the table is already the same as {wanted}; nothing was committed")
    else:
        print_line(f"version {result.version} restores {wanted}: {count(result.num_files, 'file')}")
