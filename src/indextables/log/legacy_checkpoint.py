"""JSON and Parquet checkpoints, the formats before the Avro state.

JSON: `<v>.checkpoint.json` holds JSON lines or, above a size limit, the list of the checkpoint's parts. Parquet:
`_checkpoints/<v>.checkpoint.parquet` holds the rows or, above the same limit, several part files do; a small JSON file
beside them makes them valid.
"""

import io
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables._structs import decodable
from indextables.errors import CheckpointCorruptionError, CheckpointValidationError, ObjectNotFoundError
from indextables.log.actions import Format, Metadata, encode_actions, scan_lines
from indextables.log.checkpoint import (
    Checkpoint,
    CheckpointSize,
    build_checkpoint,
    header_lines,
    publish_checkpoint,
)
from indextables.log.decode import LogFile, UnknownContent, decode_tail
from indextables.log.entries import (
    FILE_ENTRY_SCHEMA,
    add_lines,
    empty_entries,
    entries_from_columns,
)
from indextables.log.fields import STRING_LIST, STRING_MAP
from indextables.log.file_keys import tail_with_keys, with_keys
from indextables.log.paths import (
    LOG_PREFIX,
    JsonCheckpointPart,
    ParquetCheckpointPart,
    json_checkpoint_key,
    json_checkpoint_part_name,
    parquet_checkpoint_info_key,
    parquet_checkpoint_key,
    parquet_checkpoint_part_key,
    parse_log_path,
)
from indextables.log.replay import removed_paths, replay_entries
from indextables.log.version_file import compress, decompress, find_object, read_each
from indextables.storage import ObjectMeta, ObjectStore, PutOutcome

# A tiny file can claim any number of equal rows; no table has this many splits.
MAX_CHECKPOINT_ROWS = 50_000_000

# The number of a part has five digits.
_MAX_PARTS = 99_999

# The metadata columns of the first Parquet design.
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


# JSON


