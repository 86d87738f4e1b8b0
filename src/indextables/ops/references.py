"""Which files are stored under a table root, and which files the log refers to.

Operations that delete files rely on this module: it reads the log completely and without any cache. Anything
unreadable raises an error; corrupt never means orphan.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.decode import Tail, UnknownContent, VersionSummary, decode_tail
from indextables.log.deletion_vectors import are_vector_files, vector_files
from indextables.log.file_keys import key_or_path, normalised_paths
from indextables.log.paths import LOG_PREFIX
from indextables.log.segment import Base, LogListing, VersionEntry
from indextables.log.version_file import read_version_files
from indextables.state.source import StateSource
from indextables.state.state_manifest import manifest_key
from indextables.storage import ObjectMeta
from indextables.table import TableContext
from indextables.table.log_reader import read_base_uncached

SPLIT_SUFFIX: Final = ".split"

STORED_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modifiedMs", pa.int64(), nullable=False),
    ]
)

# The time of a remove without a timestamp: it is never old enough.
NEVER_MS: Final = 2**63 - 1

_VERSIONS_PER_READ: Final = 256

_MAX_NAMED_PATHS: Final = 5

# The columns of an entry that refer to files.
_REFERRING: Final = ("path", "deletionVector")

_REMOVED_SCHEMA = pa.schema([("path", pa.string()), ("removedMs", pa.int64())])


def stored_table(metas: Iterable[ObjectMeta]) -> pa.Table:
    """Objects as a table with STORED_SCHEMA. Listings may repeat a key; the table has each key once."""
    found = {meta.key: meta for meta in metas}
    return pa.table(
        {
            "path": pa.array(list(found), pa.string()),
            "size": pa.array([meta.size for meta in found.values()], pa.int64()),
            "modifiedMs": pa.array([meta.last_modified_ms for meta in found.values()], pa.int64()),
        },
        schema=STORED_SCHEMA,
    )


def split_files(stored: pa.Table) -> pa.Table:
    """The files that can be splits of this table: by suffix, outside of the log and of nested tables."""
    return _files_of_table(stored, pc.ends_with(stored["path"], SPLIT_SUFFIX))


def data_files(stored: pa.Table) -> pa.Table:
    """The files that can be splits or deletion vectors of this table."""
    is_split = pc.ends_with(stored["path"], SPLIT_SUFFIX)
    return _files_of_table(stored, pc.or_(is_split, are_vector_files(stored["path"])))


def referred_files(entries: pa.Table) -> pa.Array:
    """The paths of the splits and of the deletion vectors of entries."""
    vectors = vector_files(entries["deletionVector"])
    return pa.concat_arrays([pc.unique(entries["path"]), vectors])


def _files_of_table(stored: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    paths = stored["path"]
    mask = pc.and_(mask, pc.invert(pc.starts_with(paths, LOG_PREFIX)))
    for folder in _nested_tables(paths):
        mask = pc.and_(mask, pc.invert(pc.starts_with(paths, folder)))
    return stored.filter(mask)


def first_paths(paths: Sequence[str]) -> str:
    """The first few of many paths, for a message."""
    more = f" and {len(paths) - _MAX_NAMED_PATHS} more" if len(paths) > _MAX_NAMED_PATHS else ""
    return f"{', '.join(paths[:_MAX_NAMED_PATHS])}{more}"


def among(values: pa.Array | pa.ChunkedArray, wanted: pa.Array) -> pa.Array:
    """A mask of the values that are wanted."""
    mask = pc.is_in(values, value_set=wanted)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


class VersionActions(msgspec.Struct, frozen=True):
    """The paths of the splits and deletion vectors that version files add, and the splits that they remove, with the
    time of the last removal.

    `summaries` has the rest of each version.
    """

    added: pa.Array
    removed: pa.Table
    summaries: tuple[VersionSummary, ...]

    @property
    def timestamps_ms(self) -> dict[int, int]:
        """The commit time of each version."""
        return {summary.version: summary.timestamp_ms for summary in self.summaries}


def read_actions(context: TableContext, versions: Iterable[VersionEntry]) -> VersionActions:
    """Read the adds and removes of version files.

    Raises LogCorruptedError, ObjectNotFoundError and UnsafePathError.
    """
    added: list[pa.Array] = [pa.array([], pa.string())]
    removed: list[pa.Table] = [_REMOVED_SCHEMA.empty_table()]
    summaries: list[VersionSummary] = []
    for tail in _tails(context, versions):
        summaries += tail.versions
        added.append(referred_files(tail.adds))
        removed.append(_last_removes(tail.removes))
    url = context.url
    return VersionActions(
        pc.unique(normalised_paths(pa.concat_arrays(added), url)),
        _normalised_removes(latest_removes(pa.concat_tables(removed)), url),
        tuple(summaries),
    )


class LivePaths(msgspec.Struct):
    """Collects the live paths of checkpoints: of splits and of deletion vectors.

    A manifest that several states share is read once.
    """

    context: TableContext
    _manifests: dict[str, pa.Table] = msgspec.field(default_factory=dict)
    _is_whole: set[str] = msgspec.field(default_factory=set)
    _found: list[pa.Array] = msgspec.field(default_factory=lambda: [pa.array([], pa.string())])

    def add(self, base: Base) -> None:
        """Read a checkpoint. Raises LogCorruptedError and ObjectNotFoundError."""
        _, source = read_base_uncached(self.context, base, UnknownContent.IGNORE)
        if isinstance(source, StateSource):
            self._add_state(source)
        else:
            self._found.append(referred_files(source.load(None, _REFERRING).entries))

    def paths(self) -> pa.Array:
        """The distinct paths of all added checkpoints, as keys. Raises UnsafePathError."""
        return pc.unique(normalised_paths(pc.unique(pa.concat_arrays(self._found)), self.context.url))

    def _add_state(self, source: StateSource) -> None:
        version, tombstones = source.state.state_version, source.state.tombstones
        keys = {manifest_key(info.path, version): info for info in source.state.manifests}
        unread = [key for key in keys if key not in self._manifests]
        tables = source.read([keys[key] for key in unread], _REFERRING)
        self._manifests |= dict(zip(unread, tables, strict=True))
        for key in keys.keys() - self._is_whole:
            entries = self._manifests[key]
            if len(tombstones):
                entries = entries.filter(pc.invert(pc.is_in(entries["path"], value_set=tombstones)))
            else:
                self._is_whole.add(key)
            self._found.append(referred_files(entries))


def oldest_known_version(listing: LogListing, head_version: int) -> int:
    """The first version of the gapless run of version files up to the head; past the head if its file is missing."""
    version = head_version
    while version in listing.versions:
        version -= 1
    return version + 1


def _nested_tables(paths: pa.ChunkedArray) -> Sequence[str]:
    """The folders of tables under this one; their files do not belong to this table."""
    inner = paths.filter(pc.match_substring(paths, f"/{LOG_PREFIX}"))
    return sorted({path[: path.index(f"/{LOG_PREFIX}") + 1] for path in inner.to_pylist()})


def _tails(context: TableContext, versions: Iterable[VersionEntry]) -> Iterator[Tail]:
    remaining = iter(versions)
    while files := list(islice(remaining, _VERSIONS_PER_READ)):
        yield decode_tail(read_version_files(context.store, files, parallelism=context.read_parallelism))


def _last_removes(removes: pa.Table) -> pa.Table:
    times = pc.fill_null(removes["deletionTimestamp"], NEVER_MS)
    is_time = pc.greater(times, 0)
    return latest_removes(
        pa.table(
            {"path": removes["path"], "removedMs": pc.if_else(is_time, times, NEVER_MS)}, _REMOVED_SCHEMA
        )
    )


def latest_removes(removes: pa.Table) -> pa.Table:
    """One row for each path, with the time of its last removal."""
    if not removes.num_rows:
        return removes
    latest = removes.group_by("path", use_threads=False).aggregate([("removedMs", "max")])
    return pa.table({"path": latest["path"], "removedMs": latest["removedMs_max"]}, _REMOVED_SCHEMA)


def _normalised_removes(removes: pa.Table, root_url: str) -> pa.Table:
    """The removes by key. Older writers used absolute paths, so one file may occur under several spellings."""
    paths = removes["path"].combine_chunks()
    keys = normalised_paths(paths, root_url, key_or_path)
    return latest_removes(pa.table({"path": keys, "removedMs": removes["removedMs"]}, _REMOVED_SCHEMA))
