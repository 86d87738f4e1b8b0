"""The change feed of a stream: the files of a snapshot, then the files that each later version adds, and offsets in it.

The feed reads versions from the log each time, so a restarted stream sees the same files as one that kept running.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.errors import (
    ConcurrentMaintenanceError,
    InvalidOptionError,
    InvalidSchemaError,
    ObjectNotFoundError,
    RowsChangedError,
    VersionNotFoundError,
)
from indextables.log.decode import LogFile, Tail, decode_tail
from indextables.log.entries import empty_entries
from indextables.log.file_keys import tail_with_keys
from indextables.log.replay import check_partition_values
from indextables.log.segment import LogListing, VersionEntry, list_log
from indextables.ops.read import SplitRef, split_refs
from indextables.ops.row_changes import ROW_OPERATIONS
from indextables.predicates import BoundPredicate
from indextables.predicates.literals import timestamp_ms
from indextables.pruning import prune_files
from indextables.spark.options import (
    FAIL_ON_DATA_LOSS,
    IGNORE_CHANGES,
    IGNORE_DELETES,
    LATEST,
    SKIP_CHANGE_COMMITS,
    ReadLimits,
    StreamOptions,
)
from indextables.table import Snapshot, changes_since, load_snapshot
from indextables.table.history import read_commits
from indextables.table.load import catch_up
from indextables.table.log_reader import read_log_files, with_unlisted_versions

logger = logging.getLogger(__name__)

# How many version files are fetched together.
_VERSIONS_PER_FETCH: Final = 64

StoredOffset: TypeAlias = dict[str, str | int | bool]


class StreamOffset(msgspec.Struct, frozen=True, order=True):
    """A position between two files of the feed: all files before it were read.

    Spark stores it in the query's checkpoint. The next file is the one at `index`, from 0, among the files that
    `version` added; or, if `is_snapshot`, among all files live at `version`, with which a stream without a start
    begins. Each position has exactly one offset: the end of a version is the start of the next one.
    """

    version: int
    index: int
    is_snapshot: bool
    table_id: str

    @classmethod
    def at_version(cls, table_id: str, version: int) -> "StreamOffset":
        """The position before the first file that a version added."""
        return cls(version, 0, False, table_id)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_json` returned. Raises InvalidOptionError."""
        try:
            return cls(
                int(values["version"]),
                int(values["index"]),
                bool(values["isSnapshot"]),
                str(values["tableId"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidOptionError(
                f"the query's checkpoint has {dict(values)!r}, which is not an offset of a table; start the query with "
                f"a new checkpointLocation"
            ) from error

    def to_json(self) -> StoredOffset:
        """The JSON object for the checkpoint. Spark compares offsets by their JSON text."""
        return {
            "tableId": self.table_id,
            "version": self.version,
            "index": self.index,
            "isSnapshot": self.is_snapshot,
        }


class _Stretch(msgspec.Struct, frozen=True):
    """Consecutive files of the feed; `start` is the position before the first."""

    start: StreamOffset
    entries: pa.Table


class ChangeFeed:
    """A table as a stream of files. Only files that may match `where` are read and count against limits."""

    def __init__(self, snapshot: Snapshot, options: StreamOptions, where: BoundPredicate | None) -> None:
        self._snapshot = snapshot
        self._options = options
        self._where = where
        self._snapshot_files: dict[int, pa.Table] = {}

    def first(self, newest: StreamOffset) -> StreamOffset:
        """Where a new stream begins; `newest` is the position after the newest version.

        Raises VersionNotFoundError if the start does not exist.
        """
        version, timestamp = self._options.starting_version, self._options.starting_timestamp
        if timestamp is not None:
            return replace(newest, version=self._version_from(timestamp_ms(timestamp), newest.version))
        if version is None:
            return replace(newest, version=newest.version - 1, is_snapshot=True)
        if version == LATEST:
            return newest
        if int(version) > newest.version:
            raise VersionNotFoundError(
                f"{self._snapshot.context.url}: the stream starts at version {version}, but the newest version is "
                f"{newest.version - 1}; start at an existing version, or at {LATEST}"
            )
        return replace(newest, version=int(version))

    def newest(self) -> StreamOffset:
        """The position after the newest version.

        Raises RowsChangedError if the table was recreated, and InvalidSchemaError if its columns changed since the
        stream began.
        """
        before = self._snapshot
        after = catch_up(before).snapshot
        url = after.context.url
        if after.metadata.id != before.metadata.id:
            raise _recreated(url)
        if after.shape != before.shape:
            raise InvalidSchemaError(
                f"{url}: the table's columns changed by version {after.version}; restart the query"
            )
        self._snapshot = after
        return StreamOffset.at_version(after.metadata.id, after.version + 1)

    def end_of_batch(self, start: StreamOffset, newest: StreamOffset, limits: ReadLimits) -> StreamOffset:
        """Where a batch from `start` ends: at `newest`, or as far as the limits allow, but after one file at least.

        Raises RowsChangedError and VersionNotFoundError; see `new_files` and the option `failOnDataLoss`.
        """
        self._check_table(start)
        budget = _Budget(limits)
        for stretch in self._stretches(start, newest):
            count = budget.take(stretch.entries, self._may_match(stretch.entries))
            if count < stretch.entries.num_rows:
                return replace(stretch.start, index=stretch.start.index + count)
        return max(start, newest)

    def files(self, start: StreamOffset, end: StreamOffset) -> list[SplitRef]:
        """The splits between two positions that may match `where`. Raises what `end_of_batch` raises."""
        self._check_table(start)
        found = [
            stretch.entries.filter(self._may_match(stretch.entries))
            for stretch in self._stretches(start, end)
        ]
        return split_refs(pa.concat_tables([empty_entries(), *found]))

    def _check_table(self, start: StreamOffset) -> None:
        if start.table_id != self._snapshot.metadata.id:
            raise _recreated(self._snapshot.context.url)

    def _may_match(self, entries: pa.Table) -> pa.Array:
        if self._where is None or not entries.num_rows:
            return pa.array(np.ones(entries.num_rows, np.bool_))
        return prune_files(entries, self._where, self._snapshot.shape).keep

    def _version_from(self, since_ms: int, next_version: int) -> int:
        """The first version committed at or after a timestamp, or `next_version` if there is none."""
        commits = read_commits(self._snapshot.context, next_version - 1)
        version = next(
            (commit.version for commit in commits if commit.timestamp_ms >= since_ms), next_version
        )
        if commits and commits[0].version > 0 and commits[0].timestamp_ms > since_ms:
            # The log no longer has the versions between the timestamp and the oldest version.
            self._report_lost(0, version - 1)
        return version

    def _stretches(self, start: StreamOffset, end: StreamOffset) -> Iterator[_Stretch]:
        if start.is_snapshot:
            entries = self._live_at(start.version)
            stop = end.index if end.is_snapshot else entries.num_rows
            yield _Stretch(start, entries.slice(start.index, max(stop - start.index, 0)))
            if end.is_snapshot:
                return
            start = StreamOffset.at_version(start.table_id, start.version + 1)
        last = end.version if end.index else end.version - 1
        for version, entries in self._added(start.version, last):
            begin = start if version == start.version else StreamOffset.at_version(start.table_id, version)
            stop = end.index if version == end.version else entries.num_rows
            yield _Stretch(begin, entries.slice(begin.index, max(stop - begin.index, 0)))

    def _live_at(self, version: int) -> pa.Table:
        """All live files of a version, oldest first."""
        if version not in self._snapshot_files:
            try:
                entries = load_snapshot(self._snapshot.context, version).entries
            except (VersionNotFoundError, ConcurrentMaintenanceError):
                self._report_lost(version, version)
                entries = empty_entries()
            order = [("modificationTime", "ascending"), ("path", "ascending")]
            self._snapshot_files = {version: entries.take(pc.sort_indices(entries, sort_keys=order))}
        return self._snapshot_files[version]

    def _added(self, first: int, last: int) -> Iterator[tuple[int, pa.Table]]:
        """The versions from `first` to `last`, each with the files that have new rows."""
        if first > last:
            return
        context = self._snapshot.context
        listing = list_log(context.store, from_version=max(first - 1, 0))
        listing = with_unlisted_versions(context, listing, first, last)
        for begin in range(first, last + 1, _VERSIONS_PER_FETCH):
            versions = range(begin, min(begin + _VERSIONS_PER_FETCH, last + 1))
            files = self._read([listing.version_file(v) for v in versions if v in listing.versions])
            for version in versions:
                changes = self._changes(version, files.get(version), listing)
                if changes is None:
                    self._report_lost(version, version)
                else:
                    yield version, new_files(changes, self._options, context.url)

    def _changes(self, version: int, file: LogFile | None, listing: LogListing) -> "VersionChanges | None":
        """The adds and removes of a version; None if the log no longer has them.

        Some writers leave states without version files: the difference of two consecutive states then gives the
        changes.
        """
        if file is not None:
            tail = tail_with_keys(decode_tail([file]), self._snapshot.context.url)
            check_partition_values(tail.versions, self._snapshot.metadata, self._snapshot.context.url)
            removes_rows = bool(pc.any(tail.removes["dataChange"].fill_null(True)).as_py())
            return VersionChanges(version, _adds_with_new_rows(tail), removes_rows)
        if version not in listing.bases or (version > 0 and version - 1 not in listing.bases):
            return None
        try:
            changes = changes_since(load_snapshot(self._snapshot.context, version), version - 1)
        except (VersionNotFoundError, ConcurrentMaintenanceError):
            return None
        # The new files of a merge have the rows of the removed ones.
        is_merge = bool(changes.adds.num_rows) and not pc.any(changes.adds["dataChange"]).as_py()
        return VersionChanges(version, changes.adds, bool(changes.removes.num_rows) and not is_merge)

    def _read(self, files: Sequence[VersionEntry]) -> dict[int, LogFile]:
        """Read version files, except those that were deleted since they were listed."""
        context = self._snapshot.context
        try:
            return {file.version: file for file in read_log_files(context, files)}
        except ObjectNotFoundError:
            found: dict[int, LogFile] = {}
            for file in files:
                try:
                    found[file.version] = read_log_files(context, [file])[0]
                except ObjectNotFoundError:
                    continue
            return found

    def _report_lost(self, first: int, last: int) -> None:
        """Raise VersionNotFoundError for missing versions, or only log them if failOnDataLoss is false."""
        versions = f"version {first} is" if first == last else f"versions {first} to {last} are"
        message = f"{self._snapshot.context.url}: {versions} no longer in the log, but the stream has not read all rows"
        if self._options.fails_on_data_loss:
            raise VersionNotFoundError(
                f"{message}; retain versions for longer than a stream may be down. Set {FAIL_ON_DATA_LOSS}=false to "
                f"skip what is lost, or start with a new checkpointLocation"
            )
        logger.warning("%s; skipping them (failOnDataLoss=false)", message)


class VersionChanges(msgspec.Struct, frozen=True):
    """The files that a version adds (in log order, where known), and whether it removes rows."""

    version: int
    adds: pa.Table
    removes_rows: bool


def _adds_with_new_rows(tail: Tail) -> pa.Table:
    """The adds of a version. A delete adds a split again, with a deletion vector, and that has no new rows."""
    adds = tail.adds.drop_columns(["sequence"])
    info = tail.versions[0].actions.commit_info
    if info is None or info.operation not in ROW_OPERATIONS:
        return adds
    came_back = pc.is_in(adds["path"], value_set=tail.removes["path"].combine_chunks())
    return adds.filter(pc.invert(pc.and_(came_back, adds["deletionVector"].is_valid())))


def new_files(changes: VersionChanges, options: StreamOptions, url: str) -> pa.Table:
    """The files of a version that have new rows, in log order. Rows that a merge moved are not new.

    A stream cannot retract rows, so a version that removes or replaces rows raises RowsChangedError unless an option
    allows it: `ignoreDeletes` skips a version that only removes rows; `ignoreChanges` reads the rows that it adds, some
    perhaps for the second time; `skipChangeCommits` skips the whole version.
    """
    added = changes.adds.filter(changes.adds["dataChange"])
    if not changes.removes_rows:
        return added
    if options.skips_changes:
        return added.slice(0, 0)
    if options.ignores_changes or (options.ignores_deletes and not added.num_rows):
        return added
    what, remedies = (
        ("replaced rows", f"{IGNORE_CHANGES} (reads the new rows, some perhaps twice)")
        if added.num_rows
        else ("removed rows", f"{IGNORE_DELETES} or {IGNORE_CHANGES} (skips the deletes)")
    )
    raise RowsChangedError(
        f"{url}: version {changes.version} {what}, which a stream cannot retract. Set {remedies} or "
        f"{SKIP_CHANGE_COMMITS} (skips the whole version) to true, or start with a new checkpointLocation"
    )


class _Budget:
    """The rest of a batch's limits."""

    def __init__(self, limits: ReadLimits) -> None:
        self._files = np.inf if limits.max_files is None else limits.max_files
        self._bytes = np.inf if limits.max_bytes is None else limits.max_bytes
        self._is_unused = True

    def take(self, entries: pa.Table, counted: pa.Array) -> int:
        """How many of the next files fit the limits; the first file of a batch always fits."""
        is_counted = counted.to_numpy(zero_copy_only=False)
        files = np.cumsum(is_counted)
        sizes = np.cumsum(np.where(is_counted, entries["size"].to_numpy(), 0))
        count = int(np.count_nonzero((files <= self._files) & (sizes <= self._bytes)))
        if count < len(files) and self._is_unused and not files[:count].any():
            count += 1
        if count:
            self._files -= int(files[count - 1])
            self._bytes -= int(sizes[count - 1])
            self._is_unused = self._is_unused and not files[count - 1]
        return count


def _recreated(url: str) -> RowsChangedError:
    return RowsChangedError(
        f"{url}: the table was dropped and recreated since the stream began; start with a new checkpointLocation"
    )
