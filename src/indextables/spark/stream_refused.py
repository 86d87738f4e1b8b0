"""A stream that cannot be read, and says why where Spark listens."""

from collections.abc import Mapping
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from indextables.errors import IndexTablesError


class RefusedStream(DataSourceStreamReader):
    """Raises an error as soon as Spark asks it for anything.

    An error of the method that makes a reader gets lost: Spark goes on to stop the reader that it does not have, and
    reports that instead. A new query asks for the first offset, one with a checkpoint for the newest one, or for the
    tasks of the batch that it has to repeat.
    """

    def __init__(self, error: IndexTablesError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802  # the name is Spark's
        """Raise the error."""
        raise self._error

    def latestOffset(self) -> NoReturn:  # type: ignore[override]  # noqa: N802  # the name is Spark's
        """Raise the error. Spark tells readers with another signature about limits, and asks for theirs first."""
        raise self._error

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> NoReturn:
        """Raise the error."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error."""
        del partition
        raise self._error
