"""`indextables truncate`: delete all versions before the newest one."""

from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.commands.purge import print_files
from indextables.cli.formatting import count, size
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Yes, confirm, print_line
from indextables.cli.progress import working

EXAMPLES = examples(
    "indextables truncate ./logs --dry-run",
    "indextables truncate ./logs --yes",
)


def truncate(
    path: TablePath,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Delete all versions before the newest one, which ends time travel. This cannot be undone.

    The rows of the newest version stay. The next purge deletes splits that only older versions had.
    """
    table = open_table(path, option, storage_option)
    if not dry_run:
        confirm(f"Delete all versions before {table.version}? They cannot be restored.", is_agreed=yes)
    with working("deleting old versions"):
        result = table.truncate_time_travel(dry_run=dry_run)
    if as_json:
        print_json(result.to_dict())
        return
    if dry_run and result.num_files:
        print_files(result.files)
    verb = "would be deleted" if dry_run else "deleted"
    print_line(
        f"{count(result.num_versions, 'version')}, {count(result.num_checkpoints, 'checkpoint')} and "
        f"{count(result.num_manifests, 'manifest')} {verb}, {size(result.size_bytes)}; "
        f"version {result.version} remains"
    )
