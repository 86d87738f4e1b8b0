"""Searching, counting and aggregating: queries the indexes of all splits, and reads only the rows of the best hits.

A request is compiled for each split, because splits may be indexed differently. What an index cannot decide of a
predicate is evaluated on the rows.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from itertools import chain
from typing import Concatenate, Final, ParamSpec, TypeVar
from weakref import ref

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from numpy.typing import NDArray

from indextables._arrow import arrow_from_numpy
from indextables._caching import LruCache, shared_cache
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidOptionError, InvalidQueryError
from indextables.log.deletion_vectors import live_counts
from indextables.metrics import SEARCH_DURATION_MS
from indextables.ops.read import SplitRef, open_again, ordered_refs, projected_schema
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
from indextables.search.aggregation import Aggregation, Metric, PartialAggregate
from indextables.search.compile import (
    CompiledQuery,
    QueryCompiler,
    SearchScope,
    Target,
    compile_query,
)
from indextables.search.groupings import Grouping
from indextables.search.highlight import Span, highlight
from indextables.search.hits import Hits, MergedHits, count_index, matching_rows, merge_hits, search_index
from indextables.search.index_query import IndexQuery
from indextables.search.merge_aggregates import merge_aggregates
from indextables.search.parser import QueryNode, parse_query
from indextables.search.row_aggregate import aggregate_rows, needed_columns
from indextables.search.split_aggregate import (
    BeyondIndexError,
    aggregate_index,
    aggregate_needs,
    is_for_index,
)
from indextables.search.split_scope import can_aggregate, constant_columns, split_scope
from indextables.split.doc_mapping import DocMapping, FieldKind
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.index_cache import index_cache
from indextables.split.split import Split
from indextables.table import Snapshot

# How many compiled queries are cached, each for one split.
_CACHED_QUERIES: Final = 4096
_CACHED_COMPILERS: Final = 256

# The number of all hits, in the metadata of the schema of an answer.
TOTAL_HITS: Final = b"indextables.hits"

SCORE: Final = pa.field("_score", pa.float32(), nullable=False)

# The name of the column with the matching parts of each text column.
HIGHLIGHT: Final = "_highlight"

_SPANS: Final = pa.list_(pa.struct([("start", pa.int32()), ("end", pa.int32())]))

# The factor by which the number of hits grows each time that too few of them satisfy the predicate.
_WIDENING: Final = 8

P = ParamSpec("P")
T = TypeVar("T")


class SearchRequest(msgspec.Struct, frozen=True):
    """Which rows to search, count or aggregate. `SearchRequest.of` makes one from text.

    Attributes:
        query: The parsed full-text query; None matches all rows.
        where: A predicate, bound to the schema of the table.
        fields: The columns to search for terms without a field; all text columns if empty, and all columns for "*".
    """

    query: QueryNode | None
    where: BoundPredicate | None
    fields: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, snapshot: Snapshot, query: str | None, where: Predicate | None, fields: str | Sequence[str] = ()
    ) -> "SearchRequest":
        """Parse the query and bind the predicate. Raises InvalidQueryError and InvalidPredicateError."""
        return cls(
            query=None if query is None else parse_query(query),
            where=None if where is None else bind(where, snapshot.schema),
            fields=named_fields(fields),
        )


def named_fields(fields: str | Sequence[str]) -> tuple[str, ...]:
    """The columns to search by default: one, or several."""
    return (fields,) if isinstance(fields, str) else tuple(fields)


class Page(msgspec.Struct, frozen=True):
    """Which of the hits to return.

    Attributes:
        limit: The most rows to return.
        offset: The number of hits to leave out in front of them.
        with_total: Whether to count all hits in the same pass.
    """

    limit: int = 10
    offset: int = 0
    with_total: bool = False

    def check(self) -> None:
        """Raise InvalidOptionError for numbers that make no sense."""
        if self.limit < 1:
            raise InvalidOptionError(f"the limit is {self.limit}, but must be at least 1")
        if self.offset < 0:
            raise InvalidOptionError(f"the offset is {self.offset}, but must not be negative")

    @property
    def end(self) -> int:
        """The number of best hits that the page is cut from."""
        return self.offset + self.limit


_COMPILED: LruCache[tuple["ref[Split]", SearchRequest], CompiledQuery] = shared_cache(
    "ops.search.queries", "compiled queries", max_entries=_CACHED_QUERIES
)


_COMPILERS: LruCache[tuple["ref[Split]", tuple[str, ...]], QueryCompiler] = shared_cache(
    "ops.search.compilers", "query compilers of splits", max_entries=_CACHED_COMPILERS
)


def _timed(operation: Callable[Concatenate[Snapshot, P], T]) -> Callable[Concatenate[Snapshot, P], T]:
    """Report the time that an operation on a snapshot takes."""

    @wraps(operation)
    def timed(snapshot: Snapshot, /, *args: P.args, **kwargs: P.kwargs) -> T:
        started = time.perf_counter()
        result = operation(snapshot, *args, **kwargs)
        took_ms = (time.perf_counter() - started) * 1000
        SEARCH_DURATION_MS.record(took_ms, snapshot.context.url, operation=operation.__name__)
        return result

    return timed


@_timed
def search(
    snapshot: Snapshot, request: SearchRequest, columns: Sequence[str] | None, limit: int | Page
) -> pa.Table:
    """The best rows, best first, with their score as the last column.

    Scores are BM25 with the term frequencies of each split. A page with a total has it in the metadata of the schema,
    under TOTAL_HITS. Raises InvalidQueryError for a query that does not fit the table, and the errors of unreadable
    splits, which are never skipped.
    """
    page = limit if isinstance(limit, Page) else Page(limit)
    page.check()
    schema = projected_schema(snapshot.schema, columns)
    refs, hits = best_hits(snapshot, request, page.end, with_total=page.with_total)
    shown = MergedHits(hits.scores[page.offset :], hits.splits[page.offset :], hits.rows[page.offset :])
    scores = arrow_from_numpy(shown.scores)
    if schema.names:
        rows = take_rows(snapshot, refs, shown.splits, shown.rows, schema).append_column(SCORE, scores)
    else:
        rows = pa.table([scores], schema=pa.schema([SCORE]))
    return rows.replace_schema_metadata({TOTAL_HITS: str(hits.total)}) if page.with_total else rows


@_timed
def count(snapshot: Snapshot, request: SearchRequest) -> int:
    """The number of matching rows. If the log alone can answer, no split is opened."""
    entries, request = narrow(snapshot, request)
    is_decided = request.query is None and request.where is None
    if is_decided and not entries["numRecords"].null_count:
        return pc.sum(live_counts(entries)).as_py() or 0
    refs = checked_refs(snapshot, entries, request)
    return sum(on_each(snapshot, refs, partial(_count, snapshot, request)))


@_timed
def aggregate(
    snapshot: Snapshot,
    request: SearchRequest,
    metrics: str | Metric | Sequence[str | Metric],
    by: str | Grouping | Sequence[str | Grouping] | None,
) -> pa.Table:
    """Metrics over all matching rows, or over groups of them: from the indexes, or else from rows.

    Raises InvalidAggregationError for columns that do not exist or have the wrong type, and what `search` raises.
    """
    aggregation = Aggregation.of(metrics, by)
    aggregation.check(snapshot.schema)
    entries, request = narrow(snapshot, request)
    refs = checked_refs(snapshot, entries, request)
    partials = on_each(snapshot, refs, partial(_aggregate, snapshot, request, aggregation))
    return merge_aggregates(aggregation, list(chain.from_iterable(partials)), snapshot.schema)


def check_query(snapshot: Snapshot, request: SearchRequest) -> None:
    """Raise InvalidQueryError for a query that fits no doc mapping of the table. Opens no split."""
    if request.query is None:
        return
    columns = [snapshot.schema.field(name) for name in snapshot.partition_columns]
    partition = pa.table([pa.nulls(1, column.type) for column in columns], schema=pa.schema(columns))
    errors: list[InvalidQueryError] = []
    for mapping in known_mappings(snapshot):
        try:
            compile_query(request.query, SearchScope(mapping, snapshot.schema, partition, request.fields))
        except InvalidQueryError as error:
            errors.append(error)
        else:
            return
    raise errors[0]


class Highlighter(msgspec.Struct, frozen=True):
    """Finds the words of a query in the text of rows, for display."""

    query: QueryNode
    scope: SearchScope

    @classmethod
    def of(cls, snapshot: Snapshot, query: str, fields: str | Sequence[str] = ()) -> "Highlighter":
        """A highlighter for a query, with the index settings of the table."""
        mapping = mapping_from_settings(snapshot.shape, snapshot.context.settings)
        return cls(
            parse_query(query), SearchScope(mapping, snapshot.schema, default_fields=named_fields(fields))
        )

    def is_text(self, column: str) -> bool:
        """Whether a column is indexed as text."""
        field = self.scope.mapping.find(column)
        return field is not None and field.kind is FieldKind.TEXT

    def default_columns(self) -> list[str]:
        """The columns that the query searches for words without a field."""
        found = self.scope.defaults()
        return [target.field.name for target in found if isinstance(target, Target)]

    def spans(self, column: str, text: str) -> tuple[Span, ...]:
        """The parts of a column's text that match the query."""
        return highlight(self.query, self.scope, column, text)


