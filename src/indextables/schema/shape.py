"""The shape of a table, case-insensitive column lookup, and the rules for partition columns."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import msgspec
import pyarrow as pa

from indextables._caching import lazy_property
from indextables.errors import InvalidSchemaError
from indextables.schema.field_ids import FieldIds, with_field_ids
from indextables.schema.spark_json import from_spark_json, to_spark_json
from indextables.schema.stored_names import column_defaults, stored_schema, widened_columns


class TableShape(msgspec.Struct, frozen=True, dict=True):
    """The columns of a table, its partition columns in order, and its field ids; none if they are unknown.

    `stored_schema` has the stored names (`stored_names`), None if they are the names. `defaults` has the texts of the
    values, other than null, that splits without a column have, and `widened` the types that columns had first.
    Partition columns are stored under their names.
    """

    schema: pa.Schema
    partition_columns: tuple[str, ...] = ()
    field_ids: FieldIds = ()
    stored_schema: pa.Schema | None = None
    defaults: Mapping[str, str] = {}
    widened: Mapping[str, pa.DataType] = {}

    @classmethod
    def of(cls, schema_string: str, partition_columns: Sequence[str], field_ids: FieldIds) -> "TableShape":
        """Return the shape that a schema in the log describes. Raises InvalidSchemaError."""
        return cls(
            from_spark_json(schema_string),
            tuple(partition_columns),
            field_ids,
            stored_schema(schema_string),
            column_defaults(schema_string),
            widened_columns(schema_string),
        )

    @lazy_property
    def stored(self) -> "TableShape":
        """The shape of the rows in splits: the same columns with their stored names."""
        if self.stored_schema is None:
            return self
        return TableShape(self.stored_schema, self.partition_columns, self.field_ids)

    @lazy_property
    def stored_names(self) -> dict[str, str]:
        """The stored name of each column, by its name."""
        return dict(zip(self.schema.names, self.stored.schema.names, strict=True))

    @property
    def is_partitioned(self) -> bool:
        return bool(self.partition_columns)

    @property
    def partition_keys(self) -> dict[str, str]:
        """The spelling of each partition column in the log, by its name in the schema."""
        fields = {name: find_column(self.schema, name) for name in self.partition_columns}
        return {field.name: name for name, field in fields.items() if field is not None}

    @property
    def data_schema(self) -> pa.Schema:
        """The columns that are not partition columns."""
        partitions = self.partition_keys
        return pa.schema([field for field in self.schema if field.name not in partitions])

    @lazy_property
    def schema_with_ids(self) -> pa.Schema:
        """The schema as Parquet files have it, with field ids. Rows that users see have none."""
        return with_field_ids(self.schema, self.field_ids)

    def type_of(self, column: str) -> pa.DataType:
        return self.schema.field(column).type

    def checked(self) -> "TableShape":
        """The shape with its partition columns as the schema spells them. Raises as `check_partition_columns` does."""
        partition_columns = check_partition_columns(self.schema, self.partition_columns)
        if partition_columns == self.partition_columns:
            return self
        return msgspec.structs.replace(self, partition_columns=partition_columns)


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table that is created with `schema`: each type becomes the Arrow type of a Spark type.

    Raises the errors of `to_spark_json`.
    """
    return from_spark_json(to_spark_json(schema))


def find_column(schema: pa.Schema, name: str) -> pa.Field | None:
    """Return the column with exactly this name, or else with this name in another case; None if there is none."""
    index = schema.get_field_index(name)
    if index >= 0:
        return schema.field(index)
    lowered = name.lower()
    return next((field for field in schema if field.name.lower() == lowered), None)


def check_partition_columns(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns as the schema spells them.

    Raises InvalidSchemaError if a column does not exist, is named twice, or has a type whose values cannot be read back
    from text, and if no column would be left for the data.
    """
    partition_columns: list[str] = []
    for name in names:
        field = find_column(schema, name)
        if field is None:
            raise InvalidSchemaError(f"partition column {name!r} does not exist{_did_you_mean(schema, name)}")
        if field.name in partition_columns:
            raise InvalidSchemaError(f"partition column {field.name!r} is named twice; name it once")
        if _has_no_text_form(field.type):
            raise InvalidSchemaError(
                f"partition column {field.name!r} has the type {field.type}; "
                "partition by a number, a string, a boolean, a date or a timestamp"
            )
        partition_columns.append(field.name)
    if not len(schema):
        raise InvalidSchemaError("there are no columns; a table needs at least one")
    if len(partition_columns) == len(schema):
        raise InvalidSchemaError("every column is a partition column; leave at least one for the data")
    return tuple(partition_columns)


def _has_no_text_form(data_type: pa.DataType) -> bool:
    # Bytes that are not UTF-8 cannot be stored as a partition value.
    without_text = (pa.types.is_nested, pa.types.is_null, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_type(data_type) for is_type in without_text)


def _did_you_mean(schema: pa.Schema, name: str) -> str:
    nearest = get_close_matches(name, schema.names, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; the columns are {', '.join(schema.names)}"
