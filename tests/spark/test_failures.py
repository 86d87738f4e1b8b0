"""Failing tasks and failing commits: no duplicate rows, and no leftover files."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from indextables import IndexTable
from indextables.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    InvalidOptionError,
    InvalidValueError,
    TransientStorageError,
)
from indextables.log.actions import TransactionAction
from indextables.ops.write import delete_leftovers
from indextables.spark.options import TablePlace
from indextables.spark.source import IndexTablesSource
from indextables.spark.write import Job, SplitsWritten, TableWriter
from support.row_tables import ids as ids_of
from support.row_tables import rows, split_files
from support.spark_frames import ids, load, logs
from support.spark_releases import SPARK_ERRORS

SMALL = pa.schema([("id", pa.int64()), ("day", pa.string()), ("body", pa.string())])


def _writer(path: str, *, overwrite: bool = False, **options: str) -> TableWriter:
    schema = StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in (("id", "long"), ("day", "string"), ("body", "string"))
            ],
        }
    )
    writer = IndexTablesSource({"path": path, **options}).writer(schema, overwrite)
    assert isinstance(writer, TableWriter)
    return writer


def _written(writer: TableWriter, *numbers: int) -> SplitsWritten:
    return writer.write(iter(rows(*numbers).to_batches()))


def test_a_job_that_fails_leaves_no_rows_and_no_files(spark: SparkSession, path: str) -> None:
    logs(spark, 1).write.format("indextables").mode("append").save(path)
    before = split_files(Path(path))
    broken = spark.range(0, 200, numPartitions=1).selectExpr(
        "if(id = 199, raise_error('broken row'), id) as id",
        "'d' as day",
        "'INFO' as level",
        "'m' as message",
    )
    with pytest.raises(SPARK_ERRORS, match="broken row"):
        broken.selectExpr("cast(id as long) as id", "day", "level", "message").write.format(
            "indextables"
        ).mode("append").save(path)
    assert ids(load(spark, path)) == [1]
    assert split_files(Path(path)) == before


NOT_SPECULATIVE = {"indextables.session.spark.speculation": "false"}


def _attempt(number: int, written: SplitsWritten) -> SplitsWritten:
    return replace(written, attempt_id=number)


@pytest.mark.parametrize("partition_by", [(), ("day",)])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"indextables.session.spark.speculation": "true"}, id="speculation"),
        pytest.param({}, id="unknown"),
        pytest.param(NOT_SPECULATIVE, id="retries"),
    ],
)
def test_commit_adds_only_its_messages_and_deletes_losing_attempts(
    path: str, partition_by: tuple[str, ...], options: dict[str, str]
) -> None:
    IndexTable.create(path, SMALL, partition_by=partition_by)
    writer, other = _writer(path, **options), _writer(path)
    first, _, again = _written(writer, 1), _written(writer, 2), _written(writer, 2)
    busy = _written(other, 3)
    writer.commit([_attempt(10, first), _attempt(12 if options == NOT_SPECULATIVE else 11, again)])
    assert IndexTable(path).num_rows == 2
    orphans = set(split_files(Path(path))) - set(IndexTable(path).files()["path"].to_pylist())
    assert orphans == set(busy.paths)
    other.commit([busy])
    assert split_files(Path(path)) == sorted(IndexTable(path).files()["path"].to_pylist())


@pytest.mark.parametrize("is_only_task", [True, False])
def test_a_retry_of_the_first_task_is_detected(path: str, is_only_task: bool) -> None:
    """The remaining attempt ids have no gap: the lost attempt came before all of them."""
    IndexTable.create(path, SMALL)
    writer = _writer(path, **NOT_SPECULATIVE)
    _, other, again = _written(writer, 1), _written(writer, 2), _written(writer, 1)
    others = [] if is_only_task else [_attempt(11, other)]
    writer.commit([*others, replace(_attempt(12, again), attempt_number=1)])
    assert split_files(Path(path)) == sorted(IndexTable(path).files()["path"].to_pylist())
    assert IndexTable(path).num_rows == len(others) + 1


def test_a_task_reports_its_attempt(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The constructor would create a singleton that outlives the test.
    task = object.__new__(TaskContext)
    task._taskAttemptId, task._attemptNumber = 12, 3
    monkeypatch.setattr(TaskContext, "_taskContext", task)
    written = _written(_writer(path), 1)
    assert (written.attempt_id, written.attempt_number) == (12, 3)


def test_no_listing_if_spark_started_every_task_once(path: str) -> None:
    """Listing costs one request per partition, for every commit."""
    IndexTable.create(path, SMALL)
    writer = _writer(path, **NOT_SPECULATIVE)
    first, second, unreported = _written(writer, 1), _written(writer, 2), _written(writer, 3)
    writer.commit([_attempt(11, second), _attempt(10, first)])
    assert set(unreported.paths) < set(split_files(Path(path)))


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_an_attempt_that_ends_after_the_commit_deletes_its_own_splits(
    path: str, partition_by: tuple[str, ...]
) -> None:
    IndexTable.create(path, SMALL, partition_by=partition_by)
    writer, other = _writer(path), _writer(path)
    started = iter(rows(2).to_batches())
    writer.commit([_written(writer, 1), _written(writer, 2)])
    IndexTable(path).append(rows(3))
    before = split_files(Path(path))
    with pytest.raises(CommitConflictError, match="another attempt of this task was committed"):
        writer.write(started)
    assert split_files(Path(path)) == before
    # Commits of other writers do not make this job late.
    other.commit([_written(other, 4)])
    assert ids_of(IndexTable(path)) == [1, 2, 3, 4]


def test_an_attempt_that_ends_after_the_commit_that_created_the_table_deletes_its_own_splits(
    path: str,
) -> None:
    writer = _writer(path)
    writer.commit([_written(writer, 1)])
    with pytest.raises(CommitConflictError, match="another attempt of this task was committed"):
        _written(writer, 1)
    assert split_files(Path(path)) == IndexTable(path).files()["path"].to_pylist()


def test_a_task_uploads_its_splits_if_the_log_cannot_be_read(path: str) -> None:
    IndexTable.create(path, SMALL)
    writer = _writer(path)
    damaged = Path(path) / "_transaction_log" / f"{1:020}.json"
    damaged.write_bytes(b"\x1f\x8b damaged")
    done = _written(writer, 1)
    damaged.unlink()
    writer.commit([done])
    assert ids_of(IndexTable(path)) == [1]


def test_cleanup_on_a_case_insensitive_file_system_keeps_committed_splits(path: str) -> None:
    """As on a case-insensitive file system, where each folder also lists the files of the other."""
    context = TablePlace.of({"path": path}).context()
    for key in ("day=A/part-job-1.split", "day=a/part-job-1.split", "day=a/part-job-2.split"):
        context.store.put(key, b"split")
    delete_leftovers(context, "part-job-", {"day=A", "day=a"}, ["day=A/part-job-1.split"])
    assert split_files(Path(path)) == ["day=A/part-job-1.split", "day=a/part-job-1.split"]


@pytest.mark.parametrize("partition_by", ["", "id"])
def test_abort_also_deletes_uploads_of_attempts_without_a_message(path: str, partition_by: str) -> None:
    writer, other = (_writer(path, partitionBy=partition_by) for _ in range(2))
    done, _, busy = _written(writer, 1), _written(writer, 2), _written(other, 3)
    writer.abort([done, None])
    assert split_files(Path(path)) == busy.paths


def test_cleanup_of_a_stream_keeps_splits_of_other_batches_and_runs(path: str) -> None:
    target, place = _writer(path)._target, TablePlace.of({"path": path})
    run, later_run = Job.new(), Job.new()
    first = TableWriter(place, target, None, TransactionAction("query", 1), run.of_batch("1"))
    first.commit([_written(first, 1)])
    before = split_files(Path(path))
    batches = [(run, "11", 11), (run, "2", 12), (later_run, "1", 13)]
    for job, batch, number in batches:
        # The table may not know the earlier batch with this number, for example after a repair.
        writer = TableWriter(place, target, None, TransactionAction("query", number), job.of_batch(batch))
        writer.commit([_written(writer, number)])
    assert set(before) < set(split_files(Path(path)))
    assert ids_of(IndexTable(path)) == [1, 11, 12, 13]


def test_abort_deletes_the_uploads_of_a_failed_job(path: str) -> None:
    writer = _writer(path)
    done = _written(writer, 1)
    assert len(split_files(Path(path))) == 1
    writer.abort([done, None])
    assert split_files(Path(path)) == []


def test_abort_after_a_commit_that_landed_deletes_nothing(path: str) -> None:
    writer = _writer(path)
    done = _written(writer, 1)
    writer.commit([done])
    writer.abort([done])
    assert IndexTable(path).to_arrow()["id"].to_pylist() == [1]


def test_commit_fails_if_the_table_was_recreated(path: str) -> None:
    IndexTable.create(path, SMALL)
    writer = _writer(path)
    done = _written(writer, 1)
    for file in (Path(path) / "_transaction_log").iterdir():
        file.unlink()
    IndexTable.create(path, SMALL)
    with pytest.raises(CommitConflictError, match="dropped and recreated"):
        writer.commit([done])
    assert split_files(Path(path)) == []


REPEATED = {"txnAppId": "app", "txnVersion": "1"}


@pytest.mark.parametrize("partition_by", [(), ("day",)])
@pytest.mark.parametrize("is_known_to_run_once", [True, False])
def test_a_failed_commit_deletes_the_uploads_of_lost_attempts(
    path: str, partition_by: tuple[str, ...], is_known_to_run_once: bool
) -> None:
    IndexTable.create(path, SMALL, partition_by=partition_by)
    writer, other = _writer(path, **NOT_SPECULATIVE), _writer(path)
    done, lost, busy = _written(writer, 1), _written(writer, 1), _written(other, 2)
    shutil.rmtree(Path(path) / "_transaction_log")
    IndexTable.create(path, SMALL, partition_by=partition_by)
    messages = [replace(done, attempt_number=0 if is_known_to_run_once else 1)]
    with pytest.raises(CommitConflictError, match="dropped and recreated"):
        writer.commit(messages)
    writer.abort(messages)
    left = [*busy.paths, *(lost.paths if is_known_to_run_once else [])]
    assert split_files(Path(path)) == sorted(left)


def test_a_rejected_commit_deletes_the_uploads_of_lost_attempts(path: str) -> None:
    IndexTable.create(path, SMALL, partition_by=["day"]).append(rows(1, day="a"))
    before = split_files(Path(path))
    writer = _writer(path, overwrite=True, replaceWhere="day = 'b'")
    _, done = _written(writer, 2), _written(writer, 2)
    with pytest.raises(InvalidValueError, match="which replaceWhere does not select"):
        writer.commit([done])
    assert split_files(Path(path)) == before


def test_a_repeated_transaction_deletes_the_uploads_of_lost_attempts(path: str) -> None:
    for _ in range(2):
        writer = _writer(path, **REPEATED)
        _, done = _written(writer, 1), _written(writer, 1)
        writer.commit([done])
    assert split_files(Path(path)) == IndexTable(path).files()["path"].to_pylist()
    assert ids_of(IndexTable(path)) == [1]


def test_after_a_commit_of_unknown_outcome_nothing_is_deleted(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    IndexTable.create(path, SMALL)
    writer = _writer(path)
    _, done = _written(writer, 1), _written(writer, 1)
    before = split_files(Path(path))

    def lost_answer(*arguments: object, **named: object) -> None:
        raise TransientStorageError("the store stopped answering")

    monkeypatch.setattr(type(TablePlace.of({"path": path}).store()), "put_if_absent", lost_answer)
    with pytest.raises(CommitOutcomeUnknownError):
        writer.commit([done])
    writer.abort([done])
    assert split_files(Path(path)) == before


def test_commit_fails_if_another_writer_created_the_table_with_other_partitions(path: str) -> None:
    writer = _writer(path)
    done = _written(writer, 1)
    IndexTable.create(path, SMALL, partition_by=["day"])
    with pytest.raises(Exception, match="exists here already"):
        writer.commit([done])
    assert split_files(Path(path)) == []


def test_a_task_that_fails_leaves_nothing(path: str) -> None:
    def batches():
        yield rows(1).to_batches()[0]
        raise RuntimeError("the rows end here")

    with pytest.raises(RuntimeError):
        _writer(path).write(batches())
    assert split_files(Path(path)) == []


def test_eight_concurrent_writers_all_commit(spark: SparkSession, path: str) -> None:
    start = threading.Barrier(8)

    def write(number: int) -> None:
        frame = spark.range(number * 10, number * 10 + 10, numPartitions=1)
        frame = frame.selectExpr("id", "'d' as day", "'INFO' as level", "concat('m', id) as message")
        start.wait()
        frame.write.format("indextables").mode("append").save(path)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert ids(load(spark, path)) == list(range(80))
    assert IndexTable(path).version == 8


def test_credentials_do_not_show(path: str) -> None:
    secret = "do-not-show-this"
    options = {"path": "s3://bucket/table", "spark.indextables.aws.secretkey": secret}
    place = TablePlace.of({**options, "indextables.session.spark.indextables.aws.sessiontoken": secret})
    assert secret not in repr(place)
    with pytest.raises(InvalidOptionError) as refused:
        TablePlace.of({**options, "spark.indextables.checkpoint.interval": "x"})
    assert secret not in str(refused.value)
