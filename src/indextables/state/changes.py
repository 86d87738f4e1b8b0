"""The net changes of a tail of versions, and their effect on the manifests of the previous state. Columnar.

The first action on a path shows whether the path was live before the tail, and the last one whether it is live
afterwards. The former holds only for versions whose writers verified it (`CommitInfo.is_exact`); for other versions the
entries of the state must be read.
"""

from collections.abc import Sequence, Set

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.log.decode import Tail
from indextables.log.entries import empty_entries
from indextables.state.schemas import UNKNOWN_COUNT
from indextables.state.source import (
    StateSource,
    have_each_path_once,
    manifests_that_may_hold,
    newest_per_path,
)
from indextables.state.state_manifest import (
    ManifestInfo,
    StateManifest,
    no_tombstones,
    normalized_manifest_path,
)


class NetChanges(msgspec.Struct, frozen=True):
    """The difference between two states.

    `adds` are the new live entries. `removed` and `replaced` (columns path and size) are entries of the previous state:
    those that are no longer live, and those for which `adds` has a newer entry.
    """

    adds: pa.Table
    removed: pa.Table
    replaced: pa.Table


def is_exact(tail: Tail) -> bool:
    """Whether the tail alone shows which of its paths were live before it."""
    infos = [version.actions.commit_info for version in tail.versions]
    return all(info is not None and info.is_exact for info in infos) and not tail.removes["size"].null_count


def net_changes_of_exact_tail(tail: Tail) -> NetChanges:
    """The net changes of a tail for which `is_exact` holds. The previous state is not needed."""
    actions = _Actions.of(tail)
    first, last = actions.first_per_path(), actions.last_per_path()
    was_live = ~actions.is_add[first]
    is_live = actions.is_add[last]
    known = pa.table({"path": tail.removes["path"], "size": tail.removes["size"]})
    return NetChanges(
        adds=_adds(tail, actions, last[is_live]),
        removed=known.take(pa.array(actions.row[first[was_live & ~is_live]])),
        replaced=known.take(pa.array(actions.row[first[was_live & is_live]])),
    )


def net_changes(tail: Tail, live_before: pa.Table) -> NetChanges:
    """The net changes of any tail, given the previous live entries (columns path and size)."""
    actions = _Actions.of(tail)
    last = actions.last_per_path()
    is_live = actions.is_add[last]
    gone = actions.paths.take(pa.array(last[~is_live]))
    added = actions.paths.take(pa.array(last[is_live]))
    known = live_before.select(["path", "size"])
    return NetChanges(
        adds=_adds(tail, actions, last[is_live]),
        removed=known.filter(pc.is_in(known["path"], value_set=gone)),
        replaced=known.filter(pc.is_in(known["path"], value_set=added)),
    )


class _Actions(msgspec.Struct, frozen=True):
    """All adds and removes of a tail, in log order. `row` is the row of each action in its table."""

    paths: pa.Array
    codes: npt.NDArray[np.int32]
    is_add: npt.NDArray[np.bool_]
    row: npt.NDArray[np.int64]

    @classmethod
    def of(cls, tail: Tail) -> "_Actions":
        adds, removes = tail.adds.num_rows, tail.removes.num_rows
        sequence = np.concatenate([tail.adds["sequence"].to_numpy(), tail.removes["sequence"].to_numpy()])
        order = np.argsort(sequence, kind="stable")
        chunks = [*tail.adds["path"].chunks, *tail.removes["path"].chunks]
        paths = pa.chunked_array(chunks, pa.string()).combine_chunks().take(pa.array(order))
        is_add = np.concatenate([np.ones(adds, dtype=np.bool_), np.zeros(removes, dtype=np.bool_)])
        row = np.concatenate([np.arange(adds), np.arange(removes)])
        return cls(paths, paths.dictionary_encode().indices.to_numpy(), is_add[order], row[order])

    def first_per_path(self) -> npt.NDArray[np.int64]:
        """The position of the first action on each path."""
        return np.unique(self.codes, return_index=True)[1]

    def last_per_path(self) -> npt.NDArray[np.int64]:
        """The position of the last action on each path, in the same order of paths."""
        return len(self.codes) - 1 - np.unique(self.codes[::-1], return_index=True)[1]


def _adds(tail: Tail, actions: _Actions, positions: npt.NDArray[np.int64]) -> pa.Table:
    rows = np.sort(actions.row[positions])
    return tail.adds.take(pa.array(rows)).drop_columns(["sequence"])


# The effect of changes on manifests


