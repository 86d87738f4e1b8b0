"""Sessions: clear errors for a missing pyspark or Java, enabling, and the source without registration."""

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import indextables.spark
from support import PATIENCE_SECONDS
from support.spark_frames import logs
from support.spark_releases import needs_sources


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    done = _run("import indextables.spark as s\ns.session()", PATH=tmp_path.as_posix())
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(
            "indextables.errors.SparkUnavailableError: Spark needs Java 17 or newer, which was not found; install"
        )
    )


def test_without_pyspark_the_error_names_the_extra() -> None:
    done = _run("import sys\nsys.modules['pyspark'] = None\nimport indextables.spark")
    assert done.stderr.strip().splitlines()[-1].endswith("run: pip install indextables[spark]")
    assert "MissingExtraError" in done.stderr


def test_enabling_again_changes_nothing(spark: SparkSession) -> None:
    save = type(spark.range(0).write).save
    assert indextables.spark.enable(spark) is spark
    assert type(spark.range(0).write).save is save


@needs_sources
def test_a_session_that_was_not_enabled_finds_the_source_by_itself(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").mode("append").save(path)
    other = spark.newSession()
    frame = other.read.format("indextables").load(path)
    assert frame.where("level = 'ERROR'").count() == 2
    assert frame.count() == 5
    other.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    pushed = other.read.format("indextables").load(path)
    assert pushed.where("level = 'ERROR'").count() == 2
    assert pushed.count() == 5


def test_enabling_leaves_the_function_in_place(spark: SparkSession) -> None:
    """A submodule named like a public function would replace it once it is imported."""
    indextables.spark.enable(spark)
    assert callable(indextables.spark.enable)
    assert callable(indextables.spark.session)


def test_other_statements_go_to_spark_with_their_arguments(spark: SparkSession) -> None:
    assert spark.sql("SELECT {x} AS y", x=1).first().y == 1
    assert spark.sql("SELECT :x AS y", {"x": 2}).first().y == 2
