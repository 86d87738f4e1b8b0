"""Evaluates predicates over column ranges of places: files, manifests or row groups.

For every place, the evaluator answers two questions: may the predicate be true for some row, and may it be false for
some row? Negation swaps the answers. Rows for which the predicate is unknown count for neither. A place is skipped if
the predicate cannot be true for any of its rows.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidPredicateError
from indextables.predicates import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BoundPredicate,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Like,
    NestedColumn,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    literal_prefix,
)
from indextables.pruning.ranges import ColumnRange, Mask, as_mask
from indextables.pruning.values import AFTER_ALL_TEXT, NAN_KEY, literal_keys


class Truth(msgspec.Struct, frozen=True):
    """For each place: whether the predicate may be true for a row, and whether it may be false for a row."""

    may_be_true: Mask
    may_be_false: Mask

    def negated(self) -> "Truth":
        """Return the truth of the negation. Unknown stays unknown."""
        return Truth(self.may_be_false, self.may_be_true)


def evaluate(predicate: BoundPredicate, ranges: Mapping[str, ColumnRange], count: int) -> Truth:
    """Evaluate a predicate over `count` places, given the range of each column it names."""
    return _evaluate(predicate, ranges, count)


def _evaluate(predicate: Predicate, ranges: Mapping[str, ColumnRange], count: int) -> Truth:
    match predicate:
        case And(operands=operands):
            truths = [_evaluate(operand, ranges, count) for operand in operands]
            return Truth(
                np.logical_and.reduce([truth.may_be_true for truth in truths]),
                np.logical_or.reduce([truth.may_be_false for truth in truths]),
            )
        case Or(operands=operands):
            truths = [_evaluate(operand, ranges, count) for operand in operands]
            return Truth(
                np.logical_or.reduce([truth.may_be_true for truth in truths]),
                np.logical_and.reduce([truth.may_be_false for truth in truths]),
            )
        case Not(operand=operand):
            return _evaluate(operand, ranges, count).negated()
        case AlwaysTrue():
            return Truth(np.ones(count, np.bool_), np.zeros(count, np.bool_))
        case AlwaysFalse():
            return Truth(np.zeros(count, np.bool_), np.ones(count, np.bool_))
        case (
            IsNull(column=column)
            | IsNotNull(column=column)
            | Comparison(column=column)
            | In(column=column)
            | StartsWith(column=column)
            | Like(column=column)
        ) if isinstance(column, NestedColumn):
            # Statistics are of whole columns.
            return Truth(np.ones(count, np.bool_), np.ones(count, np.bool_))
        case IsNull(column=column):
            return Truth(ranges[column].may_be_null, ranges[column].may_be_value)
        case IsNotNull(column=column):
            return Truth(ranges[column].may_be_value, ranges[column].may_be_null)
        case Comparison(column=column):
            return _comparison(predicate, ranges[column], count)
        case In(column=column):
            return _membership(predicate, ranges[column], count)
        case StartsWith(column=column, prefix=prefix):
            return _prefix(prefix, ranges[column])
        case Like(column=column, pattern=pattern):
            return _like(pattern, ranges[column])
    raise InvalidPredicateError(f"{predicate!r} is not a predicate; use parse_predicate, or col()")


def _comparison(predicate: Comparison, column: ColumnRange, count: int) -> Truth:
    if predicate.value is None:
        return Truth(np.zeros(count, np.bool_), np.zeros(count, np.bool_))
    key = literal_keys([predicate.value], column.data_type)[0]
    match predicate.operator:
        case Operator.EQ:
            return _equal(column, key)
        case Operator.NE:
            return _equal(column, key).negated()
        case Operator.LT:
            return _less(column, key)
        case Operator.GE:
            return _less(column, key).negated()
        case Operator.LE:
            return _less_or_equal(column, key)
        case Operator.GT:
            return _less_or_equal(column, key).negated()


def _equal(column: ColumnRange, key: pa.Scalar) -> Truth:
    outside = certain(pc.greater(column.lower, key)) | certain(pc.less(column.upper, key))
    all_equal = certain(pc.equal(column.lower, key)) & certain(pc.equal(column.upper, key))
    return _of_values(column, ~outside, ~all_equal, column.may_be_nan and key.as_py() == NAN_KEY)


def _less(column: ColumnRange, key: pa.Scalar) -> Truth:
    none_less = certain(pc.greater_equal(column.lower, key))
    all_less = certain(pc.less(column.upper, key))
    return _of_values(column, ~none_less, ~all_less, False)


def _less_or_equal(column: ColumnRange, key: pa.Scalar) -> Truth:
    none = certain(pc.greater(column.lower, key))
    all_of_them = certain(pc.less_equal(column.upper, key))
    return _of_values(column, ~none, ~all_of_them, column.may_be_nan and key.as_py() == NAN_KEY)


def _membership(predicate: In, column: ColumnRange, count: int) -> Truth:
    known = [value for value in predicate.values if value is not None]
    if known:
        keys = literal_keys(known, column.data_type)
        truth = _among(column, keys.take(pc.sort_indices(keys)))
    else:
        truth = Truth(np.zeros(count, np.bool_), column.may_be_value)
    if None in predicate.values:  # values that are not found are unknown, not false
        return Truth(truth.may_be_true, np.zeros(count, np.bool_))
    return truth


def _among(column: ColumnRange, keys: pa.Array) -> Truth:
    # If any key is in the range, the first key at or above the lower bound is.
    first = _first_at_or_above(keys, column.lower)
    exhausted = first == len(keys)
    candidate = keys.take(pa.array(first, mask=exhausted))
    none = exhausted | certain(pc.greater(candidate, column.upper))
    single = certain(pc.equal(column.lower, column.upper))
    all_of_them = single & as_mask(pc.is_in(column.lower, value_set=keys))
    nan_is_among = column.may_be_nan and keys[-1].as_py() == NAN_KEY
    return _of_values(column, ~none, ~all_of_them, nan_is_among)


def _first_at_or_above(keys: pa.Array, lower: pa.Array) -> npt.NDArray[np.int64]:
    """Return, for each lower bound, the number of sorted keys below it; 0 for an unknown bound."""
    # In a stable sort with the bounds first, the keys before a bound are exactly those below it.
    order = pc.sort_indices(pa.concat_arrays([lower, keys])).to_numpy()
    is_key = order >= len(lower)
    below = np.empty(len(order), np.int64)
    below[order] = np.cumsum(is_key)
    return np.where(as_mask(lower.is_null()), 0, below[: len(lower)])


def _prefix(prefix: str, column: ColumnRange) -> Truth:
    start = pa.scalar(prefix.encode(), pa.binary())
    end = pa.scalar(prefix.encode() + AFTER_ALL_TEXT, pa.binary())
    outside = certain(pc.less(column.upper, start)) | certain(pc.greater(column.lower, end))
    both = certain(pc.starts_with(column.lower, start.as_py())) & certain(
        pc.starts_with(column.upper, start.as_py())
    )
    return _of_values(column, ~outside, ~both, False)


def _like(pattern: str, column: ColumnRange) -> Truth:
    by_prefix = _prefix(literal_prefix(pattern), column)
    single = certain(pc.equal(column.lower, column.upper))
    matches = certain(pc.match_like(column.lower.cast(pa.string()), pattern))
    return _of_values(column, by_prefix.may_be_true & ~(single & ~matches), ~(single & matches), False)


def _of_values(column: ColumnRange, may_be_true: Mask, may_be_false: Mask, true_for_nan: bool) -> Truth:
    """Restrict the truth to places with values, and include a NaN that the bounds do not cover."""
    if column.may_be_nan:
        may_be_true = may_be_true | true_for_nan
        may_be_false = may_be_false | (not true_for_nan)
    return Truth(may_be_true & column.may_be_value, may_be_false & column.may_be_value)


def certain(truths: pa.BooleanArray) -> Mask:
    """Return where a comparison with a bound is certain to be true. An unknown bound proves nothing."""
    return as_mask(pc.fill_null(truths, False))