def with_highlights(found: pa.Table, highlighter: Highlighter) -> pa.Table:
    """The rows of an answer, with the matching parts of their text columns as the last column."""
    texts = [name for name in found.column_names if highlighter.is_text(name)]
    spans = {
        name: [
            None
            if text is None
            else [{"start": each.start, "end": each.end} for each in highlighter.spans(name, text)]
            for text in found[name].to_pylist()
        ]
        for name in texts
    }
    arrays = [pa.array(spans[name], _SPANS) for name in texts]
    column = (
        pa.StructArray.from_arrays(arrays, names=texts) if texts else pa.nulls(found.num_rows, pa.struct([]))
    )
    return found.append_column(HIGHLIGHT, column)


def best_hits(
    snapshot: Snapshot, request: SearchRequest, limit: int, *, with_total: bool = False
) -> tuple[list[SplitRef], MergedHits]:
    """The `limit` best hits, as row numbers in splits, and the splits."""
    entries, request = narrow(snapshot, request)
    refs = checked_refs(snapshot, entries, request)
    hits = on_each(snapshot, refs, partial(_hits, snapshot, request, limit, with_total))
    return refs, merge_hits(hits, limit)


def matching_splits(snapshot: Snapshot, request: SearchRequest) -> tuple[list[SplitRef], SearchRequest]:
    """The splits that may have matching rows, and the request for `matching_rows_of`. Raises InvalidQueryError."""
    entries, request = narrow(snapshot, request)
    return checked_refs(snapshot, entries, request), request


