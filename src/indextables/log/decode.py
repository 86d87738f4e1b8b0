"""Decodes JSON lines of the log to Arrow columns, a whole tail of versions at once.

`scan_lines` first finds the few small actions of each file. Then a native JSON decoder takes all lines together; it
ignores unknown fields and actions and is strict about types. If it fails, or if unknown content must be kept for a
rewrite, `log.decode_slow` converts the lines one by one first: it names the bad line, and accepts numbers where the
specification says strings.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum

import arro3.io
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables._arrow import arrow_from_numpy
from indextables.log.actions import ScannedFile, SmallActions, scan_lines
from indextables.log.decode_slow import canonical_lines, has_unknown
from indextables.log.deletion_vectors import REQUIRED_VECTOR_FIELDS
from indextables.log.entries import (
    ADD_STRUCT,
    FILE_ENTRY_SCHEMA,
    REMOVE_SCHEMA,
    REMOVE_STRUCT,
    REQUIRED_ADD_FIELDS,
    REQUIRED_REMOVE_FIELDS,
    entries_from_columns,
)

_LINE_SCHEMA = pa.schema([pa.field("add", ADD_STRUCT), pa.field("remove", REMOVE_STRUCT)])
_CANONICAL_SCHEMA = _LINE_SCHEMA.append(pa.field("unknownFields", pa.string()))
_ROWS_PER_BATCH = 4096

# The native decoder misreads some characters that are written as surrogate pairs (U+20000 becomes U+10000). And its
# error messages may quote a NUL from the lines, which aborts the process.
_UNSAFE_ESCAPES = re.compile(rb"\\u(?:[dD]|0000)")

_SEQUENCE = pa.field("sequence", pa.int64(), nullable=False)


class UnknownContent(Enum):
    """What a reader does with fields and actions that this release does not know."""

    IGNORE = "ignore"
    KEEP = "keep"


class LogFile(msgspec.Struct, frozen=True):
    """The JSON lines of one file of the log.

    `modified_ms` is the file's modification time, the fallback for versions that do not record their commit time.
    """

    version: int
    name: str
    lines: bytes
    modified_ms: int


class VersionSummary(msgspec.Struct, frozen=True):
    """The content of one version besides its adds and removes. `timestamp_ms` is the commit time.

    `without_partition_values` are the paths of the adds that lack the field, which only a table without partition
    columns allows. It is empty if the adds were not decoded.
    """

    version: int
    timestamp_ms: int
    actions: SmallActions
    unknown_actions: tuple[str, ...] = ()
    without_partition_values: tuple[str, ...] = ()


class Tail(msgspec.Struct, frozen=True):
    """Consecutive versions, decoded.

    `adds` has the columns of `FILE_ENTRY_SCHEMA`, `removes` those of `REMOVE_SCHEMA`. Both end with a column `sequence`
    that orders the actions of the whole tail.
    """

    versions: tuple[VersionSummary, ...]
    adds: pa.Table
    removes: pa.Table


# The tail of a table whose newest version is a checkpoint.
NO_VERSIONS = Tail(
    versions=(),
    adds=FILE_ENTRY_SCHEMA.append(_SEQUENCE).empty_table(),
    removes=REMOVE_SCHEMA.append(_SEQUENCE).empty_table(),
)


def decode_tail(files: Sequence[LogFile], unknown: UnknownContent = UnknownContent.IGNORE) -> Tail:
    """Decode log files, given in version order. Raises LogCorruptedError with the file and the line at fault."""
    if not files:
        return NO_VERSIONS
    scanned = [scan_lines(file.name, file.lines) for file in files]
    rows = _decode_rows(files, scanned, unknown)
    file_of_row = np.repeat(np.arange(len(files)), np.array(rows.per_file, dtype=np.int64))
    timestamps = _timestamps(files, scanned, rows.table, file_of_row)
    versions = np.array([file.version for file in files], dtype=np.int64)

    adds, add_rows = _present(rows.table["add"])
    removes, remove_rows = _present(rows.table["remove"])
    files_of_adds, files_of_removes = file_of_row[add_rows], file_of_row[remove_rows]
    add_columns = dict(zip(adds.type.names, adds.flatten(), strict=True))
    if "unknownFields" in rows.table.column_names:
        add_columns["unknownFields"] = rows.table["unknownFields"].take(arrow_from_numpy(add_rows))
    incomplete = _paths_without_partition_values(add_columns, files_of_adds)
    entries = entries_from_columns(add_columns, versions[files_of_adds], timestamps[files_of_adds])
    remove_columns = [*removes.flatten(), arrow_from_numpy(versions[files_of_removes])]
    return Tail(
        versions=tuple(
            VersionSummary(
                file.version, int(timestamp), scan.actions, unknown_actions, tuple(incomplete.get(index, ()))
            )
            for index, (file, timestamp, scan, unknown_actions) in enumerate(
                zip(files, timestamps, scanned, rows.unknown_actions, strict=True)
            )
        ),
        adds=entries.append_column(_SEQUENCE, arrow_from_numpy(add_rows)),
        removes=pa.Table.from_arrays(remove_columns, schema=REMOVE_SCHEMA).append_column(
            _SEQUENCE, arrow_from_numpy(remove_rows)
        ),
    )


def _paths_without_partition_values(
    add_columns: Mapping[str, pa.ChunkedArray], files_of_adds: npt.NDArray[np.int64]
) -> dict[int, list[str]]:
    """The paths of adds without partitionValues, by the index of their file."""
    values = add_columns["partitionValues"]
    if not values.null_count:
        return {}
    is_missing = values.is_null()
    found: dict[int, list[str]] = {}
    paths = add_columns["path"].filter(is_missing).to_pylist()
    for index, path in zip(files_of_adds[is_missing.to_numpy()].tolist(), paths, strict=True):
        found.setdefault(index, []).append(path)
    return found


class _Rows(msgspec.Struct, frozen=True):
    """One row per action, with the columns `add` and `remove`; and the unknown actions of each file, as JSON."""

    table: pa.Table
    per_file: list[int]
    unknown_actions: tuple[tuple[str, ...], ...]


def _decode_rows(files: Sequence[LogFile], scanned: Sequence[ScannedFile], unknown: UnknownContent) -> _Rows:
    if unknown is UnknownContent.IGNORE or not any(has_unknown(file.lines) for file in files):
        table = _decode_fast(b"\n".join(file.lines for file in files))
        if table is not None:
            return _Rows(table, [scan.num_objects for scan in scanned], ((),) * len(files))
    canonical = [canonical_lines(file.name, file.lines) for file in files]
    is_kept = unknown is UnknownContent.KEEP
    return _Rows(
        _decode_natively(
            b"".join(file.lines for file in canonical), _CANONICAL_SCHEMA if is_kept else _LINE_SCHEMA
        ),
        [file.num_lines for file in canonical],
        tuple(file.unknown_actions if is_kept else () for file in canonical),
    )


def _decode_fast(lines: bytes) -> pa.Table | None:
    """One row per JSON object, or None if the lines need the slow decoder."""
    if _UNSAFE_ESCAPES.search(lines):
        return None
    try:
        table = _decode_natively(lines, _LINE_SCHEMA)
    except pa.ArrowException:
        return None
    adds, removes = table["add"], table["remove"]
    has_required = (
        _has_fields(adds, REQUIRED_ADD_FIELDS)
        and _has_fields(removes, REQUIRED_REMOVE_FIELDS)
        and _has_fields(pc.struct_field(adds, "deletionVector"), REQUIRED_VECTOR_FIELDS)
    )
    has_two_in_one = pc.any(pc.and_(adds.is_valid(), removes.is_valid())).as_py()
    return table if has_required and not has_two_in_one else None


def _decode_natively(lines: bytes, schema: pa.Schema) -> pa.Table:
    return pa.table(arro3.io.read_json(lines, schema=schema, batch_size=_ROWS_PER_BATCH))


def _has_fields(actions: pa.ChunkedArray, required: frozenset[str]) -> bool:
    """Whether every action has all of these fields."""
    return all(pc.struct_field(actions, name).null_count == actions.null_count for name in required)


def _present(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, npt.NDArray[np.int64]]:
    """The non-null values of a column, and their row numbers."""
    is_present = column.is_valid()
    rows = np.flatnonzero(is_present.to_numpy())
    if not len(rows):
        return column.slice(0, 0), rows
    # The adds of a checkpoint are contiguous and need no copy.
    first, count = int(rows[0]), len(rows)
    is_contiguous = int(rows[-1]) - first + 1 == count
    return (column.slice(first, count) if is_contiguous else column.filter(is_present)), rows


def _timestamps(
    files: Sequence[LogFile],
    scanned: Sequence[ScannedFile],
    table: pa.Table,
    file_of_row: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """The commit time of each version, from the first of these sources that it has:

    1. its commitInfo; 2. the creation time in the metaData of version 0; 3. the newest time among its adds and
    removes; 4. the modification time of the file, which changes when a table is copied.
    """
    newest = np.zeros(len(files), dtype=np.int64)
    for action, field in (("add", "modificationTime"), ("remove", "deletionTimestamp")):
        times = pc.struct_field(table[action], field).fill_null(0).to_numpy()
        np.maximum.at(newest, file_of_row, times)
    for index, (file, scan) in enumerate(zip(files, scanned, strict=True)):
        commit_info, metadata = scan.actions.commit_info, scan.actions.metadata
        if commit_info is not None:
            newest[index] = commit_info.timestamp
        elif file.version == 0 and metadata is not None and metadata.created_time is not None:
            newest[index] = metadata.created_time
        elif not newest[index]:
            newest[index] = file.modified_ms
    return newest
