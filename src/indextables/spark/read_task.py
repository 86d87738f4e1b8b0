"""What one task of a scan does: opens its splits and gives their rows, all of them or those that a query finds."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables.config import Settings
from indextables.ops.read import SplitRef
from indextables.predicates import Predicate, columns_of, to_arrow_filter
from indextables.search.compile import compile_with_predicate
from indextables.search.hits import matching_rows, search_index
from indextables.search.nodes import QueryNode
from indextables.search.scope import SearchScope
from indextables.split.index_cache import index_cache
from indextables.split.reader import open_split
from indextables.split.split import Split
from indextables.storage import ObjectStore, relative_key

_BATCH_ROWS: Final = 8192


class TableShape(msgspec.Struct, frozen=True):
    """What a task has to know about the table: picklable, and no part of the list of its files."""

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    settings: Settings


class Query(msgspec.Struct, frozen=True):
    """A parsed search query; `fields` are the columns that words without a field are looked for in."""

    node: QueryNode
    fields: tuple[str, ...]
    is_scored: bool


def open_task_split(store: ObjectStore, table: TableShape, ref: SplitRef) -> Split:
    """Open a split by what the log knows about it. Raises what `open_split` raises."""
    return open_split(
        store,
        relative_key(ref.path, store.url),
        ref.size,
        ref.footer_start_offset,
        ref.footer_end_offset,
        schema=table.schema,
        partition_columns=table.partition_columns,
        partition_values=ref.partition_values,
    )


def search_split(
    split: Split, table: TableShape, query: Query, names: Sequence[str], where: Predicate | None
) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    """The rows of a split that a query finds and for which `where` is true, in order, and their scores.

    There is no limit: all rows that match are given. Raises InvalidQueryError.
    """
    index = split.index(index_cache(table.settings))
    scope = SearchScope(split.mapping, table.schema, split.partition_row, query.fields)
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
    split: Split, rows: npt.NDArray[np.int64], names: Sequence[str], rest: Predicate | None
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