def narrow(snapshot: Snapshot, request: SearchRequest) -> tuple[pa.Table, SearchRequest]:
    """The entries that may have matching rows, and the request without conditions that their partitions satisfy."""
    entries = snapshot.select(request.where).entries
    if request.where is None:
        return entries, request
    return entries, replace(request, where=_undecided(snapshot, entries, request.where))


def _undecided(snapshot: Snapshot, entries: pa.Table, where: BoundPredicate) -> BoundPredicate | None:
    """The part of a predicate that the partition values of the selected entries do not decide."""
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


def checked_refs(snapshot: Snapshot, entries: pa.Table, request: SearchRequest) -> list[SplitRef]:
    """The splits of entries, in a fixed order. Without entries, checks the query as `check_query` does."""
    if not entries.num_rows:
        check_query(snapshot, request)
    # Equal scores are ordered by split. The order of entries depends on the checkpoint, so sort by path.
    return ordered_refs(snapshot, entries)


def known_mappings(snapshot: Snapshot) -> list[DocMapping]:
    """The doc mappings of all splits that the table ever had; for a table without splits, that of the first one."""
    texts = snapshot.header.doc_mappings.values()
    registered = [DocMapping.from_json(text).in_table(snapshot.shape) for text in texts]
    return registered or [mapping_from_settings(snapshot.shape, snapshot.context.settings)]


def on_each(snapshot: Snapshot, refs: Sequence[SplitRef], function: Callable[[Split], T]) -> list[T]:
    """The results of a function of each split. A split is open only while the function needs it, or in a cache."""
    return parallel_map(
        lambda each: function(open_again(snapshot, each)), refs, snapshot.context.settings[READ_PARALLELISM]
    )


def compile_for(snapshot: Snapshot, request: SearchRequest, split: Split) -> CompiledQuery:
    """Compile a request for the index of a split, or take it from the cache. Raises InvalidQueryError."""
    shape, settings = snapshot.shape, snapshot.context.settings
    if shape.defaults:
        # How a default is searched depends on the settings, which are no part of the key in the caches.
        scope = split_scope(split, shape, request.fields, constant_columns(shape, settings))
        return QueryCompiler(scope).with_predicate(request.query, request.where)
    key = (ref(split), request)
    compiled = _COMPILED.get(key)
    if compiled is None:
        compiled = _compiler_for(snapshot, request.fields, split).with_predicate(request.query, request.where)
        _COMPILED.put(key, compiled)
    return compiled


def _compiler_for(snapshot: Snapshot, fields: tuple[str, ...], split: Split) -> QueryCompiler:
    """The compiler of a split. An open split has one schema: that is a part of its key in the cache."""
    key = (ref(split), fields)
    compiler = _COMPILERS.get(key)
    if compiler is None:
        compiler = QueryCompiler(split_scope(split, snapshot.shape, fields))
        _COMPILERS.put(key, compiler)
    return compiler


