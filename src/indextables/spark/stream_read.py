"""Spark's limits for a batch of a stream, which releases before 4.2 do not have."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from indextables.errors import ObjectNotFoundError
from indextables.spark.change_feed import ChangeFeed, StoredOffset, StreamOffset
from indextables.spark.options import NO_LIMITS, ReadLimits, ReadOptions, StreamOptions, TablePlace
from indextables.spark.read import BatchReader, SplitBatch, split_batches

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
    )
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxBytes,
            ReadMaxFiles,
        )
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
    except ImportError:
        ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = None

        class AvailableNow:
            """Stands for Spark's class of this purpose: such releases find out by themselves where to stop."""


__all__ = ["AvailableNow", "is_unlimited", "read_limit"]


def read_limit(limits: ReadLimits) -> Any:
    """What Spark calls these limits. It knows one at a time; who gets it back looks at our own."""
    if limits.max_files is not None:
        return ReadMaxFiles(limits.max_files)
    if limits.max_bytes is not None:
        return ReadMaxBytes(limits.max_bytes)
    return ReadAllAvailable()


def is_unlimited(limit: object) -> bool:
    """Whether Spark asks for everything that is there."""
    return isinstance(limit, ReadAllAvailable)


# The streaming reader: a table as a stream of the rows that are added to it.
#
# One object lives beside the driver for as long as the query runs and says how far each batch goes. Others
# like it are made to be sent to the tasks.


logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, AvailableNow):
    """Reads the rows that each version adds; first, unless the options name a start, all that are there.

    Offsets are versions, and places within versions: a large one may take several batches. Every row comes once, in
    a batch that is the same whenever it is repeated. Merges are not new data; what becomes of deletes and overwrites,
    and of versions that are gone, the options say (`StreamOptions`).
    """

    def __init__(
        self, place: TablePlace, options: ReadOptions, stream_options: StreamOptions, schema: StructType
    ) -> None:
        self._rows = BatchReader(place, options, schema)
        self._options = stream_options
        snapshot = options.snapshot(place)
        self._settings = snapshot.context.settings
        self._feed: ChangeFeed | None = ChangeFeed(
            snapshot, stream_options, options.predicate(snapshot.schema)
        )
        self._last: StreamOffset | None = None

    def initialOffset(self) -> StoredOffset:  # noqa: N802  # the name is Spark's
        """Where a query begins that has no checkpoint yet. Raises VersionNotFoundError."""
        return self._followed().first(self._newest()).to_store()

    def latestOffset(  # noqa: N802  # the name is Spark's
        self, start: Mapping[str, Any] | None = None, limit: object = None
    ) -> StoredOffset:
        """How far the next batch goes. Raises RowsChangedError, VersionNotFoundError and InvalidSchemaError.

        Spark before 4.2 does not say where the batch starts: it goes as far as possible then, whatever the limits.
        """
        newest = self._newest()
        if start is None:
            return newest.to_store()
        limits = NO_LIMITS if is_unlimited(limit) else self._options.limits
        return self._followed().end_of_batch(StreamOffset.stored(start), newest, limits).to_store()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  # the name is Spark's
        """What Spark hands back to `latestOffset`, unless its trigger wants everything at once."""
        return read_limit(self._options.limits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # the name is Spark's
        """Read no further than to the newest version of this moment."""
        self._last = self._followed().newest()

    def reportLatestOffset(self) -> StoredOffset:  # noqa: N802  # the name is Spark's
        """The newest place, for the query's progress."""
        return self._followed().newest().to_store()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch: the splits between two offsets, packed by size."""
        files = self._followed().files(StreamOffset.stored(start), StreamOffset.stored(end))
        return split_batches(files, self._settings)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. A split that a purge has deleted is an error, unless data may be lost."""
        if self._options.fails_on_data_loss or not isinstance(partition, SplitBatch):
            yield from self._rows.read(partition)
            return
        for ref in partition.refs:
            try:
                yield from self._rows.read(SplitBatch((ref,)))
            except ObjectNotFoundError as error:
                logger.warning("the stream goes on without a split that is gone: %s", error)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feed": None, "_last": None}

    def _newest(self) -> StreamOffset:
        return self._last or self._followed().newest()

    def _followed(self) -> ChangeFeed:
        assert self._feed is not None  # there is one where queries are planned
        return self._feed
