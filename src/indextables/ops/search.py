"""Search, count and aggregate over the splits of a snapshot, and highlight matches."""

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
from indextables.predicates import And, Predicate, all_of, bind, columns_of, to_arrow_filter
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

# How many compiled queries are cached for each open split.
_COMPILED_PER_SPLIT: Final = 256

T = TypeVar("T")


class SearchRequest(msgspec.Struct, frozen=True):
    """Which rows to search, count or aggregate. `SearchRequest.of` makes one from text.

    Attributes:
        query: The parsed full-text query; None matches all rows.
        where: A predicate, bound to the schema of the table.
        fields: The columns to search for terms without a field; all text columns if empty.
    """

    query: QueryNode | None
    where: Predicate | None
    fields: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, snapshot: Snapshot, query: str | None, where: Predicate | None, fields: Sequence[str] = ()
    ) -> "SearchRequest":
        """Parse a query and bind a predicate. Raises InvalidQueryError and InvalidPredicateError."""
        return cls(
            query=None if query is None else parse_query(query),
            where=None if where is None else bind(where, snapshot.schema),
            fields=tuple(fields),
        )


_COMPILED: WeakKeyDictionary[Split, LruCache[SearchRequest, CompiledQuery]] = WeakKeyDictionary()


def narrowed(snapshot: Snapshot, request: SearchRequest) -> tuple[pa.Table, SearchRequest]:
    """The entries that may have matching rows, and the request without the conditions that their partitions decide."""
    entries = snapshot.select(request.where).entries
    if request.where is None:
        return entries, request
    return entries, replace(request, where=_undecided(snapshot, entries, request.where))


def open_splits(snapshot: Snapshot, entries: pa.Table, request: SearchRequest) -> list[Split]:
    """The splits of entries, in a fixed order. If there are none, raises InvalidQueryError as `check_query` does."""
    if not entries.num_rows:
        check_query(snapshot, request)
    # Rows with equal scores are ordered by split, and the order of entries depends on the files they were read from.
    refs = ordered_refs(snapshot, entries)
    return parallel_map(partial(open_again, snapshot), refs, snapshot.context.settings[READ_PARALLELISM])


def check_query(snapshot: Snapshot, request: SearchRequest) -> None:
    """Raise InvalidQueryError for a query that fits no doc mapping of the table, without opening a split."""
    if request.query is None:
        return
    columns = [snapshot.schema.field(name) for name in snapshot.partition_columns]
    partition = pa.table([pa.nulls(1, column.type) for column in columns], schema=pa.schema(columns))
    refusals: list[InvalidQueryError] = []
    for mapping in _known_mappings(snapshot):
        try:
            compile_query(request.query, SearchScope(mapping, snapshot.schema, partition, request.fields))
        except InvalidQueryError as error:
            refusals.append(error)
        else:
            return
    raise refusals[0]


def _known_mappings(snapshot: Snapshot) -> list[DocMapping]:
    """The registered doc mappings, or the mapping of the first split to be written."""
    registered = [DocMapping.from_json(each) for each in snapshot.header.schema_registry.values()]
    columns = (snapshot.schema, snapshot.partition_columns)
    return registered or [DocMapping.from_schema(*columns, snapshot.context.settings)]


def on_each(snapshot: Snapshot, splits: Sequence[Split], function: Callable[[Split], T]) -> list[T]:
    """The results of a function for all splits, in order, computed in parallel."""
    return parallel_map(function, splits, snapshot.context.settings[READ_PARALLELISM])


def compile_for(snapshot: Snapshot, request: SearchRequest, split: Split) -> CompiledQuery:
    """Compile a request for the index of a split. Raises InvalidQueryError."""
    index = split.index(index_cache(snapshot.context.settings))
    cache = _COMPILED.get(split)
    if cache is None:
        cache = _COMPILED.setdefault(split, LruCache(_COMPILED_PER_SPLIT))
    compiled = cache.get(request)
    if compiled is None or compiled.index is not index:
        scope = SearchScope(split.mapping, snapshot.schema, split.partition_row, request.fields)
        compiled = compile_with_predicate(index, scope, request.query, request.where)
        cache.put(request, compiled)
    return compiled


