"""ALTER TABLE: its clauses as schema changes. Values stay texts until the table's types are known."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from indextables.errors import InvalidValueError
from indextables.ops import columns
from indextables.pruning import parse_values
from indextables.schema.evolution import SchemaChange
from indextables.statements import nodes
from indextables.table import Snapshot

_NULL: Final = "NULL"


def schema_changes(snapshot: Snapshot, changes: Sequence[nodes.ColumnChange]) -> list[SchemaChange]:
    """The changes of a statement for a table. Raises InvalidSchemaError and InvalidValueError."""
    return [_change(snapshot, each) for each in changes]


def _change(snapshot: Snapshot, change: nodes.ColumnChange) -> SchemaChange:
    match change:
        case nodes.AddedColumn(path=path, type=type_, default=default, comment=comment, position=position):
            shown = ".".join(path)
            value = None if default is None else _default(default, columns.as_type(type_, shown), shown)
            return columns.add_column(snapshot, path, type_, value, comment, position)
        case nodes.DroppedColumn(path=path):
            return columns.drop_column(snapshot, path)
        case nodes.RenamedColumn(path=path, name=name):
            return columns.rename_column(snapshot, path, name)
        case nodes.AlteredColumn(
            path=path, type=type_, is_nullable=nullable, comment=comment, position=position
        ):
            return columns.alter_column(snapshot, path, type_, nullable, comment, position)
    raise TypeError(f"{change!r} is no change of a column")


def _default(text: str, data_type: pa.DataType, column: str) -> Any:
    """The value of a default that a statement writes as text."""
    if text.upper() == _NULL:
        return None
    value = parse_values(pa.array([text], pa.string()), data_type).values[0]
    if not value.is_valid:
        raise InvalidValueError(f"column {column!r} is {data_type} and cannot have the default {text!r}")
    return value
