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
import pyarrow.compute as pc

MOMENT: Final = pa.timestamp("ms", tz="UTC")
PROBLEM: Final = pa.struct([pa.field("path", pa.string()), pa.field("reason", pa.string())])

_ROWS_AT_ONCE: Final = 10_000
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MAX_INT64: Final = (1 << 63) - 1


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
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, moment_texts(table.column(index)))
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from batch.to_pylist(maps_as_pydicts="lossy")


def moment_texts(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps as ISO 8601 text, in UTC if they have a zone, or as a number for years outside 1000 to 9999.

    The text has the digits of the timestamps' unit, at least milliseconds.
    """
    unit = moments.type.unit
    local = moments.cast(pa.timestamp(unit))
    numbers = local.cast(pa.int64())
    first, end = (max(min(bound, _MAX_INT64), -_MAX_INT64) for bound in _bounds_in(unit))
    is_in_calendar = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
    texts = pc.strftime(pc.if_else(is_in_calendar, local, None), "%Y-%m-%dT%H:%M:%S")
    fraction = ".000" if unit == "s" else ""
    zone = "" if moments.type.tz is None else "Z"
    texts = pc.binary_join_element_wise(texts, f"{fraction}{zone}", "")
    others = pc.binary_join_element_wise(numbers.cast(pa.string()), unit, " ")
    return pc.if_else(is_in_calendar, texts, others)


def _bounds_in(unit: str) -> Iterator[int]:
    """The first moment of the year 1000, and that of the year 10000."""
    return (second * _PER_SECOND[unit] for second in (-30_610_224_000, 253_402_300_800))


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
