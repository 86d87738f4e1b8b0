"""Patterns of text ranges match exactly the texts in the range."""

import itertools
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.search.parser import Bound, Joker
from indextables.search.patterns import HEXADECIMAL, UNICODE, joker_pattern, range_pattern

SHORT_TEXTS = ["".join(letters) for length in range(5) for letters in itertools.product("ac", repeat=length)]


@cache
def compiled(pattern):
    """Translate a pattern to Python's syntax."""
    return re.compile(re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: f"\\U{int(found[1], 16):08x}", pattern))


def matches(pattern, text):
    """Return whether a pattern matches the whole text; None matches nothing."""
    return pattern is not None and compiled(pattern).fullmatch(text) is not None


def is_between(text, lower, upper):
    is_above = lower is None or text > lower.text or (lower.is_inclusive and text == lower.text)
    return is_above and (upper is None or text < upper.text or (upper.is_inclusive and text == upper.text))


ends = st.none() | st.builds(Bound, st.sampled_from(SHORT_TEXTS), st.booleans())


@settings(max_examples=60)
@given(ends, ends)
def test_ranges_of_short_texts(lower, upper):
    pattern = range_pattern(lower, upper)
    for text in SHORT_TEXTS:
        assert matches(pattern, text) == is_between(text, lower, upper)


any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
any_end = st.none() | st.builds(Bound, any_text, st.booleans())


@settings(max_examples=60)
@given(any_end, any_end, st.lists(any_text, max_size=10))
def test_ranges_of_any_texts(lower, upper, texts):
    pattern = range_pattern(lower, upper)
    for text in texts:
        assert matches(pattern, text) == is_between(text, lower, upper)


@pytest.mark.parametrize("alphabet", [UNICODE, HEXADECIMAL])
def test_ranges_of_hexadecimal_digits(alphabet):
    texts = ["00", "09", "0a", "9f", "a0", "ff"]
    for low, high in itertools.product(texts, repeat=2):
        pattern = range_pattern(Bound(low, True), Bound(high, False), alphabet)
        assert [text for text in texts if matches(pattern, text)] == [
            text for text in texts if low <= text < high
        ]


def test_jokers_match_line_breaks_and_nothing_else_is_syntax():
    assert matches(joker_pattern(("a", Joker.ANY, "b")), "a\n.*b")
    assert matches(joker_pattern(("a", Joker.ONE, "b")), "a\nb")
    assert not matches(joker_pattern(("a", Joker.ONE, "b")), "ab")
    assert not matches(joker_pattern(("a.", Joker.ANY, "b")), "axb")
    assert matches(joker_pattern(("(", Joker.ANY, "[")), "(x[")
