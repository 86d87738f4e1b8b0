"""The batch writer: rows to splits in the tasks, and one commit.

The life of a write: planning creates a `TableWriter` and pickles it to the tasks, which upload splits that no version
refers to yet. Their messages return to `commit`, which adds exactly the splits of these messages in one transaction.
Split names are unique, and all names of a job share a prefix. If task attempts may have run twice or been lost, the
writer lists that prefix after the commit and deletes the files of losing attempts, unless the outcome of the commit is
unknown. An attempt that uploads even later finds the commit and deletes its own splits.
"""

import logging
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from indextables.config import Settings
from indextables.config.registry import INDEX_WRITER_HEAP_SIZE, WRITE_TARGET_SPLIT_SIZE
from indextables.errors import CommitConflictError, IndexTablesError, InvalidValueError
from indextables.log.actions import TransactionAction
from indextables.log.fields import STRING_MAP
from indextables.ops.write import (
    add_of,
    are_late,
    delete_leftovers,
    delete_quietly,
    run,
    undoing_unless_landed,
)
from indextables.predicates import Comparison, IsNull, Operator, Predicate, all_of, any_of, bind
from indextables.pruning import match_partitions
from indextables.schema import TableShape
from indextables.schema.evolution import AddColumn
from indextables.spark.options import TablePlace
from indextables.spark.releases import DataSourceArrowWriter, WriterCommitMessage
from indextables.split.split import SplitFile
from indextables.split.writer import SplitWriter, WriterOptions
from indextables.table import CommitResult, Operation, Snapshot, TableContext, create_table, load_snapshot
from indextables.table.intent import Append, ChangeSchema, Intent, Overwrite

logger = logging.getLogger(__name__)

_JOB_BYTES: Final = 8


class WriteTarget(msgspec.Struct, frozen=True):
    """The table that splits are written for, as of planning.

    If the table did not exist, `table_id` is None, `version` is -1, and the commit creates it with `properties`. If the
    commit adds `new_columns`, the table has the shape `base` before it, and the schema `planned` after it.
    """

    shape: TableShape
    settings: Settings
    properties: dict[str, str]
    table_id: str | None
    version: int
    base: TableShape | None = None
    new_columns: tuple[AddColumn, ...] = ()
    planned: str = ""


class Replacement(msgspec.Struct, frozen=True):
    """What an overwrite replaces: all rows, the partitions of `where`, or (dynamic) the partitions it has rows for."""

    where: Predicate | None = None
    text: str | None = None
    is_dynamic: bool = False


class Job(msgspec.Struct, frozen=True):
    """One run of tasks; the names of all splits that they upload start with the unique `name_prefix`.

    `is_speculative` is True unless speculation is known to be off: Spark may then run two attempts of a task at once.
    """

    name_prefix: str
    is_speculative: bool = True

    @classmethod
    def new(cls, *, is_speculative: bool = True) -> "Job":
        """A job with a new name prefix."""
        return cls(f"part-{secrets.token_hex(_JOB_BYTES)}-", is_speculative)

    def of_batch(self, batch_id: str) -> "Job":
        """The job of one batch of a stream."""
        return Job(f"{self.name_prefix}{batch_id}-", self.is_speculative)


class SplitsWritten(WriterCommitMessage, msgspec.Struct, frozen=True):
    """The splits that one task uploaded.

    `attempt_id` numbers the task attempts of all jobs in start order. `attempt_number` counts the earlier attempts of
    this task.
    """

    files: tuple[SplitFile, ...]
    num_batches: int
    duration_ms: int
    attempt_id: int = 0
    attempt_number: int = 0

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]


