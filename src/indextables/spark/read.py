"""The batch reader: planning prunes the snapshot into tasks, and each task reads the rows of its splits.

Planning runs in a process of its own beside the driver. It sends the reader to the tasks without the snapshot, and to
each task the few splits that it reads. Spark may use a plan for any query of the same DataFrame or view, so a plan
depends on what was loaded alone, and no reader takes filters; see docs/decisions/0024-plans-of-spark.md.
"""

import functools
import gc
import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.types import StructType

from indextables.config import Settings
from indextables.config.registry import READ_MAX_SPLITS_PER_TASK, READ_MIN_TASKS, READ_TASK_SIZE
from indextables.errors import InvalidOptionError
from indextables.ops.read import SplitRef, projected_schema, split_refs
from indextables.ops.search import SearchRequest, check_query
from indextables.predicates import BoundPredicate, columns_of, to_arrow_filter
from indextables.schema import TableShape
from indextables.search.compile import compile_with_predicate
from indextables.search.conditions import Condition, compile_condition, texts_of
from indextables.search.hits import matching_rows, search_index
from indextables.search.parser import QueryNode, parse_query
from indextables.search.split_scope import constant_columns, split_scope
from indextables.spark.options import QUERY, SEARCH, ReadOptions, TablePlace
from indextables.spark.releases import DataSourceReader, InputPartition, arrow_schema
from indextables.spark.types import read_columns, spark_schema, table_schema
from indextables.split.index_cache import index_cache
from indextables.split.split import Split
from indextables.storage import ObjectStore
from indextables.table import Snapshot

SCORE_COLUMN: Final = "_score"
_SCORE_FIELD: Final = pa.field(SCORE_COLUMN, pa.float32())

# The cost of opening a split, in bytes read.
OPEN_COST_BYTES: Final = 4 * 1024**2
# A search reads only a small part of a split, but the first search fetches the index.
_SHARE_OF_SEARCH: Final = 1 / 16
_BATCH_ROWS: Final = 8192


def schema_to_read(snapshot: Snapshot, options: ReadOptions) -> StructType:
    """The schema of a read with these options. Raises InvalidSchemaError and InvalidOptionError."""
    columns = projected_schema(snapshot.schema, options.columns)
    if not options.has_score:
        return spark_schema(columns)
    if SCORE_COLUMN in snapshot.schema.names:
        raise InvalidOptionError(
            f"{snapshot.context.url}: {SEARCH}=true adds the column {SCORE_COLUMN!r}, but the table has one of this "
            f"name; omit the option, and search with the option {QUERY} alone"
        )
    return spark_schema(pa.schema([*columns, _SCORE_FIELD]))


class BatchReader(DataSourceReader):
    """Reads the rows that the options select; Spark applies the conditions of queries.

    The constructor raises what opening a table raises, InvalidSchemaError for columns that the table lacks, and
    InvalidQueryError, so that a wrong query fails during planning and not in every task.
    """

    def __init__(self, place: TablePlace, options: ReadOptions, schema: StructType) -> None:
        self._place = place
        self._options = options
        self._schema = schema
        self._snapshot: Snapshot | None = options.snapshot(place)
        self._table = _TaskTable(self._snapshot.shape, self._snapshot.context.settings)
        virtual = [SCORE_COLUMN] if options.has_score else []
        requested = table_schema(schema)
        self._names = dict(
            zip(
                [name for name in requested.names if name not in virtual],
                read_columns(requested, self._table.shape.schema, virtual, place.url),
                strict=True,
            )
        )
        self._where = options.predicate(self._table.shape.schema)
        search = SearchRequest.of(self._snapshot, options.query, None, options.query_fields)
        check_query(self._snapshot, search)
        for text in () if options.condition is None else texts_of(options.condition):
            check_query(self._snapshot, SearchRequest.of(self._snapshot, text.query, None, text.fields))

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks: splits that may have matching rows, packed by size."""
        assert self._snapshot is not None  # only tasks have none
        return split_batches(
            split_refs(self._snapshot.select(self._where).entries),
            self._table.settings,
            share=_SHARE_OF_SEARCH if self._options.is_search else 1.0,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. An unreadable split raises an error; it is never skipped."""
        freeze_loaded_objects()
        # If there are no splits, Spark still runs one task without a partition of ours.
        return self._rows(partition.refs) if isinstance(partition, SplitBatch) else iter(())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    def _rows(self, refs: Sequence[SplitRef]) -> Iterator[pa.RecordBatch]:
        store, schema = self._place.store(), arrow_schema(self._schema)
        # A scan without any column could not report its number of rows.
        names = list(self._names.values()) or [self._table.shape.schema.names[0]]
        for ref in refs:
            split = _open_task_split(store, self._table, ref)
            for batch, scores in self._scan_split(split, names):
                yield self._to_spark_batch(batch, scores, schema)

    def _scan_split(
        self, split: Split, names: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
        options = self._options
        if not options.is_search:
            return ((batch, None) for batch in split.scan(names, self._where))
        is_scored = options.has_score and SCORE_COLUMN in self._schema.names
        node = None if options.query is None else parse_query(options.query)
        query = _Query(node, options.query_fields, options.condition, is_scored)
        return _search_split(split, self._table, query, names, self._where)

    def _to_spark_batch(
        self, batch: pa.RecordBatch, scores: pa.Array | None, schema: pa.Schema
    ) -> pa.RecordBatch:
        arrays = []
        for field in schema:
            array = batch.column(self._names[field.name]) if field.name in self._names else scores
            assert array is not None  # only a scored search has a column without a name in the table
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
    """A parsed query and a condition; `fields` are the columns that terms of the query without a field search."""

    node: QueryNode | None
    fields: tuple[str, ...]
    condition: Condition | None
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
    cache = index_cache(table.settings)
    constants = constant_columns(table.shape, table.settings)
    scope = split_scope(split, table.shape, query.fields, constants)
    compiled = compile_with_predicate(scope, query.node, where)
    wanted = compiled.query
    if query.condition is not None:
        wanted = wanted.filtered(compile_condition(query.condition, replace(scope, default_fields=())))
    if query.is_scored:
        hits = split.search_index(
            cache,
            wanted.needs_of_best_rows(),
            lambda searcher: search_index(searcher, wanted, split.num_records),
        )
        order = np.argsort(hits.rows)
        rows, scores = hits.rows[order], hits.scores[order]
    else:
        rows = split.search_index(
            cache,
            wanted.needs_of_all_rows(),
            lambda searcher: matching_rows(searcher, wanted),
        )
        scores = None
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
