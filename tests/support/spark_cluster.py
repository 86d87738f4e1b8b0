"""A standalone Spark cluster on loopback: a master and workers as processes that end with the test."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from indextables import IndexTable
from support import PATIENCE_SECONDS
from support.row_tables import SCHEMA, ids, rows

STARTUP_SECONDS = 120.0

_DRIVER = Path(__file__).with_name("spark_cluster_driver.py")
_SPARK_HOME = Path(pyspark.__file__).parent
_MASTER_URL = re.compile(r"spark://127\.0\.0\.1:\d+")
_REGISTERED = "Successfully registered with master"
_DRIVER_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The master's URL, and the folder with all logs of the cluster and its applications."""

    url: str
    logs: Path

    def run(
        self,
        *steps: Sequence[str],
        python: str = sys.executable,
        settings: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """Run the driver in its own process, with `python` as the interpreter of its executors.

        Each step is a name, a table and options; returns the result of each step.
        """
        events = self.logs / "events"
        events.mkdir(exist_ok=True)
        settings = {
            **_DRIVER_SETTINGS,
            **(settings or {}),
            "spark.master": self.url,
            "spark.pyspark.python": python,
            "spark.eventLog.dir": events.as_uri(),
        }
        flags = [f"{key}={value}" for key, value in settings.items()]
        arguments = [argument for step in steps for argument in ("--", *step)]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(_DRIVER), *flags, *arguments],
            cwd=self.logs,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        (self.logs / f"driver-{time.monotonic_ns()}.log").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return answers

    def everything_logged(self) -> bytes:
        """All output of the master, workers, executors and drivers, and the event logs."""
        return b"\n".join(file.read_bytes() for file in sorted(self.logs.rglob("*")) if file.is_file())


@contextlib.contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a master and workers of one core each, on free ports."""
    with contextlib.ExitStack() as stack:
        ports = ["--port", "0", "--webui-port", "0"]
        log = stack.enter_context(
            _process(
                "org.apache.spark.deploy.master.Master",
                ["--host", "127.0.0.1", *ports],
                folder / "master.log",
            )
        )
        url = _awaited(log, _MASTER_URL)
        size = ["--cores", "1", "--memory", "1g"]
        # Each on its own host: Spark never runs a speculative attempt on the same host.
        hosts = [f"127.0.0.{number + 1}" for number in range(workers)]
        logs = [
            stack.enter_context(
                _process(
                    "org.apache.spark.deploy.worker.Worker",
                    ["--host", host, *ports, *size, "--work-dir", str(folder / f"work-{number}"), url],
                    folder / f"worker-{number}.log",
                    # Each host has its own cache; executors inherit it.
                    {"XDG_CACHE_HOME": str(folder / f"cache-{number}")},
                )
            )
            for number, host in enumerate(hosts)
        ]
        for log in logs:
            _awaited(log, re.compile(_REGISTERED))
        yield Cluster(url, folder)


@dataclass(frozen=True, slots=True)
class DamagedTable:
    """A table of small splits, three of them unreadable, for a merge that must skip them."""

    path: Path
    partitions: int
    ids: tuple[int, ...]
    version: int
    splits: int
    damaged: Mapping[str, bytes]

    @classmethod
    def create(cls, path: Path, partitions: int, splits_per_partition: int) -> "DamagedTable":
        table = IndexTable.create(str(path), SCHEMA, partition_by=["day"])
        for number in range(splits_per_partition):
            days = [rows(day * 1000 + number, day=f"day {day:02d}") for day in range(partitions)]
            table.append(pa.concat_tables(days))
        splits = table.num_files
        found = tuple(ids(table))
        chosen = table.files()["path"].take([0, splits // 2, splits - 1]).to_pylist()
        damaged = {name: (path / name).read_bytes() for name in chosen}
        for name, data in damaged.items():
            (path / name).write_bytes(b"?" * len(data))
        return cls(path, partitions, found, table.version, splits, damaged)

    def check_merged(self, answer: Mapping[str, Any]) -> None:
        """Check for one commit, three skipped splits and all rows."""
        assert answer == {
            "version": self.version + 1,
            "status": "PARTIAL",
            "groups": self.partitions,
            "sources": self.splits - len(self.damaged),
            "skipped": sorted(self.damaged),
        }
        for name, data in self.damaged.items():
            (self.path / name).write_bytes(data)
        table = IndexTable(str(self.path))
        assert tuple(ids(table)) == self.ids
        assert table.num_files == self.partitions + len(self.damaged)


@contextlib.contextmanager
def _process(
    main_class: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Path]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(_SPARK_HOME / "bin" / "spark-class"), main_class, *arguments],
            cwd=log.parent,
            env={**_environment(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _awaited(log: Path, pattern: re.Pattern[str]) -> str:
    deadline = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < deadline:
        found = pattern.search(log.read_text(errors="replace"))
        if found:
            return found[0]
        time.sleep(0.05)
    raise RuntimeError(f"{log.name} never said {pattern.pattern}: {log.read_text(errors='replace')[-2000:]}")


def _environment() -> Mapping[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    return {
        **clean,
        "SPARK_HOME": str(_SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