def matching(split: Split, rows: NDArray[np.int64], predicate: Predicate) -> NDArray[np.int64]:
    """Those of the rows for which a bound predicate is true."""
    if not len(rows):
        return rows
    names = sorted(columns_of(predicate))
    number = "~".join(["row", *names])  # longer than any of the names
    numbered = split.take(rows, names).append_column(number, pa.array(rows))
    matching: NDArray[np.int64] = numbered.filter(to_arrow_filter(predicate))[number].to_numpy()
    return matching


def _undecided(snapshot: Snapshot, entries: pa.Table, where: Predicate | None) -> Predicate | None:
    """The conjuncts of a predicate that the partition values of these entries do not decide."""
    if where is None:
        return None
    conjuncts = where.operands if isinstance(where, And) else (where,)
    partition_columns = frozenset(snapshot.partition_columns)
    left = [
        conjunct
        for conjunct in conjuncts
        if not columns_of(conjunct) <= partition_columns or not _holds_for_all(snapshot, entries, conjunct)
    ]
    return all_of(left) if left else None


def _holds_for_all(snapshot: Snapshot, entries: pa.Table, predicate: Predicate) -> bool:
    matches = match_partitions(entries, predicate, snapshot.schema, snapshot.partition_columns)
    return not matches.null_count and bool(pc.all(matches).as_py())


# --- Search and count: the indexes of many splits, and the rows of the best hits only --------------------


SCORE: Final = pa.field("_score", pa.float32(), nullable=False)

# The factor by which the number of hits grows when too few of them satisfy the predicate.
_WIDENING: Final = 8


def search(snapshot: Snapshot, request: SearchRequest, columns: Sequence[str] | None, limit: int) -> pa.Table:
    """The `limit` best rows, best first, with their score as the last column.

    Scores are BM25 with the term frequencies of each split. Raises InvalidQueryError for a query that does not
    fit the table, and an error for a split that cannot be read.
    """
    if limit < 1:
        raise InvalidOptionError(f"the limit is {limit}; ask for at least one row")
    schema = projected_schema(snapshot.schema, columns)
    splits, hits = best_hits(snapshot, request, limit)
    scores = arrow_from_numpy(hits.scores)
    if not schema.names:
        return pa.table([scores], schema=pa.schema([SCORE]))
    return _rows(snapshot, splits, hits, schema).append_column(SCORE, scores)


def best_hits(snapshot: Snapshot, request: SearchRequest, limit: int) -> tuple[list[Split], MergedHits]:
    """The `limit` best rows as row numbers, and the splits that these refer to. See `search`."""
    entries, request = narrowed(snapshot, request)
    splits = open_splits(snapshot, entries, request)
    hits = on_each(snapshot, splits, partial(_hits, snapshot, request, limit))
    return splits, merge_hits(hits, limit)


def count(snapshot: Snapshot, request: SearchRequest) -> int:
    """The number of matching rows. No split is opened where the log alone can answer."""
    entries, request = narrowed(snapshot, request)
    is_decided = request.query is None and request.where is None
    if is_decided and not entries["numRecords"].null_count:
        return pc.sum(entries["numRecords"]).as_py() or 0
    splits = open_splits(snapshot, entries, request)
    return sum(on_each(snapshot, splits, partial(_count, snapshot, request)))