class LocatedChanges(msgspec.Struct, frozen=True):
    """A state with its changes located in its manifests, before anything is written.

    `state` has the new tombstones and counts. `outdated` are paths whose old entry must be deleted physically, because
    the table gets a newer one. `paths` has the paths of each manifest that may hold removed or outdated entries.
    """

    source: StateSource
    state: StateManifest
    outdated: pa.Array
    paths: dict[str, pa.ChunkedArray]

    @property
    def with_outdated_entries(self) -> tuple[ManifestInfo, ...]:
        """The manifests that must be rewritten in any case."""
        return tuple(
            info
            for info in self.state.manifests
            if info.path in self.paths and _count_in(self.paths[info.path], self.outdated)
        )

    def kept(self, rewritten: Set[str]) -> tuple[ManifestInfo, ...]:
        return tuple(info for info in self.state.manifests if info.path not in rewritten)

    def survivors(self, rewritten: Set[str]) -> pa.Table:
        """The live entries of the rewritten manifests, with foreign columns."""
        manifests = [info for info in self.state.manifests if info.path in rewritten]
        tables = self.source.read(manifests, None)
        entries = pa.concat_tables([empty_entries(), *tables], promote_options="default")
        hidden = pa.concat_arrays([self.state.tombstones, self.outdated])
        if len(hidden):
            entries = entries.filter(pc.invert(pc.is_in(entries["path"], value_set=hidden)))
        return entries if have_each_path_once(manifests, tables) else newest_per_path(entries)

    def tombstones_of(self, kept: Sequence[ManifestInfo]) -> pa.StringArray:
        """The tombstones that the kept manifests still need."""
        hiding = [info for info in kept if info.live_entry_count != info.num_entries]
        if not hiding:
            return no_tombstones()
        tombstones = self.state.tombstones
        if all(info.path in self.paths for info in hiding):
            return _among(tombstones, self._paths_of(hiding))
        names = {info.path for info in kept}
        freed = _among(tombstones, self._paths_of([i for i in self.state.manifests if i.path not in names]))
        elsewhere = _among(freed, self._paths_of(manifests_that_may_hold(hiding, freed)))
        is_needed = pc.or_(
            pc.invert(pc.is_in(tombstones, value_set=freed)), pc.is_in(tombstones, value_set=elsewhere)
        )
        return tombstones.filter(is_needed)

    def _paths_of(self, manifests: Sequence[ManifestInfo]) -> pa.ChunkedArray:
        unread = [info for info in manifests if info.path not in self.paths]
        paths = self.paths | _read_paths(self.source, unread)
        return pa.chunked_array(
            [chunk for info in manifests for chunk in paths[info.path].chunks], pa.string()
        )


def locate(source: StateSource, changes: NetChanges) -> LocatedChanges:
    """Find the manifests with the entries that `changes` remove or replace.

    This reads only paths, and only those of manifests that may hold such entries or whose live count is unknown.
    """
    before = _normalized(source.state)
    added = changes.adds["path"].combine_chunks()
    revived = before.tombstones.filter(pc.is_in(before.tombstones, value_set=added))
    outdated = pa.concat_arrays([changes.replaced["path"].combine_chunks(), revived])
    removed = changes.removed["path"].combine_chunks()
    if not len(outdated) and not len(removed):
        return LocatedChanges(source, before, outdated, {})

    uncounted = [info for info in before.manifests if info.live_entry_count == UNKNOWN_COUNT]
    touched = manifests_that_may_hold(before.manifests, pa.concat_arrays([outdated, removed]))
    paths = _read_paths(source, list({info.path: info for info in (*touched, *uncounted)}.values()))
    still_hidden = before.tombstones.filter(pc.invert(pc.is_in(before.tombstones, value_set=revived)))
    tombstones = pc.unique(pa.concat_arrays([still_hidden, removed]))
    manifests = tuple(
        _recount(info, paths[info.path], tombstones) if info.path in paths else info
        for info in before.manifests
    )
    after = replace(before, manifests=manifests, tombstones=tombstones)
    return LocatedChanges(source, after, outdated, paths)


def _read_paths(source: StateSource, manifests: Sequence[ManifestInfo]) -> dict[str, pa.ChunkedArray]:
    tables = source.read(manifests, ["path"])
    return {info.path: table["path"] for info, table in zip(manifests, tables, strict=True)}


def _normalized(state: StateManifest) -> StateManifest:
    """The state with paths that are valid in states of other versions, and with counts where they are implied."""
    manifests = tuple(
        replace(
            info,
            path=normalized_manifest_path(info.path, state.state_version),
            live_entry_count=info.num_entries if not len(state.tombstones) else info.live_entry_count,
        )
        for info in state.manifests
    )
    foreign = state.foreign
    by_manifest = {
        normalized_manifest_path(path, state.state_version): values
        for path, values in foreign.values_by_manifest.items()
    }
    return replace(state, manifests=manifests, foreign=replace(foreign, values_by_manifest=by_manifest))


def _recount(info: ManifestInfo, paths: pa.ChunkedArray, tombstones: pa.Array) -> ManifestInfo:
    dead = _count_in(paths, tombstones)
    return replace(info, tombstone_count=dead, live_entry_count=info.num_entries - dead)


def _among(paths: pa.StringArray, others: pa.ChunkedArray) -> pa.StringArray:
    return paths.filter(pc.is_in(paths, value_set=others))


def _count_in(paths: pa.ChunkedArray, wanted: pa.Array) -> int:
    return pc.sum(pc.is_in(paths, value_set=wanted)).as_py() or 0
