"""The two forms of a table's schema, Spark JSON and Arrow, the rules for its columns, and their ids."""

from indextables.schema.field_ids import (
    FieldIds,
    ids_by_path,
    names_in_file,
    new_field_ids,
    record_field_ids,
    recorded_field_ids,
    type_in_table,
)
from indextables.schema.shape import TableShape, canonical_schema, check_partition_columns, find_column
from indextables.schema.spark_json import from_spark_json, to_spark_json

__all__ = [
    "FieldIds",
    "TableShape",
    "canonical_schema",
    "check_partition_columns",
    "find_column",
    "from_spark_json",
    "ids_by_path",
    "names_in_file",
    "new_field_ids",
    "record_field_ids",
    "recorded_field_ids",
    "to_spark_json",
    "type_in_table",
]
