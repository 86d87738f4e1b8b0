"""Rows that somebody hands in, as the table's schema wants them: by name, in its order, of its types."""

from collections.abc import Callable

import pyarrow as pa

from indextables.errors import InvalidSchemaError, InvalidValueError
from indextables.schema import find_column

# A column may be given in any type of the same family, if every value fits.
_FAMILIES: tuple[tuple[str, tuple[Callable[[pa.DataType], bool], ...]], ...] = (
    ("boolean", (pa.types.is_boolean,)),
    ("integer", (pa.types.is_integer,)),
    ("float", (pa.types.is_floating,)),
    ("decimal", (pa.types.is_decimal,)),
    ("string", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (
        "binary",
        (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
            pa.types.is_binary_view,
        ),
    ),
    ("date", (pa.types.is_date,)),
    ("timestamp", (pa.types.is_timestamp,)),
    ("struct", (pa.types.is_struct,)),
    ("map", (pa.types.is_map,)),
    ("array", (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)),
)


def conform(data: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The same rows in the table's schema.

    Columns are found by name, without regard to case; a nullable one that is missing is null. Raises
    InvalidSchemaError for columns that the table does not have, for required ones that are missing and for
    types of another family, and InvalidValueError for values that do not fit and for nulls where there may
    be none.
    """
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    if table.schema.equals(schema):
        columns = table.columns
    else:
        _refuse_extra(table.schema, schema)
        columns = [_column(table, field) for field in schema]
    for column, field in zip(columns, schema, strict=True):
        if column.null_count and not field.nullable:
            raise InvalidValueError(
                f"column {field.name!r} has nulls, and the table's schema allows none there"
            )
    return pa.Table.from_arrays(columns, schema=schema)


def _refuse_extra(given: pa.Schema, schema: pa.Schema) -> None:
    extra = [name for name in given.names if find_column(schema, name) is None]
    if extra:
        raise InvalidSchemaError(
            f"column {extra[0]!r} is not in the table, whose columns are {', '.join(schema.names)}; drop it"
        )
    if len({name.lower() for name in given.names}) != len(given.names):
        raise InvalidSchemaError(f"the data has two columns of one name: {', '.join(given.names)}")


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    given = find_column(table.schema, field.name)
    if given is None:
        if not field.nullable:
            raise InvalidSchemaError(f"column {field.name!r} is missing, and the table requires it")
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(given.name)
    if given.type.equals(field.type):
        return column
    if not _fits(given.type, field.type):
        raise InvalidSchemaError(
            f"column {field.name!r} has the type {given.type}, and the table has {field.type}; cast it"
        )
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidValueError(
            f"column {field.name!r} cannot be cast from {given.type} to {field.type}: {error}"
        ) from error


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    plain = given.value_type if isinstance(given, pa.DictionaryType | pa.RunEndEncodedType) else given
    if pa.types.is_null(plain):
        return True
    if pa.types.is_timestamp(plain) and pa.types.is_timestamp(wanted):
        return (plain.tz is None) == (wanted.tz is None)
    family = _family(plain)
    return family is not None and family == _family(wanted)


def _family(data_type: pa.DataType) -> str | None:
    return next((name for name, tests in _FAMILIES if any(test(data_type) for test in tests)), None)
