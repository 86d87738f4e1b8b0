"""`IndexTable`: what a Python user holds. Thin: it delegates, and has no logic of its own."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from indextables.config import Settings
from indextables.errors import InvalidOptionError
from indextables.log.actions import AddAction, Metadata, Protocol
from indextables.ops.checkpoint import CheckpointReport, compact, write_checkpoint
from indextables.ops.describe import describe_state
from indextables.ops.garbage import GarbageReport, collect_garbage
from indextables.ops.properties import indexing_properties, set_properties, text_properties, upgrade_protocol
from indextables.ops.read import scan
from indextables.ops.search import Highlighter, Question, aggregate, count, search
from indextables.ops.write import append, commit_files, overwrite
from indextables.predicates import Predicate, parse_predicate
from indextables.search import Aggregation, Histogram, Metric, Terms
from indextables.storage import open_store
from indextables.table import (
    ChangeSet,
    FileSelection,
    Snapshot,
    TableContext,
    changes_since,
    create_table,
    load_snapshot,
)
from indextables.table.catch_up import catch_up
from indextables.table.history import history_table, read_commits, version_at
from indextables.table.moments import timestamp_ms
from indextables.table.rebase import rebase


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
    ) -> "IndexTable":
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
                **indexing_properties(options or {}),
                **(properties or {}),
                **text_properties(schema, text),
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
    def protocol(self) -> Protocol:
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
        return self._snapshot.select(_predicate(where), columns)

    def scan(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """The rows for which `where` is true, as a stream of batches."""
        return scan(self._snapshot, _predicate(where), columns)

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
        question = Question.of(self._snapshot, query, _predicate(where), fields)
        return search(self._snapshot, question, columns, limit)

    def highlighter(self, query: str, fields: Sequence[str] = ()) -> Highlighter:
        """Finds the words of a query in the texts of rows, for showing them to people."""
        return Highlighter.of(self._snapshot, query, fields)

    def count(
        self,
        query: str | None = None,
        where: str | Predicate | None = None,
        fields: Sequence[str] = (),
    ) -> int:
        """How many rows match a query and a predicate; `fields` as for `search`."""
        return count(self._snapshot, Question.of(self._snapshot, query, _predicate(where), fields))

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
        aggregation = Aggregation(
            tuple(metric if isinstance(metric, Metric) else Metric.parse(metric) for metric in metrics),
            Terms(by) if isinstance(by, str) else by,
        )
        question = Question.of(self._snapshot, query, _predicate(where), fields)
        return aggregate(self._snapshot, question, aggregation)

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits that the log still holds, newest first."""
        commits = read_commits(self._snapshot.context, self.version)
        return history_table(commits if limit is None else commits[-limit:] if limit > 0 else [])

    def changes(
        self, since_version: int | None = None, since_timestamp: str | datetime | None = None
    ) -> ChangeSet:
        """What was added and removed after a version or a moment in time, up to this version."""
        if (since_version is None) == (since_timestamp is None):
            raise InvalidOptionError("changes need either since_version or since_timestamp")
        if since_version is None:
            assert since_timestamp is not None  # one of the two is given
            context = self._snapshot.context
            since_version = version_at(context, self.version, timestamp_ms(since_timestamp))
        return changes_since(self._snapshot, since_version)

    def refresh(self) -> "IndexTable":
        """Go to the newest version; returns the same object."""
        self._bind(catch_up(self._snapshot).snapshot, is_pinned=False)
        return self

    # --- changing it ---------------------------------------------------------------------------------

    def commit(self, adds: Sequence[AddAction] = (), removes: Sequence[str] = ()) -> int:
        """Commit splits that were written elsewhere, and remove others by path; returns the version.

        Only the log is written. See `ops.write.commit_files` for what happens under concurrency.
        """
        return self._after(commit_files(self._writable(), adds, removes).snapshot)

    def append(self, data: pa.Table | pa.RecordBatchReader) -> int:
        """Write rows as new splits, and add them in one commit; returns the version.

        Columns are found by name; those that are missing are null. Without any rows nothing is committed.
        """
        return self._after(append(self._writable(), data).snapshot)

    def overwrite(self, data: pa.Table | pa.RecordBatchReader, where: str | Predicate | None = None) -> int:
        """Replace all rows, or those of the partitions that `where` selects; returns the version.

        With `where`, all rows must belong to these partitions.
        """
        return self._after(overwrite(self._writable(), data, _predicate(where)).snapshot)

    def set_properties(self, properties: Mapping[str, str | None]) -> int:
        """Set table properties, or remove those that are None; returns the version."""
        return self._after(set_properties(self._writable(), properties).snapshot)

    def upgrade_protocol(self, reader_version: int, writer_version: int) -> int:
        """Ask readers and writers for at least these protocol versions; returns the version."""
        return self._after(upgrade_protocol(self._writable(), reader_version, writer_version).snapshot)

    def checkpoint(self) -> CheckpointReport:
        """Write the table's state down in one place, so that readers need not replay the log."""
        self._writable()
        report = write_checkpoint(self.refresh()._snapshot)
        self._bind(rebase(self._snapshot), is_pinned=False)
        return report

    def compact(self) -> CheckpointReport:
        """Write the state anew, without tombstones and fragments."""
        self._writable()
        report = compact(self.refresh()._snapshot)
        self.refresh()
        return report

    def collect_garbage(self, dry_run: bool = True) -> GarbageReport:
        """Delete, or with `dry_run` only list, files of the log that nothing refers to any more."""
        return collect_garbage(self._snapshot.context, dry_run=dry_run)

    def describe_state(self) -> pa.Table:
        """What the table's state looks like: an Arrow table of properties and values."""
        return describe_state(self._snapshot)

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

    def _after(self, snapshot: Snapshot) -> int:
        self._bind(snapshot, is_pinned=False)
        return snapshot.version


def _context(
    path: str, storage_options: Mapping[str, str] | None, options: Mapping[str, str] | None
) -> TableContext:
    store = open_store(path, storage_options=storage_options, options=options)
    return TableContext(store, Settings.resolve(options))


def _predicate(where: str | Predicate | None) -> Predicate | None:
    return parse_predicate(where) if isinstance(where, str) else where
