"""Query text → nodes. A single word is parsed here; everything else is left to `grammar`, which imports lark."""

import re
from enum import Enum
from typing import Final

from indextables._caching import shared_memo
from indextables.search.nodes import FieldPath, Place, QueryNode, Term

ESCAPE: Final = "\\"

# A caller often parses a query several times: for the hits, their count, and the words to highlight.
_CACHED_QUERIES: Final = 128

_ONE_WORD: Final = re.compile(r"(?:(?P<field>[\w.]{1,200}):)?(?P<word>\w{1,200})")
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "TO"})

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PIECE: Final = re.compile(r"\\.|.", re.DOTALL)


class Joiner(Enum):
    """The operator between two clauses."""

    AND = "AND"
    OR = "OR"


@shared_memo("search.parser.queries", "parsed queries", max_entries=_CACHED_QUERIES)
def parse_query(text: str, default_operator: Joiner = Joiner.OR) -> QueryNode:
    """Parse a query. `default_operator` joins clauses that have no operator between them.

    AND binds tighter than OR, and `+a b -c` requires a, prefers b and excludes c. Field names are not resolved.
    Raises InvalidQueryError, with the position and a remedy, for invalid syntax and for a query that is too long
    or too deeply nested.
    """
    found = _ONE_WORD.fullmatch(text)
    if found and found["word"] not in _KEYWORDS:
        return _term(text, found)
    # Imported here: most commands search for one word, and do not pay for importing lark and building the grammar.
    from indextables.search.grammar import parse_by_grammar

    return parse_by_grammar(text, default_operator)


def _term(text: str, found: re.Match[str]) -> Term:
    name = found["field"]
    path = None if name is None else FieldPath(split_path(name), Place(text, *found.span("field")))
    return Term(path, Place(text, *found.span("word")), found["word"])


def split_path(text: str) -> tuple[str, ...]:
    """Split a field name at unescaped dots."""
    return split_unescaped(text, ".")


def split_unescaped(text: str, separator: str) -> tuple[str, ...]:
    """Split a text at unescaped separators, and unescape the parts."""
    if ESCAPE not in text:
        return tuple(text.split(separator))
    parts = [""]
    for piece in _PIECE.findall(text):
        if piece == separator:
            parts.append("")
        else:
            parts[-1] += unescape(piece)
    return tuple(parts)


def unescape(text: str) -> str:
    """Remove the escaping backslashes."""
    return _ESCAPED.sub(r"\1", text)
