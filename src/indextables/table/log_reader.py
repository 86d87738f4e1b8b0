"""What of a long tail a replay needs. Pure, and columnar."""

import logging
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
from indextables.log.decode import LogFile, Tail, UnknownContent, VersionSummary, decode_tail
from indextables.log.entries import EntrySource, MemorySource
from indextables.log.legacy_checkpoint import read_json_checkpoint, read_parquet_checkpoint
from indextables.log.replay import LogHeader
from indextables.log.segment import Base, BaseFormat, LogListing
from indextables.log.version_file import find_version_file, read_version_files
from indextables.state.source import StateSource
from indextables.state.state_manifest import header_of, read_state_manifest
from indextables.storage import ObjectMeta, with_time_limit
from indextables.table.cache import cached, stamp
from indextables.table.context import TableContext


def last_actions(tail: Tail) -> Tail:
    """The tail with the last add and the last remove of each path only: it replays to the same."""
    return Tail(tail.versions, _last_per_path(tail.adds), _last_per_path(tail.removes))


def _last_per_path(actions: pa.Table) -> pa.Table:
    codes = actions["path"].combine_chunks().dictionary_encode().indices.to_numpy()
    sequence = actions["sequence"].to_numpy()
    last: npt.NDArray[np.int64] = np.full(codes.max(initial=-1) + 1, -1, dtype=np.int64)
    np.maximum.at(last, codes, sequence)
    is_last = last[codes] == sequence
    return actions if is_last.all() else actions.filter(pa.array(is_last))


# Reading the files of a segment, through the caches.


logger = logging.getLogger(__name__)

# A version that overwrites a large table is tens of megabytes: not worth a place in the cache.
_LARGEST_CACHED_VERSION_BYTES = 1024 * 1024

# A long tail is fetched in pieces, and decoded whenever so much text has come together: what is in memory as text at
# any time is bounded, and small versions are still decoded many at once.
_FILES_PER_FETCH = 64
_BYTES_PER_FETCH = 1024 * 1024
_BYTES_PER_DECODING = 8 * 1024 * 1024


