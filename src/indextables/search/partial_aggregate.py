"""An aggregation over one split, answered by its index without reading rows."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from tantivy import Index, Query, Searcher

from indextables._caching import lazy_property
from indextables.errors import InvalidAggregationError, SearchFailedError
from indextables.predicates import Comparison, IsNotNull, Operator
from indextables.search.aggregation import Aggregation, Histogram, MetricFunction, Terms, column_of, is_number
from indextables.search.exact import ExactQueries, filtered
from indextables.search.field_metrics import (
    EXTREMES,
    SUMMED,
    Measured,
    ValueReader,
    has_nan,
    is_countable,
    measured,
    metric_request,
    refuse_groups,
)
from indextables.search.histogram_steps import EXACT_DOUBLES, histogram_request
from indextables.search.index_values import EXACT, decimal_value, decode
from indextables.search.partial_columns import KEY, ROWS, PartialColumns, partial_schema
from indextables.search.scope import AbsentColumn, PartitionValue, SearchScope, Target
from indextables.split.doc_mapping import ROW_FIELD, FieldKind, FieldMapping
from indextables.split.index_files import translating

# Tantivy's own limit.
MAX_GROUPS: Final = 65_000

_GROUPS: Final = "groups"
_RANGE: Final = "range"
_FAILED: Final = "the index cannot aggregate"


class PartialAggregate(msgspec.Struct, frozen=True):
    """The groups of one split. A group that is not among them has `hidden_rows` rows at most."""

    groups: pa.Table
    hidden_rows: int = 0


class _Bucket(msgspec.Struct, frozen=True):
    key: Any
    rows: int
    answers: dict[str, Any]


def aggregate_index(
    index: Index, query: Query, aggregation: Aggregation, scope: SearchScope
) -> PartialAggregate:
    """Aggregate the rows of an index that match; `scope.schema` is the table's.

    Counts, minima, maxima and the sums of whole numbers and decimals are exact. Groups of terms are complete up
    to MAX_GROUPS per split. Raises InvalidAggregationError for columns that do not exist or do not fit, and for
    what the index cannot answer exactly; SearchFailedError if the index is damaged or beyond its limits.
    """
    aggregation.check(scope.schema)
    return _Run(index.searcher(), query, aggregation, scope).partial()


class _Run(msgspec.Struct, frozen=True, dict=True):
    searcher: Searcher
    query: Query
    aggregation: Aggregation
    scope: SearchScope

    def partial(self) -> PartialAggregate:
        buckets, hidden_rows = self.buckets()
        columns: dict[str, Any] = {ROWS: [bucket.rows for bucket in buckets]}
        if self.aggregation.by is not None:
            columns[KEY] = self.keys(self.aggregation.by, buckets)
        for index, column in enumerate(self.aggregation.columns):
            columns |= self.metrics(PartialColumns(index), column, buckets)
        schema = partial_schema(self.aggregation, self.scope.schema)
        missing = {name: [None] * len(buckets) for name in schema.names if name not in columns}
        return PartialAggregate(pa.table({**columns, **missing}, schema=schema), hidden_rows)

    # --- groups --------------------------------------------------------------------------------------

    def buckets(self) -> tuple[list[_Bucket], int]:
        """The groups, and how many rows one can have that is not among them."""
        by = self.aggregation.by
        requests = {ROWS: {"value_count": {"field": ROW_FIELD}}, **self.metric_requests}
        if by is None:
            answers = self.ask(self.query, requests)
            return [_Bucket(None, int(answers[ROWS]["value"]), answers)], 0
        match self.scope.find_column(by.column):
            case Target(field=field):
                return self.field_buckets(by, field)
            case PartitionValue(row=row):
                if isinstance(by, Histogram):
                    raise InvalidAggregationError(
                        f"column {by.column!r} is a partition column; group by its values, or aggregate the rows"
                    )
                answers = self.ask(self.query, requests)
                key, rows = row.column(0)[0].as_py(), int(answers[ROWS]["value"])
                return ([_Bucket(key, rows, answers)] if rows and key is not None else []), 0
        return [], 0

    def field_buckets(self, by: Terms | Histogram, field: FieldMapping) -> tuple[list[_Bucket], int]:
        answer = self.ask(
            self.query, {_GROUPS: {**self.group_request(by, field), "aggs": self.metric_requests}}
        )
        found = answer[_GROUPS]["buckets"]
        buckets = [_Bucket(each["key"], each["doc_count"], each) for each in found]
        is_cut = isinstance(by, Terms) and answer[_GROUPS]["sum_other_doc_count"] > 0
        return buckets, buckets[-1].rows if is_cut else 0

    def group_request(self, by: Terms | Histogram, field: FieldMapping) -> dict[str, Any]:
        if not is_countable(field):
            raise _not_fast(field)
        if isinstance(by, Terms):
            return {"terms": {"field": field.index_name, "size": MAX_GROUPS}}
        if field.kind is FieldKind.BIG_DECIMAL:
            raise InvalidAggregationError(
                f"histogram of {by.column!r}: the index holds text for numbers of this size; aggregate the rows"
            )
        self.check_range(field)
        return {"histogram": histogram_request(by, field)}

    def check_range(self, field: FieldMapping) -> None:
        """Whole numbers must be exact as doubles, or they may land in the wrong interval."""
        if field.kind is FieldKind.F64:
            return
        found = self.ask(self.query, {_RANGE: {"stats": {"field": field.index_name}}})[_RANGE]
        if found["count"] and max(abs(found["min"]), abs(found["max"])) >= EXACT_DOUBLES:
            raise InvalidAggregationError(
                f"histogram of {field.name!r}: there are values beyond 2^53; aggregate the rows instead"
            )

    def keys(self, by: Terms | Histogram, buckets: Sequence[_Bucket]) -> pa.Array:
        data_type = partial_schema(self.aggregation, self.scope.schema).field(KEY).type
        target = self.scope.find_column(by.column)
        terms = [bucket.key for bucket in buckets]
        if not isinstance(target, Target):
            return pa.array(terms, data_type)
        if isinstance(by, Histogram) and target.field.is_i64:
            terms = [int(term) for term in terms]
        return decode(target.field, terms, data_type)

    # --- metrics -------------------------------------------------------------------------------------

    @lazy_property
    def exact(self) -> ExactQueries:
        return ExactQueries(self.scope.mapping)

    @lazy_property
    def metric_requests(self) -> dict[str, Any]:
        targets = enumerate(map(self.scope.find_column, self.aggregation.columns))
        return {
            PartialColumns(index).answer: metric_request(target.field)
            for index, target in targets
            if isinstance(target, Target) and is_countable(target.field)
        }

    def metrics(self, names: PartialColumns, column: str, buckets: Sequence[_Bucket]) -> dict[str, Any]:
        """The partial results of one column."""
        target = self.scope.find_column(column)
        if isinstance(target, PartitionValue):
            return _constant_metrics(names, target.row.column(0)[0], buckets)
        if target is None or isinstance(target, AbsentColumn):
            return {names.count: [0] * len(buckets)}
        field = target.field
        functions = self.aggregation.functions_of(column)
        if not is_countable(field):
            return {names.count: [self.count_present(field, functions)]}
        groups = [self.measure(field, functions, bucket.answers[names.answer]) for bucket in buckets]
        found: dict[str, Any] = {names.count: [group.count for group in groups]}
        if functions & EXTREMES:
            data_type = column_of(self.scope.schema, column).type
            found[names.min] = decode(field, [group.lowest for group in groups], data_type)
            found[names.max] = decode(field, [group.highest for group in groups], data_type)
            if has_nan(groups):
                found[names.nan] = self.nan_counts(column, buckets)
        if functions & SUMMED:
            found[names.sum] = [_sum(field, group.total) for group in groups]
        return found

    def measure(
        self, field: FieldMapping, functions: frozenset[MetricFunction], answer: dict[str, Any]
    ) -> Measured:
        found = measured(field, functions, answer)
        if found is not None:
            return found
        if self.aggregation.by is not None:
            raise refuse_groups(field, functions)
        count = int(answer["count"] if "count" in answer else answer["value"])
        with translating(_FAILED, SearchFailedError):
            reader = ValueReader(self.searcher, self.exact.schema, self.query)
            return reader.measured(field, functions, count)

    def nan_counts(self, column: str, buckets: Sequence[_Bucket]) -> list[int]:
        nan = self.exact.where_true(Comparison(column, Operator.EQ, math.nan))
        run = replace(self, query=filtered(self.query, nan), aggregation=Aggregation(by=self.aggregation.by))
        found, _ = run.buckets()
        # By their text, because a key may itself be NaN, which equals nothing.
        counts = {repr(bucket.key): bucket.rows for bucket in found}
        return [counts.get(repr(bucket.key), 0) for bucket in buckets]

    def count_present(self, field: FieldMapping, functions: frozenset[MetricFunction]) -> int:
        present = self.exact.where_true(IsNotNull(field.name))
        is_count = functions == {MetricFunction.COUNT} and self.aggregation.by is None
        if present is None or not is_count:
            raise _not_fast(field)
        counted = self.ask(filtered(self.query, present), {ROWS: {"value_count": {"field": ROW_FIELD}}})
        return int(counted[ROWS]["value"])

    def ask(self, query: Query, requests: dict[str, Any]) -> dict[str, Any]:
        with translating(_FAILED, SearchFailedError):
            return self.searcher.aggregate(query, requests)


def _constant_metrics(names: PartialColumns, value: pa.Scalar, buckets: Sequence[_Bucket]) -> dict[str, Any]:
    """The metrics of a column that has one value in all rows of the split."""
    rows = [bucket.rows for bucket in buckets]
    if not value.is_valid:
        return {names.count: [0] * len(rows)}
    constant = value.as_py()
    extremes = [constant if count else None for count in rows]
    found: dict[str, Any] = {names.count: rows, names.min: extremes, names.max: extremes}
    if not is_number(value.type):
        return found
    return {
        **found,
        names.sum: [
            EXACT.multiply(constant, count) if isinstance(constant, Decimal) else constant * count
            for count in rows
        ],
    }


def _sum(field: FieldMapping, total: float | None) -> Any:
    if total is None or field.kind is FieldKind.F64:
        return total
    return decimal_value(int(total), field.scale)


def _not_fast(field: FieldMapping) -> InvalidAggregationError:
    return InvalidAggregationError(
        f"column {field.name!r} has no fast values in the index (it is indexed as {field.kind.value}); "
        f"make it a fast field, or aggregate the rows instead"
    )
