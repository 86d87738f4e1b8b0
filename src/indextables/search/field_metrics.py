"""The metrics of one field over the groups of an index, from Tantivy's answers to exact values.

Tantivy computes with doubles. Whole numbers come back exact as long as they, and their sums, stay below 2^53.
Beyond that the values themselves are read where all rows are one group, and refused where there are several.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from tantivy import FieldType, Order, Query, Schema, Searcher

from indextables.errors import InvalidAggregationError
from indextables.search.aggregation import MetricFunction
from indextables.search.exact import filtered
from indextables.search.histogram_steps import EXACT_DOUBLES
from indextables.split.doc_mapping import ROW_FIELD, FieldKind, FieldMapping
from indextables.split.fields import MAX_TOKEN_BYTES

SUMMED: Final = frozenset({MetricFunction.SUM, MetricFunction.AVG})
EXTREMES: Final = frozenset({MetricFunction.MIN, MetricFunction.MAX})

# Values that are read one by one are read for this many rows at a time.
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
_TEXT_KINDS: Final = frozenset({FieldKind.STRING, FieldKind.BIG_DECIMAL})


class Measured(msgspec.Struct, frozen=True):
    """The metrics of one group; `lowest` and `highest` are terms of the index."""

    count: int = 0
    total: float | None = None
    lowest: Any = None
    highest: Any = None


def is_countable(field: FieldMapping) -> bool:
    """Whether the index has a fast column with exactly the values of a column."""
    if not field.fast or field.kind in (FieldKind.TEXT, FieldKind.JSON, FieldKind.BYTES):
        return False
    return field.kind is not FieldKind.STRING or field.max_token_bytes >= MAX_TOKEN_BYTES


def metric_request(field: FieldMapping) -> dict[str, Any]:
    """The request to Tantivy whose answer `measured` reads."""
    if field.kind in _STATS_KINDS:
        return {"stats": {"field": field.index_name}}
    if field.kind is FieldKind.BOOL:
        return {"terms": {"field": field.index_name}}
    return {"value_count": {"field": field.index_name}}


def measured(
    field: FieldMapping, functions: frozenset[MetricFunction], answer: Mapping[str, Any]
) -> Measured | None:
    """The metrics of one group, or None where doubles are too coarse for what is asked."""
    if field.kind is FieldKind.BOOL:
        return _measured_booleans(answer["buckets"])
    if field.kind not in _STATS_KINDS:
        return None if functions & (EXTREMES | SUMMED) else Measured(int(answer["value"]))
    count, total, lowest, highest = (answer[name] for name in ("count", "sum", "min", "max"))
    if not count:
        return Measured()
    if field.kind is FieldKind.F64:
        return Measured(count, total, lowest, highest)
    largest = max(abs(lowest), abs(highest))
    if functions & (EXTREMES | SUMMED) and largest >= EXACT_DOUBLES:
        return None
    if functions & SUMMED and largest * count >= EXACT_DOUBLES:
        return None
    return Measured(count, int(total), int(lowest), int(highest))


def refuse_groups(field: FieldMapping, functions: frozenset[MetricFunction]) -> InvalidAggregationError:
    """The error for metrics that the index has over all rows only."""
    names = ", ".join(sorted(function.value for function in functions))
    return InvalidAggregationError(
        f"{names} of {field.name!r} cannot be computed by the index for groups of rows: the values are texts, "
        f"or beyond 2^53; aggregate the rows instead"
    )


class ValueReader:
    """Reads the values of a field for the rows of a query, exactly, where there are no groups."""

    __slots__ = ("query", "schema", "searcher")

    def __init__(self, searcher: Searcher, schema: Schema, query: Query) -> None:
        self.searcher = searcher
        self.schema = schema
        self.query = query

    def measured(self, field: FieldMapping, functions: frozenset[MetricFunction], count: int) -> Measured:
        """The metrics that are asked for. Raises InvalidAggregationError for the sum of big decimals."""
        if functions & SUMMED and field.kind in _TEXT_KINDS:
            raise InvalidAggregationError(
                f"the sum of {field.name!r} cannot be computed by the index, which holds text for it; "
                f"aggregate the rows instead"
            )
        if functions & EXTREMES and field.kind is FieldKind.IP:
            raise InvalidAggregationError(
                f"column {field.name!r} holds addresses, which the index does not order as text; "
                f"aggregate the rows instead"
            )
        has_extremes = bool(functions & EXTREMES)
        return Measured(
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
        for start in range(0, self.searcher.num_docs, CHUNK_ROWS):
            rows = Query.range_query(
                self.schema,
                ROW_FIELD,
                FieldType.Integer,
                lower_bound=start,
                upper_bound=start + CHUNK_ROWS,
                include_upper=False,
            )
            found = self._ordered(filtered(self.query, rows), field, CHUNK_ROWS, Order.Asc)
            total += sum(value for value in found if value is not None)
        return total

    def _ordered(self, query: Query, field: FieldMapping, limit: int, order: Order) -> Sequence[Any]:
        result = self.searcher.search(query, limit, count=False, order_by_field=field.index_name, order=order)
        return [value for value, _ in result.hits]


def _measured_booleans(buckets: Sequence[Mapping[str, Any]]) -> Measured:
    counts = {bool(bucket["key"]): int(bucket["doc_count"]) for bucket in buckets}
    values = sorted(counts)
    return Measured(sum(counts.values()), None, values[0], values[-1]) if values else Measured()


def has_nan(groups: Sequence[Measured]) -> bool:
    """Whether there may be NaN among the values, which `lowest` and `highest` leave out."""
    return any(isinstance(group.total, float) and math.isnan(group.total) for group in groups)
