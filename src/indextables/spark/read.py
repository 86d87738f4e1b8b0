"""The batch reader: planning prunes the snapshot into tasks, and each task reads the rows of its splits.

Planning runs in a process of its own beside the driver. It sends the reader to the tasks without the snapshot, and to
each task the few splits that it reads.
"""

import functools
import gc
import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from indextables.config import Settings
from indextables.config.registry import READ_MAX_SPLITS_PER_TASK, READ_MIN_TASKS, READ_TASK_SIZE
from indextables.errors import InvalidOptionError, InvalidQueryError
from indextables.ops.read import SplitRef, projected_schema, split_refs
from indextables.ops.search import SearchRequest, check_query
from indextables.predicates import BoundPredicate, all_of, any_of, columns_of, to_arrow_filter
from indextables.schema import TableShape
from indextables.search.compile import SearchScope, compile_with_predicate
from indextables.search.hits import matching_rows, search_index
from indextables.search.parser import QueryNode, parse_query
from indextables.spark.filters import QUERY_COLUMN, SCORE_COLUMN, requested_by
from indextables.spark.options import QUERY, ReadOptions, TablePlace
from indextables.spark.shared_plans import ScanRequest, merge_requests, remember
from indextables.spark.types import batch_schema, read_columns, spark_schema, table_schema
from indextables.split.index_cache import index_cache
from indextables.split.split import Split
from indextables.storage import ObjectStore
from indextables.table import Snapshot

SEARCH_FIELDS = (pa.field(QUERY_COLUMN, pa.string()), pa.field(SCORE_COLUMN, pa.float32()))

# The cost of opening a split, in bytes read.
OPEN_COST_BYTES: Final = 4 * 1024**2
# A search reads only a small part of a split, but the first search fetches the index.
_SHARE_OF_SEARCH: Final = 1 / 16
_BATCH_ROWS: Final = 8192


def schema_to_read(place: TablePlace, options: ReadOptions) -> StructType:
    """The schema of a read with these options. Raises InvalidSchemaError and what opening a table raises."""
    snapshot = options.snapshot(place)
    columns = projected_schema(snapshot.schema, options.columns)
    if not options.has_search_columns:
        return spark_schema(columns)
    taken = next((field.name for field in SEARCH_FIELDS if field.name in snapshot.schema.names), None)
    if taken is not None:
        raise InvalidOptionError(
            f"{place.url}: search=true needs the column name {taken!r}, which the table uses; search with the option "
            f"{QUERY} instead"
        )
    return spark_schema(pa.schema([*columns, *SEARCH_FIELDS]))


