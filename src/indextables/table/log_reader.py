"""Reads log files through the caches: version files as tails, checkpoints as a header and file entries."""

from collections.abc import Iterator, Sequence
from functools import partial, reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config.registry import (
    CHECKPOINT_READ_TIMEOUT_SECONDS,
    STATE_READ_PARALLELISM,
    TRANSACTION_CACHE_EXPIRATION_SECONDS,
)
from indextables.errors import CheckpointCorruptionError, CheckpointValidationError, LogCorruptedError
from indextables.log.actions import scan_lines
from indextables.log.decode import LogFile, Tail, UnknownContent, VersionSummary, decode_tail
from indextables.log.entries import EntrySource, MemorySource
from indextables.log.file_keys import tail_with_keys
from indextables.log.legacy_checkpoint import read_json_checkpoint, read_parquet_checkpoint
from indextables.log.replay import LogHeader
from indextables.log.segment import Base, BaseFormat, LogListing, VersionEntry
from indextables.log.version_file import find_version_file, read_version_files
from indextables.state.source import StateSource
from indextables.state.state_manifest import header_of, read_state_manifest
from indextables.storage import ObjectMeta, with_time_limit
from indextables.table.context import TableContext, cached, stamp

# A version that overwrites a large table has tens of megabytes: too large for the cache.
_MAX_CACHED_VERSION_BYTES = 1024 * 1024

# A long tail is fetched in batches, and decoded whenever this much text has accumulated. That bounds the text in
# memory, and still decodes many small versions at once.
_FILES_PER_FETCH = 64
_BYTES_PER_FETCH = 1024 * 1024
_BYTES_PER_DECODE = 8 * 1024 * 1024


def with_unlisted_versions(
    context: TableContext, listing: LogListing, first: int, last: int | None = None
) -> LogListing:
    """The listing plus the version files from `first` on that it missed, up to `last` or to the end of the log.

    A listing may be stale. A listing of a folder in which files are being created may even contain a later file and
    miss an earlier one. A HEAD request finds every committed version.
    """
    versions = dict(listing.versions)
    version = first
    while last is None or version <= last:
        if version not in versions:
            meta = find_version_file(context.store, version)
            if meta is None:
                break
            versions[version] = meta
        version += 1
    return replace(listing, versions=dict(sorted(versions.items())))


def read_log_files(context: TableContext, files: Sequence[VersionEntry]) -> list[LogFile]:
    """Version files in the given order. Cached files need no request."""
    cache, store = context.cache.versions, context.store
    expiration = context.settings[TRANSACTION_CACHE_EXPIRATION_SECONDS]
    found: dict[int, LogFile] = {}
    for file in files:
        log_file = cache.get(store, stamp(file.meta), expiration)
        if log_file is not None:
            found[file.version] = log_file
    missing = [file for file in files if file.version not in found]
    fetched = read_version_files(store, missing, parallelism=context.read_parallelism)
    for file, log_file in zip(missing, fetched, strict=True):
        found[file.version] = log_file
        remember(context, file.meta, log_file)
    return [found[file.version] for file in files]


def remember(context: TableContext, meta: ObjectMeta, log_file: LogFile) -> None:
    """Cache a version file, unless it is large."""
    if len(log_file.lines) <= _MAX_CACHED_VERSION_BYTES:
        context.cache.versions.put(context.store, stamp(meta), log_file, len(log_file.lines))


def read_tail(
    context: TableContext,
    files: Sequence[VersionEntry],
    unknown: UnknownContent = UnknownContent.IGNORE,
) -> Tail:
    """All actions of version files. Raises LogCorruptedError, which names the file."""
    tails = list(_decode(context, files, unknown))
    return tails[0] if len(tails) == 1 else _join(tails)


def read_summaries(context: TableContext, files: Sequence[VersionEntry]) -> list[VersionSummary]:
    """Version files without their adds and removes, in the given order."""
    tails = _decode(context, files, UnknownContent.IGNORE)
    return [summary for tail in tails for summary in tail.versions]


def summary_of(log_file: LogFile) -> VersionSummary:
    """One version file without its adds and removes. Raises LogCorruptedError."""
    actions = scan_lines(log_file.name, log_file.lines).actions
    if actions.commit_info is None:
        # Without a commitInfo, only the adds and removes have the time of the commit.
        return decode_tail([log_file]).versions[0]
    return VersionSummary(log_file.version, actions.commit_info.timestamp, actions)


def read_last_actions(context: TableContext, files: Sequence[VersionEntry]) -> Tail:
    """The actions of version files that a replay needs.

    Keeps only the last actions on each path while it reads, so a file that is overwritten many times takes memory once.
    """
    tails = _decode(context, files, UnknownContent.IGNORE)
    return reduce(lambda before, tail: last_actions(_join([before, tail])), tails)


def last_actions(tail: Tail) -> Tail:
    """The tail with only the last add and the last remove of each path. It replays to the same file list."""
    return Tail(tail.versions, _last_per_path(tail.adds), _last_per_path(tail.removes))


