"""The methods of `IndexTable` that delete, update and merge rows, and what its other methods that commit share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indextables import ops
from indextables._public import public_methods
from indextables.errors import ReadOnlyTableError
from indextables.predicates import Predicate
from indextables.schema.python_data import as_reader
from indextables.table import Snapshot
from indextables.table.load import catch_up
from indextables.table_export import TableExport
from indextables.table_reader import as_predicate

if TYPE_CHECKING:
    from indextables.ops.expressions import Expression


@public_methods
class TableWriter(TableExport):
    """A table that can be changed, unless it was opened at an older version."""

    def delete(
        self,
        where: str | Predicate | None = None,
        query: str | None = None,
        fields: Sequence[str] = (),
    ) -> int:
        """Delete the rows for which a predicate and a full-text query are true, in one commit.

        Older versions still have the rows, and `restore` brings them back, until `purge` deletes these versions.

        Args:
            where: A predicate in SQL, such as "level = 'DEBUG'". To delete all rows, say "true".
            query: A full-text query, as for `search`.
            fields: The columns to search for terms without a field.

        Returns:
            The version of the commit, or the newest version if no row matches.

        Raises:
            InvalidOptionError: Neither `where` nor `query` is given.
            InvalidPredicateError: `where` is not a predicate over columns of the table.
            InvalidQueryError: The query cannot be parsed, or does not fit the table.
            ProtocolUpgradeError: The table holds splits of the JVM, and the settings do not allow it to be converted.
            CommitConflictError: Other commits changed the same splits again and again, or the table's schema.

        Example:
            >>> table.delete(where="level = 'INFO'", query="timeout")
            2
        """
        request = ops.delete.DeleteRequest(as_predicate(where), query, tuple(fields))
        return self._after(ops.delete.delete(self._writable(), request).snapshot)

    def update(
        self,
        set: Mapping[str, Any],  # noqa: A002  # as in SQL
        where: str | Predicate | None = None,
        query: str | None = None,
        fields: Sequence[str] = (),
    ) -> int:
        """Set columns of the rows for which a predicate and a full-text query are true, in one commit.

        Args:
            set: The new value of each column, or an expression for it, such as `expr("price * 1.1")`.
            where: A predicate in SQL. To update all rows, say "true".
            query: A full-text query, as for `search`.
            fields: The columns to search for terms without a field.

        Returns:
            The version of the commit, or the newest version if no row matches.

        Raises:
            InvalidOptionError: There is nothing to set, or neither `where` nor `query` is given.
            InvalidSchemaError: A column does not exist.
            InvalidValueError: A value does not fit its column.
            InvalidExpressionError: An expression cannot be evaluated.
            CommitConflictError: Other commits changed the same splits again and again, or the table's schema.

        Example:
            >>> table.update({"level": "WARN"}, where="level = 'INFO'")
            3
        """
        request = ops.update.UpdateRequest(dict(set), as_predicate(where), query, tuple(fields))
        return self._after(ops.update.update(self._writable(), request).snapshot)

    def merge(
        self,
        source: Any,
        on: str | Sequence[str] | Mapping[str, str],
        *,
        when_matched_update: bool | Mapping[str, Any] | None = None,
        when_matched_delete: bool | str | Expression = False,
        when_not_matched_insert: bool | str | Expression | Mapping[str, Any] = True,
    ) -> int:
        """Update the rows of the table that have the key of a row of a source, and insert the other rows (upsert).

        All in one commit. Without more arguments, every matched row takes the values of the source, and the other rows
        of the source are inserted. Two upserts of the same key never both insert it. A null in a key equals nothing, so
        such rows of the source are inserted.

        Args:
            source: The rows, as any kind of data that `append` takes. They are held in memory.
            on: The key columns; a mapping if they have other names in the source: `{"id": "customer_id"}`.
            when_matched_update: What a matched row becomes: True takes the values of the source's columns, a mapping
                sets columns to values or expressions, such as `{"n": expr("target.n + source.n")}`, False leaves the
                row. The default is True, or False if `when_matched_delete` is True.
            when_matched_delete: Delete matched rows instead: all of them, or those for which a SQL condition over
                `target` and `source` is true.
            when_not_matched_insert: Whether to insert the other rows of the source: all of them, or those for which a
                SQL condition over `source` is true. A mapping sets columns to values or expressions over `source`.

        Returns:
            The version of the commit, or the newest version if there is nothing to change.

        Raises:
            InvalidOptionError: There are no keys, or the arguments contradict each other.
            InvalidSchemaError: A column does not exist, or does not fit the table.
            InvalidValueError: Several rows of the source match the same row, or a value does not fit its column.
            InvalidExpressionError: An expression cannot be evaluated.
            CommitConflictError: Other commits changed the same splits again and again, or the table's schema.

        Example:
            >>> rows = pa.table({"date": ["2026-01-31"], "level": ["INFO"], "message": ["disk full"]})
            >>> table.merge(rows, on=["date", "level"])
            3
        """
        request = ops.upsert.UpsertRequest(
            as_reader(source).read_all(),
            ops.upsert_clauses.key_columns(on),
            ops.upsert_clauses.when_matched(when_matched_update, when_matched_delete),
            ops.upsert_clauses.when_not_matched(when_not_matched_insert),
        )
        return self._after(ops.upsert.upsert(self._writable(), request).snapshot)

    def _bind(self, snapshot: Snapshot, *, is_pinned: bool) -> None:
        self._snapshot = snapshot
        self._is_pinned = is_pinned

    def _writable(self) -> Snapshot:
        if self._is_pinned:
            raise ReadOnlyTableError(
                f"{self._snapshot.context.url}: this table was opened at version {self.version} and can only be read; "
                f"call refresh(), or open it without a version"
            )
        return self._snapshot

    def _newest(self) -> Snapshot:
        """The newest snapshot, for operations that plan on it. The object itself stays at its version."""
        self._writable()
        return catch_up(self._snapshot).snapshot

    def _after(self, snapshot: Snapshot) -> int:
        self._bind(snapshot, is_pinned=False)
        return snapshot.version