def rows_matching(split: Split, rows: NDArray[np.int64], predicate: BoundPredicate) -> NDArray[np.int64]:
    """The rows for which a bound predicate is true."""
    if not len(rows):
        return rows
    names = sorted(columns_of(predicate))
    number = "~".join(["row", *names])  # longer than any of the names
    numbered = split.take(rows, names).append_column(number, arrow_from_numpy(rows))
    matching: NDArray[np.int64] = numbered.filter(to_arrow_filter(predicate))[number].to_numpy()
    return matching


def _best_hits(
    snapshot: Snapshot, split: Split, query: IndexQuery, limit: int, *, with_total: bool = False
) -> Hits:
    return split.search_index(
        index_cache(snapshot.context.settings),
        query.needs_of_best_rows(),
        lambda searcher: search_index(searcher, query, limit, with_total=with_total),
    )


def all_hits(snapshot: Snapshot, split: Split, query: IndexQuery) -> NDArray[np.int64]:
    return split.search_index(
        index_cache(snapshot.context.settings),
        query.needs_of_all_rows(),
        lambda searcher: matching_rows(searcher, query),
    )


def _hits(snapshot: Snapshot, request: SearchRequest, limit: int, with_total: bool, split: Split) -> Hits:
    compiled = compile_for(snapshot, request, split)
    if compiled.rest is None:
        return _best_hits(snapshot, split, compiled.query, limit, with_total=with_total)
    total = _count(snapshot, request, split) if with_total else 0
    # The index does not decide the whole predicate: check ever more of the best hits until enough of them satisfy it.
    wanted = limit
    while True:
        wanted = min(wanted * _WIDENING, split.num_records)
        hits = _best_hits(snapshot, split, compiled.query, wanted)
        kept = np.isin(hits.rows, rows_matching(split, hits.rows, compiled.rest))
        if len(hits) < wanted or wanted == split.num_records or np.count_nonzero(kept) >= limit:
            return Hits(hits.scores[kept][:limit], hits.rows[kept][:limit], total)


def _count(snapshot: Snapshot, request: SearchRequest, split: Split) -> int:
    compiled = compile_for(snapshot, request, split)
    if compiled.rest is not None:
        return len(rows_matching(split, all_hits(snapshot, split, compiled.query), compiled.rest))
    return split.search_index(
        index_cache(snapshot.context.settings),
        compiled.query.needs_of_all_rows(),
        lambda searcher: count_index(searcher, compiled.query),
    )


def matching_rows_of(snapshot: Snapshot, request: SearchRequest, split: Split) -> NDArray[np.int64]:
    """The numbers of the matching rows of a split that are not deleted, ascending. Raises what `search` raises."""
    compiled = compile_for(snapshot, request, split)
    rows = all_hits(snapshot, split, compiled.query)
    return rows if compiled.rest is None else rows_matching(split, rows, compiled.rest)


def take_rows(
    snapshot: Snapshot,
    refs: Sequence[SplitRef],
    splits: NDArray[np.int64],
    rows: NDArray[np.int64],
    schema: pa.Schema,
) -> pa.Table:
    """The rows with these numbers in these splits, in this order. Each split is read once."""
    order = np.argsort(splits, kind="stable")
    taken = parallel_map(
        lambda split: open_again(snapshot, refs[split]).take(rows[splits == split], schema.names),
        np.flatnonzero(np.bincount(splits)).tolist(),
        snapshot.context.settings[READ_PARALLELISM],
    )
    if len(taken) == 1:
        return taken[0]
    found = pa.concat_tables([schema.empty_table(), *taken])
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return found.take(arrow_from_numpy(back))


def _aggregate(
    snapshot: Snapshot, request: SearchRequest, aggregation: Aggregation, split: Split
) -> list[PartialAggregate]:
    compiled = compile_for(snapshot, request, split)
    is_asked = compiled.rest is None and is_for_index(aggregation, snapshot.schema)
    if is_asked and can_aggregate(aggregation, compiled.scope):
        with suppress(BeyondIndexError):
            found = split.search_index(
                index_cache(snapshot.context.settings),
                aggregate_needs(compiled.query, aggregation, compiled.scope),
                lambda searcher: aggregate_index(searcher, compiled.query, aggregation, compiled.scope),
            )
            return [found]
    columns = needed_columns(aggregation, snapshot.schema) or snapshot.schema.names[:1]
    if request.query is None:
        batches = split.scan(columns, request.where)
    else:
        batches = iter(split.take(matching_rows_of(snapshot, request, split), columns).to_batches())
    return aggregate_rows(batches, aggregation, snapshot.schema)
