"""How far a stream has read a table: what Spark keeps in the checkpoint of a query."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.errors import (
    InvalidOptionError,
    InvalidSchemaError,
    ObjectNotFoundError,
    RowsChangedError,
    VersionNotFoundError,
)
from indextables.log.decode import LogFile, decode_tail
from indextables.log.entries import empty_entries
from indextables.log.segment import LogListing, list_log
from indextables.ops.read import SplitRef, split_refs
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
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, changes_since, load_snapshot
from indextables.table.changes import ChangeSet
from indextables.table.history import read_commits
from indextables.table.load import catch_up
from indextables.table.log_reader import read_log_files, with_unlisted_versions

StoredOffset = dict[str, str | int | bool]


class StreamOffset(msgspec.Struct, frozen=True, order=True):
    """The place between two files of a table: all files before it were read.

    The next one is the file at `index`, from 0, among those that `version` added; or, if `is_snapshot`, among all
    files that were live at `version`, with which a stream begins that nobody told where to start. There is one offset
    for each place: after the last file of a version comes the first one of the next.
    """

    version: int
    index: int
    is_snapshot: bool
    table_id: str

    @classmethod
    def at_version(cls, table_id: str, version: int) -> "StreamOffset":
        """The place before the first file that a version added."""
        return cls(version, 0, False, table_id)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> "StreamOffset":
        """The offset that `to_store` was made of. Raises InvalidOptionError."""
        try:
            return cls(
                int(values["version"]),
                int(values["index"]),
                bool(values["isSnapshot"]),
                str(values["tableId"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidOptionError(
                f"the checkpoint of the query holds {dict(values)!r}, which is no offset of a table; start the query "
                f"with a new checkpointLocation"
            ) from error

    def to_store(self) -> StoredOffset:
        """What Spark keeps as JSON. It takes two offsets for equal if their texts are."""
        return {
            "tableId": self.table_id,
            "version": self.version,
            "index": self.index,
            "isSnapshot": self.is_snapshot,
        }


# The files that a stream reads, in order: those of a snapshot, and those that each version after it added.
#
# Which versions there are is asked of the log each time: a stream that was restarted sees what one that went
# on does.


logger = logging.getLogger(__name__)

# Version files that are fetched together.
_VERSIONS_PER_FETCH: Final = 64


class Stretch(msgspec.Struct, frozen=True):
    """Files that follow each other in the feed; `start` is the place before the first of them."""

    start: StreamOffset
    entries: pa.Table


class ChangeFeed:
    """A table as a stream of files. `where` tells which of them count against limits, and are read."""

    def __init__(self, snapshot: Snapshot, options: StreamOptions, where: BoundPredicate | None) -> None:
        self._snapshot = snapshot
        self._options = options
        self._where = where
        self._first_files: dict[int, pa.Table] = {}

    def first(self, newest: StreamOffset) -> StreamOffset:
        """Where a stream begins that has read nothing yet; `newest` is the place after what it knows of.

        Raises VersionNotFoundError for a start out of reach.
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
                f"{self._snapshot.context.url}: the stream is to start at version {version}, and the newest one is "
                f"{newest.version - 1}; start at an existing version, or at {LATEST}"
            )
        return replace(newest, version=int(version))

    def newest(self) -> StreamOffset:
        """The place after everything that is there now.

        Raises RowsChangedError if the table was created again, and InvalidSchemaError if its columns are not those
        that the stream began with.
        """
        before = self._snapshot
        after = catch_up(before).snapshot
        url = after.context.url
        if after.metadata.id != before.metadata.id:
            raise _other_table(url)
        if after.schema != before.schema or after.partition_columns != before.partition_columns:
            raise InvalidSchemaError(
                f"{url}: the table got other columns at a version up to {after.version}; start the query again"
            )
        self._snapshot = after
        return StreamOffset.at_version(after.metadata.id, after.version + 1)

    def end_of_batch(self, start: StreamOffset, newest: StreamOffset, limits: ReadLimits) -> StreamOffset:
        """How far a batch from `start` goes: to `newest`, or as far as the limits allow, but one file at least.

        Raises RowsChangedError and VersionNotFoundError; see `new_files` and `failOnDataLoss`.
        """
        self._check(start)
        budget = _Budget(limits)
        for stretch in self._stretches(start, newest):
            count = budget.take(stretch.entries, self._wanted(stretch.entries))
            if count < stretch.entries.num_rows:
                return replace(stretch.start, index=stretch.start.index + count)
        return max(start, newest)

    def files(self, start: StreamOffset, end: StreamOffset) -> list[SplitRef]:
        """The splits between two places, but for those without any row that is wanted. Raises as `end_of_batch`."""
        self._check(start)
        found = [
            stretch.entries.filter(self._wanted(stretch.entries)) for stretch in self._stretches(start, end)
        ]
        return split_refs(pa.concat_tables([empty_entries(), *found]))

    def _check(self, start: StreamOffset) -> None:
        if start.table_id != self._snapshot.metadata.id:
            raise _other_table(self._snapshot.context.url)

    def _wanted(self, entries: pa.Table) -> pa.Array:
        if self._where is None or not entries.num_rows:
            return pa.array(np.ones(entries.num_rows, np.bool_))
        return prune_files(entries, self._where, self._snapshot.shape).keep

    def _version_from(self, moment_ms: int, next_version: int) -> int:
        """The first version that was committed at a moment or after it, or the one that is yet to come."""
        commits = read_commits(self._snapshot.context, next_version - 1)
        version = next(
            (commit.version for commit in commits if commit.timestamp_ms >= moment_ms), next_version
        )
        if commits and commits[0].version > 0 and commits[0].timestamp_ms > moment_ms:
            # What was committed between the moment and the oldest version left is not known any more.
            self._lose(0, version - 1)
        return version

    def _stretches(self, start: StreamOffset, end: StreamOffset) -> Iterator[Stretch]:
        if start.is_snapshot:
            entries = self._live_at(start.version)
            stop = end.index if end.is_snapshot else entries.num_rows
            yield Stretch(start, entries.slice(start.index, max(stop - start.index, 0)))
            if end.is_snapshot:
                return
            start = StreamOffset.at_version(start.table_id, start.version + 1)
        last = end.version if end.index else end.version - 1
        for version, entries in self._added(start.version, last):
            begin = start if version == start.version else StreamOffset.at_version(start.table_id, version)
            stop = end.index if version == end.version else entries.num_rows
            yield Stretch(begin, entries.slice(begin.index, max(stop - begin.index, 0)))

    def _live_at(self, version: int) -> pa.Table:
        """All files of a version, the oldest first."""
        if version not in self._first_files:
            try:
                entries = load_snapshot(self._snapshot.context, version).entries
            except VersionNotFoundError:
                self._lose(version, version)
                entries = empty_entries()
            order = [("modificationTime", "ascending"), ("path", "ascending")]
            self._first_files = {version: entries.take(pc.sort_indices(entries, sort_keys=order))}
        return self._first_files[version]

    def _added(self, first: int, last: int) -> Iterator[tuple[int, pa.Table]]:
        """The versions from `first` to `last`, and the files with new rows of each."""
        if first > last:
            return
        context = self._snapshot.context
        listing = list_log(context.store, from_version=max(first - 1, 0))
        listing = with_unlisted_versions(context, listing, first, last)
        for begin in range(first, last + 1, _VERSIONS_PER_FETCH):
            versions = range(begin, min(begin + _VERSIONS_PER_FETCH, last + 1))
            files = self._read([(v, listing.versions[v]) for v in versions if v in listing.versions])
            for version in versions:
                changes = self._changes(version, files.get(version), listing)
                if changes is None:
                    self._lose(version, version)
                else:
                    yield version, new_files(changes, self._options, context.url)

    def _changes(self, version: int, file: LogFile | None, listing: LogListing) -> ChangeSet | None:
        """What a version did, or None if nobody knows any more.

        Other writers leave states and no version files: two states that follow each other tell it, too.
        """
        if file is not None:
            tail = decode_tail([file])
            return ChangeSet(version - 1, version, tail.adds.drop_columns(["sequence"]), tail.removes)
        if version not in listing.bases or (version > 0 and version - 1 not in listing.bases):
            return None
        try:
            return _without_moves(changes_since(load_snapshot(self._snapshot.context, version), version - 1))
        except VersionNotFoundError:
            return None

    def _read(self, files: Sequence[tuple[int, ObjectMeta]]) -> dict[int, LogFile]:
        """Version files, without those that were deleted since they were listed."""
        context = self._snapshot.context
        try:
            return {file.version: file for file in read_log_files(context, files)}
        except ObjectNotFoundError:
            found: dict[int, LogFile] = {}
            for file in files:
                try:
                    found[file[0]] = read_log_files(context, [file])[0]
                except ObjectNotFoundError:
                    continue
            return found

    def _lose(self, first: int, last: int) -> None:
        """Complain about versions that are gone. Raises VersionNotFoundError unless that is allowed."""
        versions = f"version {first} is" if first == last else f"versions {first} to {last} are"
        message = f"{self._snapshot.context.url}: {versions} gone from the log, and the stream has not read all of it"
        if self._options.fails_on_data_loss:
            raise VersionNotFoundError(
                f"{message}; keep versions for longer than a stream may stand still. Set {FAIL_ON_DATA_LOSS}=false in "
                f"order to go on without what is lost, or start again with a new checkpointLocation"
            )
        logger.warning("%s; it goes on without", message)


