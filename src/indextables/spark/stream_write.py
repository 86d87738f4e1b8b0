"""The stream writer: every batch of a query becomes one version, exactly once.

The life of a batch: the tasks upload splits that no version refers to yet, and report the query they run for. The
commit adds the splits with a `txn` action that records the query and the batch id. If Spark stops before it records the
batch as done, it repeats the batch; the commit then finds the `txn` action in the table and drops the batch.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from indextables.errors import SparkUnavailableError
from indextables.log.actions import TransactionAction
from indextables.spark.options import TablePlace
from indextables.spark.releases import DataSourceStreamArrowWriter, WriterCommitMessage
from indextables.spark.write import Job, Replacement, SplitsWritten, TableWriter, WriteTarget

# The task properties with the query id and the batch id.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class BatchWritten(WriterCommitMessage, msgspec.Struct, frozen=True):
    """The splits that one task uploaded, with the query id, which survives restarts."""

    query_id: str
    target: WriteTarget
    splits: SplitsWritten
    job: Job


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the batches of a query, or overwrites with a replacement (complete mode).

    Spark pickles one instance to the tasks, and creates a new one for each commit.
    """

    def __init__(
        self, place: TablePlace, target: WriteTarget, replacement: Replacement | None, job: Job
    ) -> None:
        self._place = place
        self._target = target
        self._replacement = replacement
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        """Upload the rows of a task as splits. A failed task deletes what it uploaded."""
        task = TaskContext.get()
        query_id = None if task is None else task.getLocalProperty(_QUERY_ID)
        if task is None or not query_id:
            raise SparkUnavailableError(
                f"{self._place.url}: this Spark release does not pass the query id to its tasks, so a batch cannot be "
                f"written exactly once; write with foreachBatch"
            )
        batch_id = task.getLocalProperty(_BATCH_ID)
        # Each batch has its own name prefix, so cleanup never touches the splits of another batch.
        job = self._job.of_batch(batch_id) if batch_id else Job.new()
        splits = TableWriter(self._place, self._target, self._replacement, job=job).write(iterator)
        return BatchWritten(query_id, self._target, splits, job)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Add the splits of a batch in one transaction, or delete them if the batch was committed before.

        In append mode an empty batch is not recorded. Raises what `table.commit` raises; after an error Spark stops the
        query, and repeats the batch when the query restarts.
        """
        written = _batches_written(messages)
        if not written:
            return
        first = written[0]
        now_ms = self._place.store().clock.now_ms()
        transaction = TransactionAction(app_id=first.query_id, version=batchId, last_updated=now_ms)
        writer = TableWriter(self._place, first.target, self._replacement, transaction, first.job)
        writer.commit([message.splits for message in written])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Delete the uploads of a failed batch. A failed commit has already deleted what is safe to delete."""
        del batchId
        written = _batches_written(messages)
        if written:
            writer = TableWriter(self._place, written[0].target, self._replacement, job=written[0].job)
            writer.abort(
                [message.splits if isinstance(message, BatchWritten) else None for message in messages]
            )


def _batches_written(messages: list[WriterCommitMessage | None]) -> list[BatchWritten]:
    return [message for message in messages if isinstance(message, BatchWritten)]
