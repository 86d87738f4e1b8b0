"""The Arrow schema of file entries: one row per split, the same in every layer.

A snapshot holds 70,000 or a million of these rows, so they exist as columns and never as objects. Column
names are the specification's. Columns that no entry of a table uses are simply all null.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Protocol

import arro3.io
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables._arrow import arrow_from_numpy
from indextables.errors import LogCorruptedError
from indextables.predicates import BoundPredicate
from indextables.schema import TableShape

STRING_MAP = pa.map_(pa.string(), pa.string())
STRING_LIST = pa.list_(pa.string())

# The fields of an add action, in the order in which the documents introduce them.
ADD_FIELDS: tuple[pa.Field, ...] = (
    pa.field("path", pa.string(), nullable=False),
    pa.field("partitionValues", STRING_MAP, nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("modificationTime", pa.int64(), nullable=False),
    pa.field("dataChange", pa.bool_(), nullable=False),
    pa.field("stats", pa.string()),
    pa.field("minValues", STRING_MAP),
    pa.field("maxValues", STRING_MAP),
    pa.field("numRecords", pa.int64()),
    pa.field("footerStartOffset", pa.int64()),
    pa.field("footerEndOffset", pa.int64()),
    pa.field("hasFooterOffsets", pa.bool_(), nullable=False),
    pa.field("splitTags", STRING_LIST),
    pa.field("numMergeOps", pa.int32()),
    pa.field("docMappingRef", pa.string()),
    pa.field("uncompressedSizeBytes", pa.int64()),
    # Older writers, and companion splits of other engines.
    pa.field("tags", STRING_MAP),
    pa.field("hotcacheStartOffset", pa.int64()),
    pa.field("hotcacheLength", pa.int64()),
    pa.field("timeRangeStart", pa.string()),
    pa.field("timeRangeEnd", pa.string()),
    pa.field("deleteOpstamp", pa.int64()),
    pa.field("docMappingJson", pa.string()),
    pa.field("companionSourceFiles", STRING_LIST),
    pa.field("companionDeltaVersion", pa.int64()),
    pa.field("companionFastFieldMode", pa.string()),
)

# What the log knows about an entry beyond its add action. `unknownFields` holds, as one JSON object, what a
# newer writer put into the add action and this release has no column for.
LOG_FIELDS: tuple[pa.Field, ...] = (
    pa.field("addedAtVersion", pa.int64(), nullable=False),
    pa.field("addedAtTimestamp", pa.int64(), nullable=False),
    pa.field("unknownFields", pa.string()),
)

FILE_ENTRY_SCHEMA = pa.schema([*ADD_FIELDS, *LOG_FIELDS])

# What a line of JSON may hold under "add": nothing is required before it has been looked at. Checkpoints
# say when each entry was added; version files do not have to.
ADD_STRUCT = pa.struct(
    [field.with_nullable(True) for field in FILE_ENTRY_SCHEMA if field.name != "unknownFields"]
)
REQUIRED_ADD_FIELDS = frozenset({"path", "size"})

# What an add means that leaves out a field which every entry has.
_DEFAULTS = {"modificationTime": 0, "dataChange": True, "hasFooterOffsets": False}


def empty_entries() -> pa.Table:
    """A table of file entries with no rows."""
    return FILE_ENTRY_SCHEMA.empty_table()


def entries_from_columns(
    columns: Mapping[str, pa.ChunkedArray],
    versions: npt.NDArray[np.int64],
    timestamps_ms: npt.NDArray[np.int64],
) -> pa.Table:
    """File entries from the fields of add actions, as columns, and for each add its version and commit time.

    The version and time stand in where the add itself does not say them. Columns that are missing are null,
    fields that older writers leave out take their defaults, and a null in a map is an absent key. Raises
    ValueError, naming the field, if an add has no path or no size.
    """
    found = {**columns}
    for field in FILE_ENTRY_SCHEMA:
        found.setdefault(field.name, pa.chunked_array([pa.nulls(len(versions), field.type)]))
        if field.name in REQUIRED_ADD_FIELDS and found[field.name].null_count:
            raise ValueError(f"an add action has no {field.name}")
    found["addedAtVersion"] = pc.coalesce(found["addedAtVersion"], arrow_from_numpy(versions))
    found["addedAtTimestamp"] = pc.coalesce(found["addedAtTimestamp"], arrow_from_numpy(timestamps_ms))
    for name, default in _DEFAULTS.items():
        found[name] = found[name].fill_null(default)
    return pa.Table.from_arrays(
        [_clean_maps(found[field.name], field) for field in FILE_ENTRY_SCHEMA], schema=FILE_ENTRY_SCHEMA
    )


def _clean_maps(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """A column of maps without null items and, if the field is not nullable, with empty maps for null ones."""
    if not pa.types.is_map(field.type):
        return column
    chunks = [_without_null_items(chunk) for chunk in column.chunks]
    if not field.nullable:
        chunks = [_without_null_maps(chunk) for chunk in chunks]
    return pa.chunked_array(chunks, field.type)


def _without_null_maps(maps: pa.MapArray) -> pa.MapArray:
    if not maps.null_count:
        return maps
    # A null map spans no items, so the same offsets without validity are empty maps.
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, maps.items)


def _without_null_items(maps: pa.MapArray) -> pa.MapArray:
    if not maps.items.null_count:
        return maps
    is_kept = maps.items.is_valid()
    kept_before = np.concatenate([[0], np.cumsum(is_kept.to_numpy(zero_copy_only=False))])
    return pa.MapArray.from_arrays(
        pa.array(kept_before[maps.offsets.to_numpy()], pa.int32()),
        maps.keys.filter(is_kept),
        maps.items.filter(is_kept),
        mask=maps.is_null(),
    )


# Arrow columns to JSON lines: the way back from `decode`, for actions in bulk.


_ROWS_PER_BATCH = 8192


def action_lines(name: str, table: pa.Table) -> bytes:
    """Each row as the action `name`, one a line; nulls are left out, maps become objects."""
    lines = io.BytesIO()
    structs = table.to_struct_array(max_chunksize=_ROWS_PER_BATCH)
    arro3.io.write_ndjson(pa.table({name: structs}), lines)
    return lines.getvalue()


# File entries as add actions: their lines in a checkpoint or a version file.


def add_lines(entries: pa.Table) -> bytes:
    """File entries as add actions, one a line."""
    if not entries.num_rows:
        return b""
    known, unknown = entries.drop_columns(["unknownFields"]), entries["unknownFields"]
    if unknown.null_count == len(unknown):
        return action_lines("add", known)
    has_unknown = unknown.is_valid()
    plain_lines = action_lines("add", known.filter(pc.invert(has_unknown)))
    other_lines = action_lines("add", known.filter(has_unknown)).splitlines()
    return plain_lines + b"".join(map(_with_unknown, other_lines, unknown.drop_null().to_pylist()))


def _with_unknown(line: bytes, unknown: str) -> bytes:
    """An add action with the fields that it was read with. What we know of it has the last word."""
    fields = msgspec.json.decode(line, type=dict[str, dict[str, msgspec.Raw]])["add"]
    try:
        others = msgspec.json.decode(unknown, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise LogCorruptedError(
            f"{bytes(fields['path']).decode()}: its unknown fields are not a JSON object ({error})"
        ) from error
    return msgspec.json.encode({"add": {**others, **fields}}) + b"\n"


# Remove actions as columns: their Arrow schema, and their lines in a version file.


REMOVE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("path", pa.string(), nullable=False),
    pa.field("deletionTimestamp", pa.int64()),
    pa.field("dataChange", pa.bool_()),
    pa.field("partitionValues", STRING_MAP),
    pa.field("size", pa.int64()),
    pa.field("extendedFileMetadata", pa.bool_()),
    pa.field("tags", STRING_MAP),
)
REMOVE_STRUCT = pa.struct([field.with_nullable(True) for field in REMOVE_FIELDS])
REQUIRED_REMOVE_FIELDS = frozenset({"path"})

# A remove in a tail of versions: the version that made it stands beside it.
REMOVE_SCHEMA = pa.schema([*REMOVE_FIELDS, pa.field("version", pa.int64(), nullable=False)])


def remove_lines(entries: pa.Table, deletion_timestamp_ms: int, data_change: bool) -> bytes:
    """JSON lines that remove file entries (path, partitionValues and size are used)."""
    count = entries.num_rows
    removes = pa.table(
        {
            "path": entries["path"],
            "deletionTimestamp": pa.array(np.full(count, deletion_timestamp_ms, dtype=np.int64)),
            "dataChange": pa.array(np.full(count, data_change)),
            "partitionValues": entries["partitionValues"],
            "size": entries["size"],
        }
    )
    return action_lines("remove", removes)


# Where the file entries of a base come from: already in memory, or behind manifests that can be skipped.


class Selection(msgspec.Struct, frozen=True):
    """A predicate, and the shape of the table, which is needed to prune manifests by it."""

    predicate: BoundPredicate
    shape: TableShape


class PathSelection(msgspec.Struct, frozen=True):
    """Files by their paths."""

    paths: pa.Array


class LoadedEntries(msgspec.Struct, frozen=True):
    """File entries, and how many manifests were there and were skipped to get them."""

    entries: pa.Table
    manifests: int = 0
    manifests_skipped: int = 0


class EntrySource(Protocol):
    """The live file entries of one checkpoint or state. Immutable; may read when asked."""

    @property
    def num_files(self) -> int:
        """How many entries are live."""
        ...

    @property
    def total_bytes(self) -> int:
        """The sum of their sizes."""
        ...

    def load(
        self, selection: Selection | PathSelection | None, columns: Sequence[str] | None
    ) -> LoadedEntries:
        """Entries that may be selected: at least those that are. None asks for all.

        With `columns`, at least these are there. Raises LogCorruptedError if entries cannot be read.
        """
        ...


class MemorySource(msgspec.Struct, frozen=True):
    """Entries that a checkpoint of the older formats gave, all at once."""

    entries: pa.Table

    @property
    def num_files(self) -> int:
        """How many entries are live."""
        return int(self.entries.num_rows)

    @property
    def total_bytes(self) -> int:
        """The sum of their sizes."""
        return pc.sum(self.entries["size"]).as_py() or 0

    def load(
        self,
        selection: Selection | PathSelection | None,  # noqa: ARG002
        columns: Sequence[str] | None,  # noqa: ARG002
    ) -> LoadedEntries:
        """All entries: there is nothing to skip."""
        return LoadedEntries(self.entries)
