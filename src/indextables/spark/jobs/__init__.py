"""Work of operations on Spark's executors."""

from indextables.spark.jobs.runner import SparkRunner
from indextables.spark.jobs.workers import check_workers

__all__ = ["SparkRunner", "check_workers"]
