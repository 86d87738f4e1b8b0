"""Sessions: a local one that is ready at once, and what makes any other one ready."""

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from indextables.errors import SparkUnavailableError
from indextables.spark.availability import require_java

PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"
ARROW: Final = "spark.sql.execution.arrow.pyspark.enabled"

WORKERS_PYTHON: Final = "spark.pyspark.python"
# Batches go to and from Python processes a fifth faster than over TCP, and nobody else can connect.
LOCAL_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"

# Spark keeps settings out of its pages and logs by their names; its own list of them knows nothing of ours.
REDACTION: Final = "spark.redaction.regex"
_TO_REDACT: Final = "(?i)" + "|".join(
    (
        "secret",
        "password",
        "token",
        "access[.]?key",
        "account[.]?key",
        "connection[.]?string",
        "credential",
        "service[.]?account",
    )
)

_LOOPBACK: Final = "127.0.0.1"
_QUIET_LOGS: Final = Path(__file__).with_name("log4j2.properties")
_GIGABYTE: Final = 1024**3
_MAX_MEMORY_GIGABYTES: Final = 8


def session(**conf: object) -> SparkSession:
    """A local Spark session in which everything of IndexTables works.

    `conf` are settings of Spark, which win over the ones chosen here: `session(**{"spark.master": "local[2]"})`.
    A session that runs already is returned as it is, and enabled. Raises SparkUnavailableError if there is no Java,
    or if Spark does not start.
    """
    builder = SparkSession.builder
    settings = {**_local_settings(), **{key: _text(value) for key, value in conf.items()}}
    # Workers must have this package, and so they need this interpreter, unless somebody names another one.
    os.environ.setdefault("PYSPARK_PYTHON", settings.get(WORKERS_PYTHON, sys.executable))
    is_remote = "spark.remote" in settings or "SPARK_REMOTE" in os.environ
    if is_remote:
        # A server has its own master, memory and network; only the settings of a session are ours there.
        settings = {key: _text(value) for key, value in conf.items()}
    elif SparkSession.getActiveSession() is None:
        require_java()
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return enable(builder.getOrCreate())
    except (PySparkException, RuntimeError) as error:
        raise SparkUnavailableError(
            f"Spark did not start: {error}; check that Java 17 or newer is installed, and the settings given"
        ) from error


def enable(spark: SparkSession) -> SparkSession:
    """Make an existing session ready, classic or Connect; returns the same one. A second time changes nothing.

    The data source is known under all its names, filters are pushed down to it, `.partitionBy(…)` and all save modes
    work with it, and `spark.sql` understands the statements of IndexTables.
    """
    # Spark starts many short-lived processes that import this package for the source alone.
    from indextables.spark.enable import (
        ENABLED,
        STATEMENT_HANDLERS,
        execute_statement,
        patch_dataframe_api,
        patch_stream_api,
    )
    from indextables.spark.source import SOURCES

    if spark.conf.get(ENABLED, "false") != "true":
        for source in SOURCES:
            spark.dataSource.register(source)
        spark.conf.set(PUSH_DOWN, "true")
        spark.conf.set(ENABLED, "true")
    if execute_statement not in STATEMENT_HANDLERS:
        STATEMENT_HANDLERS.append(execute_statement)
    patch_dataframe_api(spark)
    patch_stream_api(spark)
    return spark


def _local_settings() -> dict[str, str]:
    return {
        "spark.master": "local[*]",
        "spark.app.name": "indextables",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET_LOGS.as_uri()}",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.memory": f"{_memory_gigabytes()}g",
        PUSH_DOWN: "true",
        ARROW: "true",
        LOCAL_SOCKETS: "true",
        REDACTION: _TO_REDACT,
    }


def _memory_gigabytes() -> int:
    """A quarter of the machine: the rest is for the Python workers, which do the indexing, and for others."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(total // 4 // _GIGABYTE, 1), _MAX_MEMORY_GIGABYTES)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
