"""Reads log files in whatever state they are: version files as runs, checkpoints with all their entries.

Of a damaged file, everything that still decodes is kept: every whole line of a version file or JSON checkpoint, every
readable manifest of a state.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.actions import Metadata
from indextables.log.checkpoint import Checkpoint
from indextables.log.decode import NO_VERSIONS, LogFile, Tail, UnknownContent, decode_tail
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.file_keys import key_or_path, normalised_paths
from indextables.log.paths import JsonCheckpoint, JsonCheckpointPart, ManifestFile, parse_log_path
from indextables.log.replay import LogHeader, check_partition_values
from indextables.log.segment import Base, BaseFormat, VersionEntry
from indextables.log.version_file import CODEC_GZIP, COMPRESSION_MAGIC, MAX_LOG_FILE_BYTES, read_version_files
from indextables.ops.repair.report import Problem
from indextables.state.manifest_reader import read_manifest
from indextables.state.source import StateSource, with_foreign_columns_folded
from indextables.state.state_manifest import header_of, manifest_key, read_state_manifest
from indextables.storage import ObjectMeta
from indextables.table import TableContext
from indextables.table.log_reader import read_base_uncached

_PREFIX: Final = bytes([COMPRESSION_MAGIC, CODEC_GZIP])
_GZIP_MAGIC: Final = b"\x1f\x8b"
# zlib's wbits: a 15-bit window, plus 16 to expect a gzip header.
_GZIP_WINDOW_BITS: Final = 31
# How much of a gzip stream one damaged byte can cost.
_INFLATE_CHUNK_BYTES: Final = 1024
_VERSIONS_PER_READ: Final = 64
UNREADABLE_ERRORS: Final = (LogCorruptedError, ObjectNotFoundError)


class VersionRun(msgspec.Struct, frozen=True):
    """Consecutive decoded versions. Paths are keys relative to the table root.

    A damaged version is a run of its own, with a `problem` and the actions that could be read.
    """

    first: int
    last: int
    tail: Tail
    problem: Problem | None = None

    @property
    def paths(self) -> pa.ChunkedArray:
        """Every added or removed path."""
        return pa.chunked_array(
            [*self.tail.adds["path"].chunks, *self.tail.removes["path"].chunks], pa.string()
        )


def read_runs(
    context: TableContext,
    files: Sequence[VersionEntry],
    ends: Collection[int] = (),
    metadata: Metadata | None = None,
) -> list[VersionRun]:
    """Read version files, given in ascending order, as runs. A run ends at each version in `ends`.

    `metadata` is that of the version before them, if it is known. In a partitioned table, an add without
    partitionValues is damage.

    Raises StorageError if the store fails; damage is reported in the runs.
    """
    runs: list[VersionRun] = []
    start = 0
    for index in range(1, len(files) + 1):
        last = files[index - 1].version
        is_end = index == len(files) or files[index].version != last + 1 or last in ends
        if is_end or index - start == _VERSIONS_PER_READ:
            runs += _read_runs(context, files[start:index], metadata)
            metadata = _last_metadata(runs[-1].tail) or metadata
            start = index
    return runs


def paths_of(runs: Iterable[VersionRun]) -> pa.Array:
    """The distinct paths that runs add or remove."""
    chunks = [chunk for run in runs for chunk in run.paths.chunks]
    return pc.unique(pa.chunked_array(chunks, pa.string()))


class DamagedBase(msgspec.Struct, frozen=True):
    """A checkpoint with unreadable entries, and what is left of it.

    `run` holds the readable entries as adds and the tombstones as removes. `header` is None if it is unreadable.
    """

    problem: Problem
    run: VersionRun
    header: LogHeader | None = None


def read_whole_base(context: TableContext, base: Base) -> Checkpoint:
    """Read a checkpoint with all its entries. Raises LogCorruptedError and ObjectNotFoundError."""
    header, source = read_base_uncached(context, base, UnknownContent.KEEP)
    entries = (
        source.load_for_rewrite() if isinstance(source, StateSource) else source.load(None, None).entries
    )
    return Checkpoint(header, _with_key_paths(entries, context.url))


def read_base_paths(context: TableContext, base: Base) -> tuple[LogHeader, pa.ChunkedArray]:
    """Read the header and the live paths of a checkpoint. Raises LogCorruptedError and ObjectNotFoundError."""
    header, source = read_base_uncached(context, base, UnknownContent.IGNORE)
    return header, _with_key_paths(source.load(None, ["path"]).entries, context.url)["path"]


def salvage_base(
    context: TableContext, base: Base, metas: Sequence[ObjectMeta], error: Exception
) -> DamagedBase:
    """Read what is left of a damaged checkpoint. `metas` are all files of the log."""
    problem = Problem(base.meta.key, str(error))
    header: LogHeader | None = None
    match base.format:
        case BaseFormat.AVRO_STATE:
            tail, header = _salvage_state(context, base)
        case BaseFormat.JSON:
            tail = _salvage_json(context, base, metas)
        case BaseFormat.PARQUET:
            tail = NO_VERSIONS
    run = VersionRun(base.version, base.version, _tail_with_key_paths(tail, context.url), problem)
    return DamagedBase(problem, run, header)


def manifest_entries(context: TableContext, metas: Iterable[ObjectMeta]) -> Iterator[pa.Table]:
    """The entries of every readable manifest, whether or not a state refers to it."""
    for meta in metas:
        if isinstance(parse_log_path(meta.key), ManifestFile):
            entries = _read_manifest(context, meta.key)
            if entries is not None:
                yield _with_key_paths(entries, context.url)


def whole_lines(data: bytes, name: str) -> bytes:
    """The lines of a log file that decode as actions, in order.

    A compressed file yields the lines before the damage. Never raises: arbitrary bytes yield no lines.
    """
    lines = [line for line in _inflate(data).split(b"\n") if line.strip()]
    return b"".join(line + b"\n" for line in _decodable_lines(lines, name))


def _with_key_paths(actions: pa.Table, root_url: str) -> pa.Table:
    """Actions or entries with paths as keys relative to the root; paths outside of the root stay unchanged."""
    keys = normalised_paths(actions["path"].combine_chunks(), root_url, key_or_path)
    index = actions.schema.get_field_index("path")
    return actions.set_column(index, actions.schema.field(index), pc.cast(keys, pa.string()))


def _tail_with_key_paths(tail: Tail, root_url: str) -> Tail:
    return Tail(tail.versions, _with_key_paths(tail.adds, root_url), _with_key_paths(tail.removes, root_url))


def _last_metadata(tail: Tail) -> Metadata | None:
    found = [summary.actions.metadata for summary in tail.versions if summary.actions.metadata is not None]
    return found[-1] if found else None


def _read_runs(
    context: TableContext, files: Sequence[VersionEntry], metadata: Metadata | None
) -> list[VersionRun]:
    try:
        read = read_version_files(context.store, files, parallelism=context.read_parallelism)
        tail = decode_tail(read, UnknownContent.KEEP)
        check_partition_values(tail.versions, metadata, context.url)
    except LogCorruptedError as error:
        if len(files) > 1:
            # Bisect to isolate the damaged files.
            middle = len(files) // 2
            first = _read_runs(context, files[:middle], metadata)
            found = [found for run in first if (found := _last_metadata(run.tail)) is not None]
            return [*first, *_read_runs(context, files[middle:], found[-1] if found else metadata)]
        return [_salvage_version(context, files[0], error, metadata)]
    return [VersionRun(files[0].version, files[-1].version, _tail_with_key_paths(tail, context.url))]


def _salvage_version(
    context: TableContext, file: VersionEntry, error: LogCorruptedError, metadata: Metadata | None
) -> VersionRun:
    version, meta = file.version, file.meta
    name = f"{context.url}/{meta.key}"
    lines = whole_lines(context.store.get(meta.key), name)
    tail = decode_tail([LogFile(version, name, lines, meta.last_modified_ms)], UnknownContent.KEEP)
    keyed = _tail_with_key_paths(_without_incomplete_adds(tail, metadata), context.url)
    return VersionRun(version, version, keyed, Problem(meta.key, str(error)))


def _without_incomplete_adds(tail: Tail, metadata: Metadata | None) -> Tail:
    """The tail without the adds that do not say in which partition they are. Their splits may say it."""
    metadata = _last_metadata(tail) or metadata
    incomplete = [path for summary in tail.versions for path in summary.without_partition_values]
    if not incomplete or metadata is None or not metadata.partition_columns:
        return tail
    is_incomplete = pc.is_in(tail.adds["path"], value_set=pa.array(incomplete, pa.string()))
    return Tail(tail.versions, tail.adds.filter(pc.invert(is_incomplete)), tail.removes)


def _salvage_state(context: TableContext, base: Base) -> tuple[Tail, LogHeader | None]:
    """The entries of the readable manifests of a state, without those that its tombstones hide."""
    try:
        manifest = read_state_manifest(context.store, base)
        keys = [manifest_key(info.path, base.version) for info in manifest.manifests]
    except UNREADABLE_ERRORS:
        return NO_VERSIONS, None
    found = [entries for key in keys if (entries := _read_manifest(context, key)) is not None]
    entries = pa.concat_tables([FILE_ENTRY_SCHEMA.empty_table(), *found], promote_options="default")
    live = StateSource(context.store, manifest, 1).live(entries)
    return _as_tail(live, manifest.tombstones, base.version), header_of(manifest)


def _read_manifest(context: TableContext, key: str) -> pa.Table | None:
    try:
        entries = read_manifest(context.store.get(key), name=f"{context.url}/{key}")
    except UNREADABLE_ERRORS:
        return None
    return with_foreign_columns_folded(entries)


def _as_tail(entries: pa.Table, tombstones: pa.StringArray, version: int) -> Tail:
    """A state as actions: removes of its tombstones, followed by adds of its entries."""
    count = len(tombstones)
    schema = NO_VERSIONS.removes.schema
    columns = {field.name: pa.nulls(count, field.type) for field in schema}
    columns["path"] = tombstones
    columns["version"] = pa.array(np.full(count, version, dtype=np.int64))
    columns["sequence"] = pa.array(np.arange(count, dtype=np.int64))
    sequence = pa.array(np.arange(count, count + entries.num_rows, dtype=np.int64))
    adds = entries.append_column(NO_VERSIONS.adds.schema.field("sequence"), sequence)
    return Tail((), adds, pa.table(columns, schema=schema))


def _salvage_json(context: TableContext, base: Base, metas: Sequence[ObjectMeta]) -> Tail:
    """The whole lines of a JSON checkpoint and of every part of its version.

    Parts of several writers may exist. They describe the same version, so reading all of them is correct.
    """
    files = [meta for meta in metas if _is_of_json_checkpoint(meta.key, base.version)]
    lines: list[LogFile] = []
    for meta in files:
        name = f"{context.url}/{meta.key}"
        try:
            data = context.store.get(meta.key)
        except ObjectNotFoundError:
            continue
        lines.append(LogFile(base.version, name, whole_lines(data, name), meta.last_modified_ms))
    return _without_incomplete_adds(decode_tail(lines, UnknownContent.KEEP), None)


def _is_of_json_checkpoint(key: str, version: int) -> bool:
    path = parse_log_path(key)
    return isinstance(path, JsonCheckpoint | JsonCheckpointPart) and path.version == version


def _inflate(data: bytes) -> bytes:
    """The readable beginning of a compressed file, or a plain file as it is."""
    stream = data.removeprefix(_PREFIX)
    if not stream.startswith(_GZIP_MAGIC):
        return b"" if data.startswith(_PREFIX[:1]) else data
    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
    inflated = bytearray()
    for start in range(0, len(stream), _INFLATE_CHUNK_BYTES):
        chunk = stream[start : start + _INFLATE_CHUNK_BYTES]
        try:
            inflated += inflater.decompress(chunk, MAX_LOG_FILE_BYTES - len(inflated))
        except zlib.error:
            break
        if inflater.eof or len(inflated) >= MAX_LOG_FILE_BYTES:
            break
    return bytes(inflated)


def _decodable_lines(lines: Sequence[bytes], name: str) -> list[bytes]:
    """The lines that decode, found by bisecting."""
    if not lines:
        return []
    try:
        decode_tail([LogFile(0, name, b"\n".join(lines), 0)], UnknownContent.KEEP)
    except LogCorruptedError:
        if len(lines) == 1:
            return []
        middle = len(lines) // 2
        return [*_decodable_lines(lines[:middle], name), *_decodable_lines(lines[middle:], name)]
    return list(lines)
