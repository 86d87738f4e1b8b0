"""Search: query text and predicates become Tantivy queries; results are row numbers, counts and aggregations."""

from indextables.search.aggregation import Aggregation, Metric, MetricFunction
from indextables.search.groupings import DateHistogram, Grouping, Histogram, Range, Ranges, Terms

__all__ = [
    "Aggregation",
    "DateHistogram",
    "Grouping",
    "Histogram",
    "Metric",
    "MetricFunction",
    "Range",
    "Ranges",
    "Terms",
]
