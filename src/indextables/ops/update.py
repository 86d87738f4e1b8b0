"""UPDATE: sets columns of the rows for which a predicate or a query is true, in one commit.

The rows are deleted where they are, and written with their new values to new splits.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns, Status
from indextables.errors import InvalidOptionError
from indextables.log.actions import check_writable
from indextables.ops.expressions import Assignments
from indextables.ops.row_changes import FoundRows, NewRows, RowFinder, change_rows, rows_at
from indextables.ops.row_counts import PARTITION_ROWS, PartitionCount, partition_counts, total_rows
from indextables.ops.search import SearchRequest
from indextables.ops.write import write_splits
from indextables.predicates import Predicate
from indextables.table import CommitResult, Operation, Snapshot

# What expressions may call the rows.
_ROWS: Final = "target"


class UpdateRequest(msgspec.Struct, frozen=True):
    """Which rows to update, and how.

    Attributes:
        values: The new value of each column, or an `Expression` for it.
        where: A predicate; None is true for all rows.
        query: A full-text query; None matches all rows. At least one of the two is given.
        fields: The columns to search for terms without a field; all text columns if empty.
        dry_run: Whether to only count the rows.
    """

    values: Mapping[str, Any]
    where: Predicate | None = None
    query: str | None = None
    fields: tuple[str, ...] = ()
    dry_run: bool = False


class UpdateResult(CommitResult, frozen=True, kw_only=True):
    """What an update did, or with `dry_run` would do."""

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, `NO_ACTION`: no row matches, or `DRY_RUN`"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        Column("updated_rows", pa.int64(), "the rows that match; null: a split does not record its rows"),
        Column("partitions", pa.list_(PARTITION_ROWS), "the partitions, and how many of their rows match"),
        MESSAGE,
    )

    updated_rows: int | None = 0
    partitions: tuple[PartitionCount, ...] = ()
    is_dry_run: bool = False

    @property
    def status(self) -> Status:
        """NO_ACTION if no row matches."""
        return Status.DRY_RUN if self.is_dry_run else super().status

    @property
    def message(self) -> str:
        """A one-line summary."""
        rows = "rows" if self.updated_rows is None else f"{self.updated_rows} rows"
        if self.is_dry_run:
            return f"{rows} would be updated"
        if not self.is_committed:
            return "no row matches; nothing was committed"
        return f"{rows} updated in version {self.version}"


def update(snapshot: Snapshot, request: UpdateRequest) -> UpdateResult:
    """Set columns of rows in one commit. If no row matches, nothing is committed.

    Concurrent commits are handled as by `delete`. Raises InvalidOptionError without values, or without a predicate and
    a query, InvalidSchemaError for a column that does not exist, InvalidValueError for a value that does not fit,
    InvalidExpressionError for an expression that cannot be evaluated, and what `delete` raises.
    """
    url = snapshot.context.url
    if request.where is None and request.query is None:
        raise InvalidOptionError(f"{url}: an update needs `where` or `query`; for all rows, say where='true'")
    check_writable(snapshot.protocol, url)
    assignments = Assignments(snapshot, request.values, {_ROWS: snapshot.schema})
    finder = RowFinder(SearchRequest.of(snapshot, request.query, request.where, request.fields))
    if request.dry_run:
        return _result(snapshot, None, finder.find(snapshot), is_dry_run=True)
    change = change_rows(
        snapshot, finder.find, partial(_operation, request), partial(_write_updated, assignments=assignments)
    )
    return _result(change.snapshot, change.result, change.found)


def _write_updated(snapshot: Snapshot, found: Sequence[FoundRows], *, assignments: Assignments) -> NewRows:
    if not found:
        return NewRows()
    batches = _updated(snapshot, found, assignments)
    return NewRows(write_splits(snapshot, pa.RecordBatchReader.from_batches(snapshot.schema, batches)))


def _updated(
    snapshot: Snapshot, found: Sequence[FoundRows], assignments: Assignments
) -> Iterator[pa.RecordBatch]:
    """The found rows with their new values."""
    for each in found:
        for rows in rows_at(snapshot, each):
            values = assignments.values(rows.num_rows, {_ROWS: rows})
            columns = [values.get(name, rows.column(name)) for name in snapshot.schema.names]
            yield from pa.Table.from_arrays(columns, schema=snapshot.schema).to_batches()


def _operation(request: UpdateRequest, found: Sequence[FoundRows]) -> Operation:
    parameters = {"predicate": request.where, "query": request.query}
    given = {name: str(value) for name, value in parameters.items() if value is not None}
    metrics = {"numUpdatedRows": total_rows(found) or 0}
    return Operation("UPDATE", {**given, "columns": ", ".join(sorted(request.values))}, metrics)


def _result(
    snapshot: Snapshot, result: CommitResult | None, found: Sequence[FoundRows], *, is_dry_run: bool = False
) -> UpdateResult:
    return UpdateResult(
        snapshot,
        is_committed=result is not None and result.is_committed,
        tries=1 if result is None else result.tries,
        updated_rows=total_rows(found),
        partitions=partition_counts(found),
        is_dry_run=is_dry_run,
    )