class TableWriter(DataSourceArrowWriter):
    """Appends a DataFrame to a table, or overwrites with a replacement.

    With a `transaction`, nothing is written if the table has recorded that transaction before.
    """

    def __init__(
        self,
        place: TablePlace,
        target: WriteTarget,
        replacement: Replacement | None,
        transaction: TransactionAction | None = None,
        job: Job | None = None,
    ) -> None:
        self._place = place
        self._target = target
        self._replacement = replacement
        self._transaction = transaction
        self._job = job or Job.new()
        self._started_ms = place.store().clock.now_ms()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SplitsWritten:
        """Upload the rows of a task as splits. A failed task deletes what it uploaded.

        Raises CommitConflictError if the job was already committed with the splits of another attempt of this task.
        """
        started = time.monotonic()
        target = self._target
        options = WriterOptions(
            target_bytes=target.settings[WRITE_TARGET_SPLIT_SIZE],
            heap_bytes=target.settings[INDEX_WRITER_HEAP_SIZE],
            name_prefix=self._job.name_prefix,
        )
        num_batches = 0
        with SplitWriter(self._place.store(), target.shape, target.settings, options) as writer:
            for batch in iterator:
                writer.write(batch)
                num_batches += 1
            files = writer.commit()
        self._check_not_late([file.path for file in files])
        task = TaskContext.get()
        attempt = (0, 0) if task is None else (task.taskAttemptId(), task.attemptNumber())
        return SplitsWritten(files, num_batches, _ms_since(started), *attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add the splits of all tasks in one transaction, creating the table if it does not exist.

        Raises what `table.commit` raises. Deletes the splits if the commit provably did not land, or if the transaction
        was committed before.
        """
        written = _splits_written(messages)
        files = [file for message in written for file in message.files]
        context = self._place.context()
        snapshot = self._current_table(context, written)
        with undoing_unless_landed(partial(self._delete_all, context, written)):
            intent = self._intent(snapshot, files)
            result = run(snapshot, intent, self._operation(context, written), files)
        if result.is_committed:
            _log(result, files, written)
            self._delete_leftovers(context, written, kept=[file.path for file in files])
        elif result.tries == 1:
            # The transaction was committed before the first try, so another write did it, with other files.
            self._delete_all(context, written)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the uploads of a failed job.

        Spark also calls this after a failed commit, whose splits may be part of the table; `commit` has then already
        deleted what is safe to delete. Spark tries to commit only if every task succeeded.
        """
        is_before_commit = any(message is None for message in messages)
        if is_before_commit:
            paths = [path for message in _splits_written(messages) for path in message.paths]
            delete_quietly(self._place.store(), paths)
            # The partitions of the other tasks are unknown.
            folders = None if self._target.shape.is_partitioned else [""]
            delete_leftovers(self._place.context(), self._job.name_prefix, folders, kept=())

    def _check_not_late(self, paths: Sequence[str]) -> None:
        context = self._place.context()
        if are_late(context, self._job.name_prefix, paths, self._target.version):
            logger.info(
                "%s: deleting %d splits of an attempt that finished after the commit",
                context.url,
                len(paths),
            )
            delete_quietly(context.store, paths)
            raise CommitConflictError(
                f"{context.url}: another attempt of this task was committed; no action is needed"
            )

    def _delete_all(self, context: TableContext, written: Sequence[SplitsWritten]) -> None:
        """Delete everything that the job uploaded; the table must not refer to any of it, now or later."""
        delete_quietly(context.store, [path for message in written for path in message.paths])
        self._delete_leftovers(context, written, kept=())

    def _delete_leftovers(
        self, context: TableContext, written: Sequence[SplitsWritten], kept: Collection[str]
    ) -> None:
        """Delete the splits of lost or losing attempts, if there may be any.

        These attempts had the same rows as the known ones, and so the same partitions.
        """
        if self._job.is_speculative or _may_have_run_twice(written):
            folders = {path.rpartition("/")[0] for message in written for path in message.paths}
            delete_leftovers(context, self._job.name_prefix, folders, kept)

    def _current_table(self, context: TableContext, written: Sequence[SplitsWritten]) -> Snapshot:
        """Load or create the table to commit to. On an error, deletes the splits: no version can refer to them yet."""
        try:
            return self._create_or_check(context)
        except IndexTablesError:
            self._delete_all(context, written)
            raise

    def _create_or_check(self, context: TableContext) -> Snapshot:
        target = self._target
        if target.table_id is None:
            shape = target.shape
            snapshot = create_table(context, shape.schema, shape.partition_columns, target.properties)
        else:
            snapshot = load_snapshot(context)
        if target.table_id not in (None, snapshot.metadata.id):
            changed = "was dropped and recreated"
        elif snapshot.shape != (target.base or target.shape):
            changed = "changed its schema or partition columns"
        else:
            return snapshot
        raise CommitConflictError(f"{context.url}: the table {changed} during the write; write again")

    def _intent(self, snapshot: Snapshot, files: Sequence[SplitFile]) -> Intent:
        adds = tuple(add_of(file) for file in files)
        mappings = {file.doc_mapping_ref: file.doc_mapping_json for file in files}
        if self._replacement is None:
            # A write without rows makes no version; repeating it does no harm.
            transaction = self._transaction if adds else None
            append = Append(adds, mappings, has_new_paths=True, transaction=transaction)
            if not adds or not self._target.new_columns:
                return append
            return ChangeSchema(self._target.new_columns, append, self._target.planned)
        where = self._replacement.where
        if where is not None:
            _check_within(snapshot, files, where)
        if self._replacement.is_dynamic and snapshot.partition_columns:
            if not files:
                return Append(())
            where = _partitions_of(files)
        return Overwrite(adds, where, mappings, self._transaction)

    def _operation(self, context: TableContext, written: Sequence[SplitsWritten]) -> Operation:
        replacement = self._replacement
        parameters = {"mode": "Append" if replacement is None else "Overwrite"}
        if self._target.shape.is_partitioned:
            parameters["partitionBy"] = ",".join(self._target.shape.partition_columns)
        if replacement is not None and replacement.text is not None:
            parameters["replaceWhere"] = replacement.text
        metrics = {
            "numTasks": len(written),
            "taskTimeMs": sum(message.duration_ms for message in written),
            "executionTimeMs": max(context.store.clock.now_ms() - self._started_ms, 0),
        }
        return Operation("WRITE" if replacement is None else "OVERWRITE", parameters, metrics)


class DiscardingWriter(DataSourceArrowWriter):
    """Discards all rows: the save mode `ignore` leaves an existing table unchanged."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SplitsWritten:
        del iterator
        return SplitsWritten((), 0, 0)


def _splits_written(messages: Sequence[WriterCommitMessage | None]) -> list[SplitsWritten]:
    return [message for message in messages if isinstance(message, SplitsWritten)]


def _may_have_run_twice(written: Sequence[SplitsWritten]) -> bool:
    """Whether Spark may have run other attempts: a task was retried, or the attempt ids have gaps.

    Neither check is enough alone. If the input of a stage is lost, Spark resets the attempt numbers of its tasks. If
    the first task is retried, the remaining ids have no gap. Tasks of other jobs also cause gaps.
    """
    attempts = [message.attempt_id for message in written]
    if not attempts:
        return False
    has_gaps = max(attempts) - min(attempts) >= len(attempts)
    return has_gaps or any(message.attempt_number > 0 for message in written)


def _check_within(snapshot: Snapshot, files: Sequence[SplitFile], where: Predicate) -> None:
    values = [list(file.partition_values.items()) for file in files]
    entries = pa.table({"partitionValues": pa.array(values, STRING_MAP)})
    matches = match_partitions(entries, bind(where, snapshot.schema), snapshot.shape).to_pylist()
    outside = next((file for file, match in zip(files, matches, strict=True) if not match), None)
    if outside is not None:
        shown = ", ".join(f"{name} = {value!r}" for name, value in outside.partition_values.items())
        raise InvalidValueError(
            f"{snapshot.context.url}: the data has rows with {shown}, which replaceWhere does not select; remove them, "
            f"or extend replaceWhere"
        )


def _partitions_of(files: Sequence[SplitFile]) -> Predicate:
    """A predicate that selects the partitions of the splits."""
    partitions = dict.fromkeys(tuple(file.partition_values.items()) for file in files)
    return any_of(
        all_of(
            IsNull(name) if value is None else Comparison(name, Operator.EQ, value)
            for name, value in partition
        )
        for partition in partitions
    )


def _log(result: CommitResult, files: Sequence[SplitFile], written: Sequence[SplitsWritten]) -> None:
    logger.info(
        "%s: committed version %d: %d rows in %d splits, %d bytes; %d tasks took %d ms",
        result.snapshot.context.url,
        result.version,
        sum(file.num_records for file in files),
        len(files),
        sum(file.size for file in files),
        len(written),
        sum(message.duration_ms for message in written),
    )


def _ms_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
