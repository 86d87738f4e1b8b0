"""DELETE: removes the rows for which a predicate or a query is true, in one commit."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import pyarrow as pa

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns, Status
from indextables.errors import InvalidOptionError
from indextables.log.actions import check_writable
from indextables.ops.row_changes import FoundRows, RowFinder, change_rows
from indextables.ops.row_counts import PARTITION_ROWS, PartitionCount, partition_counts, total_rows
from indextables.ops.search import SearchRequest
from indextables.predicates import Predicate
from indextables.table import CommitResult, Operation, Snapshot


class DeleteRequest(msgspec.Struct, frozen=True):
    """Which rows to delete: those that match both the predicate and the query.

    Attributes:
        where: A predicate; None is true for all rows.
        query: A full-text query; None matches all rows. At least one of the two is given.
        fields: The columns to search for terms without a field; all text columns if empty.
        dry_run: Whether to only count the rows.
    """

    where: Predicate | None = None
    query: str | None = None
    fields: tuple[str, ...] = ()
    dry_run: bool = False


class DeleteResult(CommitResult, frozen=True, kw_only=True):
    """What a delete did, or with `dry_run` would do. `deleted_rows` is None if a split does not record its rows."""

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, `NO_ACTION`: no row matches, or `DRY_RUN`"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        Column("deleted_rows", pa.int64(), "the rows that match; null: a split does not record its rows"),
        Column("changed_files", pa.int64(), "the splits that lose some of their rows"),
        Column("removed_files", pa.int64(), "the splits that lose all of them, and are removed"),
        Column("partitions", pa.list_(PARTITION_ROWS), "the partitions, and how many of their rows match"),
        MESSAGE,
    )

    deleted_rows: int | None = 0
    changed_files: int = 0
    removed_files: int = 0
    partitions: tuple[PartitionCount, ...] = ()
    is_dry_run: bool = False

    @property
    def status(self) -> Status:
        """NO_ACTION if no row matches."""
        return Status.DRY_RUN if self.is_dry_run else super().status

    @property
    def message(self) -> str:
        """A one-line summary."""
        rows = "rows" if self.deleted_rows is None else f"{self.deleted_rows} rows"
        if self.is_dry_run:
            return f"{rows} of {self.changed_files + self.removed_files} splits would be deleted"
        if not self.is_committed:
            return "no row matches; nothing was committed"
        return f"{rows} deleted in version {self.version}; older versions still have them until a purge"


def delete(snapshot: Snapshot, request: DeleteRequest) -> DeleteResult:
    """Delete rows in one commit. If no row matches, nothing is committed.

    A split that loses some of its rows stays, and the log records which ones (a deletion vector), or it is rewritten,
    as the setting `delete.mode` says. One that loses all of them is removed. After a concurrent commit that changed
    such a split, the rows are searched again; rows that were appended meanwhile stay.

    Raises InvalidOptionError without a predicate and a query, InvalidPredicateError, InvalidQueryError, the errors of
    unreadable splits, ProtocolUpgradeError if the table holds splits of the JVM and the settings do not allow ours, and
    the errors of `commit`.
    """
    if request.where is None and request.query is None:
        raise InvalidOptionError(
            f"{snapshot.context.url}: a delete needs `where` or `query`; to delete all rows, say where='true'"
        )
    check_writable(snapshot.protocol, snapshot.context.url)
    finder = RowFinder(SearchRequest.of(snapshot, request.query, request.where, request.fields))
    if request.dry_run:
        return _result(snapshot, None, finder.find(snapshot), is_dry_run=True)
    change = change_rows(snapshot, finder.find, lambda found: _operation(request, found))
    return _result(change.snapshot, change.result, change.found)


def _operation(request: DeleteRequest, found: Sequence[FoundRows]) -> Operation:
    parameters = {"predicate": request.where, "query": request.query}
    metrics = {"numDeletedRows": total_rows(found) or 0, "numAddedRows": 0}
    return Operation(
        "DELETE", {name: str(value) for name, value in parameters.items() if value is not None}, metrics
    )


def _result(
    snapshot: Snapshot, result: CommitResult | None, found: Sequence[FoundRows], *, is_dry_run: bool = False
) -> DeleteResult:
    removed = sum(1 for each in found if each.rows is None)
    return DeleteResult(
        snapshot,
        is_committed=result is not None and result.is_committed,
        tries=1 if result is None else result.tries,
        deleted_rows=total_rows(found),
        changed_files=len(found) - removed,
        removed_files=removed,
        partitions=partition_counts(found),
        is_dry_run=is_dry_run,
    )
