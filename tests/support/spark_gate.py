"""A gate in the planning of the data source: one plan waits at it until a test lets it pass."""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from indextables.spark.source import IndexTablesSource

# The source passes settings of stores on, and rejects other names that it does not know.
GATE = "fs.gate"

_TIMEOUT_SECONDS = 300


class Gate:
    """A local port. The first plan that connects to it waits; later ones find it closed, and pass."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(_TIMEOUT_SECONDS)
        self._waiting: socket.socket | None = None
        # What a reader needs to stop at this gate.
        self.options: Mapping[str, int] = {GATE: self._server.getsockname()[1]}

    def wait_for_a_plan(self) -> None:
        """Return as soon as a plan waits at the gate; only this one waits."""
        self._waiting, _ = self._server.accept()
        self._server.close()

    def open(self) -> None:
        """Let the plan pass."""
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None

    def __enter__(self) -> "Gate":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()
        self._server.close()


class GatedSource(IndexTablesSource):
    """The data source, with a gate after Spark's filters are known and before the tasks are planned."""

    def reader(self, schema: StructType) -> DataSourceReader:
        reader = super().reader(schema)
        port = self._options.get(GATE)
        return reader if port is None else _GatedReader(reader, int(port))


class _GatedReader(DataSourceReader):
    def __init__(self, reader: DataSourceReader, port: int) -> None:
        self._reader = reader
        self._port = port

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # the name is Spark's
        return self._reader.pushFilters(filters)

    def partitions(self) -> Sequence[InputPartition]:
        try:
            with socket.create_connection(("127.0.0.1", self._port), _TIMEOUT_SECONDS) as gate:
                gate.recv(1)
        except ConnectionRefusedError:
            pass
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


def plan(frame: DataFrame) -> None:
    """Plan a DataFrame as far as Spark pushes filters to its sources; `frame.collect()` continues from there."""
    query: Any = frame._jdf
    query.queryExecution().optimizedPlan()
