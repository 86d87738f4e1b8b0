"""Searching and counting: the indexes of many splits, and the rows of the best hits only."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables._arrow import arrow_from_numpy
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidOptionError
from indextables.ops.ordered_parallel import parallel_map
from indextables.ops.question import Question, ask_split, matching, narrowed, on_each, open_splits
from indextables.ops.read import projected_schema
from indextables.search.hits import Hits, MergedHits, count_index, matching_rows, merge_hits, search_index
from indextables.split.split import Split
from indextables.table import Snapshot

SCORE: Final = pa.field("_score", pa.float32(), nullable=False)

# How many more hits are looked at, each time that too few of them satisfy a predicate.
_WIDENING: Final = 8


def search(snapshot: Snapshot, question: Question, columns: Sequence[str] | None, limit: int) -> pa.Table:
    """The `limit` best rows, best first, with their score as the last column.

    Scores are BM25 with the term frequencies of each split. Raises InvalidQueryError for a query that does not
    fit the table, and errors of splits that cannot be read: none is left out.
    """
    if limit < 1:
        raise InvalidOptionError(f"the limit is {limit}; ask for at least one row")
    schema = projected_schema(snapshot.schema, columns)
    splits, hits = best_hits(snapshot, question, limit)
    scores = arrow_from_numpy(hits.scores)
    if not schema.names:
        return pa.table([scores], schema=pa.schema([SCORE]))
    return _rows(snapshot, splits, hits, schema).append_column(SCORE, scores)


def best_hits(snapshot: Snapshot, question: Question, limit: int) -> tuple[list[Split], MergedHits]:
    """The `limit` best rows by their numbers, and the splits that these are numbers in. See `search`."""
    entries, question = narrowed(snapshot, question)
    splits = open_splits(snapshot, entries, question)
    hits = on_each(snapshot, splits, partial(_hits, snapshot, question, limit))
    return splits, merge_hits(hits, limit)


def count(snapshot: Snapshot, question: Question) -> int:
    """How many rows match. The log alone answers where it can: no split is opened then."""
    entries, question = narrowed(snapshot, question)
    is_decided = question.query is None and question.where is None
    if is_decided and not entries["numRecords"].null_count:
        return pc.sum(entries["numRecords"]).as_py() or 0
    splits = open_splits(snapshot, entries, question)
    return sum(on_each(snapshot, splits, partial(_count, snapshot, question)))


def _hits(snapshot: Snapshot, question: Question, limit: int, split: Split) -> Hits:
    asked = ask_split(snapshot, question, split)
    if asked.rest is None:
        return search_index(asked.index, asked.query, limit)
    # Rows decide the rest: more and more of the best hits are looked at, until enough of them are left.
    wanted = limit
    while True:
        wanted = min(wanted * _WIDENING, split.num_records)
        hits = search_index(asked.index, asked.query, wanted)
        kept = np.isin(hits.rows, matching(split, hits.rows, asked.rest))
        if len(hits) < wanted or wanted == split.num_records or np.count_nonzero(kept) >= limit:
            return Hits(hits.scores[kept][:limit], hits.rows[kept][:limit])


def _count(snapshot: Snapshot, question: Question, split: Split) -> int:
    asked = ask_split(snapshot, question, split)
    if asked.rest is None:
        return count_index(asked.index, asked.query)
    return len(matching(split, matching_rows(asked.index, asked.query), asked.rest))


def _rows(snapshot: Snapshot, splits: Sequence[Split], hits: MergedHits, schema: pa.Schema) -> pa.Table:
    """The rows of hits, in the order of the hits, each split read once."""
    order = np.argsort(hits.splits, kind="stable")
    taken = parallel_map(
        lambda split: splits[split].take(hits.rows[hits.splits == split], schema.names),
        np.flatnonzero(np.bincount(hits.splits)).tolist(),
        snapshot.context.settings[READ_PARALLELISM],
    )
    if len(taken) == 1:
        return taken[0]
    rows = pa.concat_tables([schema.empty_table(), *taken])
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return rows.take(pa.array(back))
