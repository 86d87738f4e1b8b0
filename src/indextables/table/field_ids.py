"""The field ids of a table, which its metadata records: in the schema, and the highest id ever used in a property.

Every new table has them. A table without them, of the JVM, gets them in the commit that adds the first split of ours,
together with protocol 5. They are numbered in the order of the schema, so writers know them before the commit.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from indextables.errors import InvalidSchemaError
from indextables.log.actions import Metadata
from indextables.schema import (
    FieldIds,
    from_spark_json,
    ids_by_path,
    new_field_ids,
    record_field_ids,
    recorded_field_ids,
)
from indextables.schema.evolution import stored_paths
from indextables.schema.field_ids import FieldPath
from indextables.schema.stored_names import record_stored_names_by_id, stored_schema

# Writers maintain these properties: no id and no stored name is given to a second column, even if the first is gone.
MAX_FIELD_ID_PROPERTY: Final = "maxFieldId"
RETIRED_NAMES_PROPERTY: Final = "retiredColumnNames"
MAINTAINED_PROPERTIES: Final = (MAX_FIELD_ID_PROPERTY, RETIRED_NAMES_PROPERTY)


def has_field_ids(metadata: Metadata) -> bool:
    """Whether the table has field ids. Without them, ids in its schema come from elsewhere and mean nothing."""
    return MAX_FIELD_ID_PROPERTY in metadata.configuration


def field_ids_of(metadata: Metadata) -> FieldIds:
    """The ids of the columns; for a table without them, those that its first split of ours will give it.

    Raises InvalidSchemaError if a writer that does not know ids has damaged them: columns that are found by other ids,
    or by names, would have wrong values.
    """
    schema = from_spark_json(metadata.schema_string)
    if not has_field_ids(metadata):
        return new_field_ids(schema)
    ids = recorded_field_ids(metadata.schema_string)
    if not ids or max(ids) > max_field_id(metadata):
        raise InvalidSchemaError(
            f"the table has field ids up to {max_field_id(metadata)}, but its schema has "
            f"{f'the id {max(ids)}' if ids else 'none'}: a writer that does not support field ids has replaced it; "
            f"restore an older version"
        )
    return ids


def max_field_id(metadata: Metadata) -> int:
    """The highest id that a column of the table ever had; 0 if it has no ids. Raises InvalidSchemaError."""
    text = metadata.configuration.get(MAX_FIELD_ID_PROPERTY, "0")
    if not (text.isascii() and text.isdigit()):
        raise InvalidSchemaError(
            f"the property {MAX_FIELD_ID_PROPERTY} is {text!r}, not a number; restore an older version"
        )
    return int(text)


def with_field_ids(
    metadata: Metadata, known: Mapping[FieldPath, int] | None = None, last_id: int = 0
) -> Metadata:
    """The metadata with field ids: those of `known` fields and new ones, if it has none, and its own otherwise.

    Ids up to `last_id` are never assigned again. Raises InvalidSchemaError for a schema that cannot be read.
    """
    schema_string = metadata.schema_string
    last_id = max(last_id, max_field_id(metadata))
    if not has_field_ids(metadata):
        ids = new_field_ids(from_spark_json(schema_string), known, last_id)
        schema_string = record_field_ids(schema_string, ids)
        last_id = max(last_id, *ids)
    configuration = {**metadata.configuration, MAX_FIELD_ID_PROPERTY: str(last_id)}
    return replace(metadata, schema_string=schema_string, configuration=configuration)


def with_ids_of_table(older: Metadata, current: Metadata) -> Metadata:
    """The metadata of an older version, which the table restores, without giving an id to a second column."""
    if not has_field_ids(current):
        return older
    known = {}
    if not has_field_ids(older):
        # All splits of that version are without ids, so its columns may as well have those of today.
        schema = stored_schema(current.schema_string) or from_spark_json(current.schema_string)
        known = ids_by_path(schema, field_ids_of(current))
    return with_retired_names(with_field_ids(older, known, max_field_id(current)), current)


def retired_names(metadata: Metadata) -> frozenset[str]:
    """The stored paths of columns that the table has lost, in lower case. Raises InvalidSchemaError."""
    text = metadata.configuration.get(RETIRED_NAMES_PROPERTY, "[]")
    try:
        return frozenset(msgspec.json.decode(text, type=list[str]))
    except msgspec.MsgspecError as error:
        raise InvalidSchemaError(
            f"the property {RETIRED_NAMES_PROPERTY} is {text!r}, not a list of names; restore an older version"
        ) from error


def with_retired_names(metadata: Metadata, before: Metadata) -> Metadata:
    """The metadata that follows `before`, without giving the name of a former column to a new one."""
    names = retired_names(before) | retired_names(metadata) | stored_paths(before.schema_string)
    names -= stored_paths(metadata.schema_string)
    configuration = dict(metadata.configuration)
    configuration.pop(RETIRED_NAMES_PROPERTY, None)
    if names:
        configuration[RETIRED_NAMES_PROPERTY] = msgspec.json.encode(sorted(names)).decode()
    return replace(metadata, configuration=configuration)


def with_stored_names(metadata: Metadata, stored: Mapping[int, str]) -> Metadata:
    """The metadata with the stored names that splits have, by field id; other columns are stored under their names."""
    schema_string = record_stored_names_by_id(metadata.schema_string, stored)
    return replace(metadata, schema_string=schema_string)
