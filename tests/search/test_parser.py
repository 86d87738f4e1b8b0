"""Queries of one word are parsed without the grammar, with the same result."""

import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidQueryError
from indextables.search.grammar import parse_by_grammar
from indextables.search.parser import Joiner, parse_query

LETTERS = st.sampled_from([*"aBz09_.é東ß²٣", "AND", "OR", "NOT", "IN", "TO", "-", "+", "*", " "])
WORDS = st.lists(LETTERS, min_size=1, max_size=4).map("".join)


@settings(deadline=None, max_examples=300)
@given(st.one_of(WORDS, st.tuples(WORDS, WORDS).map(":".join)), st.sampled_from(Joiner))
@example("NOT", Joiner.OR)
@example("a:NOT", Joiner.OR)
@example("a.b:IN", Joiner.AND)
@example(".:a", Joiner.AND)
def test_every_query_parses_as_the_grammar_parses_it(text, joiner):
    assert shown(parse_query, text, joiner) == shown(parse_by_grammar, text, joiner)


def shown(parse, text, joiner):
    """Return the nodes with their places, which equality ignores, or the error."""
    try:
        return repr(parse(text, joiner))
    except InvalidQueryError as error:
        return str(error)


@pytest.mark.parametrize("query", ["timeout", "level:ERROR", "attrs.user.id:42"])
def test_a_word_is_parsed_without_importing_lark(query):
    program = (
        "import sys; from indextables.search.parser import parse_query; parse_query(sys.argv[1]); "
        "sys.exit('lark' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, query], check=True)
