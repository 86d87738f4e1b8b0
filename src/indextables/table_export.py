"""`TableExport`: an `IndexTable` as other libraries of Python see it: pandas, Polars, DuckDB, Arrow and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from indextables._public import public_methods
from indextables.errors import MissingExtraError
from indextables.notebooks import html_of_table
from indextables.predicates import Predicate
from indextables.table_reader import TableReader

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@public_methods
class TableExport(TableReader):
    """A table whose rows other libraries can take as they are."""

    def to_pandas(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Read the rows for which a predicate is true into a pandas DataFrame.

        Integers and booleans with nulls get pandas' own nullable types, so no integer becomes a rounded float.

        Args:
            where: A predicate in SQL; all rows by default.
            columns: The columns to return; all by default.

        Returns:
            The rows.

        Raises:
            InvalidPredicateError: `where` is not a predicate over columns of the table.
            InvalidSchemaError: A column does not exist.
            MissingExtraError: pandas is not installed.

        Example:
            >>> table.to_pandas(where="level = 'ERROR'")["message"].tolist()
            ['connection timeout', 'request timeout']
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("to_pandas needs pandas; run: pip install pandas") from error
        rows = self.to_arrow(where, columns)
        frame: pd.DataFrame = rows.to_pandas()
        nullable = {
            **{pa.type_for_alias(f"int{bits}"): getattr(pd, f"Int{bits}Dtype")() for bits in (8, 16, 32, 64)},
            pa.bool_(): pd.BooleanDtype(),
        }
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if column.null_count and column.type in nullable:
                frame[name] = column.to_pandas(types_mapper=nullable.get)
        return frame

    def to_polars(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """Read the rows for which a predicate is true into a Polars DataFrame.

        Args:
            where: A predicate in SQL; all rows by default.
            columns: The columns to return; all by default.

        Returns:
            The rows.

        Raises:
            InvalidPredicateError: `where` is not a predicate over columns of the table.
            InvalidSchemaError: A column does not exist.
            MissingExtraError: Polars is not installed.

        Example:
            >>> table.to_polars(columns=["level"])["level"].n_unique()
            2
        """
        try:
            import polars as pl
        except ImportError as error:
            raise MissingExtraError("to_polars needs Polars; run: pip install polars") from error
        return pl.DataFrame(self.scan(where, columns))

    def __arrow_c_schema__(self) -> object:
        """Return the schema for the Arrow PyCapsule interface. No row is read."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream all rows through the Arrow PyCapsule interface: `duckdb.sql("from logs")`, `pl.DataFrame(logs)`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        """Return the number of rows. The log alone answers, unless a split does not record its rows."""
        return self.count()

    def __bool__(self) -> bool:
        """Return True: a table without rows is still a table."""
        return True

    def _repr_html_(self) -> str:
        return html_of_table(self._snapshot)
