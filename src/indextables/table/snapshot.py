"""A table at one version: immutable and columnar. File entries are read when they are first needed."""

import logging
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables._caching import lazy_property
from indextables.config.registry import TRANSACTION_CACHE_EXPIRATION_SECONDS
from indextables.errors import (
    CheckpointCorruptionError,
    ConcurrentMaintenanceError,
    InvalidOptionError,
    InvalidPredicateError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageTimeoutError,
    VersionNotFoundError,
)
from indextables.log.actions import Metadata, ProtocolAction, check_readable
from indextables.log.decode import LogFile, Tail, decode_tail
from indextables.log.deletion_vectors import live_counts
from indextables.log.entries import EntrySource, LoadedEntries, PathSelection, Selection
from indextables.log.file_keys import keys_or_paths, tail_with_keys
from indextables.log.replay import (
    LogHeader,
    check_partition_values,
    removed_paths,
    replay_entries,
    replay_header,
)
from indextables.log.segment import Gap, LogSegment, VersionEntry, list_log
from indextables.predicates import BoundPredicate, Predicate, bind
from indextables.pruning import match_partitions, prune_files
from indextables.schema import TableShape, from_spark_json
from indextables.storage import ObjectMeta
from indextables.table.context import Stamp, TableContext, cached, stamp
from indextables.table.field_ids import field_ids_of
from indextables.table.log_reader import read_last_actions, summary_of

logger = logging.getLogger(__name__)

# Pruning needs these columns, whichever columns the caller selects.
_PRUNING_COLUMNS = ("path", "partitionValues", "minValues", "maxValues")


class FileSelection(msgspec.Struct, frozen=True):
    """The files that may match a predicate, and how many were skipped at each level."""

    entries: pa.Table
    manifests: int
    manifests_skipped: int
    files_skipped_by_partition: int
    files_skipped_by_statistics: int


