"""Search: query text and predicates as queries, their answers as row numbers, counts and aggregations."""

from indextables.search.aggregation import Aggregation, Histogram, Metric, MetricFunction, Terms

__all__ = ["Aggregation", "Histogram", "Metric", "MetricFunction", "Terms"]
