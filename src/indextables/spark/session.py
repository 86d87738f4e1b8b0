"""Spark sessions: a local one that is ready to use, and `enable` for any other.

The package imports this module first, so a missing pyspark or Java is reported here.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from indextables.errors import MissingExtraError, SparkUnavailableError

try:
    import pyspark
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "Spark support needs the package pyspark, which is not installed; run: pip install indextables[spark]"
    ) from error

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

PYSPARK_VERSION: Final = str(pyspark.__version__)

ENABLED: Final = "spark.indextables.python.enabled"
# Spark's Parquet reader then finds the columns of splits by field id. Files and schemas without ids are read as before.
FIELD_IDS: Final = "spark.sql.parquet.fieldId.read.enabled"
ARROW: Final = "spark.sql.execution.arrow.pyspark.enabled"

WORKERS_PYTHON: Final = "spark.pyspark.python"
# Unix sockets move batches between Spark and Python a fifth faster than TCP, and other users cannot connect.
LOCAL_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"

# Spark redacts settings in its UI and logs by name. Its default pattern does not cover our settings.
REDACTION: Final = "spark.redaction.regex"
_REDACTED_NAMES: Final = "(?i)" + "|".join(
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
    """Start a local Spark session with IndexTables enabled, or enable the one that is running.

    Args:
        **conf: Spark settings, which override the defaults chosen here.

    Returns:
        The session. A running session keeps its own master and memory.

    Raises:
        SparkUnavailableError: Java is missing, or Spark does not start.

    Example:
        >>> spark = indextables.spark.session(**{"spark.master": "local[2]"})
        >>> spark.read.format("indextables").load("logs").where("level = 'ERROR'").count()
    """
    builder = SparkSession.builder
    settings = {**_local_settings(), **{key: _text(value) for key, value in conf.items()}}
    # Workers need this package, and so this interpreter, unless the caller names another one.
    os.environ.setdefault("PYSPARK_PYTHON", settings.get(WORKERS_PYTHON, sys.executable))
    is_remote = "spark.remote" in settings or "SPARK_REMOTE" in os.environ
    if is_remote:
        # A Connect server has its own master, memory and network. Only the caller's settings apply there.
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
            f"Spark did not start: {error}; check that Java 17 or newer is installed, and check the settings"
        ) from error


def enable(spark: SparkSession) -> SparkSession:
    """Enable IndexTables on an existing session, classic or Connect. Enabling it again has no effect.

    Registers the data source under all its names, and the SQL functions. `.partitionBy(…)`, all save modes and tables
    with names then work, and `spark.sql` searches and executes IndexTables statements.

    Args:
        spark: The session to enable.

    Returns:
        The same session.

    Raises:
        SparkUnavailableError: The session is one of Spark Connect before 4.0.

    Example:
        >>> spark = indextables.spark.enable(SparkSession.builder.getOrCreate())
        >>> spark.sql("DESCRIBE INDEXTABLES STATE 'logs'").show()
    """
    # Spark starts many short-lived processes that import this package only for the data source.
    from indextables.spark.patches import patch_spark
    from indextables.spark.releases import HAS_SOURCES, register_sources
    from indextables.spark.source import SOURCES

    if not HAS_SOURCES and not isinstance(spark, SparkSession):
        raise SparkUnavailableError(
            "Spark Connect before 4.0 has no Python data sources; use Spark 4.0 or newer, or a classic session"
        )
    if not is_enabled(spark):
        if HAS_SOURCES:
            register_sources(spark, SOURCES)
            # Functions of SQL and table functions with columns of their own came with the sources.
            from indextables.spark.sql.functions import register_functions

            register_functions(spark)
        spark.conf.set(FIELD_IDS, "true")
        spark.conf.set(ENABLED, "true")
    patch_spark(spark)
    return spark


def is_enabled(spark: SparkSession) -> bool:
    """Whether `enable` prepared this session."""
    return spark.conf.get(ENABLED, "false") == "true"


def require_java() -> None:
    """Raise SparkUnavailableError if Spark would find no Java."""
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").is_file() if home else shutil.which("java") is not None
    if not found:
        raise SparkUnavailableError(
            "Spark needs Java 17 or newer, which was not found; install it (for example openjdk-17-jre-headless), or "
            "set JAVA_HOME"
        )


def _local_settings() -> dict[str, str]:
    return {
        "spark.master": "local[*]",
        "spark.app.name": "indextables",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET_LOGS.as_uri()}",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.memory": f"{_memory_gigabytes()}g",
        ARROW: "true",
        LOCAL_SOCKETS: "true",
        REDACTION: _REDACTED_NAMES,
    }


def _memory_gigabytes() -> int:
    """A quarter of the machine's memory; the Python workers, which do the indexing, need the rest."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(total // 4 // _GIGABYTE, 1), _MAX_MEMORY_GIGABYTES)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
