"""The file entries of a state: prune manifests, decode the others in parallel, drop the entries under tombstones.

Nothing here loops over entries in Python. A manifest that cannot be read raises an error; it never silently drops
entries.
"""

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import compress, islice, pairwise
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables._caching import lazy_property
from indextables.config.registry import CHECKPOINT_READ_TIMEOUT_SECONDS
from indextables.errors import ManifestCorruptedError, ObjectNotFoundError
from indextables.log.entries import FILE_ENTRY_SCHEMA, LoadedEntries, PathSelection, Selection
from indextables.log.file_keys import with_keys
from indextables.metrics import (
    STATE_READ_DURATION_MS,
    STATE_READ_FILE_COUNT,
    STATE_READ_MANIFEST_COUNT,
    STATE_TOMBSTONE_COUNT,
    STATE_TOMBSTONE_RATIO,
)
from indextables.pruning import BoundsOrder, prune_manifests
from indextables.state.manifest_executor import ManifestExecutor, batches
from indextables.state.manifest_reader import FetchedManifest, read_manifests
from indextables.state.schemas import UNKNOWN_COUNT
from indextables.state.state_manifest import ManifestInfo, StateManifest, manifest_key
from indextables.storage import ObjectStore, with_time_limit

logger = logging.getLogger(__name__)

# A thread decodes at least so many entries at a time, if there are several manifests.
_ENTRIES_PER_BATCH = 32_768

# Ten pages of a listing. Only a folder that has not been purged for long has more manifests.
_MAX_LISTED_FILES = 10_000


