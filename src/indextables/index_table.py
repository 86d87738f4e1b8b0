"""`IndexTable`: what a Python user holds. Thin: it delegates, and has no logic of its own.

Operations are called as `ops.merge.merge_splits(…)`: `ops` imports each of them when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from indextables import ops
from indextables.config import Settings
from indextables.config.registry import MERGE_PARALLELISM, PURGE_PARALLELISM, READ_PARALLELISM
from indextables.errors import InvalidOptionError, ReadOnlyTableError
from indextables.log.actions import AddAction, Metadata, ProtocolAction
from indextables.predicates import Predicate, bind, parse_predicate
from indextables.predicates.literals import timestamp_ms
from indextables.storage import StoreLocation
from indextables.table import (
    ChangeSet,
    FileSelection,
    Snapshot,
    TableContext,
    changes_since,
    create_table,
    load_snapshot,
)
from indextables.table.history import history_table, read_commits, version_at, version_before_changes
from indextables.table.load import catch_up, reload_from_newest_base

if TYPE_CHECKING:
    from indextables.ops.checkpoint.operation import CheckpointReport
    from indextables.ops.fsck.report import FsckReport
    from indextables.ops.merge import MergeReport
    from indextables.ops.purge.garbage import GarbageReport
    from indextables.ops.purge.report import PurgeReport, Retention
    from indextables.ops.repair.operation import RepairMode
    from indextables.ops.repair.report import RepairReport
    from indextables.ops.runner import Progress, Runner
    from indextables.ops.search import Highlighter
    from indextables.ops.truncate import TruncateReport
    from indextables.search import Histogram, Metric, Terms


class IndexTable:
    """A table at one version.

    `IndexTable(path)` opens the newest version; `version` or `timestamp` an older one, which can then only be
    read. The object stays at its version until `refresh()`, or until it commits something itself.
    """

    def __init__(
        self,
        path: str,
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if version is not None and timestamp is not None:
            raise InvalidOptionError("give a version or a timestamp, not both")
        context = _context(path, storage_options, options)
        if timestamp is not None:
            newest = load_snapshot(context)
            version = version_at(context, newest.version, timestamp_ms(timestamp))
        self._bind(load_snapshot(context, version), is_pinned=version is not None)

    @classmethod
    def create(
        cls,
        path: str,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        text: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> IndexTable:
        """Create a table, or open the one that is there if it is defined in the same way.

        `text` names the columns that are tokenised for full-text search; the other string columns are matched as
        a whole. `properties` are settings that stay with the table; so do index settings among `options`.
        Raises InvalidSchemaError, TableAlreadyExistsError and UnsupportedStoreError.
        """
        context = _context(path, storage_options, options)
        snapshot = create_table(
            context,
            schema,
            partition_by,
            {
                **ops.write.indexing_properties(options or {}),
                **(properties or {}),
                **ops.write.text_properties(schema, text),
            },
        )
        table = cls.__new__(cls)
        table._bind(snapshot, is_pinned=False)
        return table

    # --- the table at this version -------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version that this object shows."""
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._snapshot.schema

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by, in order."""
        return list(self._snapshot.partition_columns)

    @property
    def protocol(self) -> ProtocolAction:
        """What a client must support in order to read and to write the table."""
        return self._snapshot.protocol

    @property
    def metadata(self) -> Metadata:
        """The table's id, schema, partitioning and properties."""
        return self._snapshot.metadata

    @property
    def num_files(self) -> int:
        """How many splits are live."""
        return self._snapshot.num_files

    @property
    def num_rows(self) -> int | None:
        """How many rows the table has, or None if a split does not say."""
        return self._snapshot.num_rows

    @property
    def total_bytes(self) -> int:
        """The size of all live splits."""
        return self._snapshot.total_bytes

    def files(self, where: str | Predicate | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The live splits as an Arrow table, one row each, with the columns of a file entry.

        With `where`, only splits that may hold rows for which it is true.
        """
        return self.select_files(where, columns).entries

    def select_files(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> FileSelection:
        """What `files` gives, together with how much was skipped at each level."""
        predicate = _predicate(where)
        bound = None if predicate is None else bind(predicate, self._snapshot.schema)
        return self._snapshot.select(bound, columns)

    def scan(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """The rows for which `where` is true, as a stream of batches."""
        return ops.read.scan(self._snapshot, _predicate(where), columns)

    def to_arrow(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows for which `where` is true, as one Arrow table."""
        return self.scan(where, columns).read_all()

    def search(
        self,
        query: str,
        where: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        limit: int = 10,
        fields: Sequence[str] = (),
    ) -> pa.Table:
        """The best rows for a full-text query, best first, with a last column `_score`.

        `fields` are the columns that words without a field are looked for in; without any, all texts.
        """
        question = ops.search.SearchRequest.of(self._snapshot, query, _predicate(where), fields)
        return ops.search.search(self._snapshot, question, columns, limit)

    def highlighter(self, query: str, fields: Sequence[str] = ()) -> Highlighter:
        """Finds the words of a query in the texts of rows, for showing them to people."""
        return ops.search.Highlighter.of(self._snapshot, query, fields)

    def count(
        self,
        query: str | None = None,
        where: str | Predicate | None = None,
        fields: Sequence[str] = (),
    ) -> int:
        """How many rows match a query and a predicate; `fields` as for `search`."""
        question = ops.search.SearchRequest.of(self._snapshot, query, _predicate(where), fields)
        return ops.search.count(self._snapshot, question)

    def aggregate(
        self,
        metrics: Sequence[str | Metric] = ("count",),
        by: str | Terms | Histogram | None = None,
        query: str | None = None,
        where: str | Predicate | None = None,
        fields: Sequence[str] = (),
    ) -> pa.Table:
        """Metrics such as `"count"` or `"max(price)"` over the matching rows, or over each group of them.

        `by` is a column whose values are the groups, or a `Terms` or `Histogram`; `fields` as for `search`. No rows
        are fetched, unless only they can tell whether they match.
        """
        question = ops.search.SearchRequest.of(self._snapshot, query, _predicate(where), fields)
        return ops.search.aggregate(self._snapshot, question, metrics, by)

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits that the log still holds, newest first."""
        commits = read_commits(self._snapshot.context, self.version)
        return history_table(commits if limit is None else commits[-limit:] if limit > 0 else [])

    def changes(
        self, since_version: int | None = None, since_timestamp: str | datetime | None = None
    ) -> ChangeSet:
        """What was added and removed after a version or a moment in time, up to this version.

        Version -1 and moments before the first version stand for everything. Raises VersionNotFoundError if the log
        does not reach back so far any more.
        """
        if (since_version is None) == (since_timestamp is None):
            raise InvalidOptionError("changes need either since_version or since_timestamp")
        if since_version is None:
            assert since_timestamp is not None  # one of the two is given
            context = self._snapshot.context
            since_version = version_before_changes(context, self.version, timestamp_ms(since_timestamp))
        return changes_since(self._snapshot, since_version)

    def refresh(self) -> IndexTable:
        """Go to the newest version; returns the same object."""
        self._bind(catch_up(self._snapshot).snapshot, is_pinned=False)
        return self

    # --- changing it ---------------------------------------------------------------------------------

    def commit(self, adds: Sequence[AddAction] = (), removes: Sequence[str] = ()) -> int:
        """Commit splits that were written elsewhere, and remove others by path; returns the version.

        Only the log is written. Removes alone pass over what is not live. Adds and removes together replace: if
        anything in `removes` is not live, CommitConflictError is raised and nothing is committed, because somebody
        else may have replaced the same splits, and their rows would be there twice.
        """
        return self._after(ops.write.commit_files(self._writable(), adds, removes).snapshot)

    def append(self, data: pa.Table | pa.RecordBatchReader) -> int:
        """Write rows as new splits, and add them in one commit; returns the version.

        Columns are found by name; those that are missing are null. Without any rows nothing is committed.
        """
        return self._after(ops.write.append(self._writable(), data).snapshot)

    def overwrite(self, data: pa.Table | pa.RecordBatchReader, where: str | Predicate | None = None) -> int:
        """Replace all rows, or those of the partitions that `where` selects; returns the version.

        With `where`, all rows must belong to these partitions.
        """
        return self._after(ops.write.overwrite(self._writable(), data, _predicate(where)).snapshot)

    def set_properties(self, properties: Mapping[str, str | None]) -> int:
        """Set table properties, or remove those that are None; returns the version."""
        return self._after(ops.write.set_properties(self._writable(), properties).snapshot)

    def upgrade_protocol(self, reader_version: int, writer_version: int) -> int:
        """Ask readers and writers for at least these protocol versions; returns the version."""
        result = ops.write.upgrade_protocol(self._writable(), reader_version, writer_version)
        return self._after(result.snapshot)

    def checkpoint(self, *, runner: Runner | None = None) -> CheckpointReport:
        """Write the table's state down in one place, so that readers need not replay the log.

        Of a gigantic table, a `runner` reads and writes the manifests.
        """
        self._writable()
        report = ops.checkpoint.write_checkpoint(self.refresh()._snapshot, runner)
        self._bind(reload_from_newest_base(self._snapshot), is_pinned=False)
        return report

    def compact(self, *, runner: Runner | None = None) -> CheckpointReport:
        """Write the state anew, without tombstones and fragments.

        Of a gigantic table, a `runner` reads and writes the manifests.
        """
        self._writable()
        report = ops.checkpoint.compact(self.refresh()._snapshot, runner)
        self.refresh()
        return report

    def merge_splits(
        self,
        target_size: str | int | None = None,
        where: str | Predicate | None = None,
        max_dest_splits: int | None = None,
        max_source_splits_per_merge: int | None = None,
        *,
        runner: Runner | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> MergeReport:
        """Merge the small splits of each partition into larger ones, in one commit that changes no row.

        Splits of `target_size` ("100M" unless the table's settings say otherwise) are left alone. `where` selects
        partitions, `max_dest_splits` limits the new splits, `max_source_splits_per_merge` what becomes one of them.
        Without a `runner`, threads of this process do the work, and `progress` is told how far they have come. See
        `ops.merge.merge_splits` for what happens to splits that cannot be read, and under concurrency.
        """
        self._writable()
        request = ops.merge.MergeRequest(
            target_size, _predicate(where), max_dest_splits, max_source_splits_per_merge
        )
        snapshot = self.refresh()._snapshot
        threads = ops.runner.LocalRunner(snapshot.context.settings[MERGE_PARALLELISM], progress)
        result = ops.merge.merge_splits(snapshot, request, runner or threads)
        self._bind(result.snapshot, is_pinned=False)
        return result.report

    def collect_garbage(self, dry_run: bool = True) -> GarbageReport:
        """Delete, or with `dry_run` only list, files of the log that nothing refers to any more."""
        return ops.purge.collect_garbage(self._snapshot.context, dry_run=dry_run)

    def purge(
        self,
        older_than: Retention | None = None,
        log_retention: Retention | None = None,
        dry_run: bool = True,
        *,
        runner: Runner | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> PurgeReport:
        """Delete, or with `dry_run` only list, splits and files of the log that no version needs any more.

        `older_than` is a text such as "7 days", a timedelta or a number of hours; without it, and without
        `log_retention` for versions and checkpoints, the table's settings decide. See `ops.purge.purge`.
        """
        self._writable()
        context = self._snapshot.context
        threads = ops.runner.LocalRunner(context.settings[PURGE_PARALLELISM], progress)
        report = ops.purge.purge(
            context, older_than, log_retention, dry_run=dry_run, runner=runner or threads
        )
        if not dry_run:
            self.refresh()
        return report

    def truncate_time_travel(self, dry_run: bool = True) -> TruncateReport:
        """Delete, or with `dry_run` only list, all versions before the newest one: they cannot be read any more.

        Splits that only they showed are left for a purge.
        """
        self._writable()
        report = ops.truncate.truncate_time_travel(self._snapshot.context, dry_run=dry_run)
        self.refresh()
        return report

    def drop_partitions(self, where: str | Predicate) -> int:
        """Remove the partitions for which `where` is true, in one commit; returns the version."""
        return self._after(ops.write.drop_partitions(self._writable(), where).snapshot)

    def restore(self, version: int | None = None, timestamp: str | datetime | None = None) -> int:
        """Make the table what it was at a version or a moment in time, as a new commit; returns its version."""
        if (version is None) == (timestamp is None):
            raise InvalidOptionError("restore needs either a version or a timestamp")
        self._writable()
        snapshot = self.refresh()._snapshot
        if version is None:
            assert timestamp is not None  # one of the two is given
            version = version_at(snapshot.context, snapshot.version, timestamp_ms(timestamp))
        return self._after(ops.restore.restore(snapshot, version).snapshot)

    def fsck(self, deep: bool = False, *, progress: Callable[[Progress], None] | None = None) -> FsckReport:
        """Check that every version and every split is there and right; with `deep`, every byte of live splits."""
        context = self._snapshot.context
        threads = ops.runner.LocalRunner(context.settings[READ_PARALLELISM], progress)
        return ops.fsck.fsck(context, deep=deep, runner=threads)

    def repair(
        self,
        target: str | None = None,
        *,
        swap: bool = False,
        log_only: bool = False,
        dry_run: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> RepairReport:
        """Build a new log from everything that can still be read; see `repair_table`, which needs no open table."""
        context = self._snapshot.context
        mode = ops.repair.RepairMode.of(swap=swap, log_only=log_only, dry_run=dry_run)
        report = _repair(context, target, mode, progress)
        if report.location == context.url:
            self._bind(load_snapshot(context), is_pinned=False)
        return report

    def describe_state(self) -> pa.Table:
        """What the table's state looks like: an Arrow table of properties and values."""
        return ops.describe.describe_state(self._snapshot)

    def __repr__(self) -> str:
        return f"IndexTable({self._snapshot.context.url!r}, version={self.version})"

    def _bind(self, snapshot: Snapshot, *, is_pinned: bool) -> None:
        self._snapshot = snapshot
        self._is_pinned = is_pinned

    def _writable(self) -> Snapshot:
        if self._is_pinned:
            raise ReadOnlyTableError(
                f"{self._snapshot.context.url}: this table was opened at version {self.version} and can only be read; "
                f"call refresh(), or open it without a version"
            )
        return self._snapshot

    def _after(self, snapshot: Snapshot) -> int:
        self._bind(snapshot, is_pinned=False)
        return snapshot.version


def repair_table(
    path: str,
    target: str | None = None,
    *,
    swap: bool = False,
    log_only: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RepairReport:
    """Build a new log for a table whose log is damaged or gone, so that it cannot even be opened.

    With a `target` the table is only read: its splits are copied there, and the new log is written beside them; with
    `log_only` just the log. With `swap` the new log takes the place of the old one, which is kept in a folder beside
    it. With `dry_run` nothing is written. The report says what was recovered, what is missing, and what cannot be
    known. See `ops.repair` for guarantees and errors.
    """
    mode = ops.repair.RepairMode.of(swap=swap, log_only=log_only, dry_run=dry_run)
    return _repair(_context(path, storage_options, options), target, mode, progress)


def _repair(
    context: TableContext,
    target: str | None,
    mode: RepairMode,
    progress: Callable[[Progress], None] | None,
) -> RepairReport:
    threads = ops.runner.LocalRunner(context.settings[READ_PARALLELISM], progress)
    if target is None:
        return ops.repair.repair(context, None, mode, threads)
    assert context.location is not None  # tables are opened by a path here
    location = replace(context.location, path=str(target))
    other = TableContext(location.open(), context.settings, location)
    return ops.repair.repair(context, other, mode, threads)


def _context(
    path: str, storage_options: Mapping[str, str] | None, options: Mapping[str, str] | None
) -> TableContext:
    location = StoreLocation.of(path, storage_options=storage_options, options=options)
    return TableContext(location.open(), Settings.resolve(options), location)


def _predicate(where: str | Predicate | None) -> Predicate | None:
    return parse_predicate(where) if isinstance(where, str) else where
