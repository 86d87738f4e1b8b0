"""Parquet checkpoints: `_checkpoints/<v>.checkpoint.parquet`, valid once its small JSON stands beside it.

One row per action: file entries in the columns of the entry schema, everything else as JSON in `actionJson`.
Writers of the first design had no such column and flattened the metadata; some wrote a folder of files.
"""

import io
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.actions import Format, Metadata, encode_actions
from indextables.log.checkpoint import Checkpoint, build_checkpoint, header_lines
from indextables.log.decode import LogFile, UnknownContent, decode_tail
from indextables.log.entries import FILE_ENTRY_SCHEMA, STRING_LIST, STRING_MAP, entries_from_columns
from indextables.log.paths import parquet_checkpoint_info_key, parquet_checkpoint_key
from indextables.log.publishing import publish
from indextables.storage import ObjectMeta, ObjectStore

# The metadata as the first design has it.
_METADATA_FIELDS = (
    pa.field("metadataId", pa.string()),
    pa.field("schemaString", pa.string()),
    pa.field("partitionColumns", STRING_LIST),
    pa.field("format", STRING_MAP),
)
_HEADER_SCHEMA = pa.schema(
    [pa.field("actionType", pa.string()), pa.field("actionJson", pa.string()), *_METADATA_FIELDS]
)
_ADD = "add"
_METADATA = "metadata"

# A file of a few bytes can claim any number of equal rows; no table has this many splits.
MAX_CHECKPOINT_ROWS = 50_000_000


class CheckpointMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The small JSON beside the rows; `size` counts the live files, in the first design all rows."""

    version: int
    size: int
    created_time: int = 0
    parts: int | None = None


def read_parquet_checkpoint(store: ObjectStore, meta: ObjectMeta, version: int) -> Checkpoint:
    """A Parquet checkpoint; `meta` is that of its small JSON. Raises LogCorruptedError or ObjectNotFoundError."""
    info = _read_info(store, meta.key)
    name = f"{store.url}/{parquet_checkpoint_key(version)}"
    files = _row_files(store, version)
    try:
        rows = _read_rows(files)
        is_add = pc.fill_null(pc.equal(rows["actionType"], _ADD), False)
        entries = _entries(rows.filter(is_add), version, meta.last_modified_ms)
        lines = _header_lines(rows.filter(pc.invert(is_add)))
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise LogCorruptedError(f"{name}: not a readable checkpoint ({error})") from error
    if info.version != version or info.size not in (entries.num_rows, rows.num_rows):
        raise LogCorruptedError(
            f"{name}: holds {entries.num_rows} file entries of version {version}, but beside it stands that there "
            f"are {info.size} of version {info.version}"
        )
    # What is unknown is in `actionJson` already: nothing more is to be had by looking at each line.
    header = decode_tail([LogFile(version, name, lines, meta.last_modified_ms)], UnknownContent.KEEP)
    return build_checkpoint(header.versions, entries, version, name)


def write_parquet_checkpoint(
    store: ObjectStore, checkpoint: Checkpoint, *, compression: str, created_ms: int
) -> None:
    """Write a checkpoint if there is none of this version yet; the JSON that makes it valid goes last.

    Rows without that JSON were left by a writer that did not finish, and are replaced. Raises StorageError, also if the
    write took very long.
    """
    version, entries = checkpoint.header.version, checkpoint.entries
    if _exists(store, parquet_checkpoint_info_key(version)):
        return
    # Rows of other actions have no entry, so every column of the entries is nullable here.
    nullable = pa.schema([field.with_nullable(True) for field in entries.schema])
    adds = entries.cast(nullable).append_column("actionType", pa.repeat(_ADD, entries.num_rows))
    rows = pa.concat_tables([_header_rows(checkpoint), adds], promote_options="permissive")
    import pyarrow.parquet as pq  # see _read_rows

    buffer = io.BytesIO()
    pq.write_table(rows, buffer, compression=compression)
    started_ms = store.clock.now_ms()
    store.put(parquet_checkpoint_key(version), buffer.getvalue())
    info = CheckpointMetadata(version=version, size=entries.num_rows, created_time=created_ms)
    publish(store, parquet_checkpoint_info_key(version), msgspec.json.encode(info), version, started_ms)


def _read_info(store: ObjectStore, key: str) -> CheckpointMetadata:
    try:
        return msgspec.json.decode(store.get(key), type=CheckpointMetadata, strict=False)
    except (ValueError, RecursionError) as error:
        raise LogCorruptedError(f"{store.url}/{key}: not the metadata of a checkpoint ({error})") from error


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except ObjectNotFoundError:
        return False
    return True


def _row_files(store: ObjectStore, version: int) -> list[bytes]:
    """The rows: one file, or the files of a folder, as Spark writes them."""
    key = parquet_checkpoint_key(version)
    try:
        return [store.get(key)]
    except ObjectNotFoundError:
        parts = sorted({meta.key for meta in store.list(f"{key}/") if meta.key.endswith(".parquet")})
        if not parts:
            raise
        return [store.get(part) for part in parts]


def _read_rows(files: list[bytes]) -> pa.Table:
    # Here, because it takes its time to import, and most tables have no such checkpoint.
    import pyarrow.parquet as pq

    opened = [pq.ParquetFile(io.BytesIO(data)) for data in files]
    count = sum(file.metadata.num_rows for file in opened)
    if count > MAX_CHECKPOINT_ROWS:
        raise ValueError(f"{count} rows are more than the {MAX_CHECKPOINT_ROWS} that are read")
    rows = pa.concat_tables([file.read() for file in opened], promote_options="permissive")
    rows.validate(full=True)
    return rows


def _entries(rows: pa.Table, version: int, timestamp_ms: int) -> pa.Table:
    return entries_from_columns(
        _columns(rows, FILE_ENTRY_SCHEMA),
        np.full(rows.num_rows, version, dtype=np.int64),
        np.full(rows.num_rows, timestamp_ms, dtype=np.int64),
    )


def _header_rows(checkpoint: Checkpoint) -> pa.Table:
    """Everything but the file entries, the metadata also as the first design has it."""
    rows: list[dict[str, Any]] = []
    for line in header_lines(checkpoint.header, checkpoint.entries.num_rows).decode().split("\n")[:-1]:
        ((action, fields),) = msgspec.json.decode(line).items()
        row = {"actionType": action, "actionJson": line}
        if action == "metaData":
            row |= {
                "actionType": _METADATA,
                "metadataId": fields["id"],
                "schemaString": fields["schemaString"],
                "partitionColumns": fields["partitionColumns"],
                "format": [("provider", fields["format"]["provider"]), *fields["format"]["options"].items()],
            }
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=_HEADER_SCHEMA)


def _header_lines(rows: pa.Table) -> bytes:
    """The other actions as JSON lines."""
    lines: list[bytes] = []
    for row in pa.table(_columns(rows, _HEADER_SCHEMA)).to_pylist():
        if row.get("actionJson") is not None:
            lines.append(row["actionJson"].encode())
        elif row["actionType"] == _METADATA:
            lines.append(_flattened_metadata(row))
    return b"\n".join(lines)


def _columns(rows: pa.Table, schema: pa.Schema) -> dict[str, pa.ChunkedArray]:
    """The columns of a schema that are there, in its types."""
    return {
        field.name: rows[field.name].cast(field.type) for field in schema if field.name in rows.column_names
    }


def _flattened_metadata(row: dict[str, Any]) -> bytes:
    options = dict(row.get("format") or ())
    metadata = Metadata(
        id=row["metadataId"],
        schema_string=row["schemaString"],
        partition_columns=tuple(row.get("partitionColumns") or ()),
        format=Format(provider=options.pop("provider", "indextables"), options=options),
    )
    return encode_actions([metadata])
