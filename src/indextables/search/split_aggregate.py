"""Aggregates the rows of one split with its index, without reading rows.

The index answers what Tantivy computes exactly: counts, sums, averages and extremes, of all rows or of the groups of
one column by value or by intervals of one length. Everything else raises `BeyondIndexError`: `row_aggregate` computes
it.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from tantivy import Order, Schema, Searcher

from indextables._caching import lazy_property
from indextables.errors import InvalidAggregationError, SearchFailedError
from indextables.predicates import IsNotNull
from indextables.schema import find_column
from indextables.search.aggregation import (
    ROWS,
    SUM_DIGITS,
    VALUE_FUNCTIONS,
    Aggregation,
    MetricFunction,
    PartialAggregate,
    PartialColumns,
    column_of,
    partial_schema,
)
from indextables.search.compile import AbsentColumn, PartitionValue, SearchScope, Target
from indextables.search.groupings import DateHistogram, Histogram, Terms, is_number
from indextables.search.index_query import IndexField, IndexQuery, TermSpan, all_rows, rows_between
from indextables.search.predicate_query import PredicateQueries
from indextables.split.doc_mapping import MAX_TOKEN_BYTES, ROW_FIELD, FieldKind, FieldMapping
from indextables.split.index_files import translating
from indextables.split.needs import Needs, column_needs

# Tantivy's limit.
MAX_GROUPS: Final = 65_000

_GROUPS: Final = "groups"
_RANGE: Final = "range"
_FAILED: Final = "the index cannot aggregate"


class BeyondIndexError(InvalidAggregationError):
    """The index cannot answer an aggregation exactly; its rows can."""


class _Bucket(msgspec.Struct, frozen=True):
    key: Any
    rows: int
    answers: dict[str, Any]


def aggregate_index(
    searcher: Searcher, query: IndexQuery, aggregation: Aggregation, scope: SearchScope
) -> PartialAggregate:
    """Aggregate the matching rows of an index, of which `aggregate_needs` are read; `scope.schema` is the table's.

    The answer is exact. Raises InvalidAggregationError for columns that do not exist or have an unsuitable type,
    BeyondIndexError for what the index cannot answer exactly, and SearchFailedError if it is damaged.
    """
    aggregation.check(scope.schema)
    if not is_for_index(aggregation, scope.schema):
        raise BeyondIndexError("the index has no answer to these metrics or groupings")
    return _Run(searcher, query, aggregation, scope).partial()


def is_for_index(aggregation: Aggregation, schema: pa.Schema) -> bool:
    """Whether an index may be able to answer an aggregation, whatever its values."""
    columns = [*(by.column for by in aggregation.by), *aggregation.columns]
    if len(aggregation.by) > 1 or any(find_column(schema, name) is None for name in columns):
        return False
    is_grouped = not aggregation.by or _grouping_of(aggregation) is not None
    return is_grouped and not any(metric.function in VALUE_FUNCTIONS for metric in aggregation.metrics)


def _grouping_of(aggregation: Aggregation) -> Terms | Histogram | None:
    """The grouping as Tantivy knows it; None if there is none, or Tantivy knows none like it."""
    by = aggregation.by[0] if aggregation.by else None
    if isinstance(by, DateHistogram):
        return by.fixed()
    return by if isinstance(by, (Terms, Histogram)) else None


def aggregate_needs(query: IndexQuery, aggregation: Aggregation, scope: SearchScope) -> Needs:
    """Return what `aggregate_index` reads of an index."""
    predicates = PredicateQueries(scope.mapping)
    by = (each.column for each in aggregation.by)
    needs = query.needs_of_all_rows()
    for column in (*by, *aggregation.columns):
        target = scope.find_column(column)
        if not isinstance(target, Target):
            continue
        if is_countable(target.field):
            needs |= column_needs(target.field.index_name)
        elif (present := predicates.where_true(IsNotNull(target.field.name))) is not None:
            needs |= present.needs.unscored()
    return needs


class _Run(msgspec.Struct, frozen=True, dict=True):
    searcher: Searcher
    query: IndexQuery
    aggregation: Aggregation
    scope: SearchScope

    @lazy_property
    def by(self) -> Terms | Histogram | None:
        return _grouping_of(self.aggregation)

    def partial(self) -> PartialAggregate:
        buckets = self.buckets()
        columns: dict[str, Any] = {ROWS: [bucket.rows for bucket in buckets]}
        if self.by is not None:
            (key,) = self.aggregation.keys
            columns[key] = self.keys(self.by, buckets)
        for index, column in enumerate(self.aggregation.columns):
            columns |= self.metrics(PartialColumns(index), column, buckets)
        schema = partial_schema(self.aggregation, self.scope.schema)
        missing = {name: [None] * len(buckets) for name in schema.names if name not in columns}
        return PartialAggregate(pa.table({**columns, **missing}, schema=schema))

    def buckets(self) -> list[_Bucket]:
        """Return the groups."""
        by = self.by
        requests = {ROWS: {"value_count": {"field": ROW_FIELD}}, **self.metric_requests}
        if by is None:
            answers = self.aggregate(self.query, requests)
            return [_Bucket(None, int(answers[ROWS]["value"]), answers)]
        match self.scope.find_column(by.column):
            case Target(field=field):
                return self.field_buckets(by, field)
            case PartitionValue(row=row):
                if isinstance(by, Histogram):
                    raise BeyondIndexError(
                        f"column {by.column!r} is a partition column, which has no intervals"
                    )
                answers = self.aggregate(self.query, requests)
                key, rows = row.column(0)[0].as_py(), int(answers[ROWS]["value"])
                return [_Bucket(key, rows, answers)] if rows and key is not None else []
        return []

    def field_buckets(self, by: Terms | Histogram, field: FieldMapping) -> list[_Bucket]:
        answer = self.aggregate(
            self.query, {_GROUPS: {**self.group_request(by, field), "aggs": self.metric_requests}}
        )
        if isinstance(by, Terms) and answer[_GROUPS]["sum_other_doc_count"] > 0:
            raise BeyondIndexError(f"column {field.name!r} has more than {MAX_GROUPS:,} values")
        return [_Bucket(each["key"], each["doc_count"], each) for each in answer[_GROUPS]["buckets"]]

    def group_request(self, by: Terms | Histogram, field: FieldMapping) -> dict[str, Any]:
        if not is_countable(field):
            raise _not_fast(field)
        if isinstance(by, Terms):
            return {"terms": {"field": field.index_name, "size": MAX_GROUPS}}
        if field.kind is FieldKind.BIG_DECIMAL:
            raise BeyondIndexError(f"the index holds text for the numbers of column {by.column!r}")
        data_type = column_of(self.scope.schema, by.column).type
        self.check_range(field, by.steps(data_type)[0])
        return {"histogram": histogram_request(by, field, data_type)}

    def check_range(self, field: FieldMapping, interval: float) -> None:
        """Reject too many intervals, and integers that doubles lack: they could fall into the wrong interval."""
        found = self.aggregate(self.query, {_RANGE: {"stats": {"field": field.index_name}}})[_RANGE]
        if not found["count"]:
            return
        low, high = found["min"], found["max"]
        if field.kind is not FieldKind.F64 and max(abs(low), abs(high)) >= EXACT_DOUBLES:
            raise BeyondIndexError(f"column {field.name!r} has values beyond 2^53")
        if found["count"] > MAX_GROUPS and not (high - low) / interval < MAX_GROUPS - 1:
            raise BeyondIndexError(f"column {field.name!r} may have more than {MAX_GROUPS:,} intervals")

    def keys(self, by: Terms | Histogram, buckets: Sequence[_Bucket]) -> pa.Array:
        data_type = partial_schema(self.aggregation, self.scope.schema).field(0).type
        target = self.scope.find_column(by.column)
        terms = [bucket.key for bucket in buckets]
        if not isinstance(target, Target):
            return pa.array(map(_without_sign_of_zero, terms), data_type)
        if isinstance(by, Histogram) and target.field.is_i64:
            terms = [int(term) for term in terms]
        return decode(target.field, terms, data_type)

    @lazy_property
    def predicates(self) -> PredicateQueries:
        return PredicateQueries(self.scope.mapping)

    @lazy_property
    def metric_requests(self) -> dict[str, Any]:
        targets = enumerate(map(self.scope.find_column, self.aggregation.columns))
        return {
            PartialColumns(index).answer: metric_request(target.field)
            for index, target in targets
            if isinstance(target, Target) and is_countable(target.field)
        }

    def metrics(self, names: PartialColumns, column: str, buckets: Sequence[_Bucket]) -> dict[str, Any]:
        """Return the partial results of one column."""
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
            if has_nan(groups):
                found[names.nan] = self.equal_counts(column, math.nan, buckets)
            data_type = column_of(self.scope.schema, column).type
            lowest = self.with_infinity(column, [group.lowest for group in groups], math.inf, buckets)
            highest = self.with_infinity(column, [group.highest for group in groups], -math.inf, buckets)
            found[names.min] = decode(field, lowest, data_type)
            found[names.max] = decode(field, highest, data_type)
        if functions & SUMMED:
            totals = self.with_infinite_sums(column, [group.total for group in groups], buckets)
            found[names.sum] = [_sum(field, total) for total in totals]
        return found

    def measure(
        self, field: FieldMapping, functions: frozenset[MetricFunction], answer: dict[str, Any]
    ) -> "GroupMetrics":
        found = metrics_of_answer(field, functions, answer)
        if found is not None:
            return found
        if self.by is not None:
            raise groups_error(field, functions)
        count = int(answer["count"] if "count" in answer else answer["value"])
        with translating(_FAILED, SearchFailedError):
            reader = ValueReader(self.searcher, self.predicates.schema, self.query)
            return reader.metrics(field, functions, count)

    def with_infinity(
        self, column: str, extremes: list[Any], infinity: float, buckets: Sequence[_Bucket]
    ) -> list[Any]:
        """Replace the extreme with which Tantivy starts, if no row has it.

        Its minimum of no number but infinity (and NaN) is the largest finite double, and its maximum the smallest.
        """
        start = math.copysign(sys.float_info.max, infinity)
        if not any(isinstance(extreme, float) and extreme == start for extreme in extremes):
            return extremes
        counts = self.equal_counts(column, start, buckets)
        return [
            infinity if extreme == start and not count else extreme
            for extreme, count in zip(extremes, counts, strict=True)
        ]

    def with_infinite_sums(self, column: str, totals: list[Any], buckets: Sequence[_Bucket]) -> list[Any]:
        """Replace NaN where the sum is infinite. Tantivy corrects rounding errors, and infinity minus itself is NaN."""
        if not any(isinstance(total, float) and math.isnan(total) for total in totals):
            return totals
        nans, highs, lows = (
            self.equal_counts(column, value, buckets) for value in (math.nan, math.inf, -math.inf)
        )
        return [
            total if nan or bool(high) == bool(low) else math.inf if high else -math.inf
            for total, nan, high, low in zip(totals, nans, highs, lows, strict=True)
        ]

    def equal_counts(self, column: str, value: float, buckets: Sequence[_Bucket]) -> list[int]:
        """Return how many rows of each group have this value."""
        target = self.scope.find_column(column)
        assert isinstance(target, Target)
        # By the fast values, which are needed anyway, and not by the terms.
        equal = IndexField(self.predicates.schema, target.field).range(TermSpan(value, value))
        run = replace(self, query=self.query.filtered(equal), aggregation=Aggregation(by=self.aggregation.by))
        found = run.buckets()
        # By their text, because a key may be NaN, which does not equal itself.
        counts = {repr(bucket.key): bucket.rows for bucket in found}
        return [counts.get(repr(bucket.key), 0) for bucket in buckets]

    def count_present(self, field: FieldMapping, functions: frozenset[MetricFunction]) -> int:
        present = self.predicates.where_true(IsNotNull(field.name))
        is_count = functions <= _COUNTS and self.by is None
        if present is None or not is_count:
            raise _not_fast(field)
        counted = self.aggregate(self.query.filtered(present), {ROWS: {"value_count": {"field": ROW_FIELD}}})
        return int(counted[ROWS]["value"])

    def aggregate(self, query: IndexQuery, requests: dict[str, Any]) -> dict[str, Any]:
        with translating(_FAILED, SearchFailedError):
            return self.searcher.aggregate(query.query, requests)


def _constant_metrics(names: PartialColumns, value: pa.Scalar, buckets: Sequence[_Bucket]) -> dict[str, Any]:
    """Return the metrics of a column with the same value in all rows of the split."""
    rows = [bucket.rows for bucket in buckets]
    if not value.is_valid:
        return {names.count: [0] * len(rows)}
    constant = value.as_py()
    found: dict[str, Any] = {names.count: rows}
    if isinstance(constant, float) and math.isnan(constant):
        found[names.nan] = rows
    else:
        found[names.min] = found[names.max] = [constant if count else None for count in rows]
    if is_number(value.type):
        found[names.sum] = [_multiple(constant, count) if count else None for count in rows]
    return found


def _multiple(value: float | Decimal, count: int) -> float | Decimal:
    return EXACT.multiply(value, count) if isinstance(value, Decimal) else value * count


def _without_sign_of_zero(key: Any) -> Any:
    # The index has no -0.0, so a partition must not have it either.
    return key + 0.0 if isinstance(key, float) else key


def _sum(field: FieldMapping, total: float | None) -> Any:
    if total is None or field.kind is FieldKind.F64:
        return total
    return decimal_value(int(total), field.scale)


def _not_fast(field: FieldMapping) -> BeyondIndexError:
    return BeyondIndexError(
        f"column {field.name!r} has no fast values in the index (it is indexed as {field.kind.value})"
    )


# Metrics of one field. Tantivy computes with doubles, so integers are exact as long as they, and their sums, stay below
# 2^53. Beyond that, `ValueReader` reads the values themselves if all rows are one group; several groups are an error.

_COUNTS: Final = frozenset({MetricFunction.COUNT, MetricFunction.VALUE_COUNT})
SUMMED: Final = frozenset({MetricFunction.SUM, MetricFunction.AVG})
EXTREMES: Final = frozenset({MetricFunction.MIN, MetricFunction.MAX})

# Rows whose values are read at a time.
CHUNK_ROWS: Final = 100_000

_STATS_KINDS: Final = frozenset(
    {
        FieldKind.I64,
        FieldKind.F64,
        FieldKind.DATE,
        FieldKind.TIMESTAMP,
        FieldKind.TIMESTAMP_NTZ,
        FieldKind.DECIMAL,
    }
)


class GroupMetrics(msgspec.Struct, frozen=True):
    """The metrics of one field in one group; `lowest` and `highest` are terms of the index."""

    count: int = 0
    total: float | None = None
    lowest: Any = None
    highest: Any = None


def is_countable(field: FieldMapping) -> bool:
    """Return whether the index has a fast field with exactly the values of the column."""
    if not field.fast or field.kind in (FieldKind.TEXT, FieldKind.JSON, FieldKind.BYTES):
        return False
    return field.kind is not FieldKind.STRING or field.max_token_bytes >= MAX_TOKEN_BYTES


def metric_request(field: FieldMapping) -> dict[str, Any]:
    """Return the Tantivy request whose answer `metrics_of_answer` reads."""
    if field.kind in _STATS_KINDS:
        return {"stats": {"field": field.index_name}}
    if field.kind is FieldKind.BOOL:
        return {"terms": {"field": field.index_name}}
    return {"value_count": {"field": field.index_name}}


def metrics_of_answer(
    field: FieldMapping, functions: frozenset[MetricFunction], answer: Mapping[str, Any]
) -> GroupMetrics | None:
    """Return the metrics of one group, or None if doubles are not exact enough."""
    if field.kind is FieldKind.BOOL:
        return _boolean_metrics(answer["buckets"])
    if field.kind not in _STATS_KINDS:
        return None if functions & (EXTREMES | SUMMED) else GroupMetrics(int(answer["value"]))
    count, total, lowest, highest = (answer[name] for name in ("count", "sum", "min", "max"))
    if not count:
        return GroupMetrics()
    if field.kind is FieldKind.F64:
        return GroupMetrics(count, total, lowest, highest)
    largest = max(abs(lowest), abs(highest))
    if functions & (EXTREMES | SUMMED) and largest >= EXACT_DOUBLES:
        return None
    if functions & SUMMED and largest * count >= EXACT_DOUBLES:
        return None
    return GroupMetrics(count, int(total), int(lowest), int(highest))


def groups_error(field: FieldMapping, functions: frozenset[MetricFunction]) -> BeyondIndexError:
    """Return the error for metrics that the index computes over all rows only."""
    names = ", ".join(sorted(function.value for function in functions))
    return BeyondIndexError(
        f"{names} of {field.name!r} cannot be computed for groups, because the values are text or beyond 2^53"
    )


class ValueReader:
    """Computes exact metrics over all matching rows by reading their values."""

    __slots__ = ("query", "schema", "searcher")

    def __init__(self, searcher: Searcher, schema: Schema, query: IndexQuery) -> None:
        self.searcher = searcher
        self.schema = schema
        self.query = query

    def metrics(self, field: FieldMapping, functions: frozenset[MetricFunction], count: int) -> GroupMetrics:
        """Return the requested metrics. Raises InvalidAggregationError for extremes of addresses."""
        if functions & EXTREMES and field.kind is FieldKind.IP:
            raise BeyondIndexError(f"column {field.name!r} holds addresses, which are not ordered as text")
        has_extremes = bool(functions & EXTREMES)
        return GroupMetrics(
            count,
            self._total(field) if functions & SUMMED else None,
            self._first(field, Order.Asc) if has_extremes else None,
            self._first(field, Order.Desc) if has_extremes else None,
        )

    def _first(self, field: FieldMapping, order: Order) -> Any:
        found = self._ordered(self.query, field, 1, order)
        return found[0] if found else None

    def _total(self, field: FieldMapping) -> int:
        total = 0
        for start in range(0, self._num_rows(), CHUNK_ROWS):
            rows = rows_between(self.schema, start, start + CHUNK_ROWS)
            found = self._ordered(self.query.filtered(rows), field, CHUNK_ROWS, Order.Asc)
            total += sum(_unscaled(field, value) for value in found if value is not None)
        return total

    def _num_rows(self) -> int:
        """Return the last row number plus one: deleted rows have numbers, too."""
        last = self.searcher.aggregate(all_rows().query, {ROWS: {"max": {"field": ROW_FIELD}}})[ROWS]["value"]
        return 0 if last is None else int(last) + 1

    def _ordered(self, query: IndexQuery, field: FieldMapping, limit: int, order: Order) -> Sequence[Any]:
        result = self.searcher.search(
            query.query, limit, count=False, order_by_field=field.index_name, order=order
        )
        return [value for value, _ in result.hits]


def _boolean_metrics(buckets: Sequence[Mapping[str, Any]]) -> GroupMetrics:
    counts = {bool(bucket["key"]): int(bucket["doc_count"]) for bucket in buckets}
    values = sorted(counts)
    return GroupMetrics(sum(counts.values()), None, values[0], values[-1]) if values else GroupMetrics()


def has_nan(groups: Sequence[GroupMetrics]) -> bool:
    """Return whether values may be NaN, which `lowest` and `highest` ignore."""
    return any(isinstance(group.total, float) and math.isnan(group.total) for group in groups)


# Tantivy computes buckets with doubles, which represent all integers below this one.
EXACT_DOUBLES: Final = 1 << 53


def histogram_request(by: Histogram, field: FieldMapping, data_type: pa.DataType) -> dict[str, Any]:
    """Return the Tantivy request."""
    interval, offset = by.steps(data_type)
    if interval >= EXACT_DOUBLES:
        raise BeyondIndexError(f"the interval is too large for column {by.column!r}")
    # No empty buckets: there is no bound on their number between two distant values.
    return {
        "field": field.index_name,
        "interval": float(interval),
        "offset": float(offset),
        "min_doc_count": 1,
    }


# Terms of the index → values of the column's type.

# Big decimals are indexed as 128-bit two's complement with the sign bit flipped.
_BIG_DECIMAL_ZERO: Final = 1 << 127

# More digits than any decimal or sum of them has, so nothing is rounded.
EXACT: Final = Context(prec=SUM_DIGITS)


def decode(field: FieldMapping, terms: Iterable[Any], data_type: pa.DataType) -> pa.Array:
    """Return the values of terms of a field; None is null."""
    from_term = _FROM_TERM.get(field.kind)
    if from_term is None:
        return pa.array(terms, _PLAIN.get(field.kind, pa.string())).cast(data_type)
    return pa.array([None if term is None else from_term(field, term) for term in terms], data_type)


def decimal_value(unscaled: int, scale: int) -> Decimal:
    """Return the number with `scale` decimal places."""
    return Decimal(unscaled).scaleb(-scale, EXACT)


def _boolean(_: FieldMapping, term: int) -> bool:
    return bool(term)


def _decimal(field: FieldMapping, term: int) -> Decimal:
    return decimal_value(term, field.scale)


def _big_decimal(field: FieldMapping, term: str) -> Decimal:
    return decimal_value(_unscaled(field, term), field.scale)


def _unscaled(field: FieldMapping, term: Any) -> int:
    return int(term, 16) - _BIG_DECIMAL_ZERO if field.kind is FieldKind.BIG_DECIMAL else int(term)


_PLAIN: Final = {
    FieldKind.I64: pa.int64(),
    FieldKind.F64: pa.float64(),
    FieldKind.DATE: pa.int32(),
    FieldKind.TIMESTAMP: pa.int64(),
    FieldKind.TIMESTAMP_NTZ: pa.int64(),
}

_FROM_TERM: Final[dict[FieldKind, Callable[[FieldMapping, Any], Any]]] = {
    FieldKind.BOOL: _boolean,
    FieldKind.DECIMAL: _decimal,
    FieldKind.BIG_DECIMAL: _big_decimal,
}
