"""Streaming queries on a machine that may be busy.

Spark starts a Python process for the source and another one for the sink of a query, and gives each ten seconds to
connect, which no setting changes. A query that fails for this reason is started again, as a user would do: it goes on
from its checkpoint.
"""

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from support import PATIENCE_SECONDS

_TOO_SLOW = "Python worker failed to connect back"
_MAX_STARTS = 10


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
            if _TOO_SLOW not in str(error) or starts == _MAX_STARTS:
                raise
        else:
            return query
