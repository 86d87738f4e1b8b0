"""The streaming sink: every batch of a query becomes one version, exactly once.

The life of a batch: the tasks upload splits that nobody refers to yet and say which query they run for; the commit
adds them together with a `txn` action, which records the query and the number of the batch. A batch that Spark
repeats, because it stopped before it could note down that it was done, finds itself in the table and is dropped.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from indextables.errors import SparkUnavailableError
from indextables.log.actions import TransactionAction
from indextables.spark.options import TablePlace
from indextables.spark.write import Job, Replacement, SplitsWritten, TableWriter, WriteTarget

# The properties of a task under which Spark says which query, and which of its batches, it runs for.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class BatchWritten(WriterCommitMessage, msgspec.Struct, frozen=True):
    """What one task uploaded, for which table, and on behalf of which query: the same after every restart."""

    query_id: str
    target: WriteTarget
    splits: SplitsWritten
    job: Job


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a query: appends, or with a replacement (complete mode) overwrites.

    Spark makes one to be sent to the tasks, and a new one for each commit.
    """

    def __init__(
        self, place: TablePlace, target: WriteTarget, replacement: Replacement | None, job: Job
    ) -> None:
        self._place = place
        self._target = target
        self._replacement = replacement
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        """Upload the rows of a task as splits. After a failure none of them is left."""
        task = TaskContext.get()
        query_id = None if task is None else task.getLocalProperty(_QUERY_ID)
        if task is None or not query_id:
            raise SparkUnavailableError(
                f"{self._place.url}: this release of Spark does not tell its tasks which query they belong to, so that "
                f"no batch could be written exactly once; write with foreachBatch"
            )
        batch_id = task.getLocalProperty(_BATCH_ID)
        # The splits of other batches are not to be taken for those of this one.
        job = self._job.of_batch(batch_id) if batch_id else Job.new()
        splits = TableWriter(self._place, self._target, self._replacement, job=job).write(iterator)
        return BatchWritten(query_id, self._target, splits, job)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Add the splits of a batch in one transaction, unless that was done before: then they are deleted.

        A batch without rows is not recorded in append mode. Raises what `table.commit` raises; after any error Spark
        stops the query, and repeats the batch when it is started again.
        """
        written = _known(messages)
        if not written:
            return
        first = written[0]
        now_ms = self._place.store().clock.now_ms()
        transaction = TransactionAction(app_id=first.query_id, version=batchId, last_updated=now_ms)
        writer = TableWriter(self._place, first.target, self._replacement, transaction, first.job)
        writer.commit([message.splits for message in written])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Delete what the tasks of a failed batch uploaded; after a failed commit only that one knows what may go."""
        del batchId
        written = _known(messages)
        if written:
            writer = TableWriter(self._place, written[0].target, self._replacement, job=written[0].job)
            writer.abort(
                [message.splits if isinstance(message, BatchWritten) else None for message in messages]
            )


def _known(messages: list[WriterCommitMessage | None]) -> list[BatchWritten]:
    return [message for message in messages if isinstance(message, BatchWritten)]
