"""A standalone master and two workers, each a process of its own."""

import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextables import IndexTable
from support.row_tables import SCHEMA, rows, split_files
from support.servers import running_s3
from support.spark_cluster import Cluster, DamagedTable, running_cluster

pytestmark = pytest.mark.soak  # minutes, with a master and two workers

CANARY = "canary-5ecret-that-n0body-may-see"
SECRETS = {
    f"spark.indextables.{name}": CANARY
    for name in (
        "aws.secretKey",
        "aws.sessionToken",
        "azure.accountKey",
        "azure.connectionString",
        "azure.bearerToken",
        "azure.clientSecret",
        "gcp.serviceAccountKey",
    )
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_write_read_search_and_merge_with_credentials_that_no_log_shows(
    cluster: Cluster, tmp_path: Path
) -> None:
    damaged = DamagedTable.create(tmp_path / "damaged", partitions=25, splits_per_partition=4)
    with running_s3() as server:
        options = {
            "spark.indextables.aws.accessKey": server.access_key_id,
            "spark.indextables.aws.region": server.region,
            "spark.indextables.s3.endpoint": server.endpoint,
            **SECRETS,
        }
        tour = [
            "tour",
            f"s3://{server.make_bucket()}/logs",
            *(f"{key}={value}" for key, value in options.items()),
        ]
        # One application for all steps: starting one takes longer than the steps.
        answer, merged = cluster.run(tour, ["merge", str(damaged.path)], settings=SECRETS)
    assert answer == {
        "rows": 1000,
        "sum": sum(range(1, 1000, 2)),
        "found": [777],
        "merge": [8, 2],
        "after": 1000,
        "parallelism": 2,
    }
    damaged.check_merged(merged)
    logged = cluster.everything_logged()
    assert b"merging splits: 2 of 2" in logged  # the event log exists and names the run
    assert CANARY.encode() not in logged


@pytest.mark.parametrize("options", [[], ["shuffled=yes"]], ids=["input-at-hand", "input-lost-too"])
def test_executor_that_dies_in_the_middle_of_a_write_leaves_no_row_twice(
    cluster: Cluster, tmp_path: Path, options: list[str]
) -> None:
    marker = tmp_path / "died"
    (answer,) = cluster.run(["lose_executor", str(tmp_path / "table"), f"marker={marker}", *options])
    assert marker.exists()
    assert answer == {"rows": 2000}
    _check_rows_are_there_once(tmp_path / "table")
    assert _orphans(tmp_path / "table") == set()


def test_task_that_runs_twice_adds_its_rows_once(cluster: Cluster, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "0ms",
        # No attempt is killed between its upload and the check for an earlier commit.
        "spark.python.task.killTimeout": "60s",
    }
    # This ends only if the task was started twice: each attempt waits for the other.
    (answer,) = cluster.run(["speculate", str(tmp_path / "table"), f"pipe={pipe}"], settings=speculation)
    assert answer == {"rows": 2000}
    _check_rows_are_there_once(tmp_path / "table")
    assert _orphans(tmp_path / "table") == set()


def test_prewarm_fills_the_cache_of_every_host_and_flush_empties_all(
    cluster: Cluster, tmp_path: Path
) -> None:
    table = IndexTable.create(str(tmp_path / "table"), SCHEMA, text=["body"])
    for number in range(5):
        table.append(rows(number))
    # Otherwise the application starts with the first executor.
    both = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    (answer,) = cluster.run(["prewarm", str(tmp_path / "table")], settings=both)
    hosts = {str(cluster.logs / f"cache-{number}" / "indextables") for number in (0, 1)}
    assert answer["warmed"] == {host: ["SUCCESS", 5] for host in hosts}
    assert answer["again"] == ["NO_ACTION", "NO_ACTION"]
    (driver,) = set(answer["described"]) - hosts
    assert answer["described"] == {driver: answer["described"][driver], **dict.fromkeys(hosts, 5)}
    assert answer["flushed"].keys() == answer["described"].keys()
    assert all(answer["flushed"][host] > 0 for host in hosts)
    assert answer["empty"] == [0, 0, 0]


def _check_rows_are_there_once(path: Path) -> None:
    table = IndexTable(str(path))
    assert table.version == 1
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == list(range(2000))
    assert table.fsck(deep=True).errors == ()


def _orphans(path: Path) -> set[str]:
    return set(split_files(path)) - set(IndexTable(str(path)).files()["path"].to_pylist())


def test_a_package_missing_on_executors_is_reported_early_with_the_interpreter(
    cluster: Cluster, tmp_path: Path
) -> None:
    python = _python_without_package(tmp_path / "bare")
    table = IndexTable.create(str(tmp_path / "table"), SCHEMA)
    for number in (1, 2):
        table.append(rows(number))
    (answer,) = cluster.run(["missing_package", str(tmp_path / "table")], python=str(python))
    messages = answer["errors"]
    assert len(answer["rows"]) == table.count()
    assert len(messages) == 3
    for message in messages:
        assert f"{python} on " in message
        assert "No module named 'indextables'" in message
        assert "pip install" in message
    assert table.refresh().version == 2


def _python_without_package(folder: Path) -> Path:
    """An environment with all packages of this one, except this package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (target,) = folder.glob("lib/python*/site-packages")
    for installed in Path(site.getsitepackages()[0]).iterdir():
        if "indextables" not in installed.name:
            (target / installed.name).symlink_to(installed)
    return folder / "bin" / "python"
