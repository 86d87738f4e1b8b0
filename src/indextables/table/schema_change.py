"""A schema change as part of the log: what it does to the metadata and the protocol of a table, and what still fits."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config import Setting, SettingFamily, registry
from indextables.errors import InvalidSchemaError
from indextables.log.actions import COLUMN_MAPPING, Metadata
from indextables.pruning import parse_values
from indextables.pruning.values import map_values
from indextables.schema import TableShape, find_column, from_spark_json
from indextables.schema.evolution import (
    AlterColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    change_schema,
    find_field,
)
from indextables.schema.field_ids import ids_by_field
from indextables.schema.stored_names import column_defaults, stored_schema, widened_columns
from indextables.table.field_ids import (
    MAINTAINED_PROPERTIES,
    MAX_FIELD_ID_PROPERTY,
    RETIRED_NAMES_PROPERTY,
    field_ids_of,
    max_field_id,
    retired_names,
    with_field_ids,
    with_retired_names,
)
from indextables.table.intent import ChangeSchema
from indextables.table.snapshot import Snapshot

# Above this, doubles do not have all integers.
_EXACT_DOUBLES: Final = 2**53

# The settings that name columns, in their keys or in their values.
_FAMILIES: Final[tuple[SettingFamily, ...]] = (
    registry.INDEXING_TYPEMAP,
    registry.INDEXING_TOKENIZER,
    registry.INDEXING_INDEX_RECORD_OPTION,
    registry.INDEXING_TOKEN_LENGTH,
)
_LISTS: Final[tuple[Setting[tuple[str, ...]], ...]] = (
    registry.INDEXING_FAST_FIELDS,
    registry.INDEXING_STORE_ONLY_FIELDS,
    registry.INDEXING_INDEX_ONLY_FIELDS,
    registry.DATA_SKIPPING_STATS_COLUMNS,
)
_LIST_KEYS: Final = frozenset(setting.key.lower() for setting in _LISTS)


def changed_metadata(change: SchemaChange, metadata: Metadata) -> Metadata:
    """The metadata after a schema change. Settings follow a column that is renamed, and lose one that is dropped.

    Raises InvalidSchemaError for a change that the schema does not allow.
    """
    before = with_field_ids(metadata)
    evolved = change_schema(
        before.schema_string,
        change,
        last_id=max_field_id(before),
        retired=retired_names(before),
        fixed=before.partition_columns,
    )
    configuration = {**before.configuration, MAX_FIELD_ID_PROPERTY: str(evolved.last_id)}
    if isinstance(change, RenameColumn | DropColumn) and len(change.path) == 1:
        new_name = change.name if isinstance(change, RenameColumn) else None
        configuration = _with_other_name(configuration, before, change.path[0], new_name)
    after = replace(before, schema_string=evolved.schema_string, configuration=configuration)
    return with_retired_names(after, before)


def check_exact(change: SchemaChange, snapshot: Snapshot) -> None:
    """Raise InvalidSchemaError if a column of long integers becomes doubles, and some have no equal double.

    The statistics of all live splits have to prove that there are none.
    """
    if not isinstance(change, AlterColumn) or change.data_type != pa.float64():
        return
    field = find_column(snapshot.schema, change.path[0])
    if len(change.path) > 1 or field is None or field.type != pa.int64():
        return
    entries = snapshot.select(columns=["minValues", "maxValues"]).entries
    stored = snapshot.shape.stored_names[field.name]
    for name in ("minValues", "maxValues"):
        bounds = parse_values(map_values(entries[name].combine_chunks(), stored), pa.int64()).values
        magnitudes = pc.abs_checked(bounds)
        if not pc.all(pc.fill_null(pc.less_equal(magnitudes, _EXACT_DOUBLES), False), min_count=0).as_py():
            raise InvalidSchemaError(
                f"column {field.name!r} has integers beyond 2^53, or splits without statistics of it, so that a double "
                f"might be another number; make it decimal(20,0)"
            )


def planned_snapshot(snapshot: Snapshot, changes: Sequence[SchemaChange]) -> Snapshot:
    """The table as it will be after changes of columns that are committed with their first rows.

    Raises InvalidSchemaError for a change that the schema does not allow.
    """
    metadata = snapshot.metadata
    for change in changes:
        metadata = changed_metadata(change, metadata)
    return Snapshot(
        snapshot.context.with_properties(metadata),
        snapshot.segment,
        snapshot.header,
        snapshot.protocol,
        metadata,
        snapshot.source,
    )


def has_same_new_fields(intent: ChangeSchema, metadata: Metadata) -> bool:
    """Whether the columns that a commit adds together with rows are those that the rows were written for."""
    return all(
        find_field(metadata.schema_string, change.path) == find_field(intent.planned, change.path)
        for change in intent.changes
    )


def needed_feature(metadata: Metadata) -> str | None:
    """The protocol feature that readers and writers need after a schema change.

    A nullable column without a default, a comment and a position are right for readers that know nothing of changes.
    """
    schema = metadata.schema_string
    has_names = stored_schema(schema) is not None or RETIRED_NAMES_PROPERTY in metadata.configuration
    return COLUMN_MAPPING if has_names or column_defaults(schema) or widened_columns(schema) else None


def names_columns(key: str) -> bool:
    """Whether a property is one that a schema change maintains: it names columns, or records ids and names."""
    lowered = key.lower()
    is_setting = lowered in _LIST_KEYS or any(lowered.startswith(each.prefix.lower()) for each in _FAMILIES)
    return is_setting or key in MAINTAINED_PROPERTIES


def misfit(before: Metadata, after: Metadata) -> str | None:
    """What changed so that splits, written for the schema before, would be wrong after a change; None if they fit.

    A field that was dropped would lose their values. A wider type, another name, order or comment, and new columns do
    not matter: splits are read by ids, in the types that they have.
    """
    if before.schema_string == after.schema_string:
        return None
    if before.partition_columns != after.partition_columns:
        return "the partitioning"
    old, new = (
        ids_by_field(TableShape.of(each.schema_string, (), field_ids_of(each)).schema_with_ids)
        for each in (before, after)
    )
    for field_id, field in old.items():
        if field_id not in new:
            return f"the column {field.name!r}, which was dropped"
        if field.type == pa.int64() and new[field_id].type == pa.float64():
            return f"the column {field.name!r}, which has doubles now"
        if field.nullable and not new[field_id].nullable:
            return f"the column {field.name!r}, which allows no nulls any more"
    added = [field for field_id, field in new.items() if field_id not in old and not field.nullable]
    return f"the column {added[0].name!r}, which was added and allows no nulls" if added else None


# --- settings that name columns -----------------------------------------------------------------------


def _with_other_name(
    properties: Mapping[str, str], metadata: Metadata, name: str, new_name: str | None
) -> dict[str, str]:
    """The properties with another name for a column, or without the column."""
    schema = from_spark_json(metadata.schema_string)
    changed = {}
    for key, text in properties.items():
        family = next((each for each in _FAMILIES if key.lower().startswith(each.prefix.lower())), None)
        if key.lower() in _LIST_KEYS:
            text = _renamed_item(text, name, new_name)
        elif family is not None:
            ending = key[len(family.prefix) :]
            names_column = find_column(schema, ending) is not None and not _are_columns(text, schema)
            if names_column and ending.lower() == name.lower():
                if new_name is None:
                    continue
                key = f"{family.prefix}{new_name}"
            elif not names_column:
                text = _renamed_item(text, name, new_name)
        else:
            changed[key] = text
            continue
        if text:
            changed[key] = text
    return changed


def _are_columns(text: str, schema: pa.Schema) -> bool:
    return all(find_column(schema, item.strip()) is not None for item in text.split(",") if item.strip())


def _renamed_item(text: str, name: str, new_name: str | None) -> str:
    items = [item.strip() for item in text.split(",")]
    if name.lower() not in (item.lower() for item in items):
        return text
    renamed = (new_name if item.lower() == name.lower() else item for item in items)
    return ",".join(item for item in renamed if item)