def with_unlisted_versions(
    context: TableContext, listing: LogListing, first: int, last: int | None = None
) -> LogListing:
    """The listing, with the version files from `first` on that it missed, up to `last` or to the end of the log.

    A listing may lag behind; that of a folder in which files are being created may even show a later one and not
    an earlier one. What was committed is found by asking for it.
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


def read_log_files(context: TableContext, files: Sequence[tuple[int, ObjectMeta]]) -> list[LogFile]:
    """Version files in the order given, those in the cache without a request."""
    cache, store = context.cache.versions, context.store
    expiration = context.settings[TRANSACTION_CACHE_EXPIRATION_SECONDS]
    found: dict[int, LogFile] = {}
    for version, meta in files:
        log_file = cache.get(store, stamp(meta), expiration)
        if log_file is not None:
            found[version] = log_file
    missing = [(version, meta) for version, meta in files if version not in found]
    fetched = read_version_files(store, missing, parallelism=context.read_parallelism)
    for (version, meta), log_file in zip(missing, fetched, strict=True):
        found[version] = log_file
        remember(context, meta, log_file)
    return [found[version] for version, _ in files]


def remember(context: TableContext, meta: ObjectMeta, log_file: LogFile) -> None:
    """Keep a version file in the cache, unless it is large."""
    if len(log_file.lines) <= _LARGEST_CACHED_VERSION_BYTES:
        context.cache.versions.put(context.store, stamp(meta), log_file, len(log_file.lines))


def read_tail(
    context: TableContext,
    files: Sequence[tuple[int, ObjectMeta]],
    unknown: UnknownContent = UnknownContent.IGNORE,
) -> Tail:
    """Version files, decoded: every action of theirs. Raises LogCorruptedError with the file at fault."""
    tails = list(_decoded(context, files, unknown))
    return tails[0] if len(tails) == 1 else _joined(tails)


def read_summaries(context: TableContext, files: Sequence[tuple[int, ObjectMeta]]) -> list[VersionSummary]:
    """What version files say besides their adds and removes, in the order given."""
    tails = _decoded(context, files, UnknownContent.IGNORE)
    return [summary for tail in tails for summary in tail.versions]


def read_last_actions(context: TableContext, files: Sequence[tuple[int, ObjectMeta]]) -> Tail:
    """Version files, decoded as far as a replay needs them.

    Of a long tail only the last actions on each path are kept, so that files which are overwritten again and again
    take no more memory than once.
    """
    tails = _decoded(context, files, UnknownContent.IGNORE)
    return reduce(lambda before, tail: last_actions(_joined([before, tail])), tails)


def read_base(
    context: TableContext, base: Base, unknown: UnknownContent = UnknownContent.IGNORE
) -> tuple[LogHeader, EntrySource]:
    """A checkpoint or state. Raises LogCorruptedError, ObjectNotFoundError or another StorageError.

    StorageTimeoutError is one of them: neither the read here nor a later load of entries may take longer than the
    settings allow.
    """
    expiration = context.settings[TRANSACTION_CACHE_EXPIRATION_SECONDS]
    load = partial(read_base_uncached, context, base, unknown)
    return cached(context.cache.checkpoints, context.store, (stamp(base.meta), unknown), expiration, load)


def read_base_uncached(
    context: TableContext, base: Base, unknown: UnknownContent
) -> tuple[LogHeader, EntrySource]:
    """A checkpoint or state as it is in the store now: for those who must know whether it can be read."""
    timeout_seconds = context.settings[CHECKPOINT_READ_TIMEOUT_SECONDS]
    store = with_time_limit(
        context.store, timeout_seconds, base.meta.key, CHECKPOINT_READ_TIMEOUT_SECONDS.key
    )
    match base.format:
        case BaseFormat.AVRO_STATE:
            manifest = read_state_manifest(store, base)
            parallelism = context.settings[STATE_READ_PARALLELISM]
            return header_of(manifest), StateSource(context.store, manifest, parallelism, timeout_seconds)
        case BaseFormat.JSON:
            checkpoint = read_json_checkpoint(store, base.meta, base.version, unknown)
        case BaseFormat.PARQUET:
            checkpoint = read_parquet_checkpoint(store, base.meta, base.version)
    return checkpoint.header, MemorySource(checkpoint.entries)


def _decoded(
    context: TableContext, files: Sequence[tuple[int, ObjectMeta]], unknown: UnknownContent
) -> Iterator[Tail]:
    """Version files as tails, in order; an empty one if there are none."""
    pending: list[LogFile] = []
    for fetched in _fetches(files):
        pending += read_log_files(context, fetched)
        if sum(len(log_file.lines) for log_file in pending) >= _BYTES_PER_DECODING:
            yield decode_tail(pending, unknown)
            pending = []
    if pending or not files:
        yield decode_tail(pending, unknown)


def _fetches(files: Sequence[tuple[int, ObjectMeta]]) -> Iterator[Sequence[tuple[int, ObjectMeta]]]:
    start, size = 0, 0
    for index, (_, meta) in enumerate(files):
        if index > start and (index - start == _FILES_PER_FETCH or size + meta.size > _BYTES_PER_FETCH):
            yield files[start:index]
            start, size = index, 0
        size += meta.size
    yield files[start:]


def _joined(tails: Sequence[Tail]) -> Tail:
    adds, removes, offset = [], [], 0
    for tail in tails:
        adds.append(_shifted(tail.adds, offset))
        removes.append(_shifted(tail.removes, offset))
        newest = [pc.max(table["sequence"]).as_py() for table in (adds[-1], removes[-1]) if table.num_rows]
        offset = max([offset, *(value + 1 for value in newest)])
    versions = tuple(version for tail in tails for version in tail.versions)
    return Tail(versions, pa.concat_tables(adds), pa.concat_tables(removes))


def _shifted(actions: pa.Table, offset: int) -> pa.Table:
    index = actions.schema.get_field_index("sequence")
    return actions.set_column(index, actions.schema.field(index), pc.add(actions["sequence"], offset))
