"""Rows of a split as the table's schema has them: columns added since are null, partition columns constant."""

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidSchemaError, InvalidValueError
from indextables.predicates import Predicate, columns_of, to_arrow_filter
from indextables.pruning import parse_values
from indextables.schema import find_column


class TableColumns(msgspec.Struct, frozen=True):
    """The table's schema, and the values of its partition columns in one split, as the log has them."""

    schema: pa.Schema
    partition_columns: tuple[str, ...] = ()
    partition_values: Mapping[str, str | None] | None = None

    def names(self, columns: Sequence[str] | None) -> list[str]:
        """The columns as the schema spells them; all of them for None. Raises InvalidSchemaError."""
        if columns is None:
            return list(self.schema.names)
        fields = [(name, find_column(self.schema, name)) for name in columns]
        for name, field in fields:
            if field is None:
                raise InvalidSchemaError(
                    f"column {name!r} does not exist; the columns are {', '.join(self.schema.names)}"
                )
        return [field.name for _, field in fields if field is not None]

    def stored(self, names: Sequence[str]) -> list[str]:
        """Those of the columns that are no partition columns."""
        return [name for name in names if name not in self.partition_texts()]

    def partition_texts(self) -> dict[str, str | None]:
        """The text of every partition column; a value that the log does not have is null."""
        values = {name.lower(): value for name, value in (self.partition_values or {}).items()}
        return {name: values.get(name.lower()) for name in self.partition_columns}

    def assemble(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """A table of these columns, in the table's types, from rows of the split."""
        texts = self.partition_texts()
        arrays = []
        for name in names:
            field = self.schema.field(name)
            if name in texts:
                arrays.append(pa.repeat(_value(texts[name], field), rows.num_rows))
            else:
                arrays.append(_column(rows, field))
        schema = pa.schema([self.schema.field(name) for name in names])
        # A selection of no columns keeps the number of rows.
        return pa.Table.from_arrays(arrays, schema=schema) if names else rows.select([])


def matching(rows: pa.Table, bound: Predicate | None) -> pa.Table:
    """The rows for which a bound predicate is true."""
    return rows if bound is None else rows.filter(to_arrow_filter(bound))


def needed_columns(names: Sequence[str], bound: Predicate | None) -> list[str]:
    """The columns that are wanted, and those that the predicate speaks of."""
    return list(dict.fromkeys([*names, *(sorted(columns_of(bound)) if bound is not None else ())]))


def _value(text: str | None, field: pa.Field) -> pa.Scalar:
    parsed = parse_values(pa.array([text], pa.string()), field.type)
    if not parsed.understood[0].as_py():
        raise InvalidValueError(
            f"partition column {field.name!r} has the value {text!r}, which is no {field.type}; the log is wrong"
        )
    return parsed.values[0]


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    stored = find_column(rows.schema, field.name)
    if stored is None:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    column = rows.column(stored.name)
    if stored.type.equals(field.type):
        return column
    try:
        return pc.cast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidSchemaError(
            f"column {field.name!r} is {stored.type} in the split and {field.type} in the table: {error}"
        ) from error