def _hits(snapshot: Snapshot, request: SearchRequest, limit: int, split: Split) -> Hits:
    compiled = compile_for(snapshot, request, split)
    if compiled.rest is None:
        return search_index(compiled.index, compiled.query, limit)
    # The index cannot decide the rest of the predicate: widen the hits until enough rows satisfy it.
    wanted = limit
    while True:
        wanted = min(wanted * _WIDENING, split.num_records)
        hits = search_index(compiled.index, compiled.query, wanted)
        kept = np.isin(hits.rows, matching(split, hits.rows, compiled.rest))
        if len(hits) < wanted or wanted == split.num_records or np.count_nonzero(kept) >= limit:
            return Hits(hits.scores[kept][:limit], hits.rows[kept][:limit])


def _count(snapshot: Snapshot, request: SearchRequest, split: Split) -> int:
    compiled = compile_for(snapshot, request, split)
    if compiled.rest is None:
        return count_index(compiled.index, compiled.query)
    return len(matching(split, matching_rows(compiled.index, compiled.query), compiled.rest))


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


# --- Aggregate: metrics from the indexes of many splits, without their rows ------------------------------


def aggregate(
    snapshot: Snapshot,
    request: SearchRequest,
    metrics: Sequence[str | Metric],
    by: str | Terms | Histogram | None,
) -> pa.Table:
    """Metrics over all matching rows, or over groups of them, without fetching rows.

    Raises InvalidAggregationError for columns that do not exist or do not fit, and what `search` raises.
    """
    aggregation = Aggregation.of(metrics, by)
    aggregation.check(snapshot.schema)
    entries, request = narrowed(snapshot, request)
    splits = open_splits(snapshot, entries, request)
    partials = on_each(snapshot, splits, partial(_aggregate, snapshot, request, aggregation))
    return merge_aggregates(aggregation, partials, snapshot.schema)


def _aggregate(
    snapshot: Snapshot, request: SearchRequest, aggregation: Aggregation, split: Split
) -> PartialAggregate:
    compiled = compile_for(snapshot, request, split)
    if compiled.rest is None:
        return aggregate_index(compiled.index, compiled.query, aggregation, compiled.scope)
    # The index cannot select these rows, so they get a temporary index of their own.
    rows = matching(split, matching_rows(compiled.index, compiled.query), compiled.rest)
    mapping = _mapping_of(aggregation, compiled.scope)
    columns = [field.name for field in mapping] or snapshot.schema.names[:1]
    with row_index(split.take(rows, columns), mapping) as index:
        return aggregate_index(index, everything(), aggregation, replace(compiled.scope, mapping=mapping))


def _mapping_of(aggregation: Aggregation, scope: SearchScope) -> DocMapping:
    """The mapping of the columns of an aggregation."""
    by = () if aggregation.by is None else (aggregation.by.column,)
    targets = map(scope.find_column, (*by, *aggregation.columns))
    fields = dict.fromkeys(target.field for target in targets if isinstance(target, Target))
    return DocMapping(tuple(fields))


# --- Highlights: the terms of a query in the texts of rows -----------------------------------------------


class Highlighter(msgspec.Struct, frozen=True):
    """Finds the terms of a query in the texts of rows."""

    query: QueryNode
    scope: SearchScope

    @classmethod
    def of(cls, snapshot: Snapshot, query: str, fields: Sequence[str] = ()) -> "Highlighter":
        """A highlighter for a query, by the index settings of the table. Raises InvalidQueryError."""
        settings = snapshot.context.settings
        mapping = DocMapping.from_schema(snapshot.schema, snapshot.partition_columns, settings)
        return cls(parse_query(query), SearchScope(mapping, snapshot.schema, default_fields=tuple(fields)))

    def is_text(self, column: str) -> bool:
        """Whether a column is tokenized."""
        field = self.scope.mapping.find(column)
        return field is not None and field.kind is FieldKind.TEXT

    def default_columns(self) -> list[str]:
        """The columns that are searched for terms without a field."""
        return [target.field.name for target in self.scope.defaults()]

    def spans(self, column: str, text: str) -> tuple[Span, ...]:
        """The parts of a column's text that match the query."""
        return highlight(self.query, self.scope, column, text)
