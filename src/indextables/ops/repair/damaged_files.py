"""What can still be read of a damaged file of JSON lines: every line that is whole."""

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.checkpoint import Checkpoint
from indextables.log.decode import NO_VERSIONS, LogFile, Tail, UnknownContent, decode_tail
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.paths import JsonCheckpoint, JsonCheckpointPart, ManifestFile, parse_log_path
from indextables.log.replay import LogHeader
from indextables.log.segment import Base, BaseFormat, VersionEntry
from indextables.log.version_file import CODEC_GZIP, COMPRESSION_MAGIC, MAX_LOG_FILE_BYTES, read_version_files
from indextables.ops.references import key_or_path, normalised_paths
from indextables.ops.repair.report import Problem
from indextables.state.manifest_reader import read_manifest
from indextables.state.source import StateSource, with_foreign_columns_folded
from indextables.state.state_manifest import header_of, manifest_key, read_state_manifest
from indextables.storage import ObjectMeta
from indextables.table import TableContext
from indextables.table.log_reader import read_base_uncached

_PREFIX: Final = bytes([COMPRESSION_MAGIC, CODEC_GZIP])
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
# What one damaged byte can take along.
_FED_BYTES: Final = 1024


def whole_lines(data: bytes, name: str) -> bytes:
    """The lines of a log file that hold actions which can be read, in their order.

    A compressed file gives what comes before the damage. Never raises: of a file that is none, nothing is left.
    """
    lines = [line for line in _inflated(data).split(b"\n") if line.strip()]
    return b"".join(line + b"\n" for line in _decodable(lines, name))


def _inflated(data: bytes) -> bytes:
    """The beginning of a compressed file as far as it can be read, or a plain file as it is."""
    stream = data.removeprefix(_PREFIX)
    if not stream.startswith(_GZIP_MAGIC):
        return b"" if data.startswith(_PREFIX[:1]) else data
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    found = bytearray()
    for start in range(0, len(stream), _FED_BYTES):
        try:
            found += inflater.decompress(stream[start : start + _FED_BYTES], MAX_LOG_FILE_BYTES - len(found))
        except zlib.error:
            break
        if inflater.eof or len(found) >= MAX_LOG_FILE_BYTES:
            break
    return bytes(found)


def _decodable(lines: Sequence[bytes], name: str) -> list[bytes]:
    """Which lines it is shows when they are read in halves."""
    if not lines:
        return []
    try:
        decode_tail([LogFile(0, name, b"\n".join(lines), 0)], UnknownContent.KEEP)
    except LogCorruptedError:
        if len(lines) == 1:
            return []
        middle = len(lines) // 2
        return [*_decodable(lines[:middle], name), *_decodable(lines[middle:], name)]
    return list(lines)


# Version files, whatever state they are in: whole ones together, damaged ones by themselves.


_FILES_AT_ONCE: Final = 64


class Run(msgspec.Struct, frozen=True):
    """Consecutive versions, decoded; paths are keys below the table's root.

    A version with a `problem` is a run of its own, with what could be read of it.
    """

    first: int
    last: int
    tail: Tail
    problem: Problem | None = None

    @property
    def paths(self) -> pa.ChunkedArray:
        """Every path that is added or removed."""
        return pa.chunked_array(
            [*self.tail.adds["path"].chunks, *self.tail.removes["path"].chunks], pa.string()
        )


def read_runs(context: TableContext, files: Sequence[VersionEntry], ends: Collection[int] = ()) -> list[Run]:
    """Version files, given in order, as runs in that order; one ends at each of `ends`. Raises StorageError."""
    runs: list[Run] = []
    start = 0
    for index in range(1, len(files) + 1):
        last = files[index - 1].version
        is_end = index == len(files) or files[index].version != last + 1 or last in ends
        if is_end or index - start == _FILES_AT_ONCE:
            runs += _read(context, files[start:index])
            start = index
    return runs


def with_keys(actions: pa.Table, root_url: str) -> pa.Table:
    """Actions or entries whose paths are keys below the root; paths that lead out of it stay as they are."""
    keys = normalised_paths(actions["path"].combine_chunks(), root_url, key_or_path)
    index = actions.schema.get_field_index("path")
    return actions.set_column(index, actions.schema.field(index), pc.cast(keys, pa.string()))


def keyed(tail: Tail, root_url: str) -> Tail:
    """A tail whose paths are keys."""
    return Tail(tail.versions, with_keys(tail.adds, root_url), with_keys(tail.removes, root_url))


def _read(context: TableContext, files: Sequence[VersionEntry]) -> list[Run]:
    try:
        read = read_version_files(context.store, files, parallelism=context.read_parallelism)
        tail = decode_tail(read, UnknownContent.KEEP)
    except LogCorruptedError as error:
        if len(files) > 1:
            # Which one it is shows when they are read in halves.
            middle = len(files) // 2
            return [*_read(context, files[:middle]), *_read(context, files[middle:])]
        return [_salvaged(context, files[0], error)]
    return [Run(files[0].version, files[-1].version, keyed(tail, context.url))]


def _salvaged(context: TableContext, file: VersionEntry, error: LogCorruptedError) -> Run:
    version, meta = file.version, file.meta
    name = f"{context.url}/{meta.key}"
    lines = whole_lines(context.store.get(meta.key), name)
    tail = decode_tail([LogFile(version, name, lines, meta.last_modified_ms)], UnknownContent.KEEP)
    return Run(version, version, keyed(tail, context.url), Problem(meta.key, str(error)))


