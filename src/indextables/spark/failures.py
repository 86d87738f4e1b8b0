"""Spark's errors, as ours."""

import contextlib
from collections.abc import Iterator

from pyspark.errors import PySparkException

from indextables.errors import SparkFailedError


@contextlib.contextmanager
def explaining(what: str) -> Iterator[None]:
    """Raise SparkFailedError, with the first line of the reason and without the stack, for what Spark raises."""
    try:
        yield
    except PySparkException as error:
        reason = str(error).partition("\n")[0]
        raise SparkFailedError(f"Spark could not {what}: {reason}") from error