class StateSource(msgspec.Struct, frozen=True, dict=True):
    """The live file entries of one state. With an `executor`, manifests may be read outside this process."""

    store: ObjectStore
    state: StateManifest
    parallelism: int
    executor: ManifestExecutor | None = None
    read_timeout_seconds: int | None = None

    @property
    def num_files(self) -> int:
        return self.state.num_files if self._has_exact_totals else self._sizes.num_rows

    @property
    def total_bytes(self) -> int:
        if self._has_exact_totals:
            return self.state.total_bytes
        return pc.sum(self._sizes["size"]).as_py() or 0

    @property
    def _has_exact_totals(self) -> bool:
        """False for states of other writers, which count removed entries and count re-added paths twice.

        Only our own writer records the protocol.
        """
        return self.state.protocol is not None

    def file_problem(self) -> str | None:
        """What is wrong with the files of the manifests, or None: one is missing, or was cut off.

        This takes one listing of each folder, however many entries there are; only files that are not as long as the
        state records are read. A folder with very many leftovers is not listed to its end; the manifests in the rest
        count as whole.
        """
        try:
            infos = {manifest_key(info.path, self.state.state_version): info for info in self.state.manifests}
        except ManifestCorruptedError as error:
            return str(error)
        for folder in sorted({key.rpartition("/")[0] for key in infos}):
            listed = list(islice(self.store.list(f"{folder}/"), _MAX_LISTED_FILES))
            sizes = {meta.key: meta.size for meta in listed}
            is_complete = len(listed) < _MAX_LISTED_FILES
            for key, info in infos.items():
                if key.rpartition("/")[0] != folder or _has_size(info, sizes.get(key)):
                    continue
                if key in sizes or is_complete:
                    problem = self._confirmed_problem(key, info)
                    if problem is not None:
                        return problem
        return None

    def _confirmed_problem(self, key: str, info: ManifestInfo) -> str | None:
        """What is wrong with one file that looks wrong: the listing may be older than the state."""
        try:
            self.read_files(self.store, self.state.state_version, [info], ["path"])
        except ObjectNotFoundError:
            return f"{key} with {info.num_entries} file entries is missing"
        except ManifestCorruptedError as error:
            return f"{key} with {info.num_entries} file entries is damaged ({error})"
        return None

    @lazy_property
    def had_whole_files(self) -> bool:
        """Whether there was no `file_problem` when this was first asked."""
        return self.file_problem() is None

    @lazy_property
    def _sizes(self) -> pa.Table:
        return self.load(None, ["size"]).entries

    def load(
        self, selection: Selection | PathSelection | None, columns: Sequence[str] | None
    ) -> LoadedEntries:
        """The live entries of all manifests that may hold selected entries, with the columns of a file entry."""
        started = time.perf_counter()
        wanted = self.relevant(selection)
        names = FILE_ENTRY_SCHEMA.names if columns is None else list(dict.fromkeys(["path", *columns]))
        live = self._live_of(wanted, self.read(wanted, names), _schema_of(names))
        took_ms, table = (time.perf_counter() - started) * 1000, self.store.url
        STATE_READ_DURATION_MS.record(took_ms, table)
        STATE_READ_MANIFEST_COUNT.record(len(wanted), table)
        STATE_READ_FILE_COUNT.record(live.num_rows, table)
        logger.debug(
            "%s: read %d file entries from %d of %d manifests of the state of version %d in %.1f ms",
            table, live.num_rows, len(wanted), len(self.state.manifests), self.state.state_version, took_ms,
        )  # fmt: skip
        total = len(self.state.manifests)
        return LoadedEntries(live, total, total - len(wanted))

    def load_for_rewrite(self) -> pa.Table:
        """All live entries, with the values of foreign columns in `unknownFields`."""
        return with_foreign_columns_folded(self.load_with_foreign_columns())

    def load_with_foreign_columns(self) -> pa.Table:
        """All live entries, with the foreign columns after those of a file entry."""
        manifests = self.state.manifests
        return self._live_of(manifests, self.read(manifests, None), FILE_ENTRY_SCHEMA)

    def relevant(self, selection: Selection | PathSelection | None) -> tuple[ManifestInfo, ...]:
        """The manifests that may hold selected entries, by their partition bounds or their paths."""
        if selection is None:
            return self.state.manifests
        if isinstance(selection, PathSelection):
            return manifests_that_may_hold(self.state.manifests, selection.paths)
        kept = {info.path for order in BoundsOrder for info in self._kept(selection, order)}
        return tuple(info for info in self.state.manifests if info.path in kept)

    def _kept(self, selection: Selection, order: BoundsOrder) -> Iterator[ManifestInfo]:
        """The manifests that pruning leaves, among those whose bounds were computed in this order."""
        is_typed = order is BoundsOrder.TYPED
        infos = [info for info in self.state.manifests if info.has_typed_bounds is is_typed]
        keep = prune_manifests(
            selection.predicate,
            [info.bounds for info in infos],
            selection.shape,
            order=order,
        )
        return compress(infos, keep.to_pylist())

    def read(self, manifests: Sequence[ManifestInfo], columns: Sequence[str] | None) -> list[pa.Table]:
        """The entries of each manifest, dead ones included; without `columns`, foreign columns too."""
        tables = None
        if self.executor is not None:
            tables = self.executor.read(self.state.state_version, manifests, columns)
        return self._read_here(manifests, columns) if tables is None else tables

    @staticmethod
    def read_files(
        store: ObjectStore,
        state_version: int,
        manifests: Sequence[ManifestInfo],
        columns: Sequence[str] | None,
    ) -> list[pa.Table]:
        """What `read` returns, in this thread, for a caller that has only some manifests of a state."""
        files = [_fetch(store, state_version, info) for info in manifests]
        return [with_keys(entries, store.url) for entries in read_manifests(files, columns)]

    def _read_here(self, manifests: Sequence[ManifestInfo], columns: Sequence[str] | None) -> list[pa.Table]:
        store, version = self._store_with_time_limit(), self.state.state_version
        if len(manifests) <= 1 or self.parallelism <= 1:
            return self.read_files(store, version, manifests, columns)
        with ThreadPoolExecutor(
            min(self.parallelism, len(manifests)), thread_name_prefix="indextables-state"
        ) as pool:
            # Fetches are submitted before the decoding that waits for them, so this cannot deadlock.
            decoded = [
                pool.submit(
                    _decoded_from,
                    [pool.submit(_fetch, store, version, info) for info in batch],
                    columns,
                    store.url,
                )
                for batch in batches(manifests, attrgetter("num_entries"), _ENTRIES_PER_BATCH)
            ]
            return [table for tables in decoded for table in tables.result()]

    def live(self, entries: pa.Table) -> pa.Table:
        """The entries that no tombstone hides; of several entries for one path, the newest."""
        return newest_per_path(self._not_hidden(entries))

    def _live_of(
        self, manifests: Sequence[ManifestInfo], tables: Sequence[pa.Table], schema: pa.Schema
    ) -> pa.Table:
        """What `live` returns for the entries of manifests, at less cost if no path can occur twice."""
        entries = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
        return self._not_hidden(entries) if have_each_path_once(manifests, tables) else self.live(entries)

    def _not_hidden(self, entries: pa.Table) -> pa.Table:
        tombstones = self.state.tombstones
        if not len(tombstones):
            return entries
        return entries.filter(pc.invert(pc.is_in(entries["path"], value_set=tombstones)))

    def _store_with_time_limit(self) -> ObjectStore:
        if self.read_timeout_seconds is None:
            return self.store
        return with_time_limit(
            self.store,
            self.read_timeout_seconds,
            f"the state of version {self.state.state_version}",
            CHECKPOINT_READ_TIMEOUT_SECONDS.key,
        )


