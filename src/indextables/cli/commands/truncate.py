"""`indextables truncate`: delete all versions before the newest one."""

from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.commands.purge import print_files
from indextables.cli.formatting import count, size
from indextables.cli.json_output import json_rows, print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Yes, confirm, print_line
from indextables.cli.progress import working
from indextables.ops.purge.report import PurgeKind

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
        report = table.truncate_time_travel(dry_run=dry_run)
    if as_json:
        print_json(
            {
                "version": report.version,
                "dryRun": report.is_dry_run,
                "numVersions": report.count(PurgeKind.VERSION),
                "numCheckpoints": report.count(PurgeKind.CHECKPOINT),
                "numManifests": report.count(PurgeKind.MANIFEST),
                "sizeBytes": report.size_bytes,
                "files": list(json_rows(report.to_arrow())),
            }
        )
        return
    if dry_run and report.files.num_rows:
        print_files(report.files)
    verb = "would be deleted" if dry_run else "deleted"
    print_line(
        f"{count(report.count(PurgeKind.VERSION), 'version')}, "
        f"{count(report.count(PurgeKind.CHECKPOINT), 'checkpoint')} and "
        f"{count(report.count(PurgeKind.MANIFEST), 'manifest')} {verb}, {size(report.size_bytes)}; "
        f"version {report.version} remains"
    )
