"""What the commands that change rows share: assignments, and the rows of each partition."""

from collections.abc import Sequence

import typer

from indextables.cli.formatting import count
from indextables.cli.output import Column, print_table
from indextables.ops.expressions import Expression, expr
from indextables.ops.row_counts import PartitionCount


def parse_assignments(pairs: Sequence[str]) -> dict[str, Expression]:
    """Parse COLUMN=SQL pairs. Raises typer.BadParameter for one that is incomplete or repeated."""
    values: dict[str, Expression] = {}
    for pair in pairs:
        column, _, sql = (part.strip() for part in pair.partition("="))
        if not column or not sql:
            raise typer.BadParameter(
                f"{pair!r} is no assignment; write COLUMN=SQL, such as \"level = 'WARN'\"",
                param_hint="'--set'",
            )
        if column in values:
            raise typer.BadParameter(f"column {column} is set twice", param_hint="'--set'")
        values[column] = expr(sql)
    return values


def print_partitions(partitions: Sequence[PartitionCount]) -> None:
    """A table of the rows of each partition, if the table is partitioned."""
    if not any(each.partition for each in partitions):
        return
    shown = [
        (", ".join(f"{name}={value}" for name, value in each.partition.items()), _number(each.rows))
        for each in partitions
    ]
    print_table([Column("partition"), Column("rows", "right")], shown)


def spoken_rows(rows: int | None) -> str:
    """A number of rows; None if the log does not record it."""
    return "rows" if rows is None else count(rows, "row")


def _number(rows: int | None) -> str:
    return "unknown" if rows is None else f"{rows:,}"
