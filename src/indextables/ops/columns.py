"""Schema changes: add, drop, rename and alter columns in one commit. No split is rewritten."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, ClassVar, Final

import pyarrow as pa

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns
from indextables.errors import InvalidSchemaError, InvalidValueError
from indextables.log.actions import check_writable
from indextables.ops.write import run
from indextables.pruning import format_value
from indextables.schema.conversion import loss_of
from indextables.schema.evolution import (
    AddColumn,
    AlterColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    parse_path,
)
from indextables.schema.spark_json import from_spark_json, to_spark_json
from indextables.schema.type_names import type_named
from indextables.table import CommitResult, Operation, Snapshot
from indextables.table.intent import ChangeSchema

_NAMES: Final[dict[type[SchemaChange], str]] = {
    AddColumn: "ADD COLUMN",
    DropColumn: "DROP COLUMN",
    RenameColumn: "RENAME COLUMN",
    AlterColumn: "ALTER COLUMN",
}


class SchemaChangeResult(CommitResult, frozen=True):
    """What a schema change did."""

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: the columns are like this already"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        MESSAGE,
    )

    @property
    def message(self) -> str:
        """A one-line summary."""
        if not self.is_committed:
            return "the columns are like this already; nothing was committed"
        return f"the columns changed in version {self.version}; no split was rewritten"


def change_columns(snapshot: Snapshot, changes: Sequence[SchemaChange]) -> SchemaChangeResult:
    """Change columns, one change after the other, in one commit. Without a difference, nothing is committed.

    The change is applied again on top of concurrent commits. Raises InvalidSchemaError for a change that the schema
    does not allow, ProtocolUpgradeError if the table holds splits of the JVM and the settings do not allow its
    conversion, and CommitConflictError if another commit changed the same column.
    """
    check_writable(snapshot.protocol, snapshot.context.url)
    changes = tuple(changes)
    names = ", ".join(dict.fromkeys(_NAMES[type(change)] for change in changes))
    operation = Operation(names, {"columns": ", ".join(".".join(change.path) for change in changes)})
    result = run(snapshot, ChangeSchema(changes), operation)
    return SchemaChangeResult(result.snapshot, result.is_committed, result.tries)


def add_column(
    snapshot: Snapshot,
    column: str | Sequence[str],
    data_type: pa.DataType | str,
    default: Any = None,
    comment: str | None = None,
    position: str | None = None,
) -> AddColumn:
    """The change that adds a column. Raises InvalidSchemaError for an unknown type, and InvalidValueError."""
    path = parse_path(snapshot.metadata.schema_string, column)
    arrow_type = as_type(data_type, ".".join(path))
    text = None if default is None else default_text(default, arrow_type, ".".join(path))
    return AddColumn(path, arrow_type, text, comment, position)


def drop_column(snapshot: Snapshot, column: str | Sequence[str]) -> DropColumn:
    """The change that drops a column."""
    return DropColumn(parse_path(snapshot.metadata.schema_string, column))


def rename_column(snapshot: Snapshot, column: str | Sequence[str], name: str) -> RenameColumn:
    """The change that renames a column. For a member of a struct, `name` is its new name alone."""
    return RenameColumn(parse_path(snapshot.metadata.schema_string, column), name)


def alter_column(
    snapshot: Snapshot,
    column: str | Sequence[str],
    data_type: pa.DataType | str | None = None,
    nullable: bool | None = None,
    comment: str | None = None,
    position: str | None = None,
) -> AlterColumn:
    """The change that alters a column. Raises InvalidSchemaError for what cannot be changed."""
    path = parse_path(snapshot.metadata.schema_string, column)
    shown = ".".join(path)
    if nullable is False:
        raise InvalidSchemaError(
            f"column {shown!r} cannot be made NOT NULL: rows that are there may have nulls; check new rows before they "
            f"are written"
        )
    wanted = None if data_type is None else as_type(data_type, shown)
    return AlterColumn(path, wanted, bool(nullable), comment, position)


def as_type(data_type: pa.DataType | str, column: str) -> pa.DataType:
    """The type of a column in the table, from an Arrow type or the name of a Spark type. Raises InvalidSchemaError."""
    if isinstance(data_type, str):
        return type_named(data_type, column)
    return from_spark_json(to_spark_json(pa.schema([pa.field(column, data_type)]))).field(0).type


def default_text(value: Any, data_type: pa.DataType, column: str) -> str:
    """The text in which the log records a default. Raises InvalidValueError for a value that has none."""
    loss = loss_of(value, data_type)
    if loss is not None:
        raise InvalidValueError(f"column {column!r} is {data_type} and cannot be {value!r}: {loss}")
    try:
        given = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        typed = (
            given.cast(data_type) if not isinstance(value, date | datetime) else pa.scalar(value, data_type)
        )
        text = format_value(typed)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidValueError(
            f"column {column!r} is {data_type} and cannot be {value!r}: {error}"
        ) from error
    if text is None:
        raise InvalidValueError(
            f"column {column!r} is {data_type}, which cannot have the default {value!r}: it has no text form; leave "
            f"the default out, and set the values with an update"
        )
    return text
