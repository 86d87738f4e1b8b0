"""Marks for tests that need what not every supported release of Spark has."""

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from indextables.spark.releases import HAS_SOURCES, HAS_STREAM_ARROW_WRITER

# Spark before 4.0 does not convert every error of the JVM.
SPARK_ERRORS = (PySparkException, Py4JJavaError)

needs_sources = pytest.mark.skipif(not HAS_SOURCES, reason="Spark before 4.0 has no Python data sources")
needs_stream_writers = pytest.mark.skipif(
    not HAS_STREAM_ARROW_WRITER, reason="Spark before 4.1 has no stream writers that take Arrow batches"
)
