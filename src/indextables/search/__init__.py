"""Search: query text and predicates as queries, their answers as row numbers, counts and aggregations."""

from indextables.search.aggregation import Aggregation, Histogram, Metric, MetricFunction, Terms
from indextables.search.clauses import Joiner
from indextables.search.compile import compile_query
from indextables.search.exact import filtered, split_predicate
from indextables.search.highlight import Span, highlight
from indextables.search.hits import Hits, MergedHits, count_index, matching_rows, merge_hits, search_index
from indextables.search.merge_aggregates import MAX_COUNT_ERROR, merge_aggregates
from indextables.search.nodes import QueryNode
from indextables.search.parse import parse_query
from indextables.search.partial_aggregate import PartialAggregate, aggregate_index
from indextables.search.scope import SearchScope

__all__ = [
    "MAX_COUNT_ERROR",
    "Aggregation",
    "Histogram",
    "Hits",
    "Joiner",
    "MergedHits",
    "Metric",
    "MetricFunction",
    "PartialAggregate",
    "QueryNode",
    "SearchScope",
    "Span",
    "Terms",
    "aggregate_index",
    "compile_query",
    "count_index",
    "filtered",
    "highlight",
    "matching_rows",
    "merge_aggregates",
    "merge_hits",
    "parse_query",
    "search_index",
    "split_predicate",
]
