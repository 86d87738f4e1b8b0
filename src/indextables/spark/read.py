"""Spark's Python processes collect garbage after every task, and the next one waits for them.

Most of what they look through is modules and classes, which stay. Once it is set aside, a collection takes next to no
time.
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
from indextables.search.compile import compile_with_predicate
from indextables.search.hits import matching_rows, search_index
from indextables.search.nodes import QueryNode
from indextables.search.parser import parse_query
from indextables.search.scope import SearchScope
from indextables.spark.filters import QUERY_COLUMN, SCORE_COLUMN, asked_by
from indextables.spark.options import QUERY, ReadOptions, TablePlace
from indextables.spark.shared_plans import Ask, merged, remember
from indextables.spark.types import batch_schema, read_columns, spark_schema, table_schema
from indextables.split.index_cache import index_cache
from indextables.split.reader import open_split
from indextables.split.split import Split
from indextables.storage import ObjectStore, relative_key
from indextables.table import Snapshot


@functools.cache
def skip_garbage_collection_after_tasks() -> None:
    """Set aside what this process has loaded so far. A second time changes nothing."""
    gc.freeze()


# Which splits a task reads: small ones together, in tasks of about equal size. Pure.


# What opening a split costs, as if it were so many bytes more.
OPEN_COST_BYTES: Final = 4 * 1024**2


def pack(sizes: Sequence[int], task_bytes: int, min_tasks: int, max_splits: int) -> list[list[int]]:
    """Groups of positions in `sizes`, each of up to `task_bytes` and `max_splits`; a larger split is alone.

    If the whole is small, the groups are, too, so that there are `min_tasks` of them where there can be.
    """
    costs = [size + OPEN_COST_BYTES for size in sizes]
    count = min(len(sizes), max(min_tasks, -(-sum(costs) // task_bytes)))
    groups: list[list[int]] = [[] for _ in range(count)]
    by_cost = [(0, number) for number in range(count)]
    # The largest first, each into the group that has least, makes them the most equal.
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


# What one task of a scan does: opens its splits and gives their rows, all of them or those that a query
# finds.


_BATCH_ROWS: Final = 8192


class TaskTable(msgspec.Struct, frozen=True):
    """What a task has to know about the table: picklable, and no part of the list of its files."""

    shape: TableShape
    settings: Settings


class Query(msgspec.Struct, frozen=True):
    """A parsed search query; `fields` are the columns that words without a field are looked for in."""

    node: QueryNode
    fields: tuple[str, ...]
    is_scored: bool


def open_task_split(store: ObjectStore, table: TaskTable, ref: SplitRef) -> Split:
    """Open a split by what the log knows about it. Raises what `open_split` raises."""
    return open_split(
        store,
        relative_key(ref.path, store.url),
        ref.size,
        ref.footer_start_offset,
        ref.footer_end_offset,
        schema=table.shape.schema,
        partition_columns=table.shape.partition_columns,
        partition_values=ref.partition_values,
    )


def search_split(
    split: Split, table: TaskTable, query: Query, names: Sequence[str], where: BoundPredicate | None
) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    """The rows of a split that a query finds and for which `where` is true, in order, and their scores.

    There is no limit: all rows that match are given. Raises InvalidQueryError.
    """
    index = split.index(index_cache(table.settings))
    scope = SearchScope(split.mapping, table.shape.schema, split.partition_row, query.fields)
    asked = compile_with_predicate(index, scope, query.node, where)
    if query.is_scored:
        hits = search_index(asked.index, asked.query, split.num_records)
        order = np.argsort(hits.rows)
        rows, scores = hits.rows[order], hits.scores[order]
    else:
        rows, scores = matching_rows(asked.index, asked.query), None
    needed = list(dict.fromkeys([*names, *(columns_of(asked.rest) if asked.rest is not None else ())]))
    for start in range(0, len(rows), _BATCH_ROWS):
        piece = slice(start, start + _BATCH_ROWS)
        found, kept = _taken(split, rows[piece], needed, asked.rest)
        batch = _one_batch(found.select(list(names)), len(kept))
        yield batch, None if scores is None else pa.array(scores[piece][kept], pa.float32())


def _taken(
    split: Split, rows: npt.NDArray[np.int64], names: Sequence[str], rest: BoundPredicate | None
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Rows by their numbers, without those for which `rest` is not true, and which of the numbers are left."""
    taken = split.take(rows, names)
    places = np.arange(len(rows))
    if rest is None:
        return taken, places
    number = "~".join(["row", *names])  # longer than any of the names
    kept = taken.append_column(number, pa.array(places)).filter(to_arrow_filter(rest))
    return kept.drop_columns([number]), kept[number].to_numpy()


def _one_batch(rows: pa.Table, num_rows: int) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    assert not num_rows or not rows.num_columns  # combined chunks are one batch, or none without rows
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in rows.schema], schema=rows.schema)


# The batch reader: the snapshot, pruned in planning, and the rows of its splits in the tasks.
#
# Planning runs in a process of its own beside the driver. What it sends to the tasks is the reader, without
# the snapshot, and for each task the few splits that it reads.


# What a search reads of a split is as good as nothing, but its first one fetches the index.
_SHARE_OF_SEARCH: Final = 1 / 16

SEARCH_FIELDS = (pa.field(QUERY_COLUMN, pa.string()), pa.field(SCORE_COLUMN, pa.float32()))


