"""`indextables publish`: let other engines read a table as Delta Lake."""

from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import print_line
from indextables.cli.progress import working

EXAMPLES = examples("indextables publish ./logs --as delta")


def publish(
    path: TablePath,
    format_name: Annotated[str, typer.Option("--as", metavar="FORMAT", help="The format: delta.")] = "delta",
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Write or update a Delta log in the table's folder. Other engines then read the same files, without a copy.

    With the table property spark.indextables.publish.delta.enabled=true, every commit is published.
    """
    table = open_table(path, option, storage_option)
    with working("publishing"):
        result = table.publish(format_name)
    if as_json:
        print_json(result.to_dict())
    else:
        print_line(result.message)
