"""Writers, a stream, mergers, purgers and readers on one Spark session, on a store that fails now and then.

Every writer records its acknowledged batches. In the end, the table holds exactly these, plus complete batches with an
unknown outcome, and nothing twice. The stream has copied every row into another table exactly once, and FSCK finds
nothing.
"""

import itertools
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install indextables[spark])")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import indextables.spark
from indextables import IndexTable
from indextables.errors import CommitOutcomeUnknownError, IndexTablesError
from indextables.spark.jobs import SparkRunner
from support import PATIENCE_SECONDS
from support.fault_proxy import SLOW_DOWN, Action, Fault, FaultProxy
from support.servers import S3Server

BATCH_ROWS = 50
FAULT_ODDS = 0.02
FAULTS = (
    (Action.ANSWER, SLOW_DOWN),
    (Action.DROP_BEFORE, b""),
    (Action.DROP_AFTER, b""),
)


class UnreliableProxy(FaultProxy):
    """A proxy that injects faults into random requests."""

    def __init__(self, upstream: str, seed: int) -> None:
        super().__init__(upstream, [])
        self._chance = random.Random(seed)
        self.injected = 0

    def arrived(self, method: str, path: str, byte_range: tuple[int, int] | None) -> Fault | None:
        del path, byte_range
        with self._lock:
            if self._chance.random() >= FAULT_ODDS:
                return None
            self.injected += 1
            action, body = self._chance.choice(FAULTS)
            return Fault(method, action, body=body)


class Life:
    """A table and its users. Each of them works in its own thread until the time is up."""

    def __init__(self, spark: SparkSession, root: str, options: dict[str, str], checkpoints: Path) -> None:
        self.spark = spark
        self.source, self.target = f"{root}/source", f"{root}/target"
        self.options = options
        self.checkpoints = checkpoints
        self.acknowledged: set[int] = set()
        self.unknown: list[range] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._lock = threading.Lock()
        self._ids = itertools.count(0, BATCH_ROWS)

    def table(self, path: str) -> IndexTable:
        return IndexTable(path, options=self.options)

    def write(self) -> None:
        with self._lock:
            first = next(self._ids)
        ids = range(first, first + BATCH_ROWS)
        rows = self.spark.range(ids.start, ids.stop, 1, 2).selectExpr(
            "id", "id % 3 AS part", "concat('event ', id) AS message"
        )
        try:
            rows.write.format("indextables").options(**self.options).mode("append").save(self.source)
        except Exception:
            # The commit may have landed before the answer was lost.
            with self._lock:
                self.unknown.append(ids)
            raise
        with self._lock:
            self.acknowledged.update(ids)

    def stream(self) -> None:
        changes = self.spark.readStream.format("indextables").options(**self.options).load(self.source)
        sink = changes.writeStream.format("indextables").options(**self.options)
        query = (
            sink.option("checkpointLocation", self.checkpoints.as_uri())
            .trigger(availableNow=True)
            .start(self.target)
        )
        query.awaitTermination()

    def maintain(self) -> None:
        table = self.table(self.source)
        runner = SparkRunner(self.spark)
        random.choice(
            [
                lambda: table.merge_splits(runner=runner),
                lambda: table.purge(dry_run=False, runner=runner),
                table.checkpoint,
                table.compact,
                lambda: table.collect_garbage(dry_run=False),
            ]
        )()

    def read(self) -> None:
        with self._lock:
            expected = set(self.acknowledged)
        frame = self.spark.read.format("indextables").options(**self.options).load(self.source)
        found = [row.id for row in frame.select("id").collect()]
        if len(set(found)) != len(found) or not expected <= set(found):
            self.violations.append(f"a read shows {len(found)} rows, of {len(expected)} that were committed")

    def keep(self, what: Callable[[], None], deadline: float) -> None:
        """Repeat an action. Errors are expected if they are ours or Spark's.

        On a busy machine, the time may be up before any action has succeeded; that is waited for.
        """
        patient = deadline + PATIENCE_SECONDS
        while (now := time.monotonic()) < deadline or (now < patient and not self.counts["operations"]):
            try:
                what()
                self.counts["operations"] += 1
            except CommitOutcomeUnknownError:
                self.counts["unknown outcomes"] += 1
            except (IndexTablesError, PySparkException):
                self.counts["failed operations"] += 1
            except BaseException as error:
                self.violations.append(f"{what.__name__}: {error}")
                raise

    def check(self) -> None:
        """The final invariants, once the store is reliable again."""
        self.stream()
        found = self._ids_in(self.source)
        possible = set(self.acknowledged)
        for ids in self.unknown:
            landed = found.intersection(ids)
            assert not landed or landed == set(ids), f"half of a batch is there: {sorted(landed)}"
            possible |= landed
        assert found == possible
        assert self._ids_in(self.target) == found
        for path in (self.source, self.target):
            report = self.table(path).fsck(deep=True)
            assert report.is_clean, report.findings

    def _ids_in(self, path: str) -> set[int]:
        ids = self.table(path).to_arrow(columns=["id"])["id"].to_pylist()
        assert len(set(ids)) == len(ids), "a row is there twice"
        return set(ids)


