"""`IndexTable`: a table as Python users hold it, and the one façade in front of the operations.

The command line, the SQL statements and Spark use the same methods, or the same functions of `ops`. This module alone
pins and refreshes versions, parses `where`, and chooses a runner. `ops` imports an operation when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from indextables import ops
from indextables.config import Settings
from indextables.config.registry import MERGE_PARALLELISM, PURGE_PARALLELISM, READ_PARALLELISM
from indextables.errors import InvalidOptionError
from indextables.log.actions import AddAction, Metadata, Protocol
from indextables.predicates import Predicate, parse_predicate
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
from indextables.table.history import version_at, version_before_changes
from indextables.table.load import catch_up, reload_from_newest_base

if TYPE_CHECKING:
    from indextables.config.setting import Setting
    from indextables.ops.checkpoint import CheckpointResult
    from indextables.ops.fsck import FsckResult
    from indextables.ops.merge import MergeResult
    from indextables.ops.purge import GarbageResult, PurgeResult, Retention
    from indextables.ops.repair import RepairRequest, RepairResult
    from indextables.ops.runner import Progress, Runner
    from indextables.ops.search import Highlighter
    from indextables.ops.truncate import TruncateResult
    from indextables.search import Histogram, Metric, Terms


class IndexTable:
    """A table at one version.

    The object stays at its version until `refresh()`, or until it commits a change itself. A table that was opened at
    an older version is read-only until `refresh()`.

    Args:
        path: The table: a local directory, or an s3://, abfss:// or gs:// URL.
        version: The version to open; the newest one by default.
        timestamp: Open the version that was the newest one at this moment: a datetime, or ISO 8601 text.
        storage_options: Settings and credentials of the object store, such as `aws_region`.
        options: Settings, as docs/configuration.md lists them.

    Raises:
        TableNotFoundError: There is no table at `path`.
        VersionNotFoundError: The version, or the version at the timestamp, can no longer be read.
        InvalidOptionError: Both `version` and `timestamp` are given, or an option is invalid.
        LogCorruptedError: The log cannot be read; see `repair_table`.

    Example:
        >>> from indextables import IndexTable
        >>> IndexTable("logs").num_rows
        4
        >>> IndexTable("logs", version=1).num_rows
        2
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
        """Create a table, or open the existing one if its definition is the same.

        Args:
            path: The table: a local directory, or an s3://, abfss:// or gs:// URL.
            schema: The columns of the table.
            partition_by: The columns to partition by, in order.
            text: The string columns to tokenize for full-text search. Other string columns match as a whole.
            properties: Settings that are stored in the table.
            storage_options: Settings and credentials of the object store.
            options: Settings of this object. Index settings among them are stored in the table, too.

        Returns:
            The table, at its newest version.

        Raises:
            InvalidSchemaError: A column has an unsupported type, or a named column does not exist.
            TableAlreadyExistsError: There is a table with another definition.
            UnsupportedStoreError: The store cannot write an object only if it is absent.

        Example:
            >>> schema = pa.schema([("date", pa.string()), ("message", pa.string())])
            >>> IndexTable.create("events", schema, partition_by=["date"], text=["message"]).version
            0
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
        return cls._of(snapshot)

    @classmethod
    def _of(cls, snapshot: Snapshot) -> IndexTable:
        table = cls.__new__(cls)
        table._bind(snapshot, is_pinned=False)
        return table

    # --- The table at this version -------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version that this object shows."""
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._snapshot.schema

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by, in order."""
        return list(self._snapshot.partition_columns)

    @property
    def protocol(self) -> Protocol:
        """The protocol versions and features that readers and writers must support."""
        return self._snapshot.protocol

    @property
    def metadata(self) -> Metadata:
        """The id, schema, partitioning and properties of the table."""
        return self._snapshot.metadata

    @property
    def num_files(self) -> int:
        """The number of live splits."""
        return self._snapshot.num_files

    @property
    def num_rows(self) -> int | None:
        """The number of rows; None if a split does not record it."""
        return self._snapshot.num_rows

    @property
    def total_bytes(self) -> int:
        """The size of all live splits."""
        return self._snapshot.total_bytes

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot behind this object, as the functions of `indextables.ops` take it."""
        return self._snapshot

    def files(self, where: str | Predicate | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """List the live splits. Only the log is read.

        Args:
            where: Leave out splits that cannot contain a row for which this predicate is true.
            columns: The columns of a file entry to return; all by default.

        Returns:
            An Arrow table with one row per split.

        Raises:
            InvalidPredicateError: `where` is not a predicate over columns of the table.

        Example:
            >>> table.files(where="date = '2026-01-31'", columns=["numRecords"]).to_pylist()
            [{'numRecords': 2}]
        """
        return self.select_files(where, columns).entries

    def select_files(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> FileSelection:
        """List the live splits as `files` does, and count what was skipped at each level.

        Args:
            where: Leave out splits that cannot contain a row for which this predicate is true.
            columns: The columns of a file entry to return; all by default.

        Returns:
            The splits (`entries`), and how many manifests and splits were skipped.

        Raises:
            InvalidPredicateError: `where` is not a predicate over columns of the table.

        Example:
            >>> table.select_files(where="date = '2026-01-31'").entries.num_rows
            1
        """
        return self._snapshot.select(_predicate(where), columns)

    def scan(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Stream the rows for which a predicate is true, in bounded memory.

        Args:
            where: A predicate in SQL, such as "level = 'ERROR'"; all rows by default.
            columns: The columns to return; all by default.

        Returns:
            A reader of Arrow batches.

        Raises:
            InvalidPredicateError: `where` is not a predicate over columns of the table.
            InvalidSchemaError: A column does not exist.

        Example:
            >>> sum(batch.num_rows for batch in table.scan(where="level = 'ERROR'"))
            2
        """
        return ops.read.scan(self._snapshot, _predicate(where), columns)

    def to_arrow(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read the rows for which a predicate is true into one Arrow table.

        Args:
            where: A predicate in SQL; all rows by default.
            columns: The columns to return; all by default.

        Returns:
            The rows.

        Raises:
            InvalidPredicateError: `where` is not a predicate over columns of the table.
            InvalidSchemaError: A column does not exist.

        Example:
            >>> table.to_arrow(where="date = '2026-01-31'", columns=["message"])["message"].to_pylist()
            ['request timeout', 'request done']
        """
        return self.scan(where, columns).read_all()

    def search(
        self,
        query: str,
        where: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        limit: int = 10,
        fields: Sequence[str] = (),
    ) -> pa.Table:
        """Return the best rows for a full-text query, best first.

        Args:
            query: Terms, phrases, ranges and fields, such as 'message:timeout AND level:ERROR'; docs/search.md.
            where: Only rows for which this predicate is true.
            columns: The columns to return; all by default.
            limit: The most rows to return.
            fields: The columns to search for terms without a field; all text columns by default.

        Returns:
            The rows, with the score in the last column, `_score`.

        Raises:
            InvalidQueryError: The query cannot be parsed, or does not fit the table.
            InvalidPredicateError: `where` is not a predicate over columns of the table.

        Example:
            >>> found = table.search("message:timeout AND level:ERROR", columns=["message"], limit=1)
            >>> found.column_names
            ['message', '_score']
        """
        request = ops.search.SearchRequest.of(self._snapshot, query, _predicate(where), fields)
        return ops.search.search(self._snapshot, request, columns, limit)

    def highlighter(self, query: str, fields: Sequence[str] = ()) -> Highlighter:
        """Return a highlighter, which finds the terms of a query in the texts of rows.

        Args:
            query: A full-text query, as for `search`.
            fields: The columns to search for terms without a field.

        Returns:
            The highlighter for the query, by the index settings of the table.

        Raises:
            InvalidQueryError: The query cannot be parsed.

        Example:
            >>> [span] = table.highlighter("timeout").spans("message", "request timeout")
            >>> (span.start, span.end)
            (8, 15)
        """
        return ops.search.Highlighter.of(self._snapshot, query, fields)

    def count(
        self,
        query: str | None = None,
        where: str | Predicate | None = None,
        fields: Sequence[str] = (),
    ) -> int:
        """Count the rows that match a query and a predicate. The log alone answers where it can.

        Args:
            query: A full-text query, as for `search`; all rows by default.
            where: Only rows for which this predicate is true.
            fields: The columns to search for terms without a field.

        Returns:
            The number of rows.

        Raises:
            InvalidQueryError: The query cannot be parsed, or does not fit the table.
            InvalidPredicateError: `where` is not a predicate over columns of the table.

        Example:
            >>> table.count("timeout"), table.count(where="date = '2026-01-31'")
            (2, 2)
        """
        request = ops.search.SearchRequest.of(self._snapshot, query, _predicate(where), fields)
        return ops.search.count(self._snapshot, request)

    def aggregate(
        self,
        metrics: Sequence[str | Metric] = ("count",),
        by: str | Terms | Histogram | None = None,
        query: str | None = None,
        where: str | Predicate | None = None,
        fields: Sequence[str] = (),
    ) -> pa.Table:
        """Compute metrics over the matching rows, or over groups of them, from the indexes.

        Args:
            metrics: Metrics such as "count" or "max(price)".
            by: A column to group by, or a `Terms` or `Histogram`.
            query: A full-text query, as for `search`; all rows by default.
            where: Only rows for which this predicate is true.
            fields: The columns to search for terms without a field.

        Returns:
            One row of metrics, or one row per group.

        Raises:
            InvalidAggregationError: A metric or a group does not fit the columns of the table.
            InvalidQueryError: The query cannot be parsed, or does not fit the table.
            InvalidPredicateError: `where` is not a predicate over columns of the table.

        Example:
            >>> table.aggregate(["count"], by="level").to_pylist()
            [{'level': 'ERROR', 'count': 2}, {'level': 'INFO', 'count': 2}]
        """
        request = ops.search.SearchRequest.of(self._snapshot, query, _predicate(where), fields)
        return ops.search.aggregate(self._snapshot, request, metrics, by)

    def history(self, limit: int | None = None) -> pa.Table:
        """List the commits that the log still holds, newest first.

        Args:
            limit: The most commits to return.

        Returns:
            An Arrow table with one row per commit; DESCRIBE INDEXTABLES HISTORY in docs/sql.md lists its columns.

        Example:
            >>> table.history()["operation"].to_pylist()
            ['WRITE', 'WRITE', 'CREATE TABLE']
        """
        return ops.describe.describe_history(self._snapshot, limit)

    def changes(
        self, since_version: int | None = None, since_timestamp: str | datetime | None = None
    ) -> ChangeSet:
        """Return the splits that were added and removed after a version or a moment, up to this version.

        Args:
            since_version: The version to start after; -1 returns all changes.
            since_timestamp: The moment to start after: a datetime, or ISO 8601 text.

        Returns:
            The changes: `adds` and `removes` as Arrow tables, and `version`.

        Raises:
            InvalidOptionError: Not exactly one of the two is given.
            VersionNotFoundError: The log no longer reaches back that far.

        Example:
            >>> table.changes(since_version=1).adds.num_rows
            1
        """
        if (since_version is None) == (since_timestamp is None):
            raise InvalidOptionError("changes need either since_version or since_timestamp")
        if since_version is None:
            assert since_timestamp is not None  # one of the two is given
            context = self._snapshot.context
            since_version = version_before_changes(context, self.version, timestamp_ms(since_timestamp))
        return changes_since(self._snapshot, since_version)

    def describe_state(self) -> pa.Table:
        """Describe the state of the log: its format, size, and whether it needs compaction.

        Returns:
            An Arrow table with the columns `property` and `value`.

        Example:
            >>> dict(zip(*table.describe_state().to_pydict().values()))["numFiles"]
            '2'
        """
        return ops.describe.describe_state(self._snapshot)

    def describe_log(self, include_all: bool = False) -> pa.Table:
        """List the actions of the log, in order. Credentials in the table's properties are not shown.

        Args:
            include_all: Whether to list all version files, not only those after the checkpoint.

        Returns:
            An Arrow table with one row per action; DESCRIBE INDEXTABLES TRANSACTION LOG in docs/sql.md lists its
            columns.

        Raises:
            LogCorruptedError: The checkpoint, or without `include_all` a version, cannot be read.

        Example:
            >>> table.describe_log()["action"].to_pylist()[:3]
            ['protocol', 'metaData', 'commitInfo']
        """
        return ops.describe.describe_log(self._snapshot, include_all=include_all)

    def fsck(
        self,
        deep: bool = False,
        *,
        runner: Runner | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> FsckResult:
        """Check every version, checkpoint and split of the table. Nothing is changed.

        Args:
            deep: Whether to read every byte of the live splits.
            runner: Executes the tasks; threads of this process by default.
            progress: Called with the progress of the threads.

        Returns:
            The findings, the worst first.

        Raises:
            LogCorruptedError: Not even the newest version can be read.

        Example:
            >>> table.fsck(deep=True).is_clean
            True
        """
        context = self._snapshot.context
        return ops.fsck.fsck(context, _runner(context, READ_PARALLELISM, runner, progress), deep=deep)

    def refresh(self) -> IndexTable:
        """Go to the newest version.

        Returns:
            The same object.

        Example:
            >>> IndexTable("logs", version=1).refresh().version
            2
        """
        self._bind(catch_up(self._snapshot).snapshot, is_pinned=False)
        return self

    # --- Changes -------------------------------------------------------------------------------------

    def append(self, data: pa.Table | pa.RecordBatchReader) -> int:
        """Write rows as new splits, and add them in one commit.

        Args:
            data: The rows. Columns match by name; missing columns are null. Without rows nothing is committed.

        Returns:
            The version of the commit.

        Raises:
            InvalidSchemaError: Columns do not fit the table. Nothing was written.
            InvalidValueError: Values do not fit their columns.
            CommitConflictError: Another commit changed the schema or the index settings.

        Example:
            >>> table.append(pa.table({"date": ["2026-02-01"], "level": ["WARN"], "message": ["slow request"]}))
            3
        """
        return self._after(ops.write.append(self._writable(), data).snapshot)

    def overwrite(self, data: pa.Table | pa.RecordBatchReader, where: str | Predicate | None = None) -> int:
        """Replace all rows, or the rows of the partitions that a predicate selects, in one commit.

        Args:
            data: The rows, as for `append`. With `where`, all of them must belong to the selected partitions.
            where: A predicate over partition columns.

        Returns:
            The version of the commit.

        Raises:
            InvalidPredicateError: `where` needs more than partition columns.
            InvalidValueError: A row belongs to a partition that `where` does not select.
            InvalidSchemaError: Columns do not fit the table.

        Example:
            >>> rows = pa.table({"date": ["2026-01-31"], "level": ["INFO"], "message": ["rewritten"]})
            >>> table.overwrite(rows, where="date = '2026-01-31'")
            3
        """
        return self._after(ops.write.overwrite(self._writable(), data, _predicate(where)).snapshot)

    def commit(self, adds: Sequence[AddAction] = (), removes: Sequence[str] = ()) -> int:
        """Commit splits that were written elsewhere, and remove splits by path. Only the log is written.

        Removes alone skip splits that are not live. Adds and removes together replace splits: they succeed only if all
        of `removes` are live, because another writer may have replaced the same splits, and rows would be duplicated.

        Args:
            adds: The splits to add.
            removes: The paths of the splits to remove.

        Returns:
            The version of the commit.

        Raises:
            InvalidActionError: There are neither adds nor removes, or an add is invalid.
            CommitConflictError: A split to replace is not live. Nothing was committed.

        Example:
            >>> table.commit(removes=table.files()["path"].to_pylist()[:1])
            3
        """
        return self._after(ops.write.commit_files(self._writable(), adds, removes).snapshot)

    def drop_partitions(self, where: str | Predicate) -> int:
        """Remove the partitions for which a predicate is true, in one commit.

        The files stay in the store until `purge`, so `restore` can undo the drop.

        Args:
            where: A predicate over partition columns.

        Returns:
            The version of the commit, or the newest version if no partition matches.

        Raises:
            InvalidPredicateError: `where` needs more than partition columns.
            CommitConflictError: Another commit changed the table's metadata.

        Example:
            >>> table.drop_partitions("date < '2026-01-31'")
            3
        """
        return self._after(ops.write.drop_partitions(self._writable(), where).snapshot)

    def set_properties(self, properties: Mapping[str, str | None]) -> int:
        """Set table properties.

        Args:
            properties: The properties to set; None removes a property.

        Returns:
            The version of the commit.

        Raises:
            InvalidOptionError: A property is reserved, or a setting has an invalid value.
            CommitConflictError: Another commit changed the same property.

        Example:
            >>> table.set_properties({"spark.indextables.checkpoint.interval": "20"})
            3
        """
        return self._after(ops.write.set_properties(self._writable(), properties).snapshot)

    def upgrade_protocol(self, reader_version: int, writer_version: int) -> int:
        """Require at least these protocol versions of readers and writers. Versions are never lowered.

        Args:
            reader_version: The protocol version that readers must support.
            writer_version: The protocol version that writers must support.

        Returns:
            The version of the commit.

        Raises:
            InvalidOptionError: This release does not support a version itself.

        Example:
            >>> table.upgrade_protocol(4, 4) >= 2
            True
        """
        result = ops.write.upgrade_protocol(self._writable(), reader_version, writer_version)
        return self._after(result.snapshot)

    def restore(self, version: int | None = None, timestamp: str | datetime | None = None) -> int:
        """Make the table what it was at an older version, as a new commit. The history stays.

        Args:
            version: The version to restore.
            timestamp: Restore the version of this moment: a datetime, or ISO 8601 text.

        Returns:
            The version of the commit, or the newest version if nothing differs.

        Raises:
            InvalidOptionError: Not exactly one of the two is given.
            VersionNotFoundError: The version can no longer be read.
            SplitsMissingError: Splits of the version were purged.

        Example:
            >>> table.restore(version=1), table.num_rows
            (3, 2)
        """
        request = ops.restore.RestoreRequest(version, timestamp)
        return self._after(ops.restore.restore(self._newest(), request).snapshot)

    # --- Maintenance ---------------------------------------------------------------------------------

    def checkpoint(self, *, runner: Runner | None = None) -> CheckpointResult:
        """Write a checkpoint of the newest version, so that readers need not replay the log.

        Args:
            runner: Reads and writes the manifests of very large tables; this process by default.

        Returns:
            The version, format and size of the checkpoint.

        Raises:
            LogCorruptedError: A part of the table cannot be read. No checkpoint was written.

        Example:
            >>> table.checkpoint().new_format
            'avro-state'
        """
        snapshot = self._newest()
        result = ops.checkpoint.write_checkpoint(snapshot, runner)
        self._bind(reload_from_newest_base(snapshot), is_pinned=False)
        return result

    def compact(self, *, runner: Runner | None = None) -> CheckpointResult:
        """Rewrite the state without tombstones and fragments. A compact state stays as it is.

        Args:
            runner: Reads and writes the manifests of very large tables; this process by default.

        Returns:
            The version, format and size of the checkpoint.

        Raises:
            LogCorruptedError: A part of the table cannot be read. No state was written.

        Example:
            >>> table.compact().num_files
            2
        """
        result = ops.checkpoint.compact(self._newest(), runner)
        self.refresh()
        return result

    def merge_splits(
        self,
        target_size: str | int | None = None,
        where: str | Predicate | None = None,
        max_dest_splits: int | None = None,
        max_source_splits_per_merge: int | None = None,
        *,
        runner: Runner | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> MergeResult:
        """Merge the small splits of each partition into larger ones, in one commit that changes no row.

        Args:
            target_size: Splits of this size are left alone: bytes, or a text such as "100M".
            where: A predicate over partition columns that selects the partitions to merge.
            max_dest_splits: The most new splits to write.
            max_source_splits_per_merge: The most splits that become one.
            runner: Executes the tasks; threads of this process by default.
            progress: Called with the progress of the threads.

        Returns:
            What was merged, what was skipped, and why.

        Raises:
            InvalidOptionError: A size or a limit is invalid.
            InvalidPredicateError: `where` needs more than partition columns.
            CommitConflictError: Another commit changed the schema or the index settings.

        Example:
            >>> version = table.append(table.to_arrow(where="date = '2026-01-31'"))
            >>> merged = table.merge_splits(target_size="1G")
            >>> (merged.source_splits, merged.new_splits)
            (2, 1)
        """
        request = ops.merge.MergeRequest(
            target_size, _predicate(where), max_dest_splits, max_source_splits_per_merge
        )
        snapshot = self._newest()
        chosen = _runner(snapshot.context, MERGE_PARALLELISM, runner, progress)
        result = ops.merge.merge_splits(snapshot, request, chosen)
        self._bind(result.snapshot, is_pinned=False)
        return result

    def purge(
        self,
        older_than: Retention | None = None,
        log_retention: Retention | None = None,
        dry_run: bool = True,
        *,
        runner: Runner | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> PurgeResult:
        """Delete old splits and log files that no retained version refers to.

        Args:
            older_than: Keep splits for this long: a text such as "7 days", a timedelta or a number of hours.
            log_retention: Keep versions and checkpoints for this long. By default, the settings decide on both.
            dry_run: Whether to list the files without deleting them.
            runner: Executes the tasks; threads of this process by default.
            progress: Called with the progress of the threads.

        Returns:
            The files, and what became of each.

        Raises:
            InvalidOptionError: A retention is too short.
            ClockSkewError: The clocks of this machine and of the store differ too much. Nothing was deleted.
            LogCorruptedError: The log cannot be read completely. Nothing was deleted.

        Example:
            >>> table.purge("7 days", dry_run=True).num_files
            0
        """
        snapshot = self._newest()
        chosen = _runner(snapshot.context, PURGE_PARALLELISM, runner, progress)
        request = ops.purge.PurgeRequest(older_than, log_retention, dry_run)
        result = ops.purge.purge(snapshot, request, chosen)
        if not dry_run:
            self.refresh()
        return result

    def collect_garbage(self, dry_run: bool = True) -> GarbageResult:
        """Delete log files that no checkpoint refers to.

        Args:
            dry_run: Whether to list the files without deleting them.

        Returns:
            The files.

        Raises:
            LogCorruptedError: A checkpoint cannot be read. Nothing was deleted.

        Example:
            >>> table.collect_garbage(dry_run=True).paths
            ()
        """
        return ops.purge.collect_garbage(self._snapshot, dry_run=dry_run)

    def truncate_time_travel(
        self,
        dry_run: bool = True,
        *,
        runner: Runner | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> TruncateResult:
        """Delete all versions before the newest one. The splits of older versions stay until `purge`.

        Args:
            dry_run: Whether to list the files without deleting them.
            runner: Executes the tasks; threads of this process by default.
            progress: Called with the progress of the threads.

        Returns:
            The files.

        Raises:
            LogGapError: A version is missing. Nothing was deleted.
            StorageError: A file could not be deleted. The newest version is intact.

        Example:
            >>> table.truncate_time_travel(dry_run=True).num_versions
            2
        """
        snapshot = self._newest()
        chosen = _runner(snapshot.context, PURGE_PARALLELISM, runner, progress)
        result = ops.truncate.truncate_time_travel(snapshot, chosen, dry_run=dry_run)
        self.refresh()
        return result

    def repair(
        self,
        target: str | None = None,
        *,
        swap: bool = False,
        log_only: bool = False,
        dry_run: bool = False,
        runner: Runner | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> RepairResult:
        """Build a new log from everything that can still be read.

        `repair_table` does the same for a table that cannot be opened, and documents the arguments.

        Args:
            target: The path or URL of the repaired table.
            swap: Whether to replace the old log.
            log_only: Whether to write only the new log to `target`.
            dry_run: Whether to report without writing.
            runner: Executes the tasks; threads of this process by default.
            progress: Called with the progress of the threads.

        Returns:
            What was recovered, what is missing, and what is undecided.

        Raises:
            InvalidOptionError: The arguments contradict each other.
            TableAlreadyExistsError: `target` has a log already.

        Example:
            >>> table.repair(dry_run=True).num_files
            2
        """
        context = self._snapshot.context
        mode = ops.repair.RepairMode.of(swap=swap, log_only=log_only, dry_run=dry_run)
        result = repair_context(context, ops.repair.RepairRequest(target, mode), runner, progress)
        if result.location == context.url:
            self._bind(load_snapshot(context), is_pinned=False)
        return result

    def __repr__(self) -> str:
        return f"IndexTable({self._snapshot.context.url!r}, version={self.version})"

    def _bind(self, snapshot: Snapshot, *, is_pinned: bool) -> None:
        self._snapshot = snapshot
        self._is_pinned = is_pinned

    def _writable(self) -> Snapshot:
        if self._is_pinned:
            raise InvalidOptionError(
                f"{self._snapshot.context.url}: this object shows version {self.version} and can only be read; "
                f"call refresh(), or open the table without a version"
            )
        return self._snapshot

    def _newest(self) -> Snapshot:
        """The newest snapshot, for operations that plan on it. The object itself stays at its version."""
        self._writable()
        return catch_up(self._snapshot).snapshot

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
    runner: Runner | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RepairResult:
    """Build a new log for a table whose log is damaged or gone.

    With a `target`, the table is only read: its splits are copied to the target, and the new log is written there.
    Without one, `swap` or `dry_run` is needed, unless the table has no log at all.

    Args:
        path: The damaged table.
        target: The path or URL of the repaired table.
        swap: Whether to replace the old log, which is kept in a folder beside the new one.
        log_only: Whether to write only the new log to `target`, and copy no splits.
        dry_run: Whether to report without writing.
        storage_options: Settings and credentials of the object store.
        options: Settings, as docs/configuration.md lists them.
        runner: Executes the tasks; threads of this process by default.
        progress: Called with the progress of the threads.

    Returns:
        What was recovered, what is missing, and what is undecided.

    Raises:
        InvalidOptionError: The arguments contradict each other.
        TableNotFoundError: There is neither a log nor a split at `path`.
        LogCorruptedError: Neither the log nor the splits tell the schema.
        TableAlreadyExistsError: `target` has a log already.

    Example:
        >>> from indextables import repair_table
        >>> repair_table("logs", "logs-repaired").num_files
        2
    """
    context = _context(path, storage_options, options)
    mode = ops.repair.RepairMode.of(swap=swap, log_only=log_only, dry_run=dry_run)
    return repair_context(context, ops.repair.RepairRequest(target, mode), runner, progress)


def open_context(context: TableContext) -> IndexTable:
    """The newest version of a table, for callers that resolve its location and settings themselves."""
    return IndexTable._of(load_snapshot(context))


def repair_context(
    context: TableContext,
    request: RepairRequest,
    runner: Runner | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RepairResult:
    """Repair a table, for callers that resolve its location and settings themselves."""
    return ops.repair.repair(context, request, _runner(context, READ_PARALLELISM, runner, progress))


def _context(
    path: str, storage_options: Mapping[str, str] | None, options: Mapping[str, str] | None
) -> TableContext:
    location = StoreLocation.of(path, storage_options=storage_options, options=options)
    return TableContext(location.open(), Settings.resolve(options), location)


def _predicate(where: str | Predicate | None) -> Predicate | None:
    return parse_predicate(where) if isinstance(where, str) else where


def _runner(
    context: TableContext,
    parallelism: Setting[int],
    runner: Runner | None,
    progress: Callable[[Progress], None] | None,
) -> Runner:
    """The caller's runner, or threads of this process."""
    return runner or ops.runner.local_runner(context, parallelism, progress)
