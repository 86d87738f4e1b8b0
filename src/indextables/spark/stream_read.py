"""The stream reader: a table as a stream of the rows that are added to it.

One instance lives beside the driver for as long as the query runs, and decides how far each batch goes. Other instances
are pickled to the tasks.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.types import StructType

from indextables.errors import IndexTablesError, ObjectNotFoundError
from indextables.spark.change_feed import ChangeFeed, StoredOffset, StreamOffset
from indextables.spark.options import NO_LIMITS, ReadLimits, ReadOptions, StreamOptions, TablePlace
from indextables.spark.read import BatchReader, SplitBatch, split_batches
from indextables.spark.releases import (
    AvailableNow,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
)

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, AvailableNow):
    """Reads the rows that each version adds, after all existing rows unless the options name a start.

    An offset is a version and a position within it: a large version may take several batches. Every row is read once,
    and a repeated batch has the same rows. Merges add no data. `StreamOptions` decides what happens at deletes,
    overwrites and missing versions.
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
        self._stop_at: StreamOffset | None = None

    def initialOffset(self) -> StoredOffset:  # noqa: N802  # the name is Spark's
        """Where a query without a checkpoint begins. Raises VersionNotFoundError."""
        return self._change_feed().first(self._newest()).to_json()

    def latestOffset(  # noqa: N802  # the name is Spark's
        self, start: Mapping[str, Any] | None = None, limit: object = None
    ) -> StoredOffset:
        """Where the next batch ends. Raises RowsChangedError, VersionNotFoundError and InvalidSchemaError.

        Spark before 4.2 does not pass the start of the batch: the batch then goes up to the newest version, without
        limits.
        """
        newest = self._newest()
        if start is None:
            return newest.to_json()
        limits = NO_LIMITS if _is_unlimited(limit) else self._options.limits
        return self._change_feed().end_of_batch(StreamOffset.from_json(start), newest, limits).to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  # the name is Spark's
        """The limit that Spark passes to `latestOffset`, unless the trigger reads everything at once."""
        return _spark_limit(self._options.limits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # the name is Spark's
        """Stop at the version that is the newest now."""
        self._stop_at = self._change_feed().newest()

    def reportLatestOffset(self) -> StoredOffset:  # noqa: N802  # the name is Spark's
        """The newest offset, for the query's progress."""
        return self._change_feed().newest().to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch: the splits between two offsets, packed by size."""
        files = self._change_feed().files(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return split_batches(files, self._settings)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. A split deleted by PURGE raises an error, unless failOnDataLoss is false."""
        if self._options.fails_on_data_loss or not isinstance(partition, SplitBatch):
            yield from self._rows.read(partition)
            return
        for ref in partition.refs:
            try:
                yield from self._rows.read(SplitBatch((ref,)))
            except ObjectNotFoundError as error:
                logger.warning("skipping a split that no longer exists (failOnDataLoss=false): %s", error)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feed": None, "_stop_at": None}

    def _newest(self) -> StreamOffset:
        return self._stop_at or self._change_feed().newest()

    def _change_feed(self) -> ChangeFeed:
        assert self._feed is not None  # only tasks have none
        return self._feed


class FailedStream(DataSourceStreamReader):
    """A stream reader whose methods all raise the error that prevented its creation.

    Spark loses an error raised by `streamReader` itself: it then tries to stop a reader that does not exist, and
    reports that failure instead. A new query first asks for the initial offset; a query with a checkpoint asks for the
    latest offset, or for the partitions of the batch that it repeats.
    """

    def __init__(self, error: IndexTablesError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802  # the name is Spark's
        """Raise the error."""
        raise self._error

    def latestOffset(self) -> NoReturn:  # type: ignore[override]  # noqa: N802  # the name is Spark's
        """Raise the error. With other parameters Spark would first ask for the default read limit."""
        raise self._error

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> NoReturn:
        """Raise the error."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error."""
        del partition
        raise self._error


def _spark_limit(limits: ReadLimits) -> Any:
    """Convert limits for Spark, which supports one at a time; `latestOffset` applies ours instead."""
    if limits.max_files is not None:
        return ReadMaxFiles(limits.max_files)
    if limits.max_bytes is not None:
        return ReadMaxBytes(limits.max_bytes)
    return ReadAllAvailable()


def _is_unlimited(limit: object) -> bool:
    """Whether Spark requests all available data."""
    return isinstance(limit, ReadAllAvailable)
