"""Spark's limits for a batch of a stream, which releases before 4.2 do not have."""

from typing import TYPE_CHECKING, Any

from indextables.spark.stream_options import ReadLimits

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
    )
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxBytes,
            ReadMaxFiles,
        )
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
    except ImportError:
        ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = None

        class AvailableNow:
            """Stands for Spark's class of this purpose: such releases find out by themselves where to stop."""


__all__ = ["AvailableNow", "is_unlimited", "read_limit"]


def read_limit(limits: ReadLimits) -> Any:
    """What Spark calls these limits. It knows one at a time; who gets it back looks at our own."""
    if limits.max_files is not None:
        return ReadMaxFiles(limits.max_files)
    if limits.max_bytes is not None:
        return ReadMaxBytes(limits.max_bytes)
    return ReadAllAvailable()


def is_unlimited(limit: object) -> bool:
    """Whether Spark asks for everything that is there."""
    return isinstance(limit, ReadAllAvailable)
