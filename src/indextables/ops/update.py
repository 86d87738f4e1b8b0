"""UPDATE: sets columns of the rows for which a predicate or a query is true, in one commit.

The rows are deleted where they are, and written with their new values to new splits.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns
from indextables.errors import (
    InvalidOptionError,
    InvalidSchemaError,
    InvalidValueError,
    UnsupportedSplitError,
)
from indextables.log.actions import check_writable
from indextables.ops.read import open_again
from indextables.ops.row_changes import FoundRows, NewRows, RowFinder, change_rows
from indextables.ops.search import SearchRequest
from indextables.ops.write import write_splits
from indextables.predicates import Predicate
from indextables.schema import find_column
from indextables.table import CommitResult, Operation, Snapshot

# The rows that are read at a time.
_ROWS_AT_A_TIME: Final = 65_536


class UpdateRequest(msgspec.Struct, frozen=True):
    """Which rows to update, and how.

    Attributes:
        values: The new value of each column.
        where: A predicate; None is true for all rows.
        query: A full-text query; None matches all rows. At least one of the two is given.
        fields: The columns to search for terms without a field; all text columns if empty.
    """

    values: Mapping[str, Any]
    where: Predicate | None = None
    query: str | None = None
    fields: tuple[str, ...] = ()


class UpdateResult(CommitResult, frozen=True, kw_only=True):
    """What an update did."""

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: no row matches"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        Column("updated_rows", pa.int64(), "the rows that match"),
        MESSAGE,
    )

    updated_rows: int = 0

    @property
    def message(self) -> str:
        """A one-line summary."""
        if not self.is_committed:
            return "no row matches; nothing was committed"
        return f"{self.updated_rows} rows updated in version {self.version}"


def update(snapshot: Snapshot, request: UpdateRequest) -> UpdateResult:
    """Set columns of rows in one commit. If no row matches, nothing is committed.

    Concurrent commits are handled as by `delete`. Raises InvalidOptionError without values, or without a predicate and
    a query, InvalidSchemaError for a column that does not exist, InvalidValueError for a value that does not fit, and
    what `delete` raises.
    """
    url = snapshot.context.url
    if request.where is None and request.query is None:
        raise InvalidOptionError(f"{url}: an update needs `where` or `query`; for all rows, say where='true'")
    check_writable(snapshot.protocol, url)
    values = _typed_values(snapshot, request.values)
    finder = RowFinder(SearchRequest.of(snapshot, request.query, request.where, request.fields))
    change = change_rows(
        snapshot, finder.find, partial(_operation, request), partial(_write_updated, values=values)
    )
    return UpdateResult(
        change.snapshot,
        is_committed=change.result is not None and change.result.is_committed,
        tries=1 if change.result is None else change.result.tries,
        updated_rows=sum(file.num_records for file in change.new.files),
    )


def _typed_values(snapshot: Snapshot, values: Mapping[str, Any]) -> dict[str, pa.Scalar]:
    """The new values by the table's spelling of their columns."""
    url = snapshot.context.url
    if not values:
        raise InvalidOptionError(f"{url}: an update needs at least one column to set")
    typed: dict[str, pa.Scalar] = {}
    for name, value in values.items():
        field = find_column(snapshot.schema, name)
        if field is None:
            raise InvalidSchemaError(
                f"{url}: there is no column {name!r}; the columns are {', '.join(snapshot.schema.names)}"
            )
        if field.name in typed:
            raise InvalidOptionError(f"{url}: column {field.name!r} is set twice; name it once")
        if value is None and not field.nullable:
            raise InvalidValueError(f"{url}: column {field.name!r} cannot be null")
        try:
            typed[field.name] = pa.scalar(value, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidValueError(
                f"{url}: column {field.name!r} is {field.type} and cannot be {value!r}: {error}"
            ) from error
    return typed


def _write_updated(
    snapshot: Snapshot, found: Sequence[FoundRows], *, values: Mapping[str, pa.Scalar]
) -> NewRows:
    if not found:
        return NewRows()
    batches = _updated(snapshot, found, values)
    return NewRows(write_splits(snapshot, pa.RecordBatchReader.from_batches(snapshot.schema, batches)))


def _updated(
    snapshot: Snapshot, found: Sequence[FoundRows], values: Mapping[str, pa.Scalar]
) -> Iterator[pa.RecordBatch]:
    """The found rows with their new values."""
    for batch in _found_rows(snapshot, found):
        columns = [
            pa.repeat(values[field.name], batch.num_rows)
            if field.name in values
            else batch.column(field.name)
            for field in snapshot.schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=snapshot.schema)


def _found_rows(snapshot: Snapshot, found: Sequence[FoundRows]) -> Iterator[pa.RecordBatch]:
    for each in found:
        split = open_again(snapshot, each.ref)
        if split.unreadable_columns:
            raise UnsupportedSplitError(
                f"{snapshot.context.url}: {split.path} has columns that are indexed but not stored "
                f"({', '.join(split.unreadable_columns)}); an update would lose them"
            )
        if each.rows is None:
            yield from split.scan()
            continue
        for start in range(0, len(each.rows), _ROWS_AT_A_TIME):
            yield from split.take(each.rows[start : start + _ROWS_AT_A_TIME]).to_batches()


def _operation(request: UpdateRequest, _: Sequence[FoundRows]) -> Operation:
    parameters = {"predicate": request.where, "query": request.query}
    given = {name: str(value) for name, value in parameters.items() if value is not None}
    return Operation("UPDATE", {**given, "columns": ", ".join(sorted(request.values))})
