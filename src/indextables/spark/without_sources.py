"""Reads and writes for a Spark release that lacks a kind of Python data source.

The classes of the data source do the work here, too: the driver plans a read and commits a write, and the tasks run in
`mapInArrow`. A task that Spark repeats returns the splits of the attempt that counts, as with a data source.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from indextables.errors import SparkUnavailableError
from indextables.spark.read import BatchReader
from indextables.spark.releases import InputPartition, WriterCommitMessage
from indextables.spark.source import IndexTablesSource
from indextables.spark.write import DiscardingWriter

_MESSAGE: Final = "message"
_MESSAGE_SCHEMA: Final = f"{_MESSAGE} binary"
_TASK_SCHEMA: Final = "task binary"

NO_STREAM_SOURCE: Final = (
    "this Spark release cannot read a table as a stream: Python data sources came with Spark 4.0; use Spark 4.0 or "
    "newer, or read the table in batches"
)
NO_SQL_SOURCE: Final = (
    "this Spark release does not know the source in SQL: Python data sources came with Spark 4.0; load the table with "
    "spark.read.format('indextables').load(path), and name it with createOrReplaceTempView"
)


class _Writer(Protocol):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage: ...


def load_frame(spark: SparkSession, options: Mapping[str, str], schema: StructType | None) -> DataFrame:
    """A DataFrame of the rows that the options select, planned now. Raises what the data source raises."""
    source = IndexTablesSource(dict(options))
    read_schema = source.schema()
    reader = source.reader(schema or read_schema)
    tasks = [bytearray(_pickled(partition)) for partition in reader.partitions()]
    if not tasks:
        return spark.createDataFrame([], schema or read_schema)
    rows = spark.sparkContext.parallelize([(task,) for task in tasks], len(tasks))
    return spark.createDataFrame(rows, _TASK_SCHEMA).mapInArrow(_reading(reader), schema or read_schema)


def save_frame(frame: DataFrame, options: Mapping[str, str], *, overwrite: bool) -> None:
    """Write a DataFrame: the tasks upload splits, and the driver commits them. Raises what the data source raises."""
    writer = IndexTablesSource(dict(options)).writer(frame.schema, overwrite)
    if isinstance(writer, DiscardingWriter):
        return
    messages = _run_tasks(frame, writer, writer.abort)
    try:
        writer.commit(messages)
    except BaseException:
        writer.abort(messages)
        raise


def sink(options: Mapping[str, str], output_mode: str | None) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that commits every batch of a query once. Raises what the data source raises."""
    if (output_mode or "append").lower() == "update":
        raise SparkUnavailableError(
            "this Spark release cannot write a stream in update mode: stream writers came with Spark 4.1; use append "
            "or complete"
        )
    overwrite = (output_mode or "append").lower() == "complete"

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        writer = IndexTablesSource(dict(options)).batch_writer(frame.schema, overwrite)
        messages = _run_tasks(frame, writer, lambda written: writer.abort(written, batch_id))
        try:
            writer.commit(messages, batch_id)
        except BaseException:
            writer.abort(messages, batch_id)
            raise

    return write_batch


def _run_tasks(
    frame: DataFrame, writer: _Writer, abort: Callable[[list[WriterCommitMessage | None]], None]
) -> list[WriterCommitMessage | None]:
    # Spark before 4.0 looks the columns up by name, and takes a name with a dot for a path.
    numbered = frame.toDF(*(f"column{number}" for number in range(len(frame.columns))))
    try:
        rows = numbered.mapInArrow(_writing(writer, frame.columns), _MESSAGE_SCHEMA).collect()
    except BaseException:
        # Which tasks finished is unknown: their files are found by the name of the job.
        abort([None])
        raise
    return [pickle.loads(bytes(row[_MESSAGE])) for row in rows]  # noqa: S301  # written by our own tasks


def _writing(
    writer: _Writer, names: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (pa.RecordBatch.from_arrays(batch.columns, names=list(names)) for batch in batches)
        message = pa.array([_pickled(writer.write(named))], pa.binary())
        yield pa.record_batch([message], names=[_MESSAGE])

    return write


def _reading(reader: BatchReader) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                partition: InputPartition = pickle.loads(task)  # noqa: S301  # written by the driver
                yield from reader.read(partition)

    return read


def _pickled(value: Any) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]  # cloudpickle has no types
