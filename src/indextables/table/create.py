"""Creating a table: version 0, which is written once and never overwritten."""

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from indextables.config.registry import TRANSACTION_COMPRESSION_ENABLED
from indextables.errors import TableAlreadyExistsError, TableNotFoundError
from indextables.log.actions import CURRENT_PROTOCOL, Metadata, encode_actions
from indextables.log.version_file import Conflict, compress, write_version_file
from indextables.metrics import COMMITS
from indextables.schema import check_partition_columns, from_spark_json, to_spark_json
from indextables.storage import require_put_if_absent
from indextables.table.conflict import INDEXING_PREFIX
from indextables.table.context import TableContext
from indextables.table.field_ids import with_field_ids
from indextables.table.history import CREATE_TABLE
from indextables.table.load import load_snapshot
from indextables.table.snapshot import Snapshot


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
        require_put_if_absent(context.store)
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
        # The new id makes these bytes unique, so a write whose answer was lost can be recognised.
        lines = encode_actions([CURRENT_PROTOCOL, metadata])
        data = compress(lines) if context.settings[TRANSACTION_COMPRESSION_ENABLED] else lines
        if not isinstance(write_version_file(context.store, 0, data), Conflict):
            COMMITS.record(1, context.url, operation=CREATE_TABLE)
        # Cached values under this path belong to a table that was dropped.
        context.cache.invalidate(context.store)
        existing = load_snapshot(context)
    _check_same_definition(existing, schema_string, tuple(partition_by), properties)
    return existing


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