@decodable
class PartList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `<v>.checkpoint.json` if the checkpoint has parts."""

    version: int
    checkpoint_id: str
    parts: tuple[str, ...]
    created_time: int
    format: str = "json"


def read_json_checkpoint(
    store: ObjectStore, meta: ObjectMeta, version: int, unknown: UnknownContent, *, parallelism: int
) -> Checkpoint:
    """Read a checkpoint, whole or in parts. Raises LogCorruptedError or ObjectNotFoundError.

    Up to `parallelism` threads read the parts. Older writers put every action since version 0 there, so the reader
    replays the lines.
    """
    name = f"{store.url}/{meta.key}"
    lines = decompress(store.get(meta.key), name)
    part_list = _part_list(lines)
    if part_list is None:
        files = [LogFile(version, name, lines, meta.last_modified_ms)]
    else:
        _check_parts(part_list, version, name)
        read = partial(_read_part, store, version=version, modified_ms=meta.last_modified_ms)
        files = read_each(read, part_list.parts, parallelism=parallelism)
    tail = tail_with_keys(decode_tail(files, unknown), store.url)
    entries = replay_entries(empty_entries(), tail)
    return build_checkpoint(tail.versions, entries, version, name, removed=removed_paths(tail))


def read_part_names(store: ObjectStore, meta: ObjectMeta) -> tuple[str, ...]:
    """The names of a checkpoint's parts; none if it is one file.

    Raises LogCorruptedError if the file is neither a checkpoint nor a part list, and ObjectNotFoundError.
    """
    name = f"{store.url}/{meta.key}"
    lines = decompress(store.get(meta.key), name)
    part_list = _part_list(lines)
    if part_list is not None:
        return part_list.parts
    if scan_lines(name, lines).actions.metadata is None:
        raise CheckpointCorruptionError(f"{name}: is neither a checkpoint nor the list of its parts")
    return ()


def write_json_checkpoint(
    store: ObjectStore, checkpoint: Checkpoint, *, max_part_bytes: int, created_ms: int
) -> CheckpointSize | None:
    """Write a checkpoint, and return its size, or None if this version already has one.

    The part list is written last and only if absent, so readers never see an incomplete checkpoint; the writer that
    loses the race deletes its parts. Raises StorageError, also if the write took too long; unreferenced parts may then
    be left for PURGE.
    """
    version = checkpoint.header.version
    adds = add_lines(checkpoint.entries)
    head = header_lines(checkpoint.header, checkpoint.entries.num_rows)
    uncompressed = len(head) + len(adds)
    if uncompressed <= max_part_bytes:
        data = compress(head + adds)
        if store.put_if_absent(json_checkpoint_key(version), data) is PutOutcome.EXISTS:
            return None
        return CheckpointSize(len(data), uncompressed / len(data))

    checkpoint_id, started_ms = uuid.uuid4().hex, store.clock.now_ms()
    names: list[str] = []
    compressed = 0
    for number, part in enumerate([head, *_cut(adds, max_part_bytes)], start=1):
        names.append(json_checkpoint_part_name(version, checkpoint_id, number))
        data = compress(part)
        store.put(LOG_PREFIX + names[-1], data)
        compressed += len(data)
    part_list = PartList(
        version=version, checkpoint_id=checkpoint_id, parts=tuple(names), created_time=created_ms
    )
    key, data = json_checkpoint_key(version), msgspec.json.encode(part_list)
    outcome = publish_checkpoint(store, key, data, version, started_ms)
    # A store client that retries a write finds its own file. Only another part list means that the race is lost.
    if outcome is PutOutcome.EXISTS and store.get(key) != data:
        store.delete_many(LOG_PREFIX + name for name in names)
        return None
    return CheckpointSize(compressed + len(data), uncompressed / compressed, parts=len(names))


def _part_list(lines: bytes) -> PartList | None:
    """The part list, or None if the lines are something else."""
    try:
        return msgspec.json.decode(lines, type=PartList)
    except (ValueError, RecursionError):
        return None


def _check_parts(part_list: PartList, version: int, name: str) -> None:
    """Raise CheckpointValidationError unless every part belongs to this checkpoint by its name."""
    if part_list.version != version:
        raise CheckpointValidationError(
            f"{name}: lists the parts of version {part_list.version}, not of {version}"
        )
    for part in part_list.parts:
        match parse_log_path(LOG_PREFIX + part):
            case JsonCheckpointPart(part_version, checkpoint_id) if (
                part_version == version and checkpoint_id == part_list.checkpoint_id
            ):
                continue
            case _:
                raise CheckpointValidationError(f"{name}: {part!r} is not the name of one of its parts")


def _read_part(store: ObjectStore, file_name: str, version: int, modified_ms: int) -> LogFile:
    key = LOG_PREFIX + file_name
    name = f"{store.url}/{key}"
    return LogFile(version, name, decompress(store.get(key), name), modified_ms)


def _cut(lines: bytes, max_bytes: int) -> Sequence[bytes]:
    """Cut the lines into pieces of at most `max_bytes`; a longer line becomes a piece of its own."""
    pieces: list[bytes] = []
    start = 0
    while start < len(lines):
        end = lines.rfind(b"\n", start, start + max_bytes) + 1
        if end <= start:
            end = lines.find(b"\n", start) + 1
        pieces.append(lines[start:end])
        start = end
    return pieces


# Parquet
#
# One row per action: file entries in the columns of the entry schema, all other actions as JSON in `actionJson`.
# Writers of the first design had no such column and flattened the metadata; some wrote a folder of files.


@decodable
class ParquetInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The small JSON file beside the rows; `size` counts the live files, in the first design all rows.

    With a `checkpoint_id`, the rows are in that many `parts`, whose names have the id.
    """

    version: int
    size: int
    created_time: int = 0
    parts: int | None = None
    checkpoint_id: str | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def has_parts(self) -> bool:
        """Whether the rows are in parts of ours; Spark's own files are in a folder."""
        return isinstance(self.checkpoint_id, str)


