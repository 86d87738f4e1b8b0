"""`indextables alter`: change columns."""

from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import Yes, confirm, print_line
from indextables.ops.columns import change_columns
from indextables.statements.alter import schema_changes
from indextables.statements.grammar import parse_ours
from indextables.statements.nodes import Alter, DroppedColumn

EXAMPLES = examples(
    'indextables alter ./logs "ADD COLUMN status INT DEFAULT 200"',
    'indextables alter ./logs "RENAME COLUMN message TO body"',
    'indextables alter ./logs "DROP COLUMNS (status, host)" --yes',
)


def alter(
    path: TablePath,
    change: Annotated[
        str,
        typer.Argument(
            metavar="CHANGE",
            help="ADD COLUMN, DROP COLUMN, RENAME COLUMN or ALTER COLUMN, as in ALTER TABLE of docs/sql.md.",
        ),
    ],
    yes: Yes = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Add, drop, rename or alter columns, in one commit.

    Older versions keep their columns. Dropping a column asks first.
    """
    quoted = path.replace("\\", "\\\\").replace("'", "''")
    statement = parse_ours(f"ALTER TABLE '{quoted}' {change}")
    assert isinstance(statement, Alter)
    table = open_table(path, option, storage_option)
    changes = schema_changes(table.snapshot, statement.changes)
    dropped = [".".join(each.path) for each in statement.changes if isinstance(each, DroppedColumn)]
    if dropped:
        confirm(f"Drop {', '.join(dropped)} of {path}?", is_agreed=yes)
    result = change_columns(table.snapshot, changes)
    if as_json:
        print_json(result.to_dict())
    elif result.is_committed:
        print_line(f"version {result.version}: the columns are {', '.join(result.snapshot.schema.names)}")
    else:
        print_line(result.message)
