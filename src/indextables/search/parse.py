"""Query text → nodes: a word by itself, everything else by the grammar."""

import re
from functools import lru_cache
from typing import Final

from indextables.search.clauses import Joiner
from indextables.search.nodes import FieldPath, Place, QueryNode, Term
from indextables.search.words import split_path

# The same query is often asked several times: for its hits, their count, and the words to highlight.
_KEPT_QUERIES: Final = 128

_ONE_WORD: Final = re.compile(r"(?:(?P<field>[\w.]{1,200}):)?(?P<word>\w{1,200})")
_MAYBE_OPERATORS: Final = frozenset({"AND", "OR", "NOT", "IN", "TO"})


@lru_cache(maxsize=_KEPT_QUERIES)
def parse_query(text: str, default_operator: Joiner = Joiner.OR) -> QueryNode:
    """Read a query. `default_operator` is what stands between two clauses that nothing joins.

    AND binds tighter than OR, and `+a b -c` requires a, prefers b and excludes c. Field names are not looked
    up. Raises InvalidQueryError, with the position and what to write instead, for everything that is no query,
    and for one that is too long or too deeply nested.
    """
    found = _ONE_WORD.fullmatch(text)
    if found and found["word"] not in _MAYBE_OPERATORS:
        return _term(text, found)
    # Here, because a process that looks for a word, as most commands do, need not wait for the grammar to be built.
    from indextables.search.grammar import parse_by_grammar

    return parse_by_grammar(text, default_operator)


def _term(text: str, found: re.Match[str]) -> Term:
    name = found["field"]
    path = None if name is None else FieldPath(split_path(name), Place(text, *found.span("field")))
    return Term(path, Place(text, *found.span("word")), found["word"])