def schema_to_read(place: TablePlace, options: ReadOptions) -> StructType:
    """The schema that a reader with these options has. Raises InvalidSchemaError and what opening a table does."""
    snapshot = options.snapshot(place)
    columns = projected_schema(snapshot.schema, options.columns)
    if not options.has_search_columns:
        return spark_schema(columns)
    taken = next((field.name for field in SEARCH_FIELDS if field.name in snapshot.schema.names), None)
    if taken is not None:
        raise InvalidOptionError(
            f"{place.url}: the table has a column {taken!r} of its own; search with the option {QUERY} instead of "
            f"search=true"
        )
    return spark_schema(pa.schema([*columns, *SEARCH_FIELDS]))


# A dataclass, since a Struct does not go with the constructor of the base.
@dataclass(frozen=True, slots=True)
class SplitBatch(InputPartition):
    """The splits that one task reads."""

    refs: tuple[SplitRef, ...]


def split_batches(refs: Sequence[SplitRef], settings: Settings, *, share: float = 1.0) -> list[SplitBatch]:
    """The tasks that read splits, packed by size; `share` is how much of a split is read."""
    groups = pack(
        [int(ref.size * share) for ref in refs],
        settings[READ_TASK_SIZE],
        settings[READ_MIN_TASKS] or os.cpu_count() or 1,
        settings[READ_MAX_SPLITS_PER_TASK],
    )
    return [SplitBatch(tuple(refs[position] for position in group)) for group in groups]


class BatchReader(DataSourceReader):
    """Reads a table as it is when the query is planned. Filters are left to Spark.

    Construction raises what opening a table does, and InvalidSchemaError for columns that it does not have.
    """

    def __init__(self, place: TablePlace, options: ReadOptions, schema: StructType) -> None:
        self._place = place
        self._options = options
        self._schema = schema
        self._snapshot: Snapshot | None = options.snapshot(place)
        self._table = TaskTable(self._snapshot.shape, self._snapshot.context.settings)
        virtual = [field.name for field in SEARCH_FIELDS] if options.has_search_columns else []
        asked = table_schema(schema)
        self._names = dict(
            zip(
                [name for name in asked.names if name not in virtual],
                read_columns(asked, self._table.shape.schema, virtual, place.url),
                strict=True,
            )
        )
        self._where = options.predicate(self._table.shape.schema)
        self._asks: tuple[Ask, ...] = (Ask(options.query),)
        self._check_queries()

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks: splits that may hold rows for the filters, packed by size."""
        assert self._snapshot is not None  # there is one where queries are planned
        wanted = [self._restricted(ask.where) for ask in self._asks]
        known = [where for where in wanted if where is not None]
        where = any_of(known) if len(known) == len(wanted) else None
        is_search = all(ask.query is not None for ask in self._asks)
        share = _SHARE_OF_SEARCH if is_search else 1.0
        return split_batches(
            split_refs(self._snapshot.select(where).entries), self._table.settings, share=share
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. A split that cannot be read is an error, it is never left out."""
        skip_garbage_collection_after_tasks()
        # Without any splits Spark still runs one task, with nothing to read.
        return self._rows(partition.refs) if isinstance(partition, SplitBatch) else iter(())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    def _check_queries(self) -> None:
        """Complain about a query now, and not in every task."""
        assert self._snapshot is not None  # there is one where queries are planned
        for ask in self._asks:
            question = SearchRequest.of(self._snapshot, ask.query, None, self._options.query_fields)
            check_query(self._snapshot, question)

    def _restricted(self, where: BoundPredicate | None) -> BoundPredicate | None:
        """What the option asks for, and what a scan does."""
        both = [each for each in (self._where, where) if each is not None]
        return all_of(both) if both else None

    def _rows(self, refs: Sequence[SplitRef]) -> Iterator[pa.RecordBatch]:
        store, schema = self._place.store(), batch_schema(self._schema)
        # A scan of no columns at all could not tell how many rows there are.
        names = list(self._names.values()) or [self._table.shape.schema.names[0]]
        for ref in refs:
            split = open_task_split(store, self._table, ref)
            for ask in self._asks:
                for batch, scores in self._answer(split, ask, names):
                    yield self._as_spark(batch, ask.query, scores, schema)

    def _answer(
        self, split: Split, ask: Ask, names: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
        where = self._restricted(ask.where)
        if ask.query is None:
            return ((batch, None) for batch in split.scan(names, where))
        is_scored = SCORE_COLUMN in self._schema.names and SCORE_COLUMN not in self._names
        query = Query(parse_query(ask.query), self._options.query_fields, is_scored)
        return search_split(split, self._table, query, names, where)

    def _as_spark(
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
    """The same, but it reads no more than the filters ask for.

    All filters are left to Spark as well, which decides them for each scan, because the plan made here may serve
    several scans of the same DataFrame (see `recent_plans`).
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # the name is Spark's
        """Read only what the filters ask for; returns all of them. Raises InvalidQueryError."""
        options = self._options
        query, where = asked_by(
            filters, self._table.shape.schema, has_search_columns=options.has_search_columns
        )
        if query is not None and options.query not in (None, query):
            raise InvalidOptionError(
                f"the option {QUERY} and the condition on {QUERY_COLUMN} ask for different things; keep one"
            )
        # Where scans without filters may share this plan, and nobody would tell, only searches narrow it.
        ask = Ask(query or options.query, where if options.is_marked else None)
        self._check_is_search(ask)
        self._asks = merged(remember(options.scan_id, ask))
        self._check_queries()
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks. Raises InvalidQueryError for a search that asks for nothing."""
        for ask in self._asks:
            self._check_is_search(ask)
        return super().partitions()

    def _check_is_search(self, ask: Ask) -> None:
        """The rows of a search carry its text. Without one there would be rows of other scans' searches, too."""
        if self._options.has_search_columns and ask.query is None:
            raise InvalidQueryError(
                f"{self._place.url}: with search=true every query needs a condition WHERE {QUERY_COLUMN} = "
                f"'title:spark'; leave the option out in order to read all rows"
            )
