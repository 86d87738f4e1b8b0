"""The range of a column in each of many places (files, manifests or row groups), from partition values or statistics.

A table does not record which writer computed a statistic, so each one is trusted only as far as the least accurate
known writer allows. Keeping a file needlessly costs time; skipping it wrongly loses rows.
"""

from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.pruning.values import AFTER_ALL_TEXT, order_keys, parse_values

# Some writers truncate text maxima without raising them, by default to 32 characters. A text has at least as many bytes
# as characters, so a text with fewer bytes than the limit is complete. Half the default allows for a smaller setting.
SHORTEST_CUT_BYTES = 16

# The JVM compares text by UTF-16 code units, where characters beyond the basic plane (as surrogate pairs) sort before
# this range of the basic plane. By code points or UTF-8 bytes, they sort after it.
BEYOND_BASIC_PLANE = r"(?s)[\x{10000}-\x{10FFFF}].*"
ABOVE_SURROGATES = r"(?s)[\x{E000}-\x{FFFF}].*"

# The digits of a decimal that survive a conversion to double, which some writers make.
DOUBLE_EXACT_DIGITS = 15

# Lengths of 2024-01-31T12:00:00 and of the same with microseconds.
SECONDS_LENGTH, MICROSECONDS_LENGTH = 19, 26
FRACTION_DIGITS = 6


Mask: TypeAlias = npt.NDArray[np.bool_]

# It means null in a path, and some writers stored it as a value: it may be either.
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class ColumnRange(msgspec.Struct, frozen=True):
    """One column in many places: whether a place may have nulls and values, and the keys of the values' bounds.

    A null key is an unknown bound. Ranges err in one direction: a value that is not certainly excluded may occur.
    """

    data_type: pa.DataType
    lower: pa.Array
    upper: pa.Array
    may_be_null: Mask
    may_be_value: Mask
    # NaN may occur outside the bounds, because some writers ignore it in their maxima.
    may_be_nan: bool = False


def unknown_range(data_type: pa.DataType, count: int) -> ColumnRange:
    """Return the range of a column without any statistics."""
    no_keys = order_keys(pa.nulls(count, data_type))
    return ColumnRange(data_type, no_keys, no_keys, np.ones(count, np.bool_), np.ones(count, np.bool_))


def partition_range(texts: pa.Array, data_type: pa.DataType) -> ColumnRange:
    """Return the range of a partition column: one value, or null, per file."""
    parsed = parse_values(texts, data_type)
    ambiguous = pc.fill_null(pc.equal(texts, HIVE_NULL), False)
    understood = pc.and_not(parsed.understood, ambiguous)
    keys = order_keys(pc.if_else(understood, parsed.values, pa.scalar(None, data_type)))
    unclear = ~as_mask(understood)
    is_null = as_mask(texts.is_null())
    return ColumnRange(data_type, keys, keys, is_null | unclear, ~is_null)


def statistics_range(minima: pa.Array, maxima: pa.Array, data_type: pa.DataType) -> ColumnRange:
    """Return the range of a column from statistics, which ignore nulls."""
    lower, upper = trusted_statistics(minima, maxima, data_type)
    anything = np.ones(len(minima), np.bool_)
    return ColumnRange(data_type, lower, upper, anything, anything, pa.types.is_floating(data_type))


def as_mask(truths: pa.BooleanArray) -> Mask:
    """Return a boolean array without nulls as a mask."""
    mask: Mask = truths.to_numpy(zero_copy_only=False)
    return mask


