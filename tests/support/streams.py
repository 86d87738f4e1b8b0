"""Streaming queries on a machine that may be busy.

A query that the machine kept from connecting to its Python processes is started again, as a user would do: it goes on
from its checkpoint.
"""

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from support import MAX_STREAM_STARTS, PATIENCE_SECONDS, STREAM_TOO_SLOW


def completed(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, wait for its end, and return it."""

    def wait(query: StreamingQuery) -> None:
        assert query.awaitTermination(PATIENCE_SECONDS)

    return _started(start, wait)


def caught_up(start: Callable[[], StreamingQuery]) -> None:
    """Start a query, wait until it has processed everything, and stop it."""
    _started(start, StreamingQuery.processAllAvailable).stop()


def _started(start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], None]) -> StreamingQuery:
    starts = 0
    while True:
        starts += 1
        query = start()
        try:
            wait(query)
        except StreamingQueryException as error:
            query.stop()
            if STREAM_TOO_SLOW not in str(error) or starts == MAX_STREAM_STARTS:
                raise
        else:
            return query