def read_parquet_checkpoint(
    store: ObjectStore, meta: ObjectMeta, version: int, *, parallelism: int
) -> Checkpoint:
    """Read a checkpoint; `meta` is of its small JSON file. Raises LogCorruptedError or ObjectNotFoundError.

    Up to `parallelism` threads read the parts.
    """
    info = _read_info(store, meta.key)
    name = f"{store.url}/{meta.key if info.has_parts else parquet_checkpoint_key(version)}"
    files = _row_files(store, info, version, name, parallelism)
    try:
        rows = _read_rows(files)
        is_add = pc.fill_null(pc.equal(rows["actionType"], _ADD), False)
        adds = rows.filter(is_add)
        entries = with_keys(_entries(adds, version, meta.last_modified_ms), store.url)
        lines = _header_lines(rows.filter(pc.invert(is_add)))
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointCorruptionError(f"{name}: not a readable checkpoint ({error})") from error
    if info.version != version or info.size not in (entries.num_rows, rows.num_rows):
        raise CheckpointValidationError(
            f"{name}: holds {entries.num_rows} file entries of version {version}, but {store.url}/{meta.key} records "
            f"{info.size} of version {info.version}"
        )
    # `actionJson` has all unknown content.
    header = decode_tail([LogFile(version, name, lines, meta.last_modified_ms)], UnknownContent.KEEP)
    summaries = [replace(header.versions[0], without_partition_values=_paths_without_partition_values(adds))]
    return build_checkpoint(summaries, entries, version, name)


def read_row_keys(store: ObjectStore, meta: ObjectMeta, version: int) -> tuple[str, ...]:
    """The keys of the files with the rows; `meta` is of the small JSON file.

    Raises LogCorruptedError if that file is damaged, and ObjectNotFoundError.
    """
    return _row_keys(_read_info(store, meta.key), version, f"{store.url}/{meta.key}")


def write_parquet_checkpoint(
    store: ObjectStore, checkpoint: Checkpoint, *, compression: str, max_part_bytes: int, created_ms: int
) -> CheckpointSize | None:
    """Write a checkpoint, and return its size, or None if this version already has one.

    The JSON file that makes the checkpoint valid is written last. Rows that exceed `max_part_bytes` are written in
    parts; the writer that loses the race for the JSON file deletes its parts. A single file of rows without that file
    is the remains of an unfinished write and is replaced. Raises StorageError, also if the write took too long;
    unreferenced parts may then be left for PURGE.
    """
    version, entries = checkpoint.header.version, checkpoint.entries
    if find_object(store, parquet_checkpoint_info_key(version)) is not None:
        return None
    # Rows of other actions have null in the columns of entries.
    nullable = pa.schema([field.with_nullable(True) for field in entries.schema])
    adds = entries.cast(nullable).append_column("actionType", pa.repeat(_ADD, entries.num_rows))
    rows = pa.concat_tables([_header_rows(checkpoint), adds], promote_options="permissive")
    files = _encode_rows(rows, compression, max_part_bytes)
    info = ParquetInfo(version=version, size=entries.num_rows, created_time=created_ms)
    if len(files) > 1:
        info = replace(info, parts=len(files), checkpoint_id=uuid.uuid4().hex)
    key, data = parquet_checkpoint_info_key(version), msgspec.json.encode(info)
    started_ms = store.clock.now_ms()
    row_keys = _row_keys(info, version, f"{store.url}/{key}")
    for row_key, file in zip(row_keys, files, strict=True):
        store.put(row_key, file)
    outcome = publish_checkpoint(store, key, data, version, started_ms)
    # Another writer may have published the same single file of rows; parts belong to one writer.
    if len(files) > 1 and outcome is PutOutcome.EXISTS and store.get(key) != data:
        store.delete_many(row_keys)
    if outcome is PutOutcome.EXISTS:
        return None
    num_bytes = sum(map(len, files)) + len(data)
    return CheckpointSize(num_bytes, _compression_ratio(files), parts=info.parts)


