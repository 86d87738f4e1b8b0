"""Aggregates rows, column by column: what the index of a split cannot answer.

The partial results are those of the index (`split_aggregate`), so those of different splits merge.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.schema import find_column
from indextables.search.aggregation import (
    ROWS,
    VALUE,
    Aggregation,
    MetricFunction,
    PartialAggregate,
    PartialColumns,
    column_of,
    member_path,
    partial_schema,
    sum_type,
    values_schema,
)
from indextables.search.group_keys import group_keys, plain_values
from indextables.search.groupings import is_number, is_ordered

# Rows that are aggregated at once, which bounds the memory.
_CHUNK_ROWS: Final = 250_000
_MAX_INT64: Final = (1 << 63) - 1
_EXTREMES: Final = frozenset({MetricFunction.MIN, MetricFunction.MAX})
_SUMMED: Final = frozenset({MetricFunction.SUM, MetricFunction.AVG})

_Named = dict[str, pa.ChunkedArray]


def needed_columns(aggregation: Aggregation, schema: pa.Schema) -> list[str]:
    """Return the columns of the table that the aggregation reads."""
    named = (*(by.column for by in aggregation.by), *aggregation.columns)
    return list(dict.fromkeys(_root(schema, name) for name in named))


def aggregate_rows(
    batches: Iterable[pa.RecordBatch], aggregation: Aggregation, schema: pa.Schema
) -> list[PartialAggregate]:
    """Aggregate rows with `needed_columns`; `schema` is the table's. Raises InvalidAggregationError."""
    return [_partial(rows, aggregation, schema) for rows in _in_chunks(batches)]


def _in_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _CHUNK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _partial(rows: pa.Table, aggregation: Aggregation, schema: pa.Schema) -> PartialAggregate:
    keys = {
        name: group_keys(by, _values(rows, schema, by.column))
        for name, by in zip(aggregation.keys, aggregation.by, strict=True)
    }
    columns = [_values(rows, schema, column) for column in aggregation.columns]
    if keys:
        is_grouped = _all_valid(keys.values())
        keys = {name: column.filter(is_grouped) for name, column in keys.items()}
        columns = [column.filter(is_grouped) for column in columns]
    num_rows = len(next(iter(keys.values()))) if keys else rows.num_rows
    ones = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), num_rows)])
    inputs: _Named = {**keys, ROWS: ones}
    functions = [(ROWS, "sum")]
    for index, name in enumerate(aggregation.columns):
        added, asked = _metric_inputs(PartialColumns(index), columns[index], aggregation.functions_of(name))
        inputs |= added
        functions += asked
    groups = _grouped(inputs, list(keys), functions)
    values = []
    for index in aggregation.value_columns:
        table = {**keys, VALUE: plain_values(columns[index]), ROWS: ones}
        found = _grouped(table, [*keys, VALUE], [(ROWS, "sum")])
        values.append(_conform(found, values_schema(aggregation, index, schema)))
    return PartialAggregate(_conform(groups, partial_schema(aggregation, schema)), tuple(values))


def _metric_inputs(
    names: PartialColumns, values: pa.ChunkedArray, functions: frozenset[MetricFunction]
) -> tuple[_Named, list[tuple[str, str]]]:
    """The columns that are reduced to the partial results of a metric column, and how."""
    kind = values.type
    inputs: _Named = {names.count: pc.is_valid(values).cast(pa.int64())}
    asked = [(names.count, "sum")]
    if functions & _EXTREMES and is_ordered(kind):
        numbers = values
        if pa.types.is_floating(kind):
            is_nan = pc.fill_null(pc.is_nan(values), False)
            inputs[names.nan] = is_nan.cast(pa.int64())
            asked.append((names.nan, "sum"))
            numbers = pc.if_else(is_nan, None, plain_values(values))
        inputs[names.min] = inputs[names.max] = numbers
        asked += [(names.min, "min"), (names.max, "max")]
    if functions & _SUMMED and is_number(kind):
        inputs[names.sum] = _addable(values)
        asked.append((names.sum, "sum"))
    return inputs, asked


def _addable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in a type in which their sum does not overflow; integers stay so if none of their sums can."""
    kind = values.type
    if pa.types.is_integer(kind):
        extremes = pc.min_max(values)
        largest = max(abs(extremes[name].as_py() or 0) for name in ("min", "max"))
        if largest * len(values) <= _MAX_INT64:
            return values.cast(pa.int64())
        values = values.cast(pa.decimal128(20, 0))
    return values.cast(sum_type(kind))


def _grouped(inputs: _Named, keys: Sequence[str], functions: Sequence[tuple[str, str]]) -> pa.Table:
    """Reduce the columns by key. Threads would add floats in an order of their own."""
    table = pa.table(inputs)
    found = table.group_by(list(keys), use_threads=False).aggregate(list(functions))
    found = found.select([*keys, *(f"{name}_{function}" for name, function in functions)])
    return found.rename_columns([*keys, *(name for name, _ in functions)])


def _conform(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema; those that were not asked for are null."""
    columns: list[Any] = [
        found.column(field.name).cast(field.type)
        if field.name in found.column_names
        else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _all_valid(columns: Iterable[pa.ChunkedArray]) -> pa.ChunkedArray:
    first, *others = (pc.is_valid(column) for column in columns)
    for other in others:
        first = pc.and_(first, other)
    return first


def _root(schema: pa.Schema, name: str) -> str:
    column = find_column(schema, name)
    return str(column.name if column is not None else member_path(schema, name)[0])


def _values(rows: pa.Table, schema: pa.Schema, name: str) -> pa.ChunkedArray:
    """A column, or a member of a struct."""
    column = find_column(schema, name)
    if column is not None:
        return rows.column(column.name)
    root, *members = member_path(schema, name)
    values = pc.struct_field(rows.column(root), members)
    return values.cast(column_of(schema, name).type)
