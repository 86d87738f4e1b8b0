"""Query nodes as Tantivy queries, built as objects: no text of a user's reaches Tantivy's own parser."""

from collections.abc import Sequence

import msgspec
from tantivy import Index, Occur, Query

from indextables.errors import InvalidQueryError, SearchFailedError
from indextables.predicates import BoundPredicate
from indextables.search.nodes import Boolean, Boost, Everything, Leaf, QueryNode
from indextables.search.predicate_query import ExactQueries, any_query, filtered, partition_predicate
from indextables.search.scope import AbsentColumn, PartitionValue, SearchScope, Target
from indextables.search.text_query import TextQueries
from indextables.search.typed_query import address_query, matches_value, typed_query
from indextables.split.doc_mapping import FieldKind
from indextables.split.index_files import translating

TEXT_KINDS = frozenset({FieldKind.TEXT, FieldKind.STRING, FieldKind.JSON})


def compile_query(node: QueryNode, scope: SearchScope) -> Query:
    """Return the query of a node over the fields of a split.

    Text passes through the analyzers of its fields. A clause that has no tokens in any of its fields (only
    punctuation, say) is left out; if nothing else is written, nothing matches. Raises InvalidQueryError, with
    the position, for unknown fields, for values that a field cannot hold, and for what its index cannot answer.
    """
    with translating("the query cannot be built", SearchFailedError):
        query = _Compiler(scope).compile(node)
    return Query.empty_query() if query is None else query


class _Compiler:
    __slots__ = ("defaults", "exact", "scope")

    def __init__(self, scope: SearchScope) -> None:
        self.scope = scope
        self.exact = ExactQueries(scope.mapping)
        self.defaults = scope.defaults()

    def compile(self, node: QueryNode) -> Query | None:
        match node:
            case Everything():
                return Query.all_query()
            case Boost(operand=operand, factor=factor):
                boosted = self.compile(operand)
                return None if boosted is None else Query.boost_query(boosted, factor)
            case Boolean():
                return self.boolean(node)
            case Leaf(field=None):
                return self.anywhere(node)
            case Leaf(field=path):
                assert path is not None
                return self.leaf(node, self.scope.resolve(path))
        raise TypeError(f"{node!r} is no query; use parse_query")

    def boolean(self, node: Boolean) -> Query | None:
        must, should, must_not = map(self.compile_all, (node.must, node.should, node.must_not))
        if not must and not should:
            # What was asked for has no tokens, and excluding something does not ask for everything else.
            if node.must or node.should or not must_not:
                return None
            must = [Query.all_query()]
        clauses = [(Occur.Must, query) for query in must]
        clauses += [(Occur.Should, query) for query in should]
        clauses += [(Occur.MustNot, query) for query in must_not]
        return Query.boolean_query(clauses)

    def compile_all(self, nodes: Sequence[QueryNode]) -> list[Query]:
        return [query for query in map(self.compile, nodes) if query is not None]

    def anywhere(self, leaf: Leaf) -> Query | None:
        """A leaf without a field: in any of the default fields."""
        if not self.defaults and self.scope.has_absent_defaults:
            return Query.empty_query()
        if not self.defaults:
            raise leaf.place.error("there is no text to search in; name a field, as in status:404")
        queries = [query for target in self.defaults if (query := self.in_default(leaf, target)) is not None]
        return any_query(queries) if queries else None

    def in_default(self, leaf: Leaf, target: Target) -> Query | None:
        if target.field.kind in TEXT_KINDS or len(self.defaults) == 1:
            return self.leaf(leaf, target)
        try:
            return self.leaf(leaf, target)
        except InvalidQueryError:
            # A word that is no number cannot be in a field of numbers; the other fields decide.
            return None

    def leaf(self, leaf: Leaf, target: Target | PartitionValue | AbsentColumn) -> Query | None:
        if isinstance(target, AbsentColumn):
            return Query.empty_query()
        if isinstance(target, PartitionValue):
            is_match = matches_value(leaf, target.row, self.scope.time_zone)
            return Query.all_query() if is_match else Query.empty_query()
        if target.field.kind in TEXT_KINDS:
            return TextQueries(target, self.exact.schema).query(leaf)
        if target.field.kind is FieldKind.IP:
            return address_query(leaf, target.field, self.exact.schema)
        return typed_query(leaf, target.field, self.exact, self.scope.time_zone)


# A question as one split understands it: a query on its index, and what only its rows can decide.


class CompiledQuery(msgspec.Struct, frozen=True):
    """An index and the query that it answers; `rest` is the part of the predicate that it cannot."""

    index: Index
    query: Query
    scope: SearchScope
    rest: BoundPredicate | None


def compile_with_predicate(
    index: Index, scope: SearchScope, query: QueryNode | None, where: BoundPredicate | None
) -> CompiledQuery:
    """Put a query (None: all rows) and a bound predicate to an index. Raises InvalidQueryError."""
    wanted = everything() if query is None else compile_query(query, scope)
    if where is None:
        return CompiledQuery(index, wanted, scope, None)
    condition, rest = partition_predicate(where, scope.mapping)
    return CompiledQuery(index, filtered(wanted, condition), scope, rest)


def everything() -> Query:
    """The query that matches all rows."""
    return Query.all_query()
