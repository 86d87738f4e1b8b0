"""The keys of a MERGE's source: which rows of a table have one of them, and which splits may have such rows.

Keys are compared with Arrow's hash tables. A key of several columns becomes one number, column by column:

    (day, id) ──▶ number of the day ──▶ number of (number of the day, number of the id)

Null is equal to nothing, as in SQL.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import (
    InvalidOptionError,
    InvalidPredicateError,
    InvalidSchemaError,
    InvalidValueError,
)
from indextables.predicates import BoundPredicate, Comparison, In, Operator, Predicate, all_of, bind
from indextables.schema import find_column
from indextables.schema.conversion import LossyConversionError, convert, converts

Numbers = npt.NDArray[np.int64]

# A predicate lists at most this many keys; more are described by their range.
_MAX_LISTED: Final = 100


class _Step(msgspec.Struct, frozen=True, eq=False):
    """The values of one key column, and the numbers of the keys up to this column."""

    values: pa.Array
    combined: pa.Array | None


class SourceKeys:
    """The keys of the rows of a source, in the types of the table.

    Attributes:
        columns: The key columns, as the table spells them.
        number_of_row: The number of each row's key; -1 for a row with a null in its key.
    """

    def __init__(self, url: str, schema: pa.Schema, source: pa.Table, on: Mapping[str, str]) -> None:
        """Raises InvalidOptionError without key columns or for columns that cannot be compared, InvalidSchemaError for
        columns that do not exist, and InvalidValueError for keys that do not fit their columns.
        """
        if not on:
            raise InvalidOptionError(f"{url}: a merge needs at least one key column, as in on=['id']")
        self._schema = schema
        keys = [_key_column(url, schema, source, *pair) for pair in on.items()]
        self.columns = tuple(field.name for field, _ in keys)
        if len(set(self.columns)) != len(self.columns):
            raise InvalidOptionError(f"{url}: a key column is named twice: {', '.join(self.columns)}")
        self._values = [column for _, column in keys]
        self._steps: list[_Step] = []
        numbers = self._numbered(source.num_rows)
        self.number_of_row = _plain(numbers)
        self.num_keys = int(self.number_of_row.max(initial=-1)) + 1
        self.rows_of_key = np.bincount(self.number_of_row[self.number_of_row >= 0], minlength=self.num_keys)
        order = np.argsort(self.number_of_row, kind="stable")
        firsts = np.searchsorted(self.number_of_row[order], np.arange(self.num_keys))
        self.first_row_of_key: Numbers = order[firsts]

    def find(self, rows: pa.Table) -> Numbers:
        """The number of the key of each row, or -1 if the source does not have it. The rows have the key columns."""
        numbers: pa.Array | None = None
        for name, step in zip(self.columns, self._steps, strict=True):
            found = pc.index_in(_comparable(rows.column(name)), value_set=step.values)
            numbers = found if numbers is None else _combined(numbers, found, step)
        assert numbers is not None  # there is at least one key column
        return _plain(numbers)

    def predicate(self) -> BoundPredicate | None:
        """What all rows with one of the keys satisfy, for pruning; None if that cannot be said."""
        found = [each for each in map(self._bounds, range(len(self.columns))) if each is not None]
        return all_of(found) if found else None

    def value_text(self, number: int) -> str:
        """A key, for messages."""
        row = int(self.first_row_of_key[number])
        values = [
            f"{name} = {column[row].as_py()!r}"
            for name, column in zip(self.columns, self._values, strict=True)
        ]
        return ", ".join(values)

    def _numbered(self, num_rows: int) -> pa.Array:
        """Number the keys of the source, and remember how."""
        numbers: pa.Array = pa.nulls(num_rows, pa.int32())
        for place, column in enumerate(self._values):
            values = pc.unique(column).drop_null()
            found = pc.index_in(column, value_set=values)
            if place == 0:
                self._steps.append(_Step(values, None))
                numbers = found
                continue
            products = _products(numbers, found, values)
            step = _Step(values, pc.unique(products).drop_null())
            self._steps.append(step)
            numbers = _combined(numbers, found, step)
        return numbers

    def _bounds(self, place: int) -> BoundPredicate | None:
        name, values = self.columns[place], self._steps[place].values
        data_type = values.type
        if pa.types.is_floating(data_type) or getattr(data_type, "unit", None) == "ns":
            return None  # NaN is not in a range, and Python has no nanoseconds
        predicate: Predicate
        if len(values) <= _MAX_LISTED:
            predicate = In(name, tuple(values.to_pylist()))
        else:
            ends = pc.min_max(values).as_py()
            low = Comparison(name, Operator.GE, ends["min"])
            predicate = low & Comparison(name, Operator.LE, ends["max"])
        try:
            return bind(predicate, self._schema)
        except InvalidPredicateError:
            return None


def _key_column(
    url: str, schema: pa.Schema, source: pa.Table, name: str, source_name: str
) -> tuple[pa.Field, pa.Array]:
    field, given = find_column(schema, name), find_column(source.schema, source_name)
    for what, column, found, names in (
        ("the table", name, field, schema.names),
        ("the source", source_name, given, source.column_names),
    ):
        if found is None:
            raise InvalidSchemaError(
                f"{url}: {what} has no key column {column!r}; its columns are {', '.join(names)}"
            )
    assert field is not None
    assert given is not None
    if pa.types.is_nested(field.type):
        raise InvalidOptionError(
            f"{url}: {name!r} is {field.type}, which cannot be a key; name plain columns"
        )
    if not converts(given.type, field.type):
        raise InvalidSchemaError(
            f"{url}: the key column {field.name!r} is {field.type}, and {given.type} in the source; cast it"
        )
    try:
        column = convert(source.column(given.name), field.type)
    except LossyConversionError as error:
        raise InvalidValueError(
            f"{url}: a key {given.name!r} of the source is no {field.type}: {error}"
        ) from error
    return field, _comparable(column)


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """The values, of which equal ones have equal bytes."""
    array = column.combine_chunks()
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    return pc.add(array, 0.0).cast(array.type) if pa.types.is_floating(array.type) else array  # -0.0 is 0.0


def _products(numbers: pa.Array, found: pa.Array, values: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(numbers.cast(pa.int64()), max(len(values), 1)), found.cast(pa.int64()))


def _combined(numbers: pa.Array, found: pa.Array, step: _Step) -> pa.Array:
    return pc.index_in(_products(numbers, found, step.values), value_set=step.combined)


def _plain(numbers: pa.Array) -> Numbers:
    return np.asarray(pc.fill_null(numbers, -1), np.int64)


def joined(rows: Sequence[Numbers]) -> Numbers:
    """Several arrays of numbers as one."""
    return np.concatenate([np.empty(0, np.int64), *rows])
