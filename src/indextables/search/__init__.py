"""Search: query text and predicates become Tantivy queries; results are row numbers, counts and aggregations."""

from indextables.search.aggregation import Aggregation, Histogram, Metric, MetricFunction, Terms

__all__ = ["Aggregation", "Histogram", "Metric", "MetricFunction", "Terms"]
