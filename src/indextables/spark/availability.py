"""Whether Spark can run here: pyspark and Java. Imported before everything else of this package."""

import os
import shutil
from pathlib import Path

from indextables.errors import MissingExtraError, SparkUnavailableError

try:
    import pyspark
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "Spark needs the package pyspark, which is not installed; run: pip install indextables[spark]"
    ) from error

PYSPARK_VERSION = str(pyspark.__version__)

NO_JAVA = (
    "Spark needs Java 17 or newer, and there is none here; install one (for example openjdk-17-jre-headless), or let "
    "JAVA_HOME point to it"
)


def require_java() -> None:
    """Raise SparkUnavailableError if there is no Java that Spark would find."""
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").is_file() if home else shutil.which("java") is not None
    if not found:
        raise SparkUnavailableError(NO_JAVA)
