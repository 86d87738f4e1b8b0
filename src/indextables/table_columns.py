"""The methods of `IndexTable` that change its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from indextables import ops
from indextables._public import public_methods
from indextables.table_writer import TableWriter

if TYPE_CHECKING:
    import pyarrow as pa


@public_methods
class TableSchemaWriter(TableWriter):
    """A table whose columns can be changed. Splits that are there are never rewritten for it."""

    def add_column(
        self,
        name: str | Sequence[str],
        type: pa.DataType | str,  # noqa: A002  # as in the other methods, and in SQL
        default: Any = None,
        *,
        comment: str | None = None,
        position: str | None = None,
    ) -> int:
        """Add a nullable column, or a member of a struct.

        Args:
            name: Its name; for a member, the path with dots, such as "address.zip", or the names one by one.
            type: An Arrow type, or the name of a type in SQL, such as "bigint".
            default: The value of the column in the rows that are there; null by default. Rows that are written later
                without the column have null.
            comment: A comment, which Spark shows as well.
            position: "first", or "after" and a column; last by default.

        Returns:
            The version of the commit.

        Raises:
            InvalidSchemaError: There is such a column already, or tables do not have the type.
            InvalidValueError: The default does not fit the type, or the log cannot record it.
            CommitConflictError: Another commit added the same column.

        Example:
            >>> table.add_column("status", "int", default=200, position="after level")
            3
            >>> table.count(where="status = 200") == table.num_rows
            True
        """
        snapshot = self._newest()
        change = ops.columns.add_column(snapshot, name, type, default, comment, position)
        return self._after(ops.columns.change_columns(snapshot, [change]).snapshot)

    def drop_column(self, name: str | Sequence[str]) -> int:
        """Drop a column, or a member of a struct. Older versions still have it.

        Args:
            name: Its name or path, as for `add_column`.

        Returns:
            The version of the commit.

        Raises:
            InvalidSchemaError: There is no such column, or it is a partition column.
            CommitConflictError: Another commit changed the same column.

        Example:
            >>> table.drop_column("level")
            3
        """
        snapshot = self._newest()
        change = ops.columns.drop_column(snapshot, name)
        return self._after(ops.columns.change_columns(snapshot, [change]).snapshot)

    def rename_column(self, name: str | Sequence[str], new_name: str) -> int:
        """Rename a column, or a member of a struct. Its index settings follow.

        Args:
            name: Its name or path, as for `add_column`.
            new_name: The new name; of a member, without the path.

        Returns:
            The version of the commit.

        Raises:
            InvalidSchemaError: There is no such column, it is a partition column, or the new name is taken.
            CommitConflictError: Another commit changed the same column.

        Example:
            >>> table.rename_column("level", "severity")
            3
        """
        snapshot = self._newest()
        change = ops.columns.rename_column(snapshot, name, new_name)
        return self._after(ops.columns.change_columns(snapshot, [change]).snapshot)

    def alter_column(
        self,
        name: str | Sequence[str],
        type: pa.DataType | str | None = None,  # noqa: A002  # as in `add_column`
        *,
        nullable: bool | None = None,
        comment: str | None = None,
        position: str | None = None,
    ) -> int:
        """Change what is given of a column, or of a member of a struct.

        Args:
            name: Its name or path, as for `add_column`.
            type: A wider type: a longer integer, a double for a float or an integer, a decimal with as many digits,
                a timestamp for a date.
            nullable: True allows nulls.
            comment: A comment; "" removes it.
            position: "first", or "after" and a column.

        Returns:
            The version of the commit, or the newest version if nothing differs.

        Raises:
            InvalidSchemaError: There is no such column, its values do not all fit the type, or it is a partition
                column, which keeps its type.
            CommitConflictError: Another commit changed the same column.

        Example:
            >>> table.alter_column("level", comment="as the logger has it", position="first")
            3
        """
        snapshot = self._newest()
        change = ops.columns.alter_column(snapshot, name, type, nullable, comment, position)
        return self._after(ops.columns.change_columns(snapshot, [change]).snapshot)
