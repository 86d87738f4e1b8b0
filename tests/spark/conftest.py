"""One small Spark session for all tests of this folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install indextables[spark])")

from pyspark.sql import SparkSession

import indextables.spark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Java, skip all tests that use a session."""
    if shutil.which("java") is not None:
        return
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason="Spark needs Java, which is not installed"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores."""
    session = indextables.spark.session(
        **{
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": 2,
            "spark.default.parallelism": 2,
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse").as_posix(),
            "spark.ui.showConsoleProgress": False,
            "spark.sql.session.timeZone": "America/New_York",
        }
    )
    yield session
    session.stop()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a test puts its table."""
    return (tmp_path / "table").as_posix()
