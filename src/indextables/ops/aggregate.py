"""Aggregating: metrics from the indexes of many splits, without their rows."""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from indextables.ops.question import Question, ask_split, matching, narrowed, on_each, open_splits
from indextables.search.aggregation import Aggregation, Histogram, Metric, Terms
from indextables.search.compile import everything
from indextables.search.hits import matching_rows
from indextables.search.merge_aggregates import merge_aggregates
from indextables.search.scope import SearchScope, Target
from indextables.search.split_aggregate import PartialAggregate, aggregate_index
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_files import row_index
from indextables.split.split import Split
from indextables.table import Snapshot


def aggregate(
    snapshot: Snapshot,
    question: Question,
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
    snapshot: Snapshot, question: Question, aggregation: Aggregation, split: Split
) -> PartialAggregate:
    asked = ask_split(snapshot, question, split)
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
