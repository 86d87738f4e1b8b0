"""A question as one split understands it: a query on its index, and what only its rows can decide."""

import msgspec
from tantivy import Index, Query

from indextables.predicates import Predicate
from indextables.search.compile import compile_query
from indextables.search.exact import filtered, split_predicate
from indextables.search.nodes import QueryNode
from indextables.search.scope import SearchScope


class Asked(msgspec.Struct, frozen=True):
    """An index and the query that it answers; `rest` is the part of the predicate that it cannot."""

    index: Index
    query: Query
    scope: SearchScope
    rest: Predicate | None


def ask(index: Index, scope: SearchScope, query: QueryNode | None, where: Predicate | None) -> Asked:
    """Put a query (None: all rows) and a bound predicate to an index. Raises InvalidQueryError."""
    wanted = everything() if query is None else compile_query(query, scope)
    if where is None:
        return Asked(index, wanted, scope, None)
    condition, rest = split_predicate(where, scope.mapping)
    return Asked(index, filtered(wanted, condition), scope, rest)


def everything() -> Query:
    """The query that matches all rows."""
    return Query.all_query()
