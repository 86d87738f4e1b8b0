"""Table properties and the protocol: changes to the table itself."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from indextables.config import Settings
from indextables.config.registry import INDEXING_TYPEMAP
from indextables.errors import InvalidOptionError, InvalidSchemaError
from indextables.log.protocol import READER_VERSION, WRITER_VERSION
from indextables.log.replay import SCHEMA_PROPERTY_PREFIX
from indextables.ops.write import run
from indextables.table import CommitResult, Operation, Snapshot
from indextables.table.conflict import INDEXING_PREFIX
from indextables.table.intent import ChangeProperties, UpgradeProtocol


def set_properties(snapshot: Snapshot, properties: Mapping[str, str | None]) -> CommitResult:
    """Set table properties, or remove those that are None.

    Concurrent changes of different properties compose; of the same one, the later fails with a
    CommitConflictError. Raises InvalidOptionError for a property that the log itself keeps, and for a setting with a
    value that it cannot have.
    """
    reserved = sorted(key for key in properties if key.startswith(SCHEMA_PROPERTY_PREFIX))
    if reserved:
        raise InvalidOptionError(
            f"{snapshot.context.url}: {reserved[0]} is part of the schema registry and cannot be set by hand"
        )
    for key, value in properties.items():
        if value is not None and not isinstance(value, str):
            raise InvalidOptionError(f"{snapshot.context.url}: the property {key!r} must be a text, or None")
    Settings.resolve({key: value for key, value in properties.items() if value is not None})
    return run(snapshot, ChangeProperties(dict(properties)), Operation("SET PROPERTIES"))


def upgrade_protocol(snapshot: Snapshot, reader_version: int, writer_version: int) -> CommitResult:
    """Raise the protocol versions, as a commit. They are never lowered."""
    if reader_version > READER_VERSION or writer_version > WRITER_VERSION:
        raise InvalidOptionError(
            f"{snapshot.context.url}: this release supports protocol version {READER_VERSION} for readers and "
            f"{WRITER_VERSION} for writers at most"
        )
    return run(snapshot, UpgradeProtocol(reader_version, writer_version), Operation("UPGRADE PROTOCOL"))


def indexing_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The options that say how columns are indexed: a table must keep them, or later splits would differ."""
    return {key: value for key, value in options.items() if key.lower().startswith(INDEXING_PREFIX)}


def text_properties(schema: pa.Schema, text: Sequence[str]) -> dict[str, str]:
    """The properties that make columns searchable as text. Raises InvalidSchemaError for others than strings."""
    for name in text:
        index = schema.get_field_index(name)
        if index < 0:
            raise InvalidSchemaError(
                f"the text column {name!r} is not in the schema: {', '.join(schema.names)}"
            )
        kind = schema.field(index).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InvalidSchemaError(
                f"the text column {name!r} is of type {kind}; only strings can be tokenised"
            )
    return {f"{INDEXING_TYPEMAP.prefix}{name}": "text" for name in text}