def trusted_statistics(
    minima: pa.Array, maxima: pa.Array, data_type: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Return lower and upper keys that are certain to bound every value of the column; null if there are none."""
    if pa.types.is_string(data_type):
        return _unless_inverted(text_lower_keys(minima), text_upper_keys(maxima))
    if pa.types.is_decimal(data_type):
        minima, maxima = _exact_decimals(minima, data_type), _exact_decimals(maxima, data_type)
    if _filled_with_first_value(data_type):
        differs = pc.not_equal(minima, maxima)
        minima, maxima = (
            pc.if_else(differs, texts, pa.scalar(None, pa.string())) for texts in (minima, maxima)
        )
    lower = order_keys(parse_values(minima, data_type).values)
    upper = order_keys(parse_values(maxima, data_type).values)
    if pa.types.is_timestamp(data_type):
        upper = _end_of_cut_fraction(upper, maxima, data_type)
    return _unless_inverted(lower, upper)


def text_lower_keys(minima: pa.Array) -> pa.Array:
    """Return keys at or below every text, whether the writer compared code points or UTF-16 code units."""
    # Cut at the first character on which the orders disagree: a prefix is a lower bound in both.
    return order_keys(_cut(minima, BEYOND_BASIC_PLANE))


def text_upper_keys(maxima: pa.Array) -> pa.Array:
    """Return keys at or above every text, in either order, even if the writer truncated the maximum."""
    whole = order_keys(maxima)
    may_be_cut = pc.greater_equal(pc.binary_length(maxima), SHORTEST_CUT_BYTES)
    # The last character of a truncated text may be half of a surrogate pair, stored as a question mark.
    prefix = pc.if_else(may_be_cut, pc.utf8_slice_codeunits(maxima, 0, -1), maxima)
    certain = _cut(prefix, ABOVE_SURROGATES)
    is_prefix = pc.or_(may_be_cut, pc.not_equal(certain, prefix))
    suffix, nothing = pa.scalar(AFTER_ALL_TEXT, pa.binary()), pa.scalar(b"", pa.binary())
    above_prefix = pc.binary_join_element_wise(order_keys(certain), suffix, nothing)
    return pc.if_else(is_prefix, above_prefix, whole)


def _cut(texts: pa.Array, pattern: str) -> pa.Array:
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return texts
    return pc.replace_substring_regex(texts, pattern, "")


def _exact_decimals(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    if data_type.precision <= DOUBLE_EXACT_DIGITS:
        return texts
    # A number that went through a double was not rounded if it has all digits of the scale and no more than a double
    # preserves.
    fraction = rf"\.[0-9]{{{data_type.scale}}}" if data_type.scale else ""
    has_full_scale = pc.match_substring_regex(texts, f"^[+-]?[0-9]+{fraction}$")
    is_short = pc.less_equal(pc.binary_length(texts), DOUBLE_EXACT_DIGITS)
    return pc.if_else(pc.and_(has_full_scale, is_short), texts, pa.scalar(None, pa.string()))


def _filled_with_first_value(data_type: pa.DataType) -> bool:
    # JVM writers cannot compare these types and record the first value as both minimum and maximum.
    is_zone_less = pa.types.is_timestamp(data_type) and data_type.tz is None
    is_short = pa.types.is_int8(data_type) or pa.types.is_int16(data_type)
    return is_zone_less or is_short or bool(pa.types.is_decimal(data_type))


def _end_of_cut_fraction(upper: pa.Array, texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Raise maxima with fewer than six fraction digits, which may be truncated, to the last value with these digits."""
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    recognised = pc.is_valid(texts)
    if data_type.tz is not None:
        lengths = lengths - len("Z")
        recognised = pc.ends_with(texts, "Z")
    digits = np.clip(lengths - SECONDS_LENGTH - len("."), 0, FRACTION_DIGITS)
    cut_off = pa.array(10 ** (FRACTION_DIGITS - digits.astype(np.int64)) - 1)
    is_form = (lengths == SECONDS_LENGTH) | (
        (lengths > SECONDS_LENGTH + 1) & (lengths <= MICROSECONDS_LENGTH)
    )
    certain = pc.and_(pa.array(is_form), pc.fill_null(recognised, False))
    return pc.if_else(certain, pc.add(upper, cut_off), pa.scalar(None, pa.int64()))


def _unless_inverted(lower: pa.Array, upper: pa.Array) -> tuple[pa.Array, pa.Array]:
    inverted = pc.fill_null(pc.greater(lower, upper), False)
    if not pc.any(inverted).as_py():
        return lower, upper
    nothing = pa.scalar(None, lower.type)
    return pc.if_else(inverted, nothing, lower), pc.if_else(inverted, nothing, upper)