def new_files(changes: ChangeSet, options: StreamOptions, url: str) -> pa.Table:
    """The files of a version that hold new rows, in its order. Rows that a merge moved are not new.

    Rows that were taken away or replaced cannot be taken back from whoever read the stream. Such a version is an
    error, unless the options say what becomes of it: with `ignoreDeletes` one that only removes rows is passed over;
    with `ignoreChanges` the rows that it adds are read as new ones, some of them perhaps again; with
    `skipChangeCommits` they are not. Raises RowsChangedError.
    """
    added = changes.adds.filter(changes.adds["dataChange"])
    if not pc.any(changes.removes["dataChange"].fill_null(True)).as_py():
        return added
    if options.skips_changes:
        return added.slice(0, 0)
    if options.ignores_changes or (options.ignores_deletes and not added.num_rows):
        return added
    what, remedies = (
        ("replaced rows", f"{IGNORE_CHANGES} (the new rows come, some perhaps again)")
        if added.num_rows
        else ("removed rows", f"{IGNORE_DELETES} or {IGNORE_CHANGES} (they are passed over)")
    )
    raise RowsChangedError(
        f"{url}: version {changes.version} {what}, and a stream cannot take rows back. Set {remedies} or "
        f"{SKIP_CHANGE_COMMITS} (nothing of such a version comes) to true, or start again with a new "
        f"checkpointLocation"
    )


