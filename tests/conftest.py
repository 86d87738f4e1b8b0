"""Fixtures that every test may use."""

import os
import tempfile
import time
from collections.abc import Iterator

import pytest
from hypothesis import settings

from indextables.metrics import INDEX_PREDICTION_MISSES
from indextables.split import cold_search, sparse_index
from support.hdfs import HdfsServer, running_hdfs, why_no_hdfs
from support.servers import (
    AzuriteServer,
    GcsServer,
    S3Server,
    SeaweedServer,
    find_azurite,
    find_seaweedfs,
    running_azurite,
    running_gcs,
    running_s3,
    running_seaweedfs,
)

# A test that fails must fail again: examples are the same in every run, and none is remembered.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")

# Tests leave nothing in the user's cache. Set here, because the workers of a Spark session inherit it when that starts.
_CACHES = tempfile.TemporaryDirectory(prefix="indextables-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHES.name

# Sessions of Spark are short here: to optimize their code costs more than it saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Small indexes are searched like large ones, of which only a part is fetched.
cold_search._SMALL_INDEX_BYTES = 0
sparse_index._ROUND_TRIP_BYTES = 0

_STARTED = time.monotonic()


@pytest.fixture(autouse=True)
def prediction_misses() -> Iterator[list[str]]:
    """The searches in this process that read a part of an index which had not been fetched.

    They give the right answer, but are a mistake of the prediction. A test that provokes one clears the list.
    """
    misses: list[str] = []
    recorder = INDEX_PREDICTION_MISSES._recorder
    INDEX_PREDICTION_MISSES._recorder = lambda _, attributes: misses.append(attributes["table"])
    yield misses
    INDEX_PREDICTION_MISSES._recorder = recorder
    assert misses == []


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make soak MINUTES=n` says how long those of the tests marked `soak` go on that could go on for ever."""
    parser.addoption("--soak-minutes", type=float, default=5.0, help="how long soak tests run, together")


@pytest.fixture
def soak_minutes(request: pytest.FixtureRequest) -> float:
    """How long a soak test is to go on: its share of what is left of the time that is given to all of them.

    Some tests take their time whatever is given. The others share what these leave, but get something in any case.
    """
    minutes: float = request.config.getoption("--soak-minutes")
    sharing = [item for item in request.session.items if "soak_minutes" in getattr(item, "fixturenames", ())]
    waiting = len(sharing) - sharing.index(request.node)
    left = minutes - (time.monotonic() - _STARTED) / 60
    return max(left / waiting, minutes / len(sharing) / 4)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server on loopback, in a process of its own."""
    with running_s3() as server:
        yield server


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[AzuriteServer]:
    """An Azure server on loopback, in a process of its own, where Azurite is installed."""
    command = find_azurite()
    if command is None:
        pytest.skip("Azurite is not installed (make azurite)")
    with running_azurite(command) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory) -> Iterator[HdfsServer]:
    """A NameNode and a DataNode on loopback, where their jars are installed."""
    reason = why_no_hdfs()
    if reason is not None:
        pytest.skip(reason)
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """A server on loopback that speaks to Google's client, in a process of its own."""
    with running_gcs() as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory) -> Iterator[SeaweedServer]:
    """SeaweedFS on loopback, where it is installed."""
    command = find_seaweedfs()
    if command is None:
        pytest.skip("SeaweedFS is not installed (make servers)")
    with running_seaweedfs(command, tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server
