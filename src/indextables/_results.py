"""Results: the frozen values that operations return, and the one list of columns that renders each of them.

A result type lists its columns (name, Arrow type, meaning) once. `to_arrow()`, `to_dict()`, the results of SQL
statements, the command line's `--json` and docs/sql.md are all derived from that list.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa

MOMENT: Final = pa.timestamp("ms", tz="UTC")
PROBLEM: Final = pa.struct([pa.field("path", pa.string()), pa.field("reason", pa.string())])

_ROWS_AT_ONCE: Final = 10_000


class Status(Enum):
    """How an operation ended. An operation that cannot do its work at all raises an error instead.

    Attributes:
        SUCCESS: The operation did its work.
        NO_ACTION: There was nothing to do, and nothing changed.
        DRY_RUN: The result lists what the operation would do; nothing changed.
        PARTIAL: The operation left something out; the result lists it with the reasons.
        FAILED: The operation found errors, or failed on a part of its work; the result lists them.
    """

    SUCCESS = "SUCCESS"
    NO_ACTION = "NO_ACTION"
    DRY_RUN = "DRY_RUN"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"


class Column(msgspec.Struct, frozen=True):
    """A column of a result. The result type has a field or property of the same name."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = True


Columns = tuple[Column, ...]

TABLE_PATH: Final = Column("table_path", pa.string(), "the URL of the table")
MESSAGE: Final = Column("message", pa.string(), "a one-line summary")


class Result(msgspec.Struct, frozen=True):
    """The base class of results. `columns` lists the columns of `to_arrow()` and the keys of `to_dict()`, in order."""

    columns: ClassVar[Columns] = ()

    def to_arrow(self) -> pa.Table:
        """Return the result as an Arrow table of one row, the same as the operation's SQL statement returns."""
        arrays = [_array(getattr(self, column.name), column.type) for column in self.columns]
        return pa.Table.from_arrays(arrays, schema=schema_of(self.columns))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values: timestamps are ISO 8601 text, tables are lists of dicts."""
        return next(plain_rows(self.to_arrow()))

    def __repr__(self) -> str:
        values = ((column.name, getattr(self, column.name)) for column in self.columns)
        shown = ", ".join(
            f"{name}=<{value.num_rows} rows>" if isinstance(value, pa.Table) else f"{name}={value!r}"
            for name, value in values
        )
        return f"{type(self).__name__}({shown})"


def schema_of(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of the columns."""
    return pa.schema([pa.field(column.name, column.type, column.nullable) for column in columns])


def plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as dicts. Maps become dicts, and timestamp columns ISO 8601 text."""
    moments = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    for name in moments:
        # A datetime cannot hold every timestamp that a log may contain.
        milliseconds = table[name].cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, milliseconds)
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            for name in moments:
                row[name] = None if row[name] is None else iso(row[name])
            yield row


def iso(moment_ms: int) -> str:
    """Format epoch milliseconds as ISO 8601, or as a number for years before 1000 or after 9999."""
    try:
        moment = datetime.fromtimestamp(moment_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{moment_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment_ms % 1000:03d}Z" if moment.year > 999 else f"{moment_ms} ms"


def _array(value: object, kind: pa.DataType) -> pa.Array:
    """Return an Arrow array with one value."""
    if isinstance(value, pa.Table):
        return _list_of_rows(value, kind)
    return pa.array([_plain(value)], kind)


def _list_of_rows(rows: pa.Table, kind: pa.ListType) -> pa.Array:
    fields = list(kind.value_type)
    columns = [rows[field.name].combine_chunks() for field in fields]
    structs = pa.StructArray.from_arrays(columns, fields=fields)
    offsets = pa.array([0, rows.num_rows], pa.int64())
    return pa.LargeListArray.from_arrays(offsets, structs).cast(kind)


def _plain(value: Any) -> Any:
    """Convert a value for Arrow: enums become their values, structs dicts, tuples lists."""
    match value:
        case Enum():
            return value.value
        case msgspec.Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case tuple() | list():
            return [_plain(item) for item in value]
        case _:
            return value