def _encode_rows(rows: pa.Table, compression: str, max_bytes: int) -> list[bytes]:
    """The rows as Parquet files of at most `max_bytes`; a row that is larger becomes a file of its own."""
    import pyarrow.parquet as pq  # lazily: see _read_rows

    buffer = io.BytesIO()
    pq.write_table(rows, buffer, compression=compression)
    data = buffer.getvalue()
    if len(data) <= max_bytes or rows.num_rows == 1:
        return [data]
    count = min(-(-len(data) // max_bytes), rows.num_rows)
    size = -(-rows.num_rows // count)
    pieces = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
    return [file for piece in pieces for file in _encode_rows(piece, compression, max_bytes)]


def _compression_ratio(files: Iterable[bytes]) -> float:
    import pyarrow.parquet as pq  # lazily: see _read_rows

    chunks = [
        metadata.row_group(group).column(column)
        for metadata in (pq.read_metadata(io.BytesIO(file)) for file in files)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    uncompressed = sum(chunk.total_uncompressed_size for chunk in chunks)
    return float(uncompressed / sum(chunk.total_compressed_size for chunk in chunks))


def _read_info(store: ObjectStore, key: str) -> ParquetInfo:
    try:
        return msgspec.json.decode(store.get(key), type=ParquetInfo, strict=False)
    except (ValueError, RecursionError) as error:
        raise CheckpointCorruptionError(
            f"{store.url}/{key}: not the metadata of a checkpoint ({error})"
        ) from error


def _row_keys(info: ParquetInfo, version: int, name: str) -> tuple[str, ...]:
    """The keys of the files with the rows: one, or those of all parts. Raises CheckpointValidationError."""
    checkpoint_id = info.checkpoint_id
    if not isinstance(checkpoint_id, str):
        return (parquet_checkpoint_key(version),)
    if info.parts is None or not 1 <= info.parts <= _MAX_PARTS:
        raise CheckpointValidationError(f"{name}: a checkpoint cannot have {info.parts} parts")
    first = parse_log_path(parquet_checkpoint_part_key(version, checkpoint_id, 1))
    if not isinstance(first, ParquetCheckpointPart):
        raise CheckpointValidationError(f"{name}: {checkpoint_id!r} is not the id of a checkpoint")
    numbers = range(1, info.parts + 1)
    return tuple(parquet_checkpoint_part_key(version, checkpoint_id, number) for number in numbers)


def _row_files(
    store: ObjectStore, info: ParquetInfo, version: int, name: str, parallelism: int
) -> dict[str, bytes]:
    """The files with the rows, by key: one, the parts, or all files of a folder as Spark writes it."""
    keys = _row_keys(info, version, name)
    try:
        files = read_each(store.get, keys, parallelism=parallelism)
    except ObjectNotFoundError:
        if info.has_parts:
            raise
        folder = f"{parquet_checkpoint_key(version)}/"
        keys = tuple(sorted({meta.key for meta in store.list(folder) if meta.key.endswith(".parquet")}))
        if not keys:
            raise
        if info.parts is not None and info.parts != len(keys):
            raise CheckpointCorruptionError(f"{name}: has {len(keys)} of its {info.parts} parts") from None
        files = read_each(store.get, keys, parallelism=parallelism)
    return dict(zip(keys, files, strict=True))


def _read_rows(files: Mapping[str, bytes]) -> pa.Table:
    # Imported lazily: it is slow to import, and few tables have Parquet checkpoints.
    import pyarrow.parquet as pq

    opened: list[pq.ParquetFile] = []
    for key, data in files.items():
        try:
            opened.append(pq.ParquetFile(io.BytesIO(data)))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{key}: {error}") from error
    count = sum(file.metadata.num_rows for file in opened)
    if count > MAX_CHECKPOINT_ROWS:
        raise ValueError(f"{count} rows exceed the limit of {MAX_CHECKPOINT_ROWS}")
    rows = pa.concat_tables([file.read() for file in opened], promote_options="permissive")
    rows.validate(full=True)
    return rows


def _entries(rows: pa.Table, version: int, timestamp_ms: int) -> pa.Table:
    return entries_from_columns(
        _columns(rows, FILE_ENTRY_SCHEMA),
        np.full(rows.num_rows, version, dtype=np.int64),
        np.full(rows.num_rows, timestamp_ms, dtype=np.int64),
    )


def _paths_without_partition_values(adds: pa.Table) -> tuple[str, ...]:
    if "partitionValues" not in adds.column_names:
        return tuple(adds["path"].to_pylist())
    return tuple(adds["path"].filter(adds["partitionValues"].is_null()).to_pylist())


def _header_rows(checkpoint: Checkpoint) -> pa.Table:
    """All actions but the file entries; the metadata also in the columns of the first design."""
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
    """All actions but the file entries, as JSON lines."""
    lines: list[bytes] = []
    for row in pa.table(_columns(rows, _HEADER_SCHEMA)).to_pylist():
        if row.get("actionJson") is not None:
            lines.append(row["actionJson"].encode())
        elif row["actionType"] == _METADATA:
            lines.append(_flattened_metadata(row))
    return b"\n".join(lines)


def _columns(rows: pa.Table, schema: pa.Schema) -> dict[str, pa.ChunkedArray]:
    """The columns of a schema that exist, cast to its types."""
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