class BatchReader(DataSourceReader):
    """Reads the table version that is current when the query is planned. Spark applies the filters.

    The constructor raises what opening a table raises, and InvalidSchemaError for columns that the table lacks.
    """

    def __init__(self, place: TablePlace, options: ReadOptions, schema: StructType) -> None:
        self._place = place
        self._options = options
        self._schema = schema
        self._snapshot: Snapshot | None = options.snapshot(place)
        self._table = _TaskTable(self._snapshot.shape, self._snapshot.context.settings)
        virtual = [field.name for field in SEARCH_FIELDS] if options.has_search_columns else []
        requested = table_schema(schema)
        self._names = dict(
            zip(
                [name for name in requested.names if name not in virtual],
                read_columns(requested, self._table.shape.schema, virtual, place.url),
                strict=True,
            )
        )
        self._where = options.predicate(self._table.shape.schema)
        self._requests: tuple[ScanRequest, ...] = (ScanRequest(options.query),)
        self._check_queries()

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks: splits that may have matching rows, packed by size."""
        assert self._snapshot is not None  # only tasks have none
        wanted = [self._with_option_where(request.where) for request in self._requests]
        known = [where for where in wanted if where is not None]
        where = any_of(known) if len(known) == len(wanted) else None
        is_search = all(request.query is not None for request in self._requests)
        share = _SHARE_OF_SEARCH if is_search else 1.0
        return split_batches(
            split_refs(self._snapshot.select(where).entries), self._table.settings, share=share
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. An unreadable split raises an error; it is never skipped."""
        freeze_loaded_objects()
        # If there are no splits, Spark still runs one task without a partition of ours.
        return self._rows(partition.refs) if isinstance(partition, SplitBatch) else iter(())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    def _check_queries(self) -> None:
        """Raise InvalidQueryError during planning, not in every task."""
        assert self._snapshot is not None  # only tasks have none
        for request in self._requests:
            search = SearchRequest.of(self._snapshot, request.query, None, self._options.query_fields)
            check_query(self._snapshot, search)

    def _with_option_where(self, where: BoundPredicate | None) -> BoundPredicate | None:
        """The option `where` and the condition of a scan, combined."""
        both = [each for each in (self._where, where) if each is not None]
        return all_of(both) if both else None

    def _rows(self, refs: Sequence[SplitRef]) -> Iterator[pa.RecordBatch]:
        store, schema = self._place.store(), batch_schema(self._schema)
        # A scan without any column could not report its number of rows.
        names = list(self._names.values()) or [self._table.shape.schema.names[0]]
        for ref in refs:
            split = _open_task_split(store, self._table, ref)
            for request in self._requests:
                for batch, scores in self._scan_split(split, request, names):
                    yield self._to_spark_batch(batch, request.query, scores, schema)

    def _scan_split(
        self, split: Split, request: ScanRequest, names: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
        where = self._with_option_where(request.where)
        if request.query is None:
            return ((batch, None) for batch in split.scan(names, where))
        is_scored = SCORE_COLUMN in self._schema.names and SCORE_COLUMN not in self._names
        query = _Query(parse_query(request.query), self._options.query_fields, is_scored)
        return _search_split(split, self._table, query, names, where)

    def _to_spark_batch(
        self, batch: pa.RecordBatch, query: str | None, scores: pa.Array | None, schema: pa.Schema
    ) -> pa.RecordBatch:
        arrays = []
        for field in schema:
            if field.name in self._names:
                array = batch.column(self._names[field.name])
            elif field.name == QUERY_COLUMN:
                array = pa.repeat(pa.scalar(query, pa.string()), batch.num_rows)
            else:
                array = pa.nulls(batch.num_rows, pa.float32()) if scores is None else scores
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class PushDownReader(BatchReader):
    """A batch reader that reads only what the filters select.

    Spark still applies all filters itself, because this plan may serve several scans of the same DataFrame; see
    `shared_plans`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # the name is Spark's
        """Restrict the read to the filters; returns all of them, for Spark to apply. Raises InvalidQueryError."""
        options = self._options
        query, where = requested_by(
            filters, self._table.shape.schema, has_search_columns=options.has_search_columns
        )
        if query is not None and options.query not in (None, query):
            raise InvalidOptionError(
                f"the option {QUERY} and the condition on {QUERY_COLUMN} differ; keep one of them"
            )
        # Without a marker, a scan without filters may share this plan unnoticed. Then only a search restricts it.
        request = ScanRequest(query or options.query, where if options.is_marked else None)
        self._check_is_search(request)
        self._requests = merge_requests(remember(options.scan_id, request))
        self._check_queries()
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """See `BatchReader.partitions`. Raises InvalidQueryError if a scan with search=true has no query."""
        for request in self._requests:
            self._check_is_search(request)
        return super().partitions()

    def _check_is_search(self, request: ScanRequest) -> None:
        """Require a query: rows carry its text, and a scan without one would also get the rows of other searches."""
        if self._options.has_search_columns and request.query is None:
            raise InvalidQueryError(
                f"{self._place.url}: search=true needs a condition such as WHERE {QUERY_COLUMN} = 'title:spark'; omit "
                f"the option to read all rows"
            )


# Tasks.


# A dataclass: a Struct conflicts with the constructor of the base class.
@dataclass(frozen=True, slots=True)
class SplitBatch(InputPartition):
    """The splits that one task reads."""

    refs: tuple[SplitRef, ...]


def split_batches(refs: Sequence[SplitRef], settings: Settings, *, share: float = 1.0) -> list[SplitBatch]:
    """Pack splits into tasks by size; `share` is the fraction of a split that a task reads."""
    groups = pack(
        [int(ref.size * share) for ref in refs],
        settings[READ_TASK_SIZE],
        settings[READ_MIN_TASKS] or os.cpu_count() or 1,
        settings[READ_MAX_SPLITS_PER_TASK],
    )
    return [SplitBatch(tuple(refs[position] for position in group)) for group in groups]


def pack(sizes: Sequence[int], task_bytes: int, min_tasks: int, max_splits: int) -> list[list[int]]:
    """Group positions in `sizes` into tasks of up to `task_bytes` and `max_splits`; a larger split gets its own task.

    There are at least `min_tasks` groups if there are that many splits. Pure.
    """
    costs = [size + OPEN_COST_BYTES for size in sizes]
    count = min(len(sizes), max(min_tasks, -(-sum(costs) // task_bytes)))
    groups: list[list[int]] = [[] for _ in range(count)]
    by_cost = [(0, number) for number in range(count)]
    # Largest first, each into the smallest group, balances the groups best.
    for position in sorted(range(len(sizes)), key=lambda each: costs[each], reverse=True):
        while by_cost and len(groups[by_cost[0][1]]) >= max_splits:
            heapq.heappop(by_cost)
        if by_cost and (not by_cost[0][0] or by_cost[0][0] + costs[position] <= task_bytes):
            filled, number = heapq.heappop(by_cost)
        else:
            filled, number = 0, len(groups)
            groups.append([])
        groups[number].append(position)
        heapq.heappush(by_cost, (filled + costs[position], number))
    return groups


# The rows of one split.


class _TaskTable(msgspec.Struct, frozen=True):
    """What a task needs to know about the table: picklable, and without its list of files."""

    shape: TableShape
    settings: Settings


class _Query(msgspec.Struct, frozen=True):
    """A parsed search query; `fields` are the columns that terms without a field search."""

    node: QueryNode
    fields: tuple[str, ...]
    is_scored: bool


def _open_task_split(store: ObjectStore, table: _TaskTable, ref: SplitRef) -> Split:
    """Open a split by its log entry. Raises what `open_split` raises."""
    return ref.open(store, table.shape)


def _search_split(
    split: Split, table: _TaskTable, query: _Query, names: Sequence[str], where: BoundPredicate | None
) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    """All rows of a split that match the query and `where`, in row order, with their scores.

    Raises InvalidQueryError.
    """
    searcher = split.searcher(index_cache(table.settings))
    scope = SearchScope(split.mapping, table.shape.schema, split.partition_row, query.fields)
    compiled = compile_with_predicate(scope, query.node, where)
    if query.is_scored:
        hits = search_index(searcher, compiled.query, split.num_records)
        order = np.argsort(hits.rows)
        rows, scores = hits.rows[order], hits.scores[order]
    else:
        rows, scores = matching_rows(searcher, compiled.query), None
    needed = list(dict.fromkeys([*names, *(columns_of(compiled.rest) if compiled.rest is not None else ())]))
    for start in range(0, len(rows), _BATCH_ROWS):
        piece = slice(start, start + _BATCH_ROWS)
        found, kept = _take(split, rows[piece], needed, compiled.rest)
        batch = _one_batch(found.select(list(names)), len(kept))
        yield batch, None if scores is None else pa.array(scores[piece][kept], pa.float32())


def _take(
    split: Split, rows: npt.NDArray[np.int64], names: Sequence[str], rest: BoundPredicate | None
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Take rows by number and filter them by `rest`; returns them, and the positions in `rows` that remain."""
    taken = split.take(rows, names)
    positions = np.arange(len(rows))
    if rest is None:
        return taken, positions
    number = "~".join(["row", *names])  # longer than any name, so it is unique
    kept = taken.append_column(number, pa.array(positions)).filter(to_arrow_filter(rest))
    return kept.drop_columns([number]), kept[number].to_numpy()


def _one_batch(rows: pa.Table, num_rows: int) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    assert (
        not num_rows or not rows.num_columns
    )  # combined chunks make one batch, or none if there are no rows
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in rows.schema], schema=rows.schema)


# Spark's Python workers run a full garbage collection after every task, and the next task waits for it. Most of what a
# collection visits is modules and classes, which live as long as the process. Frozen objects are not visited.


@functools.cache
def freeze_loaded_objects() -> None:
    """Exclude all objects loaded so far from garbage collection, once per process."""
    gc.freeze()
