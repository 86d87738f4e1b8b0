"""A table at one version: immutable, columnar, and read no further than somebody asked."""

import logging
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables._caching import lazy_property
from indextables.config.registry import TRANSACTION_CACHE_EXPIRATION_SECONDS
from indextables.errors import (
    InvalidOptionError,
    InvalidPredicateError,
    LogCorruptedError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from indextables.log.actions import Metadata, Protocol
from indextables.log.decode import LogFile, Tail, decode_tail
from indextables.log.entries import EntrySource, LoadedEntries, PathSelection, Selection
from indextables.log.protocol import check_readable
from indextables.log.replay import LogHeader, removed_paths, replay_entries, replay_header
from indextables.log.segment import Gap, LogSegment
from indextables.predicates import BoundPredicate, Predicate, bind
from indextables.pruning import match_partitions, prune_files
from indextables.schema import TableShape, from_spark_json
from indextables.storage import ObjectMeta
from indextables.table.cache import Stamp, cached, stamp
from indextables.table.context import TableContext
from indextables.table.intent import summary_of
from indextables.table.log_reader import read_last_actions

logger = logging.getLogger(__name__)

# Pruning reads these, whatever the caller asked for.
_PRUNING_COLUMNS = ("path", "partitionValues", "minValues", "maxValues")


class FileSelection(msgspec.Struct, frozen=True):
    """The files that a predicate leaves, and what was skipped at each level."""

    entries: pa.Table
    manifests: int
    manifests_skipped: int
    files_skipped_by_partition: int
    files_skipped_by_statistics: int


class Snapshot:
    """A table at one version.

    `header` is complete from the start; file entries are read when they are first needed, and only those that
    a predicate asks for. If they turn out to be damaged or gone, `recover` reads them by way of other files. A snapshot
    never changes, so it may be shared between threads.
    """

    def __init__(
        self,
        context: TableContext,
        segment: LogSegment,
        header: LogHeader,
        protocol: Protocol,
        metadata: Metadata,
        source: EntrySource,
        tail: Tail | None = None,
        recover: Callable[[LogSegment], EntrySource] | None = None,
    ) -> None:
        self.context = context
        self.segment = segment
        self.header = header
        self.protocol = protocol
        self.metadata = metadata
        self.loaded_at_ms = context.store.clock.now_ms()
        self.source = source
        self._recover = recover
        if tail is not None:
            self.__dict__["tail"] = tail

    @property
    def version(self) -> int:
        """The version that this snapshot shows."""
        return self.header.version

    @property
    def timestamp_ms(self) -> int:
        """When that version was committed."""
        return self.header.timestamp_ms

    @property
    def gap(self) -> Gap | None:
        """Versions beyond this one that exist but cannot be reached."""
        return self.segment.gap

    @property
    def ground(self) -> ObjectMeta:
        """The newest file that this snapshot was read from."""
        if self.segment.tail:
            return self.segment.tail[-1][1]
        assert self.segment.base is not None  # a segment has a base or a tail
        return self.segment.base.meta

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by, in order."""
        return self.metadata.partition_columns

    @lazy_property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return from_spark_json(self.metadata.schema_string)

    @lazy_property
    def shape(self) -> TableShape:
        """The table's columns and partition columns."""
        return TableShape(self.schema, self.partition_columns)

    @lazy_property
    def tail(self) -> Tail:
        """The versions after the base, decoded as far as a replay needs them."""
        return read_last_actions(self.context, self.segment.tail)

    @lazy_property
    def entries(self) -> pa.Table:
        """All live files, as file entries."""
        return cached(
            self.context.cache.file_lists,
            self.context.store,
            segment_identity(self.segment),
            self.context.settings[TRANSACTION_CACHE_EXPIRATION_SECONDS],
            lambda: self._read(None, None).entries,
        )

    @property
    def has_loaded_entries(self) -> bool:
        """Whether all live files are in memory already."""
        return "entries" in self.__dict__

    @property
    def num_files(self) -> int:
        """How many splits are live."""
        return self.entries.num_rows if self.segment.tail else self.source.num_files

    @property
    def total_bytes(self) -> int:
        """The size of all live splits."""
        if not self.segment.tail:
            return self.source.total_bytes
        return pc.sum(self.entries["size"]).as_py() or 0

    @property
    def num_rows(self) -> int | None:
        """How many rows the live splits hold, or None if a split does not say."""
        counts = self.entries["numRecords"]
        return None if counts.null_count else pc.sum(counts).as_py() or 0

    def select(
        self, predicate: BoundPredicate | None = None, columns: Sequence[str] | None = None
    ) -> FileSelection:
        """The live files that may hold rows for which `predicate` is true: at least all that do.

        Manifests are skipped by partition bounds, then files by partition value and by statistics.
        """
        if predicate is None:
            loaded = self._load(None, columns)
            return FileSelection(_project(loaded.entries, columns), loaded.manifests, 0, 0, 0)
        wanted = None if columns is None else tuple(dict.fromkeys([*columns, *_PRUNING_COLUMNS]))
        loaded = self._load(Selection(predicate, self.shape), wanted)
        pruned = prune_files(loaded.entries, predicate, self.shape)
        return FileSelection(
            entries=_project(loaded.entries.filter(pruned.keep), columns),
            manifests=loaded.manifests,
            manifests_skipped=loaded.manifests_skipped,
            files_skipped_by_partition=pruned.skipped_by_partition,
            files_skipped_by_statistics=pruned.skipped_by_statistics,
        )

    def select_paths(self, paths: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """Those of the live files that have one of these paths. Manifests are skipped by the paths that they cover."""
        wanted = pa.array(paths, pa.string())
        entries = _project(self._load(PathSelection(wanted), columns).entries, columns)
        return entries.filter(pc.is_in(entries["path"], value_set=wanted))

    def extended(self, files: Sequence[tuple[int, ObjectMeta]], log_files: Sequence[LogFile]) -> "Snapshot":
        """The snapshot after further versions, which directly follow this one; `log_files` is what they hold.

        They are decoded only if this snapshot has its entries in memory. Raises UnsupportedProtocolError if they ask
        for more than this release can read, and LogCorruptedError.
        """
        summaries = [summary_of(log_file) for log_file in log_files]
        has_skips = bool(self.header.skips) or any(summary.actions.skips for summary in summaries)
        delta = decode_tail(log_files) if self.has_loaded_entries or has_skips else None
        header = replay_header(self.header, summaries, removed_paths(delta) if delta is not None else {})
        assert header.metadata is not None  # a header that once had metadata keeps it
        protocol = header.protocol or self.protocol
        check_readable(protocol, self.context.url)
        context = self.context
        if header.metadata != self.metadata:
            context = context.with_properties(header.metadata)
        segment = replace(self.segment, version=files[-1][0], tail=(*self.segment.tail, *files), gap=None)
        later = Snapshot(
            context, segment, header, protocol, header.metadata, self.source, recover=self._recover
        )
        if self.has_loaded_entries and delta is not None:
            later.__dict__["entries"] = replay_entries(self.entries, delta)
        return later

    def sharing_entries_of(self, other: "Snapshot") -> "Snapshot":
        """This snapshot, with the entries that another one of the same version has in memory."""
        assert self.version == other.version
        if other.has_loaded_entries:
            self.__dict__["entries"] = other.entries
        return self

    def _load(
        self, selection: Selection | PathSelection | None, columns: Sequence[str] | None
    ) -> LoadedEntries:
        if self.has_loaded_entries or (selection is None and columns is None):
            return LoadedEntries(self.entries)
        return self._read(selection, columns)

    def _read(
        self, selection: Selection | PathSelection | None, columns: Sequence[str] | None
    ) -> LoadedEntries:
        if columns is not None:
            columns = tuple(dict.fromkeys([*columns, "path"]))  # the replay goes by path
        try:
            loaded = self.source.load(selection, columns)
            return replace(loaded, entries=replay_entries(loaded.entries, self.tail))
        except (LogCorruptedError, ObjectNotFoundError) as error:
            if self._recover is None:
                raise
            return self._recovered(error).load(selection, columns)

    def _recovered(self, error: LogCorruptedError | ObjectNotFoundError) -> EntrySource:
        """All entries by another way. Raises VersionNotFoundError if they were cleaned up, or LogCorruptedError."""
        assert self._recover is not None
        logger.warning(
            "%s: read by way of other files of the log, because of this: %s", self.context.url, error
        )
        try:
            return self._recover(self.segment)
        except (VersionNotFoundError, LogCorruptedError) as reason:
            kind = VersionNotFoundError if isinstance(error, ObjectNotFoundError) else type(error)
            raise kind(f"{error}; there is no other way to version {self.version}: {reason}") from error


def segment_identity(segment: LogSegment) -> tuple[int, Stamp | None, Stamp | None]:
    """What a segment is read from: equal identities have equal contents."""
    base = stamp(segment.base.meta) if segment.base is not None else None
    last = stamp(segment.tail[-1][1]) if segment.tail else None
    return (segment.version, base, last)


def _project(entries: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    if columns is None:
        return entries
    unknown = [name for name in columns if name not in entries.column_names]
    if unknown:
        raise InvalidOptionError(
            f"file entries have no column {', '.join(map(repr, unknown))}; there are: "
            f"{', '.join(entries.column_names)}"
        )
    return entries.select(list(columns))


# Files by partition, decided exactly: for operations that must not take a file too many.


def files_of_partitions(snapshot: Snapshot, where: Predicate, columns: Sequence[str]) -> pa.Table:
    """The live files whose partition values satisfy `where`: every row of them does.

    Raises InvalidPredicateError if `where` needs more than partition values, or if a file has a value that is
    not of its column's type, so that nobody can tell.
    """
    # Skipping keeps every file that may match, which leaves the exact decision to a few.
    wanted = tuple(dict.fromkeys([*columns, "path", "partitionValues", "minValues", "maxValues"]))
    predicate = bind(where, snapshot.schema)
    candidates = snapshot.select(predicate, wanted).entries
    matches = match_partitions(candidates, predicate, snapshot.shape)
    if matches.null_count:
        path = candidates["path"].filter(matches.is_null())[0].as_py()
        raise InvalidPredicateError(
            f"{snapshot.context.url}: a partition value of {path} does not parse as its column's type, so it cannot "
            f"be told whether the predicate holds for it; name the partitions by values that all files have"
        )
    return candidates.filter(pc.fill_null(matches, False)).select(list(columns))
