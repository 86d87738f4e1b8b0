"""The two forms of a table's schema, Spark JSON and Arrow, and the rules for its columns."""

from indextables.schema.shape import TableShape, canonical_schema, check_partition_columns, find_column
from indextables.schema.spark_json import from_spark_json, to_spark_json

__all__ = [
    "TableShape",
    "canonical_schema",
    "check_partition_columns",
    "find_column",
    "from_spark_json",
    "to_spark_json",
]
