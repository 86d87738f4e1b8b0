"""What a table is: its schema, partitioning, properties and protocol, from the log or from its splits. Pure."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from indextables.config import Settings
from indextables.config.registry import INDEXING_TYPEMAP
from indextables.errors import IndexTablesError, LogCorruptedError
from indextables.log.actions import Metadata, ProtocolAction
from indextables.log.protocol import CURRENT_PROTOCOL, DEFAULT_PROTOCOL, check_writable
from indextables.log.replay import DOC_MAPPING_PROPERTY_PREFIX, LogHeader
from indextables.ops.repair.splits import FoundSplit, mappings_of, newest_first, values_of_path
from indextables.schema import from_spark_json, to_spark_json
from indextables.split.doc_mapping import DocMapping, FieldKind
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.jvm import IndexedField

# The widest type that a field of an index may have come from.
_TYPE_OF_FIELD: Final[Mapping[str, pa.DataType]] = {
    "i64": pa.int64(),
    "u64": pa.int64(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.timestamp("us", tz="UTC"),
    "bytes": pa.binary(),
}
_KIND_NAMES: Final = {FieldKind.TEXT: "text", FieldKind.JSON: "json", FieldKind.IP: "ip"}


class Identity(msgspec.Struct, frozen=True):
    """Metadata and protocol of the new log, the doc mappings by hash, and what about them cannot be known."""

    metadata: Metadata
    protocol: ProtocolAction
    doc_mappings: Mapping[str, str]
    undecided: tuple[str, ...] = ()


def identify(
    header: LogHeader, splits: Sequence[FoundSplit], taken: Sequence[FoundSplit], url: str
) -> Identity:
    """What the log says, and what only the splits tell where it says nothing. `taken` are new to the log.

    Raises UnsupportedProtocolError, and LogCorruptedError if neither the log nor any split tells the schema.
    """
    undecided: list[str] = []
    if header.metadata is not None:
        metadata = header.metadata
        # A table that has no such action is of the first version of the format.
        protocol = header.protocol or DEFAULT_PROTOCOL
    else:
        metadata = _metadata_of(splits, url, undecided)
        protocol = header.protocol or CURRENT_PROTOCOL
    check_writable(protocol, url)
    told = mappings_of(splits if header.metadata is None else taken)
    new = {hash_: text for hash_, text in told.items() if hash_ not in header.doc_mappings}
    registered = {f"{DOC_MAPPING_PROPERTY_PREFIX}{hash_}": text for hash_, text in new.items()}
    configuration = {**metadata.configuration, **registered}
    metadata = msgspec.structs.replace(metadata, configuration=configuration)
    return Identity(metadata, protocol, {**header.doc_mappings, **new}, tuple(undecided))


def _metadata_of(splits: Sequence[FoundSplit], url: str, undecided: list[str]) -> Metadata:
    own = newest_first(splits)
    if own:
        schema = _joined(
            [from_spark_json(text) for text in _distinct(own_.schema_string for own_ in own)], undecided
        )
        partition_columns = own[0].partition_columns
        configuration = _indexing(own[0].mapping, schema, partition_columns, undecided)
        undecided.append(
            "no metaData action is left: schema and partitioning are those of the newest split; the id of the table is "
            "new, and its name, its description and its properties are not known"
        )
    elif splits:
        schema, partition_columns = _jvm_schema(splits)
        configuration = _jvm_indexing(splits, schema)
        undecided.append(
            "no metaData action is left, and splits of the JVM do not say the schema: columns have the type of their "
            "index (an int, a short or a date may have become a long or a timestamp, a structure a text), all may be "
            "null, and their order is that of the index"
        )
        if partition_columns:
            undecided.append(
                f"the partition columns {', '.join(partition_columns)} are read from paths: their values are texts, "
                f"and an empty text cannot be told from null"
            )
        undecided.append(
            "the id of the table is new, and its name, its description and its properties are not known"
        )
    else:
        raise LogCorruptedError(
            f"{url}: neither the log nor any split that can be read tells the schema of the table; nothing can be "
            f"repaired here. Restore the files from a backup"
        )
    created_ms = min(split.add.modification_time for split in splits)
    return Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_spark_json(schema),
        partition_columns=tuple(partition_columns),
        configuration=configuration,
        created_time=created_ms,
    )


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _joined(schemas: Sequence[pa.Schema], undecided: list[str]) -> pa.Schema:
    """The newest schema, with columns that only older ones have at its end."""
    fields = {field.name: field for field in schemas[0]}
    for schema in schemas[1:]:
        for field in schema:
            known = fields.setdefault(field.name, field.with_nullable(True))
            if known.type != field.type:
                undecided.append(
                    f"the column {field.name} is of type {known.type} in the newest split and of type {field.type} in "
                    f"others"
                )
    return pa.schema(list(fields.values()))


def _indexing(
    mapping: DocMapping, schema: pa.Schema, partition_columns: Sequence[str], undecided: list[str]
) -> dict[str, str]:
    """The properties by which new splits are indexed like the newest one, as far as that can be said."""
    properties = {
        f"{INDEXING_TYPEMAP.prefix}{field.name}": _KIND_NAMES[field.kind]
        for field in mapping
        if field.kind in _KIND_NAMES and pa.types.is_string(schema.field(field.name).type)
    }
    try:
        is_same = mapping_from_settings(schema, partition_columns, Settings.resolve(properties)) == mapping
    except IndexTablesError:
        return {}
    if not is_same:
        undecided.append(
            "not all settings of the index can be told from the splits: new ones may be indexed in another way"
        )
    return properties


def _jvm_schema(splits: Sequence[FoundSplit]) -> tuple[pa.Schema, tuple[str, ...]]:
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
    return pa.schema(columns), tuple(partitions)


def _jvm_indexing(splits: Sequence[FoundSplit], schema: pa.Schema) -> dict[str, str]:
    texts = {
        field.name
        for split in splits
        for field in split.fields
        if field.type == "text" and field.tokenizer not in (None, "raw") and field.name in schema.names
    }
    return {f"{INDEXING_TYPEMAP.prefix}{name}": "text" for name in sorted(texts)}
