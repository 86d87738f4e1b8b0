"""Which manifest holds what a change touches, and what that does to the counts of each."""

from collections.abc import Sequence, Set

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.log.entries import empty_entries
from indextables.state.manifest_path import normalized_manifest_path
from indextables.state.net_changes import NetChanges
from indextables.state.source import StateSource, have_each_path_once, newest_per_path
from indextables.state.state_manifest import ManifestInfo, StateManifest, no_tombstones


class Located(msgspec.Struct, frozen=True):
    """A state after removes, before anything is written.

    `state` has the new tombstones and counts. `outdated` are paths whose old entry must go physically, because
    a newer one joins the table. `paths` has the paths of each manifest, or None where nothing had to be read.
    """

    source: StateSource
    state: StateManifest
    outdated: pa.Array
    paths: dict[str, pa.ChunkedArray] | None

    @property
    def with_outdated_entries(self) -> tuple[ManifestInfo, ...]:
        """The manifests that have to be rewritten whatever else is done."""
        if self.paths is None or not len(self.outdated):
            return ()
        return tuple(info for info in self.state.manifests if _count_in(self.paths[info.path], self.outdated))

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
        """The tombstones that these manifests still need."""
        if not kept or not any(info.live_entry_count != info.num_entries for info in kept):
            return no_tombstones()
        if self.paths is None:
            return self.state.tombstones
        present = pa.chunked_array(
            [chunk for info in kept for chunk in self.paths[info.path].chunks], pa.string()
        )
        return self.state.tombstones.filter(pc.is_in(self.state.tombstones, value_set=present))


def locate(source: StateSource, changes: NetChanges) -> Located:
    """Find where the entries are that `changes` remove or replace. Reads paths only, and only if there are any."""
    before = _normalized(source.manifest)
    added = changes.adds["path"].combine_chunks()
    revived = before.tombstones.filter(pc.is_in(before.tombstones, value_set=added))
    outdated = pa.concat_arrays([changes.replaced["path"].combine_chunks(), revived])
    removed = changes.removed["path"].combine_chunks()
    if not len(outdated) and not len(removed):
        return Located(source, before, outdated, None)

    tables = source.read(before.manifests, ["path"])
    paths = {info.path: table["path"] for info, table in zip(before.manifests, tables, strict=True)}
    still_hidden = before.tombstones.filter(pc.invert(pc.is_in(before.tombstones, value_set=revived)))
    tombstones = pc.unique(pa.concat_arrays([still_hidden, removed]))
    manifests = tuple(_recount(info, paths[info.path], tombstones) for info in before.manifests)
    after = replace(before, manifests=manifests, tombstones=tombstones)
    return Located(source, after, outdated, paths)


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


def _count_in(paths: pa.ChunkedArray, wanted: pa.Array) -> int:
    return pc.sum(pc.is_in(paths, value_set=wanted)).as_py() or 0