# Checkpoints and states, whatever state they are in: to the last entry, or what is left of them.


_UNREADABLE = (LogCorruptedError, ObjectNotFoundError)


class BrokenBase(msgspec.Struct, frozen=True):
    """A checkpoint that cannot be read to the last entry, and what is left of it.

    `run` has the entries that could be read as adds, and its tombstones as removes; `header` what it says of the table.
    """

    problem: Problem
    run: Run
    header: LogHeader | None = None


def read_whole_base(context: TableContext, base: Base) -> Checkpoint:
    """A checkpoint with all its entries. Raises LogCorruptedError and ObjectNotFoundError."""
    header, source = read_base_uncached(context, base, UnknownContent.KEEP)
    entries = (
        source.load_for_rewrite() if isinstance(source, StateSource) else source.load(None, None).entries
    )
    return Checkpoint(header, with_keys(entries, context.url))


def read_base_paths(context: TableContext, base: Base) -> tuple[LogHeader, pa.ChunkedArray]:
    """The header of a checkpoint, and its live paths. Raises LogCorruptedError and ObjectNotFoundError."""
    header, source = read_base_uncached(context, base, UnknownContent.IGNORE)
    return header, with_keys(source.load(None, ["path"]).entries, context.url)["path"]


def salvage_base(
    context: TableContext, base: Base, metas: Sequence[ObjectMeta], error: Exception
) -> BrokenBase:
    """What is left of a checkpoint that cannot be read as a whole. `metas` are all files of the log."""
    problem = Problem(base.meta.key, str(error))
    header: LogHeader | None = None
    match base.format:
        case BaseFormat.AVRO_STATE:
            tail, header = _salvaged_state(context, base)
        case BaseFormat.JSON:
            tail = _salvaged_json(context, base, metas)
        case BaseFormat.PARQUET:
            tail = NO_VERSIONS
    return BrokenBase(problem, Run(base.version, base.version, keyed(tail, context.url), problem), header)


def loose_entries(context: TableContext, metas: Iterable[ObjectMeta]) -> Iterator[pa.Table]:
    """The entries of every manifest that can be read, whether a state refers to it or not."""
    for meta in metas:
        if isinstance(parse_log_path(meta.key), ManifestFile):
            entries = _manifest_entries(context, meta.key)
            if entries is not None:
                yield with_keys(entries, context.url)


def paths_of(runs: Iterable[Run]) -> pa.Array:
    """All paths that runs mention, each once."""
    chunks = [chunk for run in runs for chunk in run.paths.chunks]
    return pc.unique(pa.chunked_array(chunks, pa.string()))


def _salvaged_state(context: TableContext, base: Base) -> tuple[Tail, LogHeader | None]:
    """The manifests of a state that can be read, without what its tombstones hide."""
    try:
        manifest = read_state_manifest(context.store, base)
        keys = [manifest_key(info.path, base.version) for info in manifest.manifests]
    except _UNREADABLE:
        return NO_VERSIONS, None
    found = [entries for key in keys if (entries := _manifest_entries(context, key)) is not None]
    entries = pa.concat_tables([FILE_ENTRY_SCHEMA.empty_table(), *found], promote_options="default")
    live = StateSource(context.store, manifest, 1).live(entries)
    return _as_tail(live, manifest.tombstones, base.version), header_of(manifest)


def _manifest_entries(context: TableContext, key: str) -> pa.Table | None:
    try:
        entries = read_manifest(context.store.get(key), name=f"{context.url}/{key}")
    except _UNREADABLE:
        return None
    return with_foreign_columns_folded(entries)


def _as_tail(entries: pa.Table, tombstones: pa.StringArray, version: int) -> Tail:
    """A state as actions: what it hides is removed first, and what it holds added after that."""
    count = len(tombstones)
    schema = NO_VERSIONS.removes.schema
    columns = {field.name: pa.nulls(count, field.type) for field in schema}
    columns["path"] = tombstones
    columns["version"] = pa.array(np.full(count, version, dtype=np.int64))
    columns["sequence"] = pa.array(np.arange(count, dtype=np.int64))
    sequence = pa.array(np.arange(count, count + entries.num_rows, dtype=np.int64))
    adds = entries.append_column(NO_VERSIONS.adds.schema.field("sequence"), sequence)
    return Tail((), adds, pa.table(columns, schema=schema))


def _salvaged_json(context: TableContext, base: Base, metas: Sequence[ObjectMeta]) -> Tail:
    """The lines of a JSON checkpoint, and of all parts of that version: whoever wrote them, they say the same."""
    files = [meta for meta in metas if _is_of_json_checkpoint(meta.key, base.version)]
    lines: list[LogFile] = []
    for meta in files:
        name = f"{context.url}/{meta.key}"
        try:
            data = context.store.get(meta.key)
        except ObjectNotFoundError:
            continue
        lines.append(LogFile(base.version, name, whole_lines(data, name), meta.last_modified_ms))
    return decode_tail(lines, UnknownContent.KEEP)


def _is_of_json_checkpoint(key: str, version: int) -> bool:
    path = parse_log_path(key)
    return isinstance(path, JsonCheckpoint | JsonCheckpointPart) and path.version == version
