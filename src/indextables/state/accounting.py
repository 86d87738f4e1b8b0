"""Which manifest holds what a change touches, and what that does to the counts of each."""

from collections.abc import Sequence, Set

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.log.entries import empty_entries
from indextables.state.manifest_path import normalized_manifest_path
from indextables.state.net_changes import NetChanges
from indextables.state.path_ranges import manifests_that_may_hold
from indextables.state.source import StateSource, have_each_path_once, newest_per_path
from indextables.state.state_manifest import UNKNOWN_COUNT, ManifestInfo, StateManifest, no_tombstones


class Located(msgspec.Struct, frozen=True):
    """A state after removes, before anything is written.

    `state` has the new tombstones and counts. `outdated` are paths whose old entry must go physically, because
    a newer one joins the table. `paths` has the paths of each manifest that may hold what is gone.
    """

    source: StateSource
    state: StateManifest
    outdated: pa.Array
    paths: dict[str, pa.ChunkedArray]

    @property
    def with_outdated_entries(self) -> tuple[ManifestInfo, ...]:
        """The manifests that have to be rewritten whatever else is done."""
        return tuple(
            info
            for info in self.state.manifests
            if info.path in self.paths and _count_in(self.paths[info.path], self.outdated)
        )

    def kept(self, rewritten: Set[str]) -> tuple[ManifestInfo, ...]:
        """The manifests that are not rewritten."""
        return tuple(info for info in self.state.manifests if info.path not in rewritten)

    def survivors(self, rewritten: Set[str]) -> pa.Table:
        """The live entries of manifests that are rewritten, with every column that other writers gave them."""
        manifests = [info for info in self.state.manifests if info.path in rewritten]
        tables = self.source.read(manifests, None)
        entries = pa.concat_tables([empty_entries(), *tables], promote_options="default")
        hidden = pa.concat_arrays([self.state.tombstones, self.outdated])
        if len(hidden):
            entries = entries.filter(pc.invert(pc.is_in(entries["path"], value_set=hidden)))
        return entries if have_each_path_once(manifests, tables) else newest_per_path(entries)

    def tombstones_of(self, kept: Sequence[ManifestInfo]) -> pa.StringArray:
        """The tombstones that these manifests still need, where the others are rewritten."""
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


def locate(source: StateSource, changes: NetChanges) -> Located:
    """Find where the entries are that `changes` remove or replace.

    Only paths are read, and only of manifests that may hold such entries, or of which nobody counted those that live.
    """
    before = _normalized(source.manifest)
    added = changes.adds["path"].combine_chunks()
    revived = before.tombstones.filter(pc.is_in(before.tombstones, value_set=added))
    outdated = pa.concat_arrays([changes.replaced["path"].combine_chunks(), revived])
    removed = changes.removed["path"].combine_chunks()
    if not len(outdated) and not len(removed):
        return Located(source, before, outdated, {})

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
    return Located(source, after, outdated, paths)


def _read_paths(source: StateSource, manifests: Sequence[ManifestInfo]) -> dict[str, pa.ChunkedArray]:
    tables = source.read(manifests, ["path"])
    return {info.path: table["path"] for info, table in zip(manifests, tables, strict=True)}


def _normalized(state: StateManifest) -> StateManifest:
    """The state with manifest paths that hold for other versions too, and counts where they follow."""
    manifests = tuple(
        replace(
            info,
            path=normalized_manifest_path(info.path, state.state_version),
            live_entry_count=info.num_entries if not len(state.tombstones) else info.live_entry_count,
        )
        for info in state.manifests
    )
    return replace(state, manifests=manifests)


def _recount(info: ManifestInfo, paths: pa.ChunkedArray, tombstones: pa.Array) -> ManifestInfo:
    dead = _count_in(paths, tombstones)
    return replace(info, tombstone_count=dead, live_entry_count=info.num_entries - dead)


def _among(paths: pa.StringArray, others: pa.ChunkedArray) -> pa.StringArray:
    return paths.filter(pc.is_in(paths, value_set=others))


def _count_in(paths: pa.ChunkedArray, wanted: pa.Array) -> int:
    return pc.sum(pc.is_in(paths, value_set=wanted)).as_py() or 0