def report_tombstones(state: StateManifest, table: str) -> None:
    """Set the gauges of a table to the tombstones of its newest state."""
    STATE_TOMBSTONE_COUNT.record(len(state.tombstones), table)
    STATE_TOMBSTONE_RATIO.record(len(state.tombstones) / max(state.num_files, 1), table)


def manifests_that_may_hold(manifests: Sequence[ManifestInfo], paths: pa.Array) -> tuple[ManifestInfo, ...]:
    """The manifests that may hold an entry for any of the paths, by the first and the last path of each.

    A manifest without recorded paths may hold any. If partitions are folders, a manifest covers a few of them, and a
    change of some files affects few manifests.
    """
    ordered = paths.take(pc.array_sort_indices(paths)).to_numpy(zero_copy_only=False)

    def may_hold(info: ManifestInfo) -> bool:
        if info.first_path is None or info.last_path is None:
            return True
        place = bisect_left(ordered, info.first_path)
        return place < len(ordered) and ordered[place] <= info.last_path

    return tuple(info for info in manifests if may_hold(info))


def _has_size(info: ManifestInfo, size: int | None) -> bool:
    return size is not None and info.size_bytes in (UNKNOWN_COUNT, size)


def _fetch(store: ObjectStore, state_version: int, info: ManifestInfo) -> FetchedManifest:
    key = manifest_key(info.path, state_version)
    return FetchedManifest(store.get(key), f"{store.url}/{key}", info.num_entries)


def _decoded_from(
    files: Sequence[Future[FetchedManifest]], columns: Sequence[str] | None, root_url: str
) -> list[pa.Table]:
    tables = read_manifests([file.result() for file in files], columns)
    return [with_keys(entries, root_url) for entries in tables]


def newest_per_path(entries: pa.Table) -> pa.Table:
    """The last entry of each path. Other writers may re-add a path without rewriting its old entry."""
    codes = entries["path"].combine_chunks().dictionary_encode()
    if len(codes.dictionary) == entries.num_rows:
        return entries
    last = np.zeros(len(codes.dictionary), dtype=np.int64)
    rows = np.arange(entries.num_rows, dtype=np.int64)
    np.maximum.at(last, codes.indices.to_numpy(), rows)
    return entries.take(pa.array(np.sort(last)))


def have_each_path_once(manifests: Sequence[ManifestInfo], tables: Sequence[pa.Table]) -> bool:
    """Whether no path occurs twice, as far as this can be determined without comparing all paths."""
    # Only our own writer sets `has_typed_bounds`. It never writes a path twice into one manifest.
    return all(info.has_typed_bounds for info in manifests) and _have_disjoint_paths(tables)


def _have_disjoint_paths(manifests: Sequence[pa.Table]) -> bool:
    """Whether the ranges of paths do not overlap, as in a compact table whose partitions are folders."""
    ranges = [pc.min_max(entries["path"]).as_py() for entries in manifests if entries.num_rows]
    ranges.sort(key=itemgetter("min"))
    return all(before["max"] < after["min"] for before, after in pairwise(ranges))


def _schema_of(names: Sequence[str]) -> pa.Schema:
    return pa.schema([FILE_ENTRY_SCHEMA.field(name) for name in names])


# Columns of other writers: kept as columns in Avro, and as JSON in formats without such columns


def with_foreign_columns_folded(entries: pa.Table) -> pa.Table:
    """The entries with the known columns only; the values of foreign columns go into `unknownFields`, as JSON."""
    foreign = [name for name in entries.column_names if name not in FILE_ENTRY_SCHEMA.names]
    known = entries.select(FILE_ENTRY_SCHEMA.names)
    used = [name for name in foreign if entries[name].null_count < entries.num_rows]
    if not used:
        return known
    # Row by row, because a foreign value can have any type. Few tables have foreign columns.
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
