"""Creating a table: version 0, which is written once and never overwritten.

A table is created empty (`create_table`), or with its first rows in the same commit: `plan_table` gives a snapshot at
version -1 that splits can be written for, and `commit_table` writes version 0 with the splits. Until then there is no
table.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from indextables.config import Settings, check_properties
from indextables.config.registry import TRANSACTION_COMPRESSION_ENABLED
from indextables.errors import TableAlreadyExistsError, TableNotFoundError
from indextables.log.actions import (
    CURRENT_PROTOCOL,
    ENGINE_INFO,
    CommitInfo,
    Metadata,
    encode_actions,
    new_commit_id,
)
from indextables.log.entries import MemorySource, empty_entries
from indextables.log.replay import EMPTY_HEADER
from indextables.log.segment import LogSegment
from indextables.log.version_file import Conflict, compress, write_version_file
from indextables.metrics import COMMITS, INDEXED_ROWS
from indextables.schema import TableShape, check_partition_columns, from_spark_json, to_spark_json
from indextables.storage import require_put_if_absent
from indextables.table.conflict import INDEXING_PREFIX
from indextables.table.context import TableContext
from indextables.table.field_ids import with_field_ids
from indextables.table.history import CREATE_TABLE
from indextables.table.intent import Append
from indextables.table.load import load_snapshot
from indextables.table.plan import make_plan
from indextables.table.snapshot import Snapshot

CREATE_TABLE_WITH_ROWS: Final = "CREATE TABLE AS SELECT"


def create_table(
    context: TableContext,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    *,
    name: str | None = None,
    description: str | None = None,
) -> Snapshot:
    """Create a table, or open the existing one if it has the same definition. An existing table keeps its name.

    If several processes create the table at once, one of them writes version 0 and the others open it. Raises
    InvalidSchemaError, UnsupportedStoreError if the store ignores put-if-absent, and TableAlreadyExistsError if there
    is a table with another schema, partitioning or index settings.
    """
    check_partition_columns(schema, partition_by)
    schema_string = to_spark_json(schema)
    existing = _find(context)
    if existing is None:
        metadata = _new_metadata(context, schema_string, partition_by, properties, name, description)
        require_put_if_absent(context.store)
        # The new id makes these bytes unique, so a write whose answer was lost can be recognised.
        if _write_first_version(context, encode_actions([CURRENT_PROTOCOL, metadata])):
            COMMITS.record(1, context.url, operation=CREATE_TABLE)
        existing = load_snapshot(context)
    _check_same_definition(existing, schema_string, tuple(partition_by), properties)
    return existing


def plan_table(
    context: TableContext,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    *,
    name: str | None = None,
    description: str | None = None,
) -> Snapshot:
    """A table that does not exist yet, as a snapshot at version -1. Writes nothing. Raises InvalidSchemaError."""
    check_partition_columns(schema, partition_by)
    metadata = _new_metadata(context, to_spark_json(schema), partition_by, properties, name, description)
    header = msgspec.structs.replace(EMPTY_HEADER, protocol=CURRENT_PROTOCOL, metadata=metadata)
    return Snapshot(
        context.with_properties(metadata),
        LogSegment(version=-1, base=None, version_files=(), gap=None),
        header,
        CURRENT_PROTOCOL,
        metadata,
        MemorySource(empty_entries()),
    )


def commit_table(planned: Snapshot, adds: Append) -> tuple[Snapshot, bool]:
    """Create a planned table with its first splits, as version 0.

    Returns the table, and whether this commit created it. If another writer has created the table in the meantime,
    with the same definition, its snapshot is returned, and nothing was committed. Raises TableAlreadyExistsError if it
    has another definition.
    """
    context, metadata = planned.context, planned.metadata
    plan = make_plan(adds, planned)
    registered = next((action for action in plan.actions if isinstance(action, Metadata)), metadata)
    others = [action for action in plan.actions if not isinstance(action, Metadata)]
    info = CommitInfo(
        commit_id=new_commit_id(),
        timestamp=context.store.clock.now_ms(),
        operation=CREATE_TABLE_WITH_ROWS,
        operation_metrics=plan.metrics,
        engine_info=ENGINE_INFO,
        is_exact=plan.is_exact,
    )
    is_created = _write_first_version(context, encode_actions([info, planned.protocol, registered, *others]))
    if is_created:
        COMMITS.record(1, context.url, operation=CREATE_TABLE_WITH_ROWS)
        INDEXED_ROWS.record(plan.num_new_rows, context.url, operation=CREATE_TABLE_WITH_ROWS)
    existing = load_snapshot(context)
    if not is_created:
        _check_same_definition(
            existing, metadata.schema_string, planned.partition_columns, metadata.configuration
        )
        if existing.shape.field_ids != planned.shape.field_ids:
            raise TableAlreadyExistsError(
                f"{context.url}: a table whose columns have other ids was created here meanwhile; write again"
            )
    return existing, is_created


def _new_metadata(
    context: TableContext,
    schema_string: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
) -> Metadata:
    check_properties(properties)
    metadata = with_field_ids(
        Metadata(
            id=str(uuid.uuid4()),
            schema_string=schema_string,
            partition_columns=tuple(partition_by),
            configuration=dict(properties),
            name=name,
            description=description,
            created_time=context.store.clock.now_ms(),
        )
    )
    check_index_settings(metadata, context.with_properties(metadata).settings)
    return metadata


def check_index_settings(metadata: Metadata, settings: Settings) -> None:
    """Raise InvalidOptionError for index settings with which no row could be written to a table."""
    # Imports Tantivy, which opening a table does not need.
    from indextables.split.doc_mapping_settings import mapping_from_settings

    shape = TableShape(from_spark_json(metadata.schema_string), metadata.partition_columns)
    mapping_from_settings(shape.checked(), settings)


def _write_first_version(context: TableContext, lines: bytes) -> bool:
    """Write version 0, and return whether it is ours."""
    data = compress(lines) if context.settings[TRANSACTION_COMPRESSION_ENABLED] else lines
    is_written = not isinstance(write_version_file(context.store, 0, data), Conflict)
    # Cached values under this path belong to a table that was dropped.
    context.cache.invalidate(context.store)
    return is_written


def _find(context: TableContext) -> Snapshot | None:
    try:
        return load_snapshot(context)
    except TableNotFoundError:
        return None


def _check_same_definition(
    existing: Snapshot, schema_string: str, partition_by: tuple[str, ...], properties: Mapping[str, str]
) -> None:
    configuration = existing.metadata.configuration
    other_settings = [
        key
        for key, value in properties.items()
        if key.startswith(INDEXING_PREFIX) and configuration.get(key) != value
    ]
    if existing.schema != from_spark_json(schema_string):
        difference = "another schema"
    elif existing.partition_columns != partition_by:
        difference = f"the partition columns {list(existing.partition_columns)}"
    elif other_settings:
        difference = f"another value of {other_settings[0]}"
    else:
        return
    raise TableAlreadyExistsError(
        f"{existing.context.url}: a table with {difference} exists here already; open it with IndexTable(path), "
        f"or choose another path"
    )
