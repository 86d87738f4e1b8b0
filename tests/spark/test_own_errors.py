"""Errors of ours that Spark reports arrive as such: one line, and the class that was raised."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from indextables.errors import (
    InvalidQueryError,
    ObjectNotFoundError,
    SplitsMissingError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from indextables.spark.failures import own_error
from support import PATIENCE_SECONDS
from support.row_tables import split_files
from support.spark_frames import load, logs
from support.spark_releases import SPARK_ERRORS, needs_sources


def test_planning_raises_the_error_of_the_source(spark: SparkSession, path: str) -> None:
    with pytest.raises(
        TableNotFoundError, match=r"^file:///.*: there is no table here .*IndexTable\.create$"
    ):
        load(spark, path)
    logs(spark).write.format("indextables").save(path)
    with pytest.raises(TableAlreadyExistsError):
        logs(spark).write.format("indextables").save(path)


@needs_sources
def test_sql_raises_the_error_of_the_source(spark: SparkSession, path: str) -> None:
    with pytest.raises(TableNotFoundError) as refused:
        spark.sql(f"CREATE TEMPORARY VIEW none USING indextables OPTIONS (path '{path}')")
    assert refused.value.__cause__ is None


def test_an_error_of_several_lines_is_kept_as_a_whole(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").save(path)
    with pytest.raises(InvalidQueryError) as refused:
        load(spark, path, query="a AND").collect()
    assert str(refused.value).splitlines()[1:] == ["  a AND", "       ^"]


def test_an_action_raises_the_error_of_its_task(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").save(path)
    frame = load(spark, path, query="id:1")
    (split,) = split_files(Path(path))
    (Path(path) / split).unlink()
    with pytest.raises(ObjectNotFoundError, match=r"no such object$"):
        frame.collect()


def test_errors_of_others_stay_as_they_are(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="nothing"):
        spark.sql("SELECT * FROM nothing")
    with pytest.raises(SPARK_ERRORS, match="of the user"):
        spark.sql("SELECT raise_error('of the user')").collect()


FIRST = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: Traceback (most recent call last):
  File "a.py", line 1, in a
indextables.errors.ObjectNotFoundError: a/b: no such object
"""


def test_the_text_of_an_error_ends_before_the_frames_of_the_jvm() -> None:
    for end in (
        "",
        " SQLSTATE: 38000",
        "\n\tat a.b.C$.d(C.scala:1)\n\nDriver stacktrace:",
        "\nJVM stacktrace:\nx",
    ):
        error = own_error(FIRST + end)
        assert isinstance(error, ObjectNotFoundError)
        assert str(error).startswith("a/b: no such object")
    error = own_error(FIRST.replace("ObjectNotFoundError", "SplitsMissingError"))
    assert isinstance(error, SplitsMissingError)
    assert error.paths == ()


def test_an_error_that_another_one_replaced_is_not_the_reason() -> None:
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    last = "Traceback (most recent call last):\nValueError: x"
    assert own_error(FIRST + during + last) is None
    assert own_error("Traceback (most recent call last):\nindextables.errors.NoSuchError: x") is None
    # Nothing but the text is known, and this error needs a version.
    assert own_error("indextables.errors.CleanupFailedError: x") is None


def test_a_script_with_a_stopped_and_an_open_session_ends_without_a_traceback(tmp_path: Path) -> None:
    script = """
import indextables.spark
for path in ("stopped", "open"):
    spark = indextables.spark.session(**{"spark.master": "local[1]", "spark.driver.memory": "512m"})
    for _ in range(2):
        spark.range(3).write.format("indextables").mode("append").save(path)
    assert spark.read.format("indextables").load(path).count() == 6
    if path == "stopped":
        spark.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
