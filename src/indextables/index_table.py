"""`IndexTable`: a table as Python users hold it, and the one façade in front of the operations.

The command line, the SQL statements and Spark use the same methods, or the same functions of `ops`. The
methods that only read are in `table_reader`, those that delete and update rows in `table_writer`, and those that change
columns in `table_columns`. `ops` imports an
operation when it is first used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indextables import ops
from indextables._public import public_methods
from indextables._row_progress import showing_rows
from indextables.config.registry import MERGE_PARALLELISM, PURGE_PARALLELISM
from indextables.errors import InvalidOptionError
from indextables.log.actions import AddAction
from indextables.predicates import Predicate
from indextables.predicates.literals import timestamp_ms
from indextables.schema.python_data import as_arrow
from indextables.table import Snapshot, TableContext, create_table, load_snapshot
from indextables.table.history import version_at
from indextables.table.load import catch_up
from indextables.table_columns import TableSchemaWriter
from indextables.table_reader import as_predicate, choose_runner
from indextables.table_repair import as_path, repair_context

if TYPE_CHECKING:
    from indextables.ops.checkpoint import CheckpointResult
    from indextables.ops.merge import MergeResult
    from indextables.ops.publish import PublishResult
    from indextables.ops.purge import GarbageResult, PurgeResult, Retention
    from indextables.ops.repair import RepairResult
    from indextables.ops.runner import Progress, Runner
    from indextables.ops.truncate import TruncateResult


@public_methods
class IndexTable(TableSchemaWriter):
    """A table at one version.

    The object stays at its version until `refresh()`, or until it commits a change itself. A table that was opened at
    an older version is read-only until `refresh()`. Unpickling a table opens the same version with the same options.

    Args:
        path: The table: a local directory, or an s3://, abfss://, gs:// or hdfs:// URL.
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
        path: str | os.PathLike[str],
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if version is not None and timestamp is not None:
            raise InvalidOptionError("give a version or a timestamp, not both")
        context = TableContext.at(path, storage_options, options)
        if timestamp is not None:
            newest = load_snapshot(context)
            version = version_at(context, newest.version, timestamp_ms(timestamp))
        self._bind(load_snapshot(context, version), is_pinned=version is not None)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        *,
        partition_by: str | Sequence[str] = (),
        text: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> IndexTable:
        """Create a table, or open the existing one if its definition is the same.

        Args:
            path: The table: a local directory, or an s3://, abfss://, gs:// or hdfs:// URL.
            schema: The columns of the table.
            partition_by: The columns to partition by, in order: a name, or several.
            text: The string columns to tokenize for full-text search: a name, or several. Other string columns match as
                a whole.
            properties: Settings that are stored in the table.
            name: A name of the new table, for its readers. An existing table keeps its own.
            description: A description of the new table, likewise.
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
        context = TableContext.at(path, storage_options, options)
        snapshot = create_table(
            context,
            schema,
            one_or_several(partition_by),
            {
                **ops.write.indexing_properties(options or {}),
                **(properties or {}),
                **ops.write.text_properties(schema, one_or_several(text)),
            },
            **ops.write.checked_metadata(name, description),
        )
        return cls._of(snapshot)

    @classmethod
    def _of(cls, snapshot: Snapshot) -> IndexTable:
        table = cls.__new__(cls)
        table._bind(snapshot, is_pinned=False)
        return table

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

    def append(self, data: Any, *, merge_schema: bool = False, progress: bool = False) -> int:
        """Write rows as new splits, and add them in one commit.

        Args:
            data: The rows: a pandas or Polars DataFrame, a DuckDB relation, a list of dicts, a dict of columns, a
                pyarrow Table or RecordBatchReader, or any object with the Arrow PyCapsule interface. Columns match by
                name; missing columns are null. Without rows nothing is committed.
            merge_schema: Whether to add columns, and members of structs, that the table does not have, in the same
                commit. They are null in the rows that are there.
            progress: Whether to show a bar on stderr: rows, rate, share and time left.

        Returns:
            The version of the commit.

        Raises:
            InvalidSchemaError: Columns do not fit the table. Nothing was written.
            InvalidOptionError: The data is of an unknown kind.
            InvalidValueError: Values do not fit their columns.
            CommitConflictError: Another commit changed the schema or the index settings.

        Example:
            >>> table.append(pa.table({"date": ["2026-02-01"], "level": ["WARN"], "message": ["slow request"]}))
            3
        """
        write = ops.write.append_with_new_columns if merge_schema else ops.write.append
        with showing_rows(as_arrow(data), is_shown=progress) as rows:
            return self._after(write(self._writable(), rows).snapshot)

    def overwrite(self, data: Any, where: str | Predicate | None = None) -> int:
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
        return self._after(
            ops.write.overwrite(self._writable(), as_arrow(data), as_predicate(where)).snapshot
        )

    def commit(self, adds: Sequence[AddAction] = (), removes: Sequence[str] = ()) -> int:
        """Commit splits that were written elsewhere, and remove splits by path. Only the log is written.

        Removes alone skip splits that are not live. Adds and removes together replace splits: they succeed only if all
        of `removes` are live, because another writer may have replaced the same splits, and rows would be duplicated.
        Splits must have been written for this table: readers find columns by the field ids of this table.

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

    def set_metadata(self, *, name: str | None = None, description: str | None = None) -> int:
        """Set the name and the description of the table, which `metadata` and DESCRIBE show.

        Args:
            name: The name; None leaves it as it is, and an empty text removes it.
            description: The description, likewise.

        Returns:
            The version of the commit, or the newest version if nothing differs.

        Raises:
            InvalidOptionError: A value is not a text.
            CommitConflictError: Another commit changed the same one.

        Example:
            >>> table.set_metadata(name="logs", description="Logs of the web servers"), table.metadata.name
            (3, 'logs')
        """
        return self._after(ops.write.set_metadata(self._writable(), name, description).snapshot)

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
            >>> table.upgrade_protocol(5, 5) >= 2
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
        """Write a checkpoint of the newest version, and clean up the log files past their retention that it covers.

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
        result = ops.checkpoint.checkpoint_with_cleanup(self._newest(), runner)
        self.refresh()
        return result

    def compact(self, *, runner: Runner | None = None) -> CheckpointResult:
        """Rewrite the state, sorted by partition, without tombstones and fragments, and clean up as `checkpoint` does.

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
        result = ops.checkpoint.compact_with_cleanup(self._newest(), runner)
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
            target_size, as_predicate(where), max_dest_splits, max_source_splits_per_merge
        )
        snapshot = self._newest()
        chosen = choose_runner(snapshot.context, MERGE_PARALLELISM, runner, progress)
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
        chosen = choose_runner(snapshot.context, PURGE_PARALLELISM, runner, progress)
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

    def publish(self, format: str = "delta") -> PublishResult:  # noqa: A002  # as in SQL
        """Bring a log of another format in the table's folder up to date: other engines read the same files.

        The setting `publish.delta.enabled` publishes after every commit.

        Args:
            format: "delta", for Delta Lake.

        Returns:
            The published versions. They have the same numbers in both logs.

        Raises:
            InvalidOptionError: There is no such format.
            NotPublishableError: The table has something that the format does not, such as splits of the JVM.
            PublishedLogChangedError: Another engine, or another table, has written to the published log.

        Example:
            >>> table.publish("delta").message
            'versions 0 to 2 are published as delta'
        """
        known = [known.value for known in ops.publish.PublishFormat]
        if format not in known:
            raise InvalidOptionError(
                f"a table cannot be published as {format!r}; known formats: {', '.join(known)}"
            )
        request = ops.publish.PublishRequest(ops.publish.PublishFormat(format))
        return ops.publish.publish(self._newest(), request)

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
        chosen = choose_runner(snapshot.context, PURGE_PARALLELISM, runner, progress)
        result = ops.truncate.truncate_time_travel(snapshot, chosen, dry_run=dry_run)
        self.refresh()
        return result

    def repair(
        self,
        target: str | os.PathLike[str] | None = None,
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
        result = repair_context(context, ops.repair.RepairRequest(as_path(target), mode), runner, progress)
        if result.location == context.url:
            self._bind(load_snapshot(context), is_pinned=False)
        return result


def one_or_several(names: str | Sequence[str]) -> tuple[str, ...]:
    """The names of columns, of which one may be given alone."""
    return (names,) if isinstance(names, str) else tuple(names)


def table_at(snapshot: Snapshot) -> IndexTable:
    """The table of a snapshot, for callers that have committed to it."""
    return IndexTable._of(snapshot)


def open_context(context: TableContext) -> IndexTable:
    """The newest version of a table, for callers that resolve its location and settings themselves."""
    return IndexTable._of(load_snapshot(context))
