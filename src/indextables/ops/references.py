"""What lies under a table's root, as columns, and which of it can be a split of this table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import UnsafePathError
from indextables.log.decode import Tail, UnknownContent, decode_tail
from indextables.log.paths import LOG_PREFIX
from indextables.log.segment import Base, LogListing, VersionEntry
from indextables.log.version_file import read_version_files
from indextables.state.source import StateSource
from indextables.state.state_manifest import manifest_key
from indextables.storage import ObjectMeta, relative_key
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

# A path that says where it is by itself, or that is spelled in a way in which no listing shows it.
_NEEDS_A_LOOK: Final = r"^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f\\]"


def stored_table(metas: Iterable[ObjectMeta]) -> pa.Table:
    """Objects as columns, each key once: listings may repeat themselves."""
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
    """The files that can be splits of the table at the root: by suffix, outside the log, and of no table below."""
    paths = stored["path"]
    is_split = pc.and_(pc.ends_with(paths, SPLIT_SUFFIX), pc.invert(pc.starts_with(paths, LOG_PREFIX)))
    for folder in _tables_below(paths):
        is_split = pc.and_(is_split, pc.invert(pc.starts_with(paths, folder)))
    return stored.filter(is_split)


def normalised_paths(
    paths: pa.Array, root_url: str, resolve: Callable[[str, str], str] = relative_key
) -> pa.Array:
    """Paths that a log names, in the same order, as the keys under which a listing shows them.

    `resolve` is asked about those that are no plain keys below the root: by default it raises UnsafePathError for one
    that lies outside.
    """
    needs_a_look = pc.match_substring_regex(paths, _NEEDS_A_LOOK)
    if not pc.any(needs_a_look).as_py():
        return paths
    below = f"{root_url}/"
    rest = pc.if_else(pc.starts_with(paths, below), pc.utf8_slice_codeunits(paths, len(below)), "/")
    is_plain_rest = pc.and_(needs_a_look, pc.invert(pc.match_substring_regex(rest, _NEEDS_A_LOOK)))
    keys = pc.if_else(is_plain_rest, rest, paths)
    is_left = pc.and_not(needs_a_look, is_plain_rest)
    resolved = [resolve(path, root_url) for path in paths.filter(is_left).to_pylist()]
    return pc.replace_with_mask(keys, is_left, pa.array(resolved, pa.string()))


def key_or_path(path: str, root_url: str) -> str:
    """The key of a path, or the path itself, which no listing shows, if it leads out of the table."""
    try:
        return relative_key(path, root_url)
    except UnsafePathError:
        return path


def among(values: pa.Array | pa.ChunkedArray, wanted: pa.Array) -> pa.Array:
    """Which of the values are wanted, as a mask."""
    mask = pc.is_in(values, value_set=wanted)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


def _tables_below(paths: pa.ChunkedArray) -> Sequence[str]:
    """The folders of other tables: what lies in there is not ours."""
    inner = paths.filter(pc.match_substring(paths, f"/{LOG_PREFIX}"))
    return sorted({path[: path.index(f"/{LOG_PREFIX}") + 1] for path in inner.to_pylist()})


# What the log refers to, read to the last entry and without any cache: for those who are about to delete.
#
# Anything that cannot be read is an error here. Corrupt never means orphan.


# A remove that does not say when it happened is never old enough.
NEVER_MS: Final = 2**63 - 1

_FILES_AT_ONCE: Final = 256

_REMOVED_SCHEMA = pa.schema([("path", pa.string()), ("removedMs", pa.int64())])


class VersionActions(msgspec.Struct, frozen=True):
    """The paths that version files add, and those that they remove, with the last time of each.

    `timestamps_ms` has the commit time of each version.
    """

    added: pa.Array
    removed: pa.Table
    timestamps_ms: dict[int, int]


def read_actions(context: TableContext, versions: Iterable[VersionEntry]) -> VersionActions:
    """What version files do to paths. Raises LogCorruptedError, ObjectNotFoundError and UnsafePathError."""
    added: list[pa.Array] = [pa.array([], pa.string())]
    removed: list[pa.Table] = [_REMOVED_SCHEMA.empty_table()]
    timestamps_ms: dict[int, int] = {}
    for tail in _tails(context, versions):
        timestamps_ms |= {summary.version: summary.timestamp_ms for summary in tail.versions}
        added.append(pc.unique(tail.adds["path"]))
        removed.append(_last_removes(tail.removes))
    url = context.url
    return VersionActions(
        pc.unique(normalised_paths(pa.concat_arrays(added), url)),
        _normalised_removes(_latest(pa.concat_tables(removed)), url),
        timestamps_ms,
    )


class LivePaths(msgspec.Struct):
    """Collects the paths that are live in checkpoints. Manifests that several share are read once."""

    context: TableContext
    _manifests: dict[str, pa.ChunkedArray] = msgspec.field(default_factory=dict)
    _is_whole: set[str] = msgspec.field(default_factory=set)
    _found: list[pa.Array] = msgspec.field(default_factory=lambda: [pa.array([], pa.string())])

    def add(self, base: Base) -> None:
        """Read a checkpoint. Raises LogCorruptedError and ObjectNotFoundError."""
        _, source = read_base_uncached(self.context, base, UnknownContent.IGNORE)
        if isinstance(source, StateSource):
            self._add_state(source)
        else:
            self._found.append(pc.unique(source.load(None, ["path"]).entries["path"]))

    def paths(self) -> pa.Array:
        """All of them, as keys. Raises UnsafePathError."""
        return pc.unique(normalised_paths(pc.unique(pa.concat_arrays(self._found)), self.context.url))

    def _add_state(self, source: StateSource) -> None:
        version, tombstones = source.state.state_version, source.state.tombstones
        keys = {manifest_key(info.path, version): info for info in source.state.manifests}
        unread = [key for key in keys if key not in self._manifests]
        tables = source.read([keys[key] for key in unread], ["path"])
        self._manifests |= {key: table["path"] for key, table in zip(unread, tables, strict=True)}
        for key in keys.keys() - self._is_whole:
            paths = self._manifests[key]
            if len(tombstones):
                paths = paths.filter(pc.invert(pc.is_in(paths, value_set=tombstones)))
            else:
                self._is_whole.add(key)
            self._found.append(pc.unique(paths))


def oldest_known_version(listing: LogListing, head_version: int) -> int:
    """The first of the version files that lead up to the newest version without a hole; past it if there are none."""
    version = head_version
    while version in listing.versions:
        version -= 1
    return version + 1


def _tails(context: TableContext, versions: Iterable[VersionEntry]) -> Iterator[Tail]:
    waiting = iter(versions)
    while files := list(islice(waiting, _FILES_AT_ONCE)):
        yield decode_tail(read_version_files(context.store, files, parallelism=context.read_parallelism))


def _last_removes(removes: pa.Table) -> pa.Table:
    times = pc.fill_null(removes["deletionTimestamp"], NEVER_MS)
    is_time = pc.greater(times, 0)
    return _latest(
        pa.table(
            {"path": removes["path"], "removedMs": pc.if_else(is_time, times, NEVER_MS)}, _REMOVED_SCHEMA
        )
    )


def _latest(removes: pa.Table) -> pa.Table:
    if not removes.num_rows:
        return removes
    latest = removes.group_by("path", use_threads=False).aggregate([("removedMs", "max")])
    return pa.table({"path": latest["path"], "removedMs": latest["removedMs_max"]}, _REMOVED_SCHEMA)


def _normalised_removes(removes: pa.Table, root_url: str) -> pa.Table:
    """Older writers named files by absolute paths: the removes of one file come together under its key."""
    paths = removes["path"].combine_chunks()
    keys = normalised_paths(paths, root_url, key_or_path)
    return _latest(pa.table({"path": keys, "removedMs": removes["removedMs"]}, _REMOVED_SCHEMA))
