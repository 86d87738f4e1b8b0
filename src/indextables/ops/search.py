"""What is asked of a table's splits, and how each of them understands it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from numpy.typing import NDArray

from indextables._arrow import arrow_from_numpy
from indextables._caching import LruCache
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidOptionError, InvalidQueryError
from indextables.ops.read import open_again, ordered_refs, projected_schema
from indextables.ops.runner import parallel_map
from indextables.predicates import (
    BoundPredicate,
    Predicate,
    all_of,
    bind,
    columns_of,
    conjuncts_of,
    to_arrow_filter,
)
from indextables.pruning import match_partitions
from indextables.search.aggregation import Aggregation, Histogram, Metric, Terms
from indextables.search.compile import CompiledQuery, compile_query, compile_with_predicate, everything
from indextables.search.highlight import Span, highlight
from indextables.search.hits import Hits, MergedHits, count_index, matching_rows, merge_hits, search_index
from indextables.search.merge_aggregates import merge_aggregates
from indextables.search.nodes import QueryNode
from indextables.search.parser import parse_query
from indextables.search.scope import SearchScope, Target
from indextables.search.split_aggregate import PartialAggregate, aggregate_index
from indextables.split.doc_mapping import DocMapping, FieldKind
from indextables.split.index_cache import index_cache
from indextables.split.index_files import row_index
from indextables.split.split import Split
from indextables.table import Snapshot

# Of each open split, so many questions are kept as its index understands them.
_KEPT_QUESTIONS: Final = 256

T = TypeVar("T")


class SearchRequest(msgspec.Struct, frozen=True):
    """What is asked of every split: a query, or all rows, restricted by a bound predicate."""

    query: QueryNode | None
    where: BoundPredicate | None
    fields: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, snapshot: Snapshot, query: str | None, where: Predicate | None, fields: Sequence[str] = ()
    ) -> "SearchRequest":
        """The question in a caller's words. Raises InvalidQueryError and InvalidPredicateError."""
        return cls(
            query=None if query is None else parse_query(query),
            where=None if where is None else bind(where, snapshot.schema),
            fields=tuple(fields),
        )


_ASKED: WeakKeyDictionary[Split, LruCache[SearchRequest, CompiledQuery]] = WeakKeyDictionary()


def narrowed(snapshot: Snapshot, question: SearchRequest) -> tuple[pa.Table, SearchRequest]:
    """The entries that may have matching rows, and the question without what their partition values decide."""
    entries = snapshot.select(question.where).entries
    if question.where is None:
        return entries, question
    return entries, replace(question, where=_undecided(snapshot, entries, question.where))


def open_splits(snapshot: Snapshot, entries: pa.Table, question: SearchRequest) -> list[Split]:
    """The splits of entries, in a fixed order. If there are none, raises InvalidQueryError as `check_query` does."""
    if not entries.num_rows:
        check_query(snapshot, question)
    # Equal scores go by the order of the splits, and that of entries depends on what they were read from.
    refs = ordered_refs(snapshot, entries)
    return parallel_map(partial(open_again, snapshot), refs, snapshot.context.settings[READ_PARALLELISM])


def check_query(snapshot: Snapshot, question: SearchRequest) -> None:
    """Raise InvalidQueryError for a query that fits no mapping of the table, where there is no split to ask."""
    if question.query is None:
        return
    columns = [snapshot.schema.field(name) for name in snapshot.partition_columns]
    partition = pa.table([pa.nulls(1, column.type) for column in columns], schema=pa.schema(columns))
    refusals: list[InvalidQueryError] = []
    for mapping in _known_mappings(snapshot):
        try:
            compile_query(question.query, SearchScope(mapping, snapshot.schema, partition, question.fields))
        except InvalidQueryError as error:
            refusals.append(error)
        else:
            return
    raise refusals[0]


def _known_mappings(snapshot: Snapshot) -> list[DocMapping]:
    """The mappings of all splits that the table ever had, or that of the first split to come."""
    registered = [DocMapping.from_json(each) for each in snapshot.header.schema_registry.values()]
    columns = (snapshot.schema, snapshot.partition_columns)
    return registered or [DocMapping.from_schema(*columns, snapshot.context.settings)]


def on_each(snapshot: Snapshot, splits: Sequence[Split], function: Callable[[Split], T]) -> list[T]:
    """The results of a function for all splits, in their order, computed in parallel."""
    return parallel_map(function, splits, snapshot.context.settings[READ_PARALLELISM])


def compile_for(snapshot: Snapshot, question: SearchRequest, split: Split) -> CompiledQuery:
    """A question as the index of a split understands it. Raises InvalidQueryError."""
    index = split.index(index_cache(snapshot.context.settings))
    lately = _ASKED.get(split)
    if lately is None:
        lately = _ASKED.setdefault(split, LruCache(_KEPT_QUESTIONS))
    asked = lately.get(question)
    if asked is None or asked.index is not index:
        scope = SearchScope(split.mapping, snapshot.schema, split.partition_row, question.fields)
        asked = compile_with_predicate(index, scope, question.query, question.where)
        lately.put(question, asked)
    return asked


def matching(split: Split, rows: NDArray[np.int64], predicate: BoundPredicate) -> NDArray[np.int64]:
    """Those of the rows for which a bound predicate is true."""
    if not len(rows):
        return rows
    names = sorted(columns_of(predicate))
    number = "~".join(["row", *names])  # longer than any of the names
    numbered = split.take(rows, names).append_column(number, pa.array(rows))
    matching: NDArray[np.int64] = numbered.filter(to_arrow_filter(predicate))[number].to_numpy()
    return matching


