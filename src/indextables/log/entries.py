"""File entries as Arrow tables: one row per split, with the same schema in every layer; and their JSON lines.

A snapshot holds 70,000 or a million of these rows, so they exist as columns and never as objects. Columns that no
entry of a table uses are all null.
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
from indextables.log.fields import ADD_FIELDS, FILE_ENTRY_FIELDS, REMOVE_FIELDS, REQUIRED
from indextables.predicates import BoundPredicate
from indextables.schema import TableShape

FILE_ENTRY_SCHEMA = pa.schema([field.arrow_field for field in FILE_ENTRY_FIELDS])

# What a line of JSON may hold under "add" and "remove". All fields are nullable until a reader has checked them.
# Checkpoints record when each entry was added; version files do not have to.
ADD_STRUCT = pa.struct(
    [field.with_nullable(True) for field in FILE_ENTRY_SCHEMA if field.name != "unknownFields"]
)
REMOVE_STRUCT = pa.struct([field.arrow_field.with_nullable(True) for field in REMOVE_FIELDS])
REQUIRED_ADD_FIELDS = frozenset(field.name for field in ADD_FIELDS if field.log_default is REQUIRED)
REQUIRED_REMOVE_FIELDS = frozenset(field.name for field in REMOVE_FIELDS if field.default is REQUIRED)

# A remove in a tail of versions carries the version that made it.
REMOVE_SCHEMA = pa.schema(
    [*(field.arrow_field for field in REMOVE_FIELDS), pa.field("version", pa.int64(), nullable=False)]
)

_SCALAR_DEFAULTS = {
    field.name: field.log_default for field in ADD_FIELDS if isinstance(field.log_default, int)
}
_ROWS_PER_BATCH = 8192
# Arrow takes a millisecond to build it, which every opening of a table would spend.
_NO_ENTRIES = FILE_ENTRY_SCHEMA.empty_table()


def empty_entries() -> pa.Table:
    return _NO_ENTRIES


def entries_from_columns(
    columns: Mapping[str, pa.ChunkedArray],
    versions: npt.NDArray[np.int64],
    timestamps_ms: npt.NDArray[np.int64],
) -> pa.Table:
    """Build file entries from columns of add actions, and the version and commit time of each add.

    An add's own version and time take precedence. Missing columns are null, fields that older writers leave out take
    their defaults, and a null in a map is an absent key. Raises ValueError, naming the field, if an add has no path or
    no size.
    """
    found = {**columns}
    for field in FILE_ENTRY_SCHEMA:
        found.setdefault(field.name, pa.chunked_array([pa.nulls(len(versions), field.type)]))
        if field.name in REQUIRED_ADD_FIELDS and found[field.name].null_count:
            raise ValueError(f"an add action has no {field.name}")
    found["addedAtVersion"] = pc.coalesce(found["addedAtVersion"], arrow_from_numpy(versions))
    found["addedAtTimestamp"] = pc.coalesce(found["addedAtTimestamp"], arrow_from_numpy(timestamps_ms))
    for name, default in _SCALAR_DEFAULTS.items():
        found[name] = found[name].fill_null(default)
    return pa.Table.from_arrays(
        [_clean_maps(found[field.name], field) for field in FILE_ENTRY_SCHEMA], schema=FILE_ENTRY_SCHEMA
    )


def _clean_maps(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Drop null items from a column of maps. If the field is required, null maps become empty."""
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


# JSON lines of adds and removes in bulk: the inverse of `log.decode`


def add_lines(entries: pa.Table) -> bytes:
    """File entries as add actions, one per line."""
    if not entries.num_rows:
        return b""
    known, unknown = entries.drop_columns(["unknownFields"]), entries["unknownFields"]
    if unknown.null_count == len(unknown):
        return action_lines("add", known)
    has_unknown = unknown.is_valid()
    plain_lines = action_lines("add", known.filter(pc.invert(has_unknown)))
    other_lines = action_lines("add", known.filter(has_unknown)).splitlines()
    return plain_lines + b"".join(map(_with_unknown, other_lines, unknown.drop_null().to_pylist()))


def remove_lines(entries: pa.Table, deletion_timestamp_ms: int, data_change: bool) -> bytes:
    """Actions that remove file entries, one per line. The entries need path, partitionValues and size."""
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


def action_lines(name: str, table: pa.Table) -> bytes:
    """Each row as the action `name`, one per line; nulls are left out, maps become objects."""
    lines = io.BytesIO()
    structs = table.to_struct_array(max_chunksize=_ROWS_PER_BATCH)
    arro3.io.write_ndjson(pa.table({name: structs}), lines)
    return lines.getvalue()


def _with_unknown(line: bytes, unknown: str) -> bytes:
    """Merge an add action with its unknown fields. Known fields take precedence."""
    fields = msgspec.json.decode(line, type=dict[str, dict[str, msgspec.Raw]])["add"]
    try:
        others = msgspec.json.decode(unknown, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise LogCorruptedError(
            f"{bytes(fields['path']).decode()}: its unknown fields are not a JSON object ({error})"
        ) from error
    return msgspec.json.encode({"add": {**others, **fields}}) + b"\n"


# Sources of file entries: a checkpoint in memory, or a state whose manifests can be skipped


class Selection(msgspec.Struct, frozen=True):
    """A bound predicate, and the schema and partition columns that manifest pruning needs."""

    predicate: BoundPredicate
    shape: TableShape


class PathSelection(msgspec.Struct, frozen=True):
    """Selects files by path."""

    paths: pa.Array


class LoadedEntries(msgspec.Struct, frozen=True):
    """File entries, the number of manifests in their source, and how many of those were skipped."""

    entries: pa.Table
    manifests: int = 0
    manifests_skipped: int = 0


class EntrySource(Protocol):
    """The live file entries of one checkpoint or state. Immutable; may read from the store on demand."""

    @property
    def num_files(self) -> int:
        """The number of live entries."""
        ...

    @property
    def total_bytes(self) -> int:
        """The total size of the live files."""
        ...

    def load(
        self, selection: Selection | PathSelection | None, columns: Sequence[str] | None
    ) -> LoadedEntries:
        """Load the entries that may match the selection, or all entries for None.

        The result is a superset of the matching entries. With `columns`, it has at least these columns. Raises
        LogCorruptedError if entries cannot be read.
        """
        ...


class MemorySource(msgspec.Struct, frozen=True):
    """The entries of a JSON or Parquet checkpoint, or of an empty base, fully in memory."""

    entries: pa.Table

    @property
    def num_files(self) -> int:
        return int(self.entries.num_rows)

    @property
    def total_bytes(self) -> int:
        return pc.sum(self.entries["size"]).as_py() or 0

    def load(
        self,
        selection: Selection | PathSelection | None,  # noqa: ARG002
        columns: Sequence[str] | None,  # noqa: ARG002
    ) -> LoadedEntries:
        return LoadedEntries(self.entries)