@contextmanager
def session() -> Iterator[SparkSession]:
    spark = indextables.spark.session(
        **{"spark.master": "local[2]", "spark.ui.showConsoleProgress": False, "spark.driver.memory": "1g"}
    )
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def test_a_table_survives_an_unreliable_store(s3_server: S3Server) -> None:
    with UnreliableProxy(s3_server.endpoint, seed=1).running() as proxy:
        assert isinstance(proxy, UnreliableProxy)
        storage_options = s3_server.storage_options | {"aws_endpoint": proxy.endpoint}
        url = f"s3://{s3_server.make_bucket()}/table"
        table = IndexTable.create(url, pa.schema([("id", pa.int64())]), storage_options=storage_options)
        while not proxy.injected:
            table.append(pa.table({"id": [table.version]}))
        assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(table.version))


@pytest.mark.soak
def test_writers_streams_mergers_purgers_and_readers_on_spark(
    s3_server: S3Server, tmp_path: Path, soak_minutes: float, soak_report: Counter[str]
) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    root = f"s3://{s3_server.make_bucket()}"
    options = {
        "spark.indextables.aws.accessKey": s3_server.access_key_id,
        "spark.indextables.aws.secretKey": s3_server.secret_access_key,
        "spark.indextables.aws.region": s3_server.region,
        "spark.indextables.cache.disk.path": str(tmp_path / "cache"),
    }
    reliable = {**options, "spark.indextables.s3.endpoint": s3_server.endpoint}
    seed = random.SystemRandom().randrange(1 << 40)
    print(f"faults by seed {seed}")  # noqa: T201  # a run that fails is looked at by it
    with session() as spark, UnreliableProxy(s3_server.endpoint, seed).running() as proxy:
        assert isinstance(proxy, UnreliableProxy)
        life = Life(spark, root, reliable, tmp_path / "checkpoints")
        life.write()
        life.stream()
        life.options = {**options, "spark.indextables.s3.endpoint": proxy.endpoint}
        deadline = time.monotonic() + soak_minutes * 60
        works = (life.write, life.write, life.maintain, life.read)
        threads = [threading.Thread(target=life.keep, args=(work, deadline)) for work in works]
        for thread in threads:
            thread.start()
        # Spark finds Python data sources as sinks only in the thread that created the session.
        life.keep(life.stream, deadline)
        for thread in threads:
            thread.join()
        life.options = reliable
        soak_report["operations"] += life.counts["operations"]
        soak_report["commits"] += life.table(life.source).version + life.table(life.target).version
        soak_report["faults injected"] += proxy.injected
        soak_report["operations on Spark that a fault ended"] += life.counts["failed operations"]
        soak_report["violations"] += len(life.violations)
        assert not life.violations, life.violations
        life.check()
        assert life.counts["operations"] > 0