def _without_moves(changes: ChangeSet) -> ChangeSet:
    """Two versions that were compared: the rows of a file that went are in a new one if that has no others."""
    is_merge = changes.adds.num_rows and not pc.any(changes.adds["dataChange"]).as_py()
    return replace(changes, removes=changes.removes.slice(0, 0)) if is_merge else changes


class _Budget:
    """What is left of the limits of a batch."""

    def __init__(self, limits: ReadLimits) -> None:
        self._files = np.inf if limits.max_files is None else limits.max_files
        self._bytes = np.inf if limits.max_bytes is None else limits.max_bytes
        self._is_untouched = True

    def take(self, entries: pa.Table, wanted: pa.Array) -> int:
        """How many of the next files are within the limits, or just one that is not if it is the first."""
        is_wanted = wanted.to_numpy(zero_copy_only=False)
        files = np.cumsum(is_wanted)
        sizes = np.cumsum(np.where(is_wanted, entries["size"].to_numpy(), 0))
        count = int(np.count_nonzero((files <= self._files) & (sizes <= self._bytes)))
        if count < len(files) and self._is_untouched and not files[:count].any():
            count += 1
        if count:
            self._files -= int(files[count - 1])
            self._bytes -= int(sizes[count - 1])
            self._is_untouched = self._is_untouched and not files[count - 1]
        return count


def _other_table(url: str) -> RowsChangedError:
    return RowsChangedError(
        f"{url}: the table was dropped and created again since the stream began; start it with a new checkpointLocation"
    )
