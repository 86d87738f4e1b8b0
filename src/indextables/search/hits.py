"""Runs queries on the index of a split, and merges the hits of many splits."""

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from tantivy import DocAddress, Order, Searcher

from indextables.errors import SearchFailedError
from indextables.search.index_query import IndexQuery
from indextables.split.doc_mapping import ROW_FIELD
from indextables.split.index_files import translating

_score = itemgetter(0)
_address = itemgetter(1)
_document = attrgetter("doc")

_FAILED: Final = "the index cannot be searched"
_ROWS: Final = "rows"


class Hits(msgspec.Struct, frozen=True, eq=False):
    """Hits in one split, best first: scores and row numbers; and the number of all hits, if it was asked for."""

    scores: NDArray[np.float32]
    rows: NDArray[np.int64]
    total: int = 0

    def __len__(self) -> int:
        return len(self.rows)


class MergedHits(msgspec.Struct, frozen=True, eq=False):
    """Hits in many splits, best first: scores, positions of the splits, and row numbers in them; and their number."""

    scores: NDArray[np.float32]
    splits: NDArray[np.int64]
    rows: NDArray[np.int64]
    total: int = 0

    def __len__(self) -> int:
        return len(self.rows)


def search_index(searcher: Searcher, query: IndexQuery, limit: int, *, with_total: bool = False) -> Hits:
    """Return the `limit` best rows of an index, best first; ties are ordered by row.

    With a total, the number of all hits is counted in the same pass. Scores are BM25 with the term frequencies of this
    index. Reads `needs_of_best_rows`. Raises SearchFailedError.
    """
    with translating(_FAILED, SearchFailedError):
        limit = min(limit, searcher.num_docs)
        if limit <= 0:
            return Hits(np.empty(0, np.float32), np.empty(0, np.int64))
        answer = searcher.search(query.query, limit, count=with_total)
        found = answer.hits
        # Tantivy's stub lacks the attribute.
        total = int(answer.count) if with_total else 0  # type: ignore[attr-defined]
    scores = np.fromiter(map(_score, found), np.float32, len(found))
    return Hits(scores, row_numbers(searcher, found), total)


def matching_rows(searcher: Searcher, query: IndexQuery) -> NDArray[np.int64]:
    """Return the numbers of all matching rows, ascending. Reads `needs_of_all_rows`. Raises SearchFailedError."""
    with translating(_FAILED, SearchFailedError):
        if not searcher.num_docs:
            return np.empty(0, np.int64)
        found = searcher.search(
            query.query, searcher.num_docs, count=False, order_by_field=ROW_FIELD, order=Order.Asc
        ).hits
        return np.fromiter(map(_score, found), np.int64, len(found))


def count_index(searcher: Searcher, query: IndexQuery) -> int:
    """Return the number of matching rows. Reads `needs_of_all_rows`. Raises SearchFailedError."""
    with translating(_FAILED, SearchFailedError):
        # Faster than a search for one row with a count, because nothing is scored.
        answer = searcher.aggregate(query.query, {_ROWS: {"value_count": {"field": ROW_FIELD}}})
    return int(answer[_ROWS]["value"])


def merge_hits(hits: Sequence[Hits], limit: int) -> MergedHits:
    """Return the `limit` best rows of all splits; ties are ordered by split, then by row.

    The hits of each split must be sorted.
    """
    total = sum(each.total for each in hits)
    if len(hits) == 1:
        (only,) = hits
        rows = only.rows[: max(limit, 0)]
        return MergedHits(only.scores[: len(rows)], np.zeros(len(rows), np.int64), rows, total)
    scores = np.concatenate([each.scores for each in hits]) if hits else np.empty(0, np.float32)
    rows = np.concatenate([each.rows for each in hits]) if hits else np.empty(0, np.int64)
    splits = np.repeat(np.arange(len(hits)), [len(each) for each in hits])
    best = np.lexsort((rows, splits, -scores))[: max(limit, 0)]
    return MergedHits(scores[best], splits[best], rows[best], total)


def row_numbers(searcher: Searcher, found: Sequence[tuple[Any, DocAddress]]) -> NDArray[np.int64]:
    """Return the row number of each hit. Raises SearchFailedError if the index has several segments."""
    if searcher.num_segments != 1:
        raise SearchFailedError(f"{_FAILED}: it has {searcher.num_segments} segments, and should have one")
    # In a single segment, documents are in row order: their numbers are those of the rows.
    return np.fromiter(map(_document, map(_address, found)), np.int64, len(found))
