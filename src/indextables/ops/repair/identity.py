"""Restores the metadata and protocol of a table from its log or, where the log is silent, from its splits. Pure."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from indextables.config import Settings
from indextables.config.registry import INDEXING_TYPEMAP
from indextables.errors import IndexTablesError, LogCorruptedError
from indextables.log.actions import (
    DEFAULT_PROTOCOL,
    SPLIT_PROTOCOL_VERSION,
    Metadata,
    ProtocolAction,
    check_writable,
    upgraded,
)
from indextables.log.replay import DOC_MAPPING_PROPERTY_PREFIX, LogHeader
from indextables.ops.repair.splits import (
    FoundSplit,
    OwnDescription,
    mappings_of,
    newest_first,
    values_of_path,
)
from indextables.schema import (
    TableShape,
    from_spark_json,
    ids_by_path,
    names_in_file,
    recorded_field_ids,
    to_spark_json,
)
from indextables.schema.field_ids import FieldPath, with_field_ids
from indextables.schema.stored_names import stored_names_by_id
from indextables.split.doc_mapping import DocMapping, FieldKind
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.jvm import IndexedField
from indextables.state.schemas import STATE_PROTOCOL_VERSION
from indextables.table import field_ids

# The widest column type that each type of index field can come from.
_TYPE_OF_FIELD: Final[Mapping[str, pa.DataType]] = {
    "i64": pa.int64(),
    "u64": pa.int64(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.timestamp("us", tz="UTC"),
    "bytes": pa.binary(),
}
# The protocol of a table whose log is lost, unless it holds splits of ours: what the JVM gives to its tables.
_AVRO_STATE_PROTOCOL: Final = ProtocolAction(
    min_reader_version=STATE_PROTOCOL_VERSION, min_writer_version=STATE_PROTOCOL_VERSION
)
_KIND_NAMES: Final = {FieldKind.TEXT: "text", FieldKind.JSON: "json", FieldKind.IP: "ip"}


class Identity(msgspec.Struct, frozen=True):
    """Metadata, protocol and doc mappings (by hash) of the new log; `undecided` says what is uncertain about them."""

    metadata: Metadata
    protocol: ProtocolAction
    doc_mappings: Mapping[str, str]
    undecided: tuple[str, ...] = ()


def identify(
    header: LogHeader,
    splits: Sequence[FoundSplit],
    live: Collection[str],
    taken: Sequence[FoundSplit],
    url: str,
) -> Identity:
    """Derive the identity from the header of the log, and from the splits where the header has no metadata.

    `live` are the paths of the repaired table: if a split of ours is among them, the protocol says so. `taken` are the
    splits that the log does not know: their doc mappings are registered. Raises UnsupportedProtocolError, and
    LogCorruptedError if neither the log nor a split reveals the schema.
    """
    undecided: list[str] = []
    if header.metadata is not None:
        metadata = header.metadata
        # A log without a protocol action has the first version of the format.
        protocol = header.protocol or DEFAULT_PROTOCOL
    else:
        metadata = _metadata_from_splits(splits, url, undecided)
        protocol = header.protocol or _AVRO_STATE_PROTOCOL
    has_own = any(split.own is not None and split.path in live for split in splits)
    if has_own:
        protocol = upgraded(protocol, SPLIT_PROTOCOL_VERSION, SPLIT_PROTOCOL_VERSION)
    check_writable(protocol, url)
    if has_own or field_ids.has_field_ids(metadata):
        metadata = _with_field_ids(metadata, splits)
    mappings = mappings_of(splits if header.metadata is None else taken)
    new = {hash_: text for hash_, text in mappings.items() if hash_ not in header.doc_mappings}
    registered = {f"{DOC_MAPPING_PROPERTY_PREFIX}{hash_}": text for hash_, text in new.items()}
    configuration = {**metadata.configuration, **registered}
    metadata = msgspec.structs.replace(metadata, configuration=configuration)
    return Identity(metadata, protocol, {**header.doc_mappings, **new}, tuple(undecided))


def _metadata_from_splits(splits: Sequence[FoundSplit], url: str, undecided: list[str]) -> Metadata:
    own = newest_first(splits)
    if own:
        schemas = dict.fromkeys(description.schema_string for description in own)
        schema = _joined([_schema_with_ids(text) for text in schemas], undecided)
        shape = TableShape(schema, own[0].partition_columns)
        configuration = _indexing(own[0], shape, undecided)
        undecided.append(
            "no metaData action is left: schema and partitioning are those of the newest split, the table id is new, "
            "and the name, the description and the properties of the table are lost"
        )
    elif splits:
        shape = _jvm_shape(splits)
        configuration = _jvm_indexing(splits, shape.schema)
        undecided.append(
            "no metaData action is left, and splits of the JVM do not record the schema: columns have the type of "
            "their index field (int and short become long, date becomes timestamp, a struct becomes string), are "
            "nullable, and have the order of the index"
        )
        if shape.is_partitioned:
            undecided.append(
                f"the partition columns {', '.join(shape.partition_columns)} come from paths: their type is string, "
                f"and empty strings became null"
            )
        undecided.append(
            "the table id is new, and the name, the description and the properties of the table are lost"
        )
    else:
        raise LogCorruptedError(
            f"{url}: no readable log file and no readable split tells the schema of the table, so it cannot be "
            f"repaired; restore the files from a backup"
        )
    created_ms = min(split.add.modification_time for split in splits)
    return Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_spark_json(shape.schema),
        partition_columns=shape.partition_columns,
        configuration=configuration,
        created_time=created_ms,
    )


def _with_field_ids(metadata: Metadata, splits: Sequence[FoundSplit]) -> Metadata:
    """The metadata with the field ids of our own splits, if it lacks ids. No id that a split has is assigned again."""
    known: dict[FieldPath, int] = {}
    # The newest split comes last, and decides.
    for text in dict.fromkeys(description.schema_string for description in reversed(newest_first(splits))):
        known |= ids_by_path(from_spark_json(text), recorded_field_ids(text))
    if not known:
        return metadata
    metadata = field_ids.with_field_ids(metadata, known, max(known.values()))
    metadata = field_ids.with_stored_names(metadata, _stored_names(splits))
    for text in {description.schema_string for description in newest_first(splits)}:
        former = msgspec.structs.replace(metadata, schema_string=text, configuration={})
        metadata = field_ids.with_retired_names(metadata, former)
    return metadata


def _stored_names(splits: Sequence[FoundSplit]) -> dict[int, str]:
    """The stored name of every field that a split of ours has, by its id."""
    found: dict[int, str] = {}
    for text in dict.fromkeys(description.schema_string for description in newest_first(splits)):
        found |= stored_names_by_id(text)
    return found


def _schema_with_ids(schema_string: str) -> pa.Schema:
    return with_field_ids(from_spark_json(schema_string), recorded_field_ids(schema_string))


def _joined(schemas: Sequence[pa.Schema], undecided: list[str]) -> pa.Schema:
    """The newest schema, followed by the columns that only older schemas have. Schemas have field ids."""
    fields = {field.name: field for field in schemas[0]}
    for schema in schemas[1:]:
        in_newer = {name: newer for newer, name in names_in_file(schema, fields.values()).items()}
        for field in schema:
            newer = in_newer.get(field.name)
            if newer is None and field.name in fields:
                undecided.append(
                    f"the column {field.name} of older splits is another one than that of the newest"
                )
                continue
            known = fields.setdefault(newer or field.name, field.with_nullable(True))
            if known.type != field.type:
                undecided.append(
                    f"the column {field.name} has the type {known.type} in the newest split and {field.type} in other "
                    f"splits"
                )
    return pa.schema(list(fields.values()))


def _indexing(newest: OwnDescription, shape: TableShape, undecided: list[str]) -> dict[str, str]:
    """The properties that make writers index new splits like the newest one, as far as its mapping reveals them."""
    in_table = newest.mapping.in_table(TableShape.of(newest.schema_string, newest.partition_columns, ()))
    mapping = DocMapping(tuple(msgspec.structs.replace(field, stored_name=None) for field in in_table))
    properties = {
        f"{INDEXING_TYPEMAP.prefix}{field.name}": _KIND_NAMES[field.kind]
        for field in mapping
        if field.kind in _KIND_NAMES and pa.types.is_string(shape.type_of(field.name))
    }
    try:
        is_same = mapping_from_settings(shape, Settings.resolve(properties)) == mapping
    except IndexTablesError:
        return {}
    if not is_same:
        undecided.append(
            "some index settings cannot be derived from the splits: new splits may be indexed differently"
        )
    return properties


def _jvm_shape(splits: Sequence[FoundSplit]) -> TableShape:
    fields: dict[str, IndexedField] = {}
    partitions: dict[str, None] = {}
    for split in splits:
        fields |= {field.name: field for field in split.fields if field.name not in fields}
        partitions |= dict.fromkeys(values_of_path(split.path))
    columns = [
        pa.field(field.name, _TYPE_OF_FIELD.get(field.type, pa.string()))
        for field in fields.values()
        if field.name not in partitions
    ]
    columns += [pa.field(name, pa.string()) for name in partitions]
    return TableShape(pa.schema(columns), tuple(partitions))


def _jvm_indexing(splits: Sequence[FoundSplit], schema: pa.Schema) -> dict[str, str]:
    texts = {
        field.name
        for split in splits
        for field in split.fields
        if field.type == "text" and field.tokenizer not in (None, "raw") and field.name in schema.names
    }
    return {f"{INDEXING_TYPEMAP.prefix}{name}": "text" for name in sorted(texts)}
