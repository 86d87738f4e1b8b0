"""Data of Python's libraries as Arrow: DataFrames, relations, dicts and whatever has the Arrow PyCapsule interface."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from indextables.errors import InvalidOptionError, InvalidSchemaError, InvalidValueError
from indextables.schema.conversion import LossyConversionError, family_of, misfits


def as_arrow(data: Any) -> pa.Table | pa.RecordBatchReader:
    """Any supported kind of data: a table if all of it is in memory, or else a reader.

    Raises InvalidOptionError, InvalidSchemaError and InvalidValueError.
    """
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    try:
        if _is_of(data, "pandas", "DataFrame"):
            # A named or meaningful index becomes a column.
            return pa.Table.from_pandas(data).replace_schema_metadata(None)
        if _is_of(data, "polars", "LazyFrame"):
            data = data.collect()
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
        if hasattr(data, "to_arrow_reader") or hasattr(data, "fetch_record_batch"):
            return data.to_arrow_reader() if hasattr(data, "to_arrow_reader") else data.fetch_record_batch()
        if isinstance(data, Mapping):
            return pa.table(dict(data))
    # pyarrow raises ValueError for the columns of pandas.
    except (ValueError, TypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidValueError(f"the data cannot be converted to Arrow: {error}") from error
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | os.PathLike):
        return _table_of_rows(list(data))
    raise InvalidOptionError(
        f"data of the type {type(data).__name__} cannot be written; pass a pandas or Polars DataFrame, a DuckDB "
        f"relation, a list of dicts, or an Arrow table. For files, use `indextables index`"
    )


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Any supported kind of data as Arrow batches. Raises what `as_arrow` raises."""
    found = as_arrow(data)
    return found.to_reader() if isinstance(found, pa.Table) else found


def _table_of_rows(rows: list[Any]) -> pa.Table:
    """Rows as a table with the fields of all of them."""
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise InvalidOptionError(
                f"row {number:,} of the data is of the type {type(row).__name__}; pass a list of dicts"
            )
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise InvalidSchemaError("the data has no fields, so there is nothing to write")
    return pa.table({name: _column_of_rows(name, [row.get(name) for row in rows]) for name in names})


def _column_of_rows(name: Any, values: list[Any]) -> pa.Array:
    if not isinstance(name, str):
        raise InvalidSchemaError(f"field {name!r} has a name that is not a string; rename it")

    def convert(part: list[Any]) -> pa.Array:
        try:
            return pa.array(part)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise LossyConversionError(str(error)) from error

    try:
        column = convert(values)
    except LossyConversionError as error:
        # The first row that does not go with those before it.
        low, high = 0, len(values)
        while high - low > 1:
            middle = (low + high) // 2
            if misfits(values[:middle], convert):
                high = middle
            else:
                low = middle
        raise InvalidValueError(
            f"row {high:,} of the data: field {name!r} is {values[high - 1]!r}, which does not go with the rows before "
            f"it: {error}; give the field one type"
        ) from error
    _check_kept(name, values, column)
    return column


def _check_kept(name: str, values: list[Any], column: pa.Array) -> None:
    """Raise InvalidValueError for a value that Arrow has changed: a time that became a date, or got a zone."""
    if family_of(column.type) in ("integer", "float", "string", "boolean", None):
        return
    pairs = zip(values, column.to_pylist(), strict=True)
    changed = next((row for row, (value, kept) in enumerate(pairs, 1) if not _is_kept(value, kept)), None)
    if changed is not None:
        raise InvalidValueError(
            f"row {changed:,} of the data: field {name!r} is {values[changed - 1]!r}, which does not go with the other "
            f"rows: their type is {column.type}; give the field one type"
        )


def _is_kept(value: Any, kept: Any) -> bool:
    if isinstance(value, Mapping) and isinstance(kept, Mapping):
        return all(_is_kept(each, kept.get(name)) for name, each in value.items())
    if isinstance(value, list | tuple) and isinstance(kept, list):
        return len(value) == len(kept) and all(map(_is_kept, value, kept))
    # NaN is not equal to itself.
    return bool(value == kept) or (value != value and kept != kept)


def _is_of(data: Any, package: str, class_name: str) -> bool:
    kind = type(data)
    return kind.__module__.partition(".")[0] == package and kind.__name__ == class_name
