"""Needs are sets: they unite, and everything absorbs the rest."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from indextables.split.needs import (
    EVERYTHING,
    NOTHING,
    after_prefix,
    column_needs,
    field_needs,
    norms_needs,
    prefix_needs,
    span_needs,
    term_needs,
    united,
)

names = st.sampled_from("ab")
keys = st.binary(max_size=3)
needs = st.one_of(
    st.builds(term_needs, names, keys, with_positions=st.booleans()),
    st.builds(prefix_needs, names, keys),
    st.builds(span_needs, names, keys, keys),
    st.builds(field_needs, names),
    st.builds(norms_needs, names),
    st.builds(column_needs, names),
    st.sampled_from([NOTHING, EVERYTHING]),
)


@given(needs, needs, needs)
def test_needs_unite_like_sets(left, right, other):
    assert left | right == right | left
    assert (left | right) | other == left | (right | other) == united([left, right, other])
    assert left | left == left == left | NOTHING
    assert left | EVERYTHING == EVERYTHING
    assert hash(left | right) == hash(right | left)
    assert pickle.loads(pickle.dumps(left)) == left


@given(needs, needs)
def test_unscored_needs_have_no_norms(left, right):
    assert norms_needs("a").unscored() == NOTHING
    assert (left | right).unscored() == left.unscored() | right.unscored()


@given(keys, keys)
def test_a_prefix_ends_before_the_first_key_after_it(prefix, key):
    end = after_prefix(prefix)
    assert key.startswith(prefix) == (prefix <= key and (end is None or key < end))


def test_the_same_field_in_different_roles_is_not_the_same_need():
    assert len((norms_needs("a") | column_needs("a")).items) == 2
