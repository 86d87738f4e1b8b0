"""`TableReader`: the half of `IndexTable` that reads a table and changes nothing.

This module alone parses `where` and chooses a runner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from indextables import ops
from indextables._public import public_methods
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidOptionError
from indextables.log.actions import Metadata, ProtocolAction
from indextables.notebooks import show_highlighted
from indextables.predicates import Predicate, bind, parse_predicate
from indextables.predicates.literals import timestamp_ms
from indextables.table import ChangeSet, FileSelection, Snapshot, TableContext, changes_since
from indextables.table.history import version_before_changes

if TYPE_CHECKING:
    from indextables.config.setting import Setting
    from indextables.ops.fsck import FsckResult
    from indextables.ops.prewarm import PrewarmResult
    from indextables.ops.runner import Progress, Runner
    from indextables.ops.search import Highlighter
    from indextables.search import Grouping, Metric


@public_methods
class TableReader:
    """The methods of `IndexTable` that read one version of a table."""

    _snapshot: Snapshot

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
    def protocol(self) -> ProtocolAction:
        """The protocol versions and features that readers and writers must support."""
        return self._snapshot.protocol

    @property
    def metadata(self) -> Metadata:
        """The id, name, description, schema, partitioning and properties of the table."""
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
        predicate = as_predicate(where)
        bound = None if predicate is None else bind(predicate, self._snapshot.schema)
        return self._snapshot.select(bound, columns)

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
        return ops.read.scan(self._snapshot, as_predicate(where), columns)

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
        fields: str | Sequence[str] = (),
        *,
        sort: str | Sequence[str] | None = None,
        offset: int = 0,
        search_after: pa.Table | str | None = None,
        highlight: bool = False,
        count: bool = False,
    ) -> pa.Table:
        """Return the best rows for a full-text query, best first. A notebook shows them with the matches highlighted.

        Args:
            query: Terms, phrases, ranges and fields, such as 'message:timeout AND level:ERROR'; docs/search.md.
            where: Only rows for which this predicate is true.
            columns: The columns to return; all by default.
            limit: The most rows to return.
            fields: The columns to search for terms without a field; all text columns by default, "*" for all columns.
            sort: A column to sort by instead of the score, or several: "ts", or "-ts" for the latest first. Nulls come
                last in both directions.
            offset: The number of best rows to leave out.
            search_after: The page before, with the same sort: return the rows that follow it. Costs the same for every
                page, while the cost of `offset` grows.
            highlight: Add the column `_highlight`: for each text column, the parts that match the query.
            count: Count all hits in the same pass; `schema.metadata[b"indextables.hits"]` has their number.

        Returns:
            The rows, with the score in the column `_score`, unless they are sorted by columns.

        Raises:
            InvalidQueryError: The query cannot be parsed, or does not fit the table.
            InvalidPredicateError: `where` is not a predicate over columns of the table.
            InvalidOptionError: A column to sort by does not exist or has no order, or the page before has another order
                or is of another version.

        Example:
            >>> found = table.search("message:timeout AND level:ERROR", columns=["message"], limit=1)
            >>> found.column_names
            ['message', '_score']
        """
        request = ops.search.SearchRequest.of(self._snapshot, query, as_predicate(where), fields)
        page = ops.search.Page(limit, offset, with_total=count)
        if sort is None:
            if search_after is not None:
                raise InvalidOptionError("search_after needs a sort; by score, use offset")
            found = ops.search.search(self._snapshot, request, columns, page)
        else:
            wanted = ops.sorted_search.SortedPage.of(self._snapshot, sort, page, search_after)
            found = ops.sorted_search.search_sorted(self._snapshot, request, columns, wanted)
        if highlight:
            found = ops.search.with_highlights(found, self.highlighter(query, fields))
        show_highlighted(found, lambda: self.highlighter(query, fields).spans)
        return found

    def highlighter(self, query: str, fields: str | Sequence[str] = ()) -> Highlighter:
        """Return a highlighter, which finds the terms of a query in the texts of rows.

        Args:
            query: A full-text query, as for `search`.
            fields: The columns to search for terms without a field, as for `search`.

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
        fields: str | Sequence[str] = (),
    ) -> int:
        """Count the rows that match a query and a predicate. The log alone answers where it can.

        Args:
            query: A full-text query, as for `search`; all rows by default.
            where: Only rows for which this predicate is true.
            fields: The columns to search for terms without a field, as for `search`.

        Returns:
            The number of rows.

        Raises:
            InvalidQueryError: The query cannot be parsed, or does not fit the table.
            InvalidPredicateError: `where` is not a predicate over columns of the table.

        Example:
            >>> table.count("timeout"), table.count(where="date = '2026-01-31'")
            (2, 2)
        """
        request = ops.search.SearchRequest.of(self._snapshot, query, as_predicate(where), fields)
        return ops.search.count(self._snapshot, request)

    def aggregate(
        self,
        metrics: str | Metric | Sequence[str | Metric] = ("count",),
        by: str | Grouping | Sequence[str | Grouping] | None = None,
        query: str | None = None,
        where: str | Predicate | None = None,
        fields: Sequence[str] = (),
    ) -> pa.Table:
        """Compute metrics over the matching rows, or over groups of them.

        The indexes answer where they can, and the rows of the needed columns otherwise. All results are exact.

        Args:
            metrics: Metrics such as "count", "max(price)", "stats(price)", "cardinality(user)" or
                "percentiles(price, 50, 99)".
            by: A column to group by, or a `Terms`, `Histogram`, `DateHistogram` or `Ranges`; or several of them, from
                the outer to the inner groups.
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
        request = ops.search.SearchRequest.of(self._snapshot, query, as_predicate(where), fields)
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
        """Return the splits that this version has and an older one had not, and those that it no longer has.

        The answer is the same whether it comes from the version files or from a comparison of two states. Splits that
        were added and removed in between are not part of it. To see every commit, ask for one version after the other.

        Args:
            since_version: The version to start after; -1 returns all changes.
            since_timestamp: The moment to start after: a datetime, or ISO 8601 text.

        Returns:
            The changes: `adds` (with the columns of `files()`) and `removes` (`path`, `partitionValues`, `size`) as
            Arrow tables, and `version`. A path that has become another file is in `adds` alone.

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
            >>> table.describe_log().column("action")[0].as_py()
            'protocol'
        """
        return ops.describe.describe_log(self._snapshot, include_all=include_all)

    def prewarm(
        self,
        fields: Sequence[str] | None = None,
        where: str | Predicate | None = None,
        *,
        runner: Runner | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> PrewarmResult:
        """Fetch the indexes of splits into the local cache, so that the first searches need not.

        Args:
            fields: Fetch only what searches on these columns read; the whole indexes by default.
            where: Leave out splits that cannot contain a row for which this predicate is true.
            runner: Executes the tasks; threads of this process by default. Spark's fills the cache of every host.
            progress: Called with the progress of the threads.

        Returns:
            What is in the cache of each host, and what did not fit.

        Raises:
            InvalidSchemaError: A column does not exist, or has no index.
            InvalidPredicateError: `where` is not a predicate over columns of the table.
            IndexCacheError: The cache directory is unusable.

        Example:
            >>> [host] = table.prewarm(fields=["message"]).hosts
            >>> (host.cached_splits, host.num_splits)
            (2, 2)
        """
        context = self._snapshot.context
        request = ops.prewarm.PrewarmRequest(tuple(fields or ()), as_predicate(where))
        chosen = choose_runner(context, READ_PARALLELISM, runner, progress)
        return ops.prewarm.prewarm(self._snapshot, request, chosen)

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
        return ops.fsck.fsck(context, choose_runner(context, READ_PARALLELISM, runner, progress), deep=deep)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._snapshot.context.url!r}, version={self.version})"


def as_predicate(where: str | Predicate | None) -> Predicate | None:
    """A predicate, parsed if it is text. Raises InvalidPredicateError."""
    return parse_predicate(where) if isinstance(where, str) else where


def choose_runner(
    context: TableContext,
    parallelism: Setting[int],
    runner: Runner | None,
    progress: Callable[[Progress], None] | None,
) -> Runner:
    """The caller's runner, or threads of this process, as many as a setting of the table allows."""
    return runner or ops.runner.local_runner(context, parallelism, progress)
