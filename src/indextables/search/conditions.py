"""Conditions of several searches: each searches its own columns, and AND, OR and NOT combine them.

The index of a split answers a condition (`compile_condition`). Rows that have left their split are indexed in memory
and answer the same condition (`RowMatcher`); a row matches or does not match, and null matches nothing.
"""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from indextables._structs import decodable
from indextables.search.compile import AbsentColumn, PartitionValue, SearchScope, Target, compile_query
from indextables.search.hits import matching_rows
from indextables.search.index_query import IndexQuery, all_queries, all_rows, any_query
from indextables.search.parser import Boolean, Boost, Leaf, QueryNode, parse_query
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_builder import row_index


class TextCondition(msgspec.Struct, frozen=True, tag="search"):
    """The rows that match a query; its words without a field are searched in `fields`, or in all text columns."""

    query: str
    fields: tuple[str, ...] = ()


class AllOf(msgspec.Struct, frozen=True, tag="and"):
    """The rows that match all of these; all rows if there are none."""

    parts: tuple["Condition", ...]


class AnyOf(msgspec.Struct, frozen=True, tag="or"):
    """The rows that match any of these."""

    parts: tuple["Condition", ...]


class NoneOf(msgspec.Struct, frozen=True, tag="not"):
    """The rows that do not match."""

    part: "Condition"


Condition: TypeAlias = TextCondition | AllOf | AnyOf | NoneOf


@decodable
class _Encoded(msgspec.Struct, frozen=True):
    condition: Condition


def condition_to_json(condition: Condition) -> str:
    """Encode a condition as text."""
    return msgspec.json.encode(_Encoded(condition)).decode()


def condition_from_json(text: str) -> Condition:
    """Decode what `condition_to_json` encoded. Raises ValueError."""
    return msgspec.json.decode(text, type=_Encoded).condition


def texts_of(condition: Condition) -> Iterator[TextCondition]:
    """The searches of a condition."""
    match condition:
        case TextCondition():
            yield condition
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from texts_of(part)
        case NoneOf(part):
            yield from texts_of(part)


def compile_condition(condition: Condition, scope: SearchScope) -> IndexQuery:
    """Compile a condition for one split. Raises InvalidQueryError."""
    match condition:
        case TextCondition(query, fields):
            own = msgspec.structs.replace(scope, default_fields=fields) if fields else scope
            return compile_query(parse_query(query), own)
        case AllOf(parts):
            return all_queries([compile_condition(part, scope) for part in parts] or [all_rows()])
        case AnyOf(parts):
            return any_query([compile_condition(part, scope) for part in parts])
        case NoneOf(part):
            return all_rows().without(compile_condition(part, scope))


def columns_searched(condition: TextCondition, scope: SearchScope) -> tuple[str, ...]:
    """The columns that a search reads. Raises InvalidQueryError for a field that the scope lacks."""
    own = msgspec.structs.replace(scope, default_fields=condition.fields)
    names: dict[str, None] = {}
    for leaf in _leaves(parse_query(condition.query)):
        found = own.defaults() if leaf.field is None else (own.resolve(leaf.field),)
        names |= dict.fromkeys(map(_column_name, found))
    return tuple(names)


def _column_name(found: Target | PartitionValue | AbsentColumn) -> str:
    match found:
        case Target(field):
            return field.name
        case PartitionValue(row):
            return str(row.column_names[0])
        case AbsentColumn(name):
            return name


def _leaves(node: QueryNode) -> Iterator[Leaf]:
    match node:
        case Leaf():
            yield node
        case Boost(operand=operand):
            yield from _leaves(operand)
        case Boolean(must=must, should=should, must_not=must_not):
            for child in (*must, *should, *must_not):
                yield from _leaves(child)


class RowMatcher(msgspec.Struct, frozen=True):
    """Decides which rows match a search by indexing them in memory. Picklable.

    `mapping` has all columns that the search reads, and `fields` are the ones that words without a field search.
    """

    query: str
    fields: tuple[str, ...]
    mapping: DocMapping
    schema: pa.Schema

    def matches(self, rows: pa.Table) -> pa.BooleanArray:
        """Whether each row, with the columns of `schema`, matches. Raises InvalidValueError and InvalidQueryError."""
        scope = SearchScope(self.mapping, self.schema, default_fields=self.fields)
        query = compile_query(parse_query(self.query), scope)
        found = np.zeros(rows.num_rows, dtype=np.bool_)
        if rows.num_rows:
            found[matching_rows(row_index(rows, self.mapping), query)] = True
        bits = pa.py_buffer(np.packbits(found, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(found), [None, bits])
