"""Columns that only another writer knows: kept as they are in Avro, and as JSON where there are no columns."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import compress, pairwise
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.entries import FILE_ENTRY_SCHEMA, LoadedEntries, PathSelection, Selection
from indextables.metrics import STATE_READ_DURATION_MS, STATE_READ_FILE_COUNT, STATE_READ_MANIFEST_COUNT
from indextables.pruning import BoundsOrder, prune_manifests
from indextables.state.manifest_reader import ManifestFile, read_manifests
from indextables.state.manifest_work import portions, work_elsewhere
from indextables.state.state_manifest import ManifestInfo, StateManifest, manifest_key
from indextables.storage import ObjectStore


def with_foreign_columns_folded(entries: pa.Table) -> pa.Table:
    """Entries with the known columns only; the values of all others go into `unknownFields`, as JSON."""
    foreign = [name for name in entries.column_names if name not in FILE_ENTRY_SCHEMA.names]
    known = entries.select(FILE_ENTRY_SCHEMA.names)
    used = [name for name in foreign if entries[name].null_count < entries.num_rows]
    if not used:
        return known
    # Rows are touched one by one here, because a foreign value can have any type; few tables have any.
    folded = [
        _folded(row.pop("unknownFields"), row)
        for row in entries.select(["unknownFields", *used]).to_pylist(maps_as_pydicts="strict")
    ]
    index = FILE_ENTRY_SCHEMA.get_field_index("unknownFields")
    return known.set_column(index, FILE_ENTRY_SCHEMA.field(index), pa.array(folded, pa.string()))


def _folded(unknown_fields: str | None, foreign: dict[str, Any]) -> str | None:
    fields = {name: value for name, value in foreign.items() if value is not None}
    if unknown_fields is not None:
        fields |= orjson.loads(unknown_fields)
    return orjson.dumps(fields, default=_as_text).decode() if fields else None


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


# Which manifests may hold an entry of a path, by the first and the last path of each.
#
# Where partitions are folders, a manifest covers a few of them, and a change of some files concerns few
# manifests.


def manifests_that_may_hold(manifests: Sequence[ManifestInfo], paths: pa.Array) -> tuple[ManifestInfo, ...]:
    """The manifests that may have an entry for any of the paths. One that does not say what it covers always may."""
    ordered = paths.take(pc.array_sort_indices(paths)).to_numpy(zero_copy_only=False)

    def may_hold(info: ManifestInfo) -> bool:
        if info.first_path is None or info.last_path is None:
            return True
        place = bisect_left(ordered, info.first_path)
        return place < len(ordered) and ordered[place] <= info.last_path

    return tuple(info for info in manifests if may_hold(info))


# The read path of a state: prune manifests, decode the others in parallel, drop tombstones.
#
# Nothing here happens per entry in Python. A manifest that cannot be read is an error, never a smaller table.


_PORTION_ENTRIES = 32_768


class StateSource(msgspec.Struct, frozen=True, dict=True):
    """The live file entries of one state."""

    store: ObjectStore
    manifest: StateManifest
    parallelism: int

    @property
    def num_files(self) -> int:
        """How many entries are live."""
        return self.manifest.num_files if self._has_exact_totals else self._sizes.num_rows

    @property
    def total_bytes(self) -> int:
        """The sum of their sizes."""
        if self._has_exact_totals:
            return self.manifest.total_bytes
        return pc.sum(self._sizes["size"]).as_py() or 0

    @property
    def _has_exact_totals(self) -> bool:
        """Other writers, which do not note down the protocol, count what was removed, and what was added twice."""
        return self.manifest.protocol is not None

    @cached_property
    def _sizes(self) -> pa.Table:
        return self.load(None, ["size"]).entries

    def load(
        self, selection: Selection | PathSelection | None, columns: Sequence[str] | None
    ) -> LoadedEntries:
        """Live entries of the manifests that may hold selected ones, with the columns of a file entry."""
        started = time.perf_counter()
        wanted = self.relevant(selection)
        names = FILE_ENTRY_SCHEMA.names if columns is None else list(dict.fromkeys(["path", *columns]))
        live = self._live_of(wanted, self.read(wanted, names), _schema_of(names))
        STATE_READ_DURATION_MS.record((time.perf_counter() - started) * 1000)
        STATE_READ_MANIFEST_COUNT.record(len(wanted))
        STATE_READ_FILE_COUNT.record(live.num_rows)
        total = len(self.manifest.manifests)
        return LoadedEntries(live, total, total - len(wanted))

    def load_for_rewrite(self) -> pa.Table:
        """All live entries; what other writers put into further columns is in `unknownFields`."""
        return with_foreign_columns_folded(self.load_with_foreign_columns())

    def load_with_foreign_columns(self) -> pa.Table:
        """All live entries, with the columns of other writers beside those of a file entry."""
        everything = self.manifest.manifests
        return self._live_of(everything, self.read(everything, None), FILE_ENTRY_SCHEMA)

    def relevant(self, selection: Selection | PathSelection | None) -> tuple[ManifestInfo, ...]:
        """The manifests that may hold selected entries, by their partition bounds or their paths."""
        if selection is None:
            return self.manifest.manifests
        if isinstance(selection, PathSelection):
            return manifests_that_may_hold(self.manifest.manifests, selection.paths)
        kept = {info.path for order in BoundsOrder for info in self._kept(selection, order)}
        return tuple(info for info in self.manifest.manifests if info.path in kept)

    def _kept(self, selection: Selection, order: BoundsOrder) -> Iterator[ManifestInfo]:
        """The manifests that pruning leaves, of those whose bounds were computed in one order."""
        is_typed = order is BoundsOrder.TYPED
        infos = [info for info in self.manifest.manifests if info.has_typed_bounds is is_typed]
        keep = prune_manifests(
            selection.predicate,
            [info.partition_bounds for info in infos],
            selection.shape,
            order=order,
        )
        return compress(infos, keep.to_pylist())

    def read(self, manifests: Sequence[ManifestInfo], columns: Sequence[str] | None) -> list[pa.Table]:
        """All entries of manifests, dead ones included; without `columns`, foreign columns too."""
        work, version = work_elsewhere(), self.manifest.state_version
        tables = None if work is None else work.read(self.store, version, manifests, columns)
        return self._read_here(manifests, columns) if tables is None else tables

    @staticmethod
    def read_files(
        store: ObjectStore,
        state_version: int,
        manifests: Sequence[ManifestInfo],
        columns: Sequence[str] | None,
    ) -> list[pa.Table]:
        """What `read` gives, one manifest after the other, for those who have only a part of a state."""
        return read_manifests([_fetch(store, state_version, info) for info in manifests], columns)

    def _read_here(self, manifests: Sequence[ManifestInfo], columns: Sequence[str] | None) -> list[pa.Table]:
        if len(manifests) <= 1 or self.parallelism <= 1:
            return self.read_files(self.store, self.manifest.state_version, manifests, columns)
        with ThreadPoolExecutor(
            min(self.parallelism, len(manifests)), thread_name_prefix="indextables-state"
        ) as pool:
            # What comes first is begun first, so nobody waits for a fetch that has no thread yet.
            decoded = [
                pool.submit(_decoded_from, [pool.submit(self._fetch, info) for info in portion], columns)
                for portion in portions(manifests, attrgetter("num_entries"), _PORTION_ENTRIES)
            ]
            return [table for tables in decoded for table in tables.result()]

    def live(self, entries: pa.Table) -> pa.Table:
        """Entries without those that a tombstone hides; of several for one path, the newest."""
        return newest_per_path(self._not_hidden(entries))

    def _live_of(
        self, manifests: Sequence[ManifestInfo], tables: Sequence[pa.Table], schema: pa.Schema
    ) -> pa.Table:
        """What `live` gives for the entries of manifests, with less effort where the manifests allow it."""
        entries = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
        return self._not_hidden(entries) if have_each_path_once(manifests, tables) else self.live(entries)

    def _not_hidden(self, entries: pa.Table) -> pa.Table:
        tombstones = self.manifest.tombstones
        if not len(tombstones):
            return entries
        return entries.filter(pc.invert(pc.is_in(entries["path"], value_set=tombstones)))

    def _fetch(self, info: ManifestInfo) -> ManifestFile:
        return _fetch(self.store, self.manifest.state_version, info)


def _fetch(store: ObjectStore, state_version: int, info: ManifestInfo) -> ManifestFile:
    key = manifest_key(info.path, state_version)
    return ManifestFile(store.get(key), f"{store.url}/{key}", info.num_entries)


def _decoded_from(files: Sequence[Future[ManifestFile]], columns: Sequence[str] | None) -> list[pa.Table]:
    return read_manifests([file.result() for file in files], columns)


def newest_per_path(entries: pa.Table) -> pa.Table:
    """Writers that add a path again without rewriting its old entry leave both; the later manifest wins."""
    codes = entries["path"].combine_chunks().dictionary_encode()
    if len(codes.dictionary) == entries.num_rows:
        return entries
    last = np.zeros(len(codes.dictionary), dtype=np.int64)
    rows = np.arange(entries.num_rows, dtype=np.int64)
    np.maximum.at(last, codes.indices.to_numpy(), rows)
    return entries.take(pa.array(np.sort(last)))


def have_each_path_once(manifests: Sequence[ManifestInfo], tables: Sequence[pa.Table]) -> bool:
    """Whether that is certain of manifests and their entries, without a look at each."""
    # Typed bounds are the mark of our own writer, which puts no path twice into one manifest.
    return all(info.has_typed_bounds for info in manifests) and _have_disjoint_paths(tables)


def _have_disjoint_paths(manifests: Sequence[pa.Table]) -> bool:
    """Whether no path can be in two of these manifests, by the first and the last path of each.

    That is so where a table is compact and its partitions are folders, and costs far less than to compare all paths.
    """
    ranges = [pc.min_max(entries["path"]).as_py() for entries in manifests if entries.num_rows]
    ranges.sort(key=itemgetter("min"))
    return all(before["max"] < after["min"] for before, after in pairwise(ranges))


def _schema_of(names: Sequence[str]) -> pa.Schema:
    return pa.schema([FILE_ENTRY_SCHEMA.field(name) for name in names])