def read_base(
    context: TableContext, base: Base, unknown: UnknownContent = UnknownContent.IGNORE
) -> tuple[LogHeader, EntrySource]:
    """A checkpoint or state, through the cache. Raises as `read_base_uncached` does."""
    expiration = context.settings[TRANSACTION_CACHE_EXPIRATION_SECONDS]
    load = partial(_read_base, context, base, unknown)
    header, source = cached(
        context.cache.checkpoints, context.store, (stamp(base.meta), unknown), expiration, load
    )
    return header, _with_executor(context, source)


def read_base_uncached(
    context: TableContext, base: Base, unknown: UnknownContent
) -> tuple[LogHeader, EntrySource]:
    """A checkpoint or state as it is in the store now, for callers that must know whether it is readable.

    Raises CheckpointCorruptionError, CheckpointValidationError, ObjectNotFoundError or another StorageError.
    StorageTimeoutError is one of them: neither this read nor a later load of entries may exceed the configured time.
    """
    header, source = _read_base(context, base, unknown)
    return header, _with_executor(context, source)


def _with_executor(context: TableContext, source: EntrySource) -> EntrySource:
    """The source with the caller's manifest executor. Cached sources are shared, so they have none."""
    if context.manifest_executor is None or not isinstance(source, StateSource):
        return source
    return replace(source, executor=context.manifest_executor)


def _read_base(context: TableContext, base: Base, unknown: UnknownContent) -> tuple[LogHeader, EntrySource]:
    try:
        return _decode_base(context, base, unknown)
    except (CheckpointCorruptionError, CheckpointValidationError):
        raise
    except LogCorruptedError as error:
        # The JSON decoders are shared with version files and do not know that they decode a checkpoint.
        raise CheckpointCorruptionError(str(error)) from error


def _decode_base(context: TableContext, base: Base, unknown: UnknownContent) -> tuple[LogHeader, EntrySource]:
    timeout_seconds = context.settings[CHECKPOINT_READ_TIMEOUT_SECONDS]
    store = with_time_limit(
        context.store, timeout_seconds, base.meta.key, CHECKPOINT_READ_TIMEOUT_SECONDS.key
    )
    match base.format:
        case BaseFormat.AVRO_STATE:
            state = read_state_manifest(store, base)
            parallelism = context.settings[STATE_READ_PARALLELISM]
            source = StateSource(context.store, state, parallelism, read_timeout_seconds=timeout_seconds)
            return header_of(state), source
        case BaseFormat.JSON:
            checkpoint = read_json_checkpoint(
                store, base.meta, base.version, unknown, parallelism=context.read_parallelism
            )
        case BaseFormat.PARQUET:
            checkpoint = read_parquet_checkpoint(
                store, base.meta, base.version, parallelism=context.read_parallelism
            )
    return checkpoint.header, MemorySource(checkpoint.entries)


def _decode(context: TableContext, files: Sequence[VersionEntry], unknown: UnknownContent) -> Iterator[Tail]:
    """Version files as tails, in order: at least one tail, which may be empty."""
    pending: list[LogFile] = []
    for batch in _fetch_batches(files):
        pending += read_log_files(context, batch)
        if sum(len(log_file.lines) for log_file in pending) >= _BYTES_PER_DECODE:
            yield tail_with_keys(decode_tail(pending, unknown), context.url)
            pending = []
    if pending or not files:
        yield tail_with_keys(decode_tail(pending, unknown), context.url)


def _fetch_batches(files: Sequence[VersionEntry]) -> Iterator[Sequence[VersionEntry]]:
    start, size = 0, 0
    for index, file in enumerate(files):
        if index > start and (index - start == _FILES_PER_FETCH or size + file.meta.size > _BYTES_PER_FETCH):
            yield files[start:index]
            start, size = index, 0
        size += file.meta.size
    yield files[start:]


def _join(tails: Sequence[Tail]) -> Tail:
    """Consecutive tails as one. Sequence numbers continue from one tail to the next."""
    adds, removes, offset = [], [], 0
    for tail in tails:
        adds.append(_shift_sequence(tail.adds, offset))
        removes.append(_shift_sequence(tail.removes, offset))
        newest = [pc.max(table["sequence"]).as_py() for table in (adds[-1], removes[-1]) if table.num_rows]
        offset = max([offset, *(value + 1 for value in newest)])
    versions = tuple(version for tail in tails for version in tail.versions)
    return Tail(versions, pa.concat_tables(adds), pa.concat_tables(removes))


def _shift_sequence(actions: pa.Table, offset: int) -> pa.Table:
    index = actions.schema.get_field_index("sequence")
    return actions.set_column(index, actions.schema.field(index), pc.add(actions["sequence"], offset))


def _last_per_path(actions: pa.Table) -> pa.Table:
    codes = actions["path"].combine_chunks().dictionary_encode().indices.to_numpy()
    sequence = actions["sequence"].to_numpy()
    last: npt.NDArray[np.int64] = np.full(codes.max(initial=-1) + 1, -1, dtype=np.int64)
    np.maximum.at(last, codes, sequence)
    is_last = last[codes] == sequence
    return actions if is_last.all() else actions.filter(pa.array(is_last))