def _undecided(snapshot: Snapshot, entries: pa.Table, where: BoundPredicate | None) -> BoundPredicate | None:
    """What partition values leave open of a predicate by which these entries were selected."""
    if where is None:
        return None
    partition_columns = frozenset(snapshot.partition_columns)
    left = [
        conjunct
        for conjunct in conjuncts_of(where)
        if not columns_of(conjunct) <= partition_columns or not _holds_for_all(snapshot, entries, conjunct)
    ]
    return all_of(left) if left else None


def _holds_for_all(snapshot: Snapshot, entries: pa.Table, predicate: BoundPredicate) -> bool:
    matches = match_partitions(entries, predicate, snapshot.shape)
    return not matches.null_count and bool(pc.all(matches).as_py())


# Searching and counting: the indexes of many splits, and the rows of the best hits only.


SCORE: Final = pa.field("_score", pa.float32(), nullable=False)

# How many more hits are looked at, each time that too few of them satisfy a predicate.
_WIDENING: Final = 8


def search(
    snapshot: Snapshot, question: SearchRequest, columns: Sequence[str] | None, limit: int
) -> pa.Table:
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


def best_hits(snapshot: Snapshot, question: SearchRequest, limit: int) -> tuple[list[Split], MergedHits]:
    """The `limit` best rows by their numbers, and the splits that these are numbers in. See `search`."""
    entries, question = narrowed(snapshot, question)
    splits = open_splits(snapshot, entries, question)
    hits = on_each(snapshot, splits, partial(_hits, snapshot, question, limit))
    return splits, merge_hits(hits, limit)


def count(snapshot: Snapshot, question: SearchRequest) -> int:
    """How many rows match. The log alone answers where it can: no split is opened then."""
    entries, question = narrowed(snapshot, question)
    is_decided = question.query is None and question.where is None
    if is_decided and not entries["numRecords"].null_count:
        return pc.sum(entries["numRecords"]).as_py() or 0
    splits = open_splits(snapshot, entries, question)
    return sum(on_each(snapshot, splits, partial(_count, snapshot, question)))


def _hits(snapshot: Snapshot, question: SearchRequest, limit: int, split: Split) -> Hits:
    asked = compile_for(snapshot, question, split)
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


def _count(snapshot: Snapshot, question: SearchRequest, split: Split) -> int:
    asked = compile_for(snapshot, question, split)
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


# Aggregating: metrics from the indexes of many splits, without their rows.


def aggregate(
    snapshot: Snapshot,
    question: SearchRequest,
    metrics: Sequence[str | Metric],
    by: str | Terms | Histogram | None,
) -> pa.Table:
    """Metrics over all matching rows, or over groups of them, without fetching rows.

    Raises InvalidAggregationError for columns that do not exist or do not fit, and what `search` raises.
    """
    aggregation = Aggregation.of(metrics, by)
    aggregation.check(snapshot.schema)
    entries, question = narrowed(snapshot, question)
    splits = open_splits(snapshot, entries, question)
    partials = on_each(snapshot, splits, partial(_aggregate, snapshot, question, aggregation))
    return merge_aggregates(aggregation, partials, snapshot.schema)


def _aggregate(
    snapshot: Snapshot, question: SearchRequest, aggregation: Aggregation, split: Split
) -> PartialAggregate:
    asked = compile_for(snapshot, question, split)
    if asked.rest is None:
        return aggregate_index(asked.index, asked.query, aggregation, asked.scope)
    # The index cannot be asked about rows that it cannot tell apart: they get one of their own.
    rows = matching(split, matching_rows(asked.index, asked.query), asked.rest)
    mapping = _mapping_of(aggregation, asked.scope)
    columns = [field.name for field in mapping] or snapshot.schema.names[:1]
    with row_index(split.take(rows, columns), mapping) as index:
        return aggregate_index(index, everything(), aggregation, replace(asked.scope, mapping=mapping))


def _mapping_of(aggregation: Aggregation, scope: SearchScope) -> DocMapping:
    """The mapping of those columns alone that an aggregation looks at."""
    by = () if aggregation.by is None else (aggregation.by.column,)
    targets = map(scope.find_column, (*by, *aggregation.columns))
    fields = dict.fromkeys(target.field for target in targets if isinstance(target, Target))
    return DocMapping(tuple(fields))


# The words of a query in the texts of rows.


class Highlighter(msgspec.Struct, frozen=True):
    """Finds the words of a query in the texts of rows, for showing them to people."""

    query: QueryNode
    scope: SearchScope

    @classmethod
    def of(cls, snapshot: Snapshot, query: str, fields: Sequence[str] = ()) -> "Highlighter":
        """A highlighter for a query, by the index settings of the table."""
        settings = snapshot.context.settings
        mapping = DocMapping.from_schema(snapshot.schema, snapshot.partition_columns, settings)
        return cls(parse_query(query), SearchScope(mapping, snapshot.schema, default_fields=tuple(fields)))

    def is_text(self, column: str) -> bool:
        """Whether a column holds words."""
        field = self.scope.mapping.find(column)
        return field is not None and field.kind is FieldKind.TEXT

    def default_columns(self) -> list[str]:
        """The columns in which words without a field are looked for."""
        return [target.field.name for target in self.scope.defaults()]

    def spans(self, column: str, text: str) -> tuple[Span, ...]:
        """The parts of a column's text that the query asks for."""
        return highlight(self.query, self.scope, column, text)
