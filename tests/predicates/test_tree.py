"""The predicate tree and its Python constructors."""

import pickle

import pytest

from indextables.errors import InvalidPredicateError
from indextables.predicates import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    StartsWith,
    all_of,
    any_of,
    bind,
    col,
    columns_of,
)

A, B, C = (Comparison(name, Operator.EQ, 1) for name in "abc")


def test_python_operators_build_the_tree():
    assert (col("d") == "x") == Comparison("d", Operator.EQ, "x")
    assert (col("d") != 1) == Comparison("d", Operator.NE, 1)
    assert (col("d") > 1) == (col("d") > 1) == Comparison("d", Operator.GT, 1)
    assert (col("d") <= 1) == (col("d") <= 1) == Comparison("d", Operator.LE, 1)
    assert (col("d") < 1) == Comparison("d", Operator.LT, 1)
    assert (col("d") >= 1) == Comparison("d", Operator.GE, 1)
    assert col("d").is_in([1, None]) == In("d", (1, None))
    assert col("d").between(1, 2) == And(col("d") >= 1, col("d") <= 2)
    assert col("d").is_null() == IsNull("d")
    assert col("d").is_not_null() == IsNotNull("d")
    assert col("d").starts_with("x") == StartsWith("d", "x")
    assert Or(And(A, B), Not(C)) == (A & B | ~C)


@pytest.mark.parametrize(
    ("pattern", "meaning"),
    [
        ("abc", Comparison("d", Operator.EQ, "abc")),
        ("", Comparison("d", Operator.EQ, "")),
        ("a\\%b", Comparison("d", Operator.EQ, "a%b")),
        ("abc%", StartsWith("d", "abc")),
        ("%%", StartsWith("d", "")),
        ("a\\_b%", StartsWith("d", "a_b")),
        ("%abc", Like("d", "%abc")),
        ("a_c", Like("d", "a_c")),
        ("ab%_", Like("d", "ab%_")),
        ("a%\\%", Like("d", "a%\\%")),
    ],
)
def test_like_becomes_the_simplest_predicate_of_the_same_meaning(pattern, meaning):
    assert col("d").like(pattern) == meaning


@pytest.mark.parametrize("pattern", ["a\\b", "a\\", "\\\\\\", "x" * 5000])
def test_like_pattern_that_spark_refuses_is_refused(pattern):
    with pytest.raises(InvalidPredicateError, match="'d'"):
        col("d").like(pattern)


def test_and_is_told_from_or_in_a_set_or_a_cache():
    assert And(A, B) != Or(A, B)
    assert len({And(A, B): 1, Or(A, B): 2, Not(And(A, B)): 3, And(A, B, C): 4}) == 4


def test_chains_are_flattened():
    assert (A & B) & C == A & (B & C) == And(A, B, C)
    assert ((A & B) | C).operands == (And(A, B), C)
    assert all_of([A]) == any_of([A]) == A
    assert all_of([]) == AlwaysTrue()
    assert any_of([]) == AlwaysFalse()


def test_nodes_are_frozen_hashable_and_picklable():
    tree = ~((col("a") == 1) & (col("b").is_in(["x", None]) | col("c").like("a%b")) & AlwaysTrue())
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert hash(pickle.loads(pickle.dumps(tree))) == hash(tree)
    with pytest.raises(AttributeError):
        A.column = "other"
    with pytest.raises(AttributeError):
        And(A, B).operands = ()


def test_columns_are_collected_from_the_whole_tree():
    tree = ~((A & B) | col("d").is_null() | col("e").like("%x%") | col("f").starts_with("x"))
    assert columns_of(tree | col("g").is_in([1]) | col("h").is_not_null()) == frozenset("abdefgh")
    assert columns_of(AlwaysTrue()) == frozenset()


def test_truth_value_of_a_predicate_is_refused():
    with pytest.raises(InvalidPredicateError, match="combine with &"):
        bool(A)
    with pytest.raises(InvalidPredicateError):
        1 < col("a") < 5  # noqa: B015 - the chained comparison itself must fail


def test_one_operand_is_no_conjunction():
    with pytest.raises(InvalidPredicateError, match="two operands"):
        And(A)


def test_something_else_cannot_be_combined():
    with pytest.raises(TypeError):
        A & True


def test_tree_nested_too_deep_is_refused_and_does_not_exhaust_the_stack():
    import pyarrow as pa

    tree = A
    for _ in range(20_000):
        tree = Not(tree)
    with pytest.raises(InvalidPredicateError, match="nested"):
        bind(tree, pa.schema([("a", pa.int64())]))
