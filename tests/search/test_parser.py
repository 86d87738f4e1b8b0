"""Words and phrases are parsed without the grammar, with the same result."""

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
CLAUSES = st.sampled_from(
    ["a", "b1", "AND", "OR", "NOT", "TO", "IN", "&&", "x:a", "x.y:b", "x:AND", '"a b"', 'x:"a AND b"', '""',
     '"a\\"b"', "a*", '"\ud800"', "-a", "(a)", '"', "x:"]
)  # fmt: skip
GAPS = st.sampled_from([" ", "  ", "\n", "\t ", "", "\x1c", "\u3000"])


@settings(deadline=None, max_examples=300)
@given(st.one_of(WORDS, st.tuples(WORDS, WORDS).map(":".join)), st.sampled_from(Joiner))
@example("NOT", Joiner.OR)
@example("a:NOT", Joiner.OR)
@example("a.b:IN", Joiner.AND)
@example(".:a", Joiner.AND)
def test_every_query_parses_as_the_grammar_parses_it(text, joiner):
    assert shown(parse_query, text, joiner) == shown(parse_by_grammar, text, joiner)


@settings(deadline=None, max_examples=500)
@given(st.lists(st.tuples(GAPS, CLAUSES), min_size=1, max_size=6), GAPS, st.sampled_from(Joiner))
def test_clauses_parse_as_the_grammar_parses_them(clauses, end, joiner):
    text = "".join(gap + clause for gap, clause in clauses) + end
    assert shown(parse_query, text, joiner) == shown(parse_by_grammar, text, joiner)


def shown(parse, text, joiner):
    """Return the nodes with their places, which equality ignores, or the error."""
    try:
        return repr(parse(text, joiner))
    except InvalidQueryError as error:
        return str(error)


@pytest.mark.parametrize("query", ["timeout", "level:ERROR", "attrs.user.id:42", 'a x:b AND "c d"'])
def test_words_are_parsed_without_importing_lark(query):
    program = (
        "import sys; from indextables.search.parser import parse_query; parse_query(sys.argv[1]); "
        "sys.exit('lark' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, query], check=True)
