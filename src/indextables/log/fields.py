"""The fields of file entries and of remove actions, one row per field: the only list of them.

Everything else is derived from these tables: the names that `AddAction` and `RemoveAction` have on disk, the Arrow
schemas in `log.entries`, the strict JSON decoders in `log.decode_slow`, and the Avro schema in `state.schemas`.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

STRING_MAP = pa.map_(pa.string(), pa.string())
STRING_LIST = pa.list_(pa.string())
# The descriptor of a deletion vector, with the names that Delta gives its parts.
DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)

# The default of a field that every record must have.
REQUIRED: Final = msgspec.UNSET


class ActionField(msgspec.Struct, frozen=True):
    """A field of an action.

    `name` is its name on disk: in JSON, Arrow and Avro. A field whose `default` is None is nullable.
    """

    name: str
    type: pa.DataType
    doc: str
    default: Any = None

    @property
    def attribute(self) -> str:
        """Its name in Python: snake_case."""
        return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", self.name)

    @property
    def arrow_field(self) -> pa.Field:
        return pa.field(self.name, self.type, nullable=self.default is None)


class EntryField(ActionField, frozen=True, kw_only=True):
    """A field of a file entry.

    `field_id` identifies it in Avro schemas and is never reused: ids below 160 are the specification's, the others are
    ours. A field that is not `is_in_every_manifest` is written only to manifests with an entry that has a value.
    `if_missing_in_log` and `if_missing_in_manifest` replace a required value that older writers leave out. An add may
    leave out partitionValues only in a table without partition columns (`log.replay.check_partition_values`).
    """

    field_id: int
    is_in_every_manifest: bool = True
    if_missing_in_log: Any = REQUIRED
    if_missing_in_manifest: Any = REQUIRED

    @property
    def log_default(self) -> Any:
        """The value of an add action without this field; REQUIRED if such an action is invalid."""
        return self.if_missing_in_log if self.default is REQUIRED else self.default

    @property
    def manifest_default(self) -> Any:
        """The value of the entries of a manifest without this field; REQUIRED if such a manifest is invalid."""
        return self.if_missing_in_manifest if self.default is REQUIRED else self.default


def names_on_disk(fields: Iterable[ActionField]) -> dict[str, str]:
    """The name on disk of each attribute, as msgspec's `rename` takes it."""
    return {field.attribute: field.name for field in fields}


def _required(name: str, type_: pa.DataType, field_id: int, doc: str, **if_missing: Any) -> EntryField:
    return EntryField(name, type_, doc, REQUIRED, field_id=field_id, **if_missing)


def _optional(name: str, type_: pa.DataType, field_id: int, doc: str) -> EntryField:
    return EntryField(name, type_, doc, field_id=field_id)


def _rare(name: str, type_: pa.DataType, field_id: int, doc: str) -> EntryField:
    return EntryField(name, type_, doc, field_id=field_id, is_in_every_manifest=False)


_TEXT, _LONG, _INT, _BOOLEAN = pa.string(), pa.int64(), pa.int32(), pa.bool_()

# In the order in which the specification introduces them.
ADD_FIELDS: tuple[EntryField, ...] = (
    _required("path", _TEXT, 100, "Path of the split, relative to the table's root"),
    _required(
        "partitionValues", STRING_MAP, 101, "Partition values by column; null is an absent key",
        if_missing_in_log={},
    ),
    _required("size", _LONG, 102, "File size in bytes"),
    _required(
        "modificationTime", _LONG, 103, "File modification time (epoch milliseconds)", if_missing_in_log=0
    ),
    _required(
        "dataChange", _BOOLEAN, 104, "Whether the file represents a change of data",
        if_missing_in_log=True, if_missing_in_manifest=True,
    ),
    _optional("stats", _TEXT, 110, "JSON-encoded statistics"),
    _optional("minValues", STRING_MAP, 111, "Lower bounds per column, for data skipping"),
    _optional("maxValues", STRING_MAP, 112, "Upper bounds per column, for data skipping"),
    _optional("numRecords", _LONG, 113, "Number of records in the file"),
    _optional("footerStartOffset", _LONG, 120, "Byte offset where the footer begins"),
    _optional("footerEndOffset", _LONG, 121, "Byte offset where the footer ends"),
    EntryField("hasFooterOffsets", _BOOLEAN, "Whether footer offsets are populated", False, field_id=124),
    _optional("splitTags", STRING_LIST, 132, "Tags of the split"),
    _optional("numMergeOps", _INT, 134, "Number of merges that the split has been through"),
    _optional("docMappingRef", _TEXT, 135, "Key of the doc mapping in the schema registry"),
    _optional("uncompressedSizeBytes", _LONG, 136, "Uncompressed size of the split's data"),
    # Older writers, and companion splits of other engines.
    _rare("tags", STRING_MAP, 160, "Tags of the add action"),
    _rare("hotcacheStartOffset", _LONG, 161, "Byte offset where the hot cache begins"),
    _rare("hotcacheLength", _LONG, 162, "Length of the hot cache in bytes"),
    _rare("timeRangeStart", _TEXT, 137, "Start of the split's time range"),
    _rare("timeRangeEnd", _TEXT, 138, "End of the split's time range"),
    _rare("deleteOpstamp", _LONG, 123, "Operation stamp of the last delete in the split"),
    _rare("docMappingJson", _TEXT, 133, "Doc mapping, inline"),
    _rare("companionSourceFiles", STRING_LIST, 150, "Parquet files that a companion split indexes"),
    _rare("companionDeltaVersion", _LONG, 151, "Delta version that a companion split was built from"),
    _rare("companionFastFieldMode", _TEXT, 152, "Fast field mode: DISABLED, HYBRID or PARQUET_ONLY"),
    _rare("deletionVector", DELETION_VECTOR, 164, "Which rows of the split are deleted"),
)  # fmt: skip

# A file entry is an add action and what the log knows beyond it. Where an add action does not carry them, a reader
# takes the version and the time of its commit.
FILE_ENTRY_FIELDS: tuple[EntryField, ...] = (
    *ADD_FIELDS,
    _required("addedAtVersion", _LONG, 140, "Transaction version that added the file"),
    _required("addedAtTimestamp", _LONG, 141, "When the file was added (epoch milliseconds)"),
    _rare("unknownFields", _TEXT, 163, "Fields of the add action without a column, as a JSON object"),
)

REMOVE_FIELDS: tuple[ActionField, ...] = (
    ActionField("path", _TEXT, "Path of the split, relative to the table's root", REQUIRED),
    ActionField("deletionTimestamp", _LONG, "When the file was removed (epoch milliseconds)"),
    ActionField("dataChange", _BOOLEAN, "Whether the removal represents a change of data"),
    ActionField("partitionValues", STRING_MAP, "Partition values by column; null is an absent key"),
    ActionField("size", _LONG, "File size in bytes"),
    ActionField("extendedFileMetadata", _BOOLEAN, "Whether partitionValues, size and tags are populated"),
    ActionField("tags", STRING_MAP, "Tags of the add action"),
)