class Snapshot:
    """A table at one version.

    The header is complete from the start. File entries are read when they are first needed, and only those that a
    predicate selects. If they are damaged or missing, `recover` reads them from other files of the log. A snapshot
    never changes, so threads may share it.

    A pickled snapshot holds no entries: unpickling opens the same version of the table again, with the location and
    the settings of this one. The location includes the credentials that it was opened with.
    """

    def __init__(
        self,
        context: TableContext,
        segment: LogSegment,
        header: LogHeader,
        protocol: ProtocolAction,
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

    def __reduce__(self) -> tuple[object, ...]:
        # Imported here, because `load` makes snapshots.
        from indextables.table.load import reopen

        context = self.context
        if context.location is None:
            raise InvalidOptionError(
                f"{context.url}: a table whose store was passed as an object cannot be pickled; open the table by its "
                f"path"
            )
        return (reopen, (context.location, context.settings, self.version, self.metadata.id))

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def timestamp_ms(self) -> int:
        return self.header.timestamp_ms

    @property
    def gap(self) -> Gap | None:
        """Versions after this one that exist but are unreachable, or None."""
        return self.segment.gap

    @property
    def base_file(self) -> ObjectMeta:
        """The newest file that this snapshot was read from: the next commit builds on it."""
        if self.segment.version_files:
            return self.segment.version_files[-1].meta
        assert self.segment.base is not None  # a segment has a base or a tail
        return self.segment.base.meta

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @lazy_property
    def schema(self) -> pa.Schema:
        return from_spark_json(self.metadata.schema_string)

    @lazy_property
    def shape(self) -> TableShape:
        """The columns with their ids, stored names and defaults, and the partition columns."""
        metadata = self.metadata
        return TableShape.of(metadata.schema_string, self.partition_columns, field_ids_of(metadata))

    @lazy_property
    def tail(self) -> Tail:
        """The versions after the base, reduced to the actions that a replay needs."""
        tail = read_last_actions(self.context, self.segment.version_files)
        check_partition_values(tail.versions, self.metadata, self.context.url)
        return tail

    @lazy_property
    def entries(self) -> pa.Table:
        """The file entries of all live files."""
        return cached(
            self.context.cache.file_lists,
            self.context.store,
            segment_identity(self.segment),
            self.context.settings[TRANSACTION_CACHE_EXPIRATION_SECONDS],
            lambda: self._read(None, None).entries,
        )

    @property
    def has_loaded_entries(self) -> bool:
        """Whether the file entries are in memory."""
        return "entries" in self.__dict__

    @property
    def num_files(self) -> int:
        return self.entries.num_rows if self.segment.version_files else self.source.num_files

    @property
    def total_bytes(self) -> int:
        if not self.segment.version_files:
            return self.source.total_bytes
        return pc.sum(self.entries["size"]).as_py() or 0

    @property
    def num_rows(self) -> int | None:
        """The number of rows of all live splits without the deleted ones, or None if a split does not record it."""
        counts = live_counts(self.entries)
        return None if counts.null_count else pc.sum(counts).as_py() or 0

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether a live split has deleted rows, so that its file alone does not tell its rows."""
        vectors = self.select(columns=["deletionVector"]).entries["deletionVector"]
        return bool(vectors.null_count < len(vectors))

    def select(
        self, predicate: BoundPredicate | None = None, columns: Sequence[str] | None = None
    ) -> FileSelection:
        """The live files that may contain rows for which `predicate` is true: a superset of those that do.

        Manifests are skipped by partition bounds, then files by partition value and by statistics.
        """
        if predicate is None:
            loaded = self._load(None, columns)
            return FileSelection(_project(loaded.entries, columns), loaded.manifests, 0, 0, 0)
        wanted = None if columns is None else tuple(dict.fromkeys([*columns, *_PRUNING_COLUMNS]))
        loaded = self._load(Selection(predicate, self.shape), wanted)
        pruned = prune_files(loaded.entries, predicate, self.shape)
        selection = FileSelection(
            entries=_project(loaded.entries.filter(pruned.keep), columns),
            manifests=loaded.manifests,
            manifests_skipped=loaded.manifests_skipped,
            files_skipped_by_partition=pruned.skipped_by_partition,
            files_skipped_by_statistics=pruned.skipped_by_statistics,
        )
        logger.debug(
            "%s: pruning kept %d files of version %d; it skipped %d of %d manifests, %d files by partition and %d by "
            "statistics",
            self.context.url, selection.entries.num_rows, self.version, selection.manifests_skipped,
            selection.manifests, pruned.skipped_by_partition, pruned.skipped_by_statistics,
        )  # fmt: skip
        return selection

    def select_paths(self, paths: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """The live files with one of these paths. Manifests are skipped by the range of their paths."""
        wanted = keys_or_paths(pa.array(paths, pa.string()), self.context.url)
        entries = _project(self._load(PathSelection(wanted), columns).entries, columns)
        return entries.filter(pc.is_in(entries["path"], value_set=wanted))

    def extended(self, files: Sequence[VersionEntry], log_files: Sequence[LogFile]) -> "Snapshot":
        """The snapshot after the versions that directly follow this one; `log_files` are the contents of `files`.

        Decodes the adds and removes only if the entries of this snapshot are in memory. Raises LogCorruptedError, and
        UnsupportedProtocolError if a version requires more than this release can read.
        """
        summaries = [summary_of(log_file) for log_file in log_files]
        has_skips = bool(self.header.skips) or any(summary.actions.skips for summary in summaries)
        delta = None
        if self.has_loaded_entries or has_skips:
            delta = tail_with_keys(decode_tail(log_files), self.context.url)
            summaries = list(delta.versions)
            check_partition_values(delta.versions, self.metadata, self.context.url)
        header = replay_header(self.header, summaries, removed_paths(delta) if delta is not None else {})
        assert header.metadata is not None  # metadata can be replaced but not removed
        protocol = header.protocol or self.protocol
        check_readable(protocol, self.context.url)
        context = self.context
        if header.metadata != self.metadata:
            context = context.with_properties(header.metadata)
        segment = replace(
            self.segment,
            version=files[-1].version,
            version_files=(*self.segment.version_files, *files),
            gap=None,
        )
        later = Snapshot(
            context, segment, header, protocol, header.metadata, self.source, recover=self._recover
        )
        if self.has_loaded_entries and delta is not None:
            later.__dict__["entries"] = replay_entries(self.entries, delta)
        return later

    def sharing_entries_of(self, other: "Snapshot") -> "Snapshot":
        """This snapshot, with the entries that another snapshot of the same version has in memory."""
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
            columns = tuple(dict.fromkeys([*columns, "path"]))  # the replay joins on the path
        try:
            loaded = self.source.load(selection, columns)
            return replace(loaded, entries=replay_entries(loaded.entries, self.tail))
        except (LogCorruptedError, ObjectNotFoundError, StorageTimeoutError) as error:
            if self._recover is None:
                raise
            return self._recover_entries(error).load(selection, columns)

    def _recover_entries(
        self, error: LogCorruptedError | ObjectNotFoundError | StorageTimeoutError
    ) -> EntrySource:
        """All entries, from other files.

        Raises ConcurrentMaintenanceError, LogCorruptedError or StorageTimeoutError if there are none.
        """
        assert self._recover is not None
        logger.warning(
            "%s: falling back to other files of the log for version %d: %s",
            self.context.url,
            self.version,
            error,
        )
        try:
            return self._recover(self.segment)
        except (VersionNotFoundError, ConcurrentMaintenanceError, LogCorruptedError) as reason:
            cause = self.error_of_missing_file(error) if isinstance(error, ObjectNotFoundError) else error
            message = f"{cause}; no other files of the log lead to version {self.version}: {reason}"
            raise type(cause)(message) from error

    def error_of_missing_file(
        self, error: ObjectNotFoundError
    ) -> CheckpointCorruptionError | ConcurrentMaintenanceError:
        """Name the cause why a file that this snapshot is read from is missing.

        Cleanup deletes a checkpoint before the manifests that it refers to. If the checkpoint and all version files
        are still there, the checkpoint is incomplete.
        """
        url, base = self.context.url, self.segment.base
        if base is not None and self._is_listed():
            return CheckpointCorruptionError(
                f"{url}: failed to read checkpoint at version {base.version}: a file that it refers to is missing "
                f"({error}); rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
            )
        return ConcurrentMaintenanceError(
            f"{url}: a concurrent purge, cleanup or truncate removed version {self.version} while it was read "
            f"({error}); open the table again"
        )

    def _is_listed(self) -> bool:
        """Whether the checkpoint and the version files of this snapshot are still in the store, unchanged."""
        base, files = self.segment.base, [file.meta for file in self.segment.version_files]
        first = base.version if base is not None else 0
        listing = list_log(self.context.store, from_version=first)
        found = {stamp(meta) for meta in listing.versions.values()}
        found |= {stamp(known.meta) for known in listing.bases_newest_first()}
        return all(stamp(meta) in found for meta in ([base.meta] if base is not None else []) + files)


def segment_identity(segment: LogSegment) -> tuple[int, Stamp | None, Stamp | None]:
    """The files that a segment is read from. Segments with the same identity have the same content."""
    base = stamp(segment.base.meta) if segment.base is not None else None
    last = stamp(segment.version_files[-1].meta) if segment.version_files else None
    return (segment.version, base, last)


def _project(entries: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    if columns is None:
        return entries
    unknown = [name for name in columns if name not in entries.column_names]
    if unknown:
        raise InvalidOptionError(
            f"file entries have no column {', '.join(map(repr, unknown))}; the columns are "
            f"{', '.join(entries.column_names)}"
        )
    return entries.select(list(columns))


def files_of_partitions(snapshot: Snapshot, where: Predicate, columns: Sequence[str]) -> pa.Table:
    """The live files whose partition values satisfy `where`, exactly: all rows of a file match, or none.

    Raises InvalidPredicateError if `where` refers to other columns than partition columns, or if a partition value does
    not parse as the type of its column.
    """
    # Pruning returns a superset, cheaply; the exact match then looks at few files.
    wanted = tuple(dict.fromkeys([*columns, "path", "partitionValues", "minValues", "maxValues"]))
    predicate = bind(where, snapshot.schema)
    candidates = snapshot.select(predicate, wanted).entries
    matches = match_partitions(candidates, predicate, snapshot.shape)
    if matches.null_count:
        path = candidates["path"].filter(matches.is_null())[0].as_py()
        raise InvalidPredicateError(
            f"{snapshot.context.url}: a partition value of {path} does not parse as the type of its column, so the "
            f"predicate cannot be evaluated; select partitions by columns that parse in all files"
        )
    return candidates.filter(pc.fill_null(matches, False)).select(list(columns))
