"""Converts between typed values and their texts: partition values and statistics are strings on disk.

Parsing is strict, and pruning draws no conclusion from a text that does not parse. 2024-9 is not a date, 20260322 is
not a number of days, a number is not a timestamp (it could be seconds, milliseconds or microseconds), and a timestamp
without a zone is not an instant.
"""

from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.predicates import Value


class Parsed(msgspec.Struct, frozen=True):
    """Typed values, and which texts were understood. A null counts as understood: it is a missing value."""

    values: pa.Array
    understood: pa.BooleanArray


# The fast path casts a whole column at once. If a text fails to cast, these patterns select the texts that are certain
# to cast.
LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
DATE = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    rf"|{LEAP_YEAR}-02-29)"
)
HOUR, MINUTE = r"(?:[01][0-9]|2[0-3])", r"[0-5][0-9]"
TIME = rf"{HOUR}:{MINUTE}(?::{MINUTE}(?:\.[0-9]{{1,6}})?)?"
ZONE = rf"(?:Z|[+-]{HOUR}(?::?{MINUTE})?)"
# Exponents have at most two digits, so that no number overflows.
FLOAT = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,2})?|NaN|nan|Infinity|inf)"
INTEGER = r"-?[0-9]{1,18}"

# Split from one text, because pa.array() of a list imports pandas, and of a numpy array numpy.ma.
TRUE_TEXTS = pc.split_pattern(pa.scalar("true True TRUE"), " ").values
FALSE_TEXTS = pc.split_pattern(pa.scalar("false False FALSE"), " ").values

NO_TEXT = pa.scalar(None, pa.string())


def parse_values(texts: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> Parsed:
    """Parse texts as values of a type, a column at a time. A text that does not parse becomes null."""
    strings = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    values = _parse(strings, data_type)
    return Parsed(values, pc.or_(pc.is_null(strings), pc.is_valid(values)))


def format_value(value: pa.Scalar) -> str | None:
    """Return the text that `parse_values` reads back as exactly this value; None if there is none.

    Null, nested and binary values have no text, and neither have dates outside the years 1 to 9999.
    """
    text = _text(value) if value.is_valid else None
    if text is None:
        return None
    read_back = parse_values(pa.array([text]), value.type).values[0]
    return text if read_back.is_valid and _same(read_back, value) else None


def _parse(strings: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_string(data_type):
        return strings
    if pa.types.is_boolean(data_type):
        return _parse_booleans(strings)
    if pa.types.is_integer(data_type):
        return _parse_integers(strings, data_type)
    pattern = _pattern(data_type)
    if pattern is None:
        return pa.nulls(len(strings), data_type)
    return _cast(strings, data_type, pattern)


def _pattern(data_type: pa.DataType) -> str | None:
    if pa.types.is_floating(data_type):
        return FLOAT
    if pa.types.is_date32(data_type):
        return DATE
    if pa.types.is_timestamp(data_type):
        return f"{DATE}[ T]{TIME}{ZONE}" if data_type.tz else f"{DATE}(?:[ T]{TIME})?"
    if pa.types.is_decimal(data_type):
        whole, fraction = data_type.precision - data_type.scale, data_type.scale
        digits = rf"0*[0-9]{{1,{whole}}}" if whole else "0+"
        return rf"[+-]?{digits}(?:\.[0-9]{{0,{fraction}}}0*)?"
    return None


def _cast(strings: pa.Array, data_type: pa.DataType, pattern: str) -> pa.Array:
    try:
        return strings.cast(data_type)
    except pa.ArrowInvalid:
        matching = pc.match_substring_regex(strings, f"^(?:{pattern})$")
        return pc.if_else(matching, strings, NO_TEXT).cast(data_type)


def _parse_booleans(strings: pa.Array) -> pa.Array:
    is_true, is_false = pc.is_in(strings, TRUE_TEXTS), pc.is_in(strings, FALSE_TEXTS)
    return pc.if_else(pc.or_(is_true, is_false), is_true, pa.scalar(None, pa.bool_()))


def _parse_integers(strings: pa.Array, data_type: pa.DataType) -> pa.Array:
    # Arrow would parse 0x10 as sixteen.
    is_hexadecimal = pc.or_(pc.match_substring(strings, "x"), pc.match_substring(strings, "X"))
    plain = pc.if_else(is_hexadecimal, NO_TEXT, strings) if pc.any(is_hexadecimal).as_py() else strings
    try:
        return plain.cast(data_type)
    except pa.ArrowInvalid:
        wide = _cast(plain, pa.int64(), INTEGER)
        limits = np.iinfo(data_type.to_pandas_dtype())
        fits = pc.and_(pc.greater_equal(wide, limits.min), pc.less_equal(wide, limits.max))
        return pc.if_else(fits, wide, pa.scalar(None, pa.int64())).cast(data_type)


def _text(value: pa.Scalar) -> str | None:
    data_type = value.type
    for is_type, format_type in FORMATS:
        if is_type(data_type):
            return format_type(value)
    return None


def _format_boolean(value: pa.Scalar) -> str:
    return "true" if value.as_py() else "false"


def _format_float(value: pa.Scalar) -> str:
    # The JVM's words for NaN and infinity, and the shortest digits that identify the value in its own width.
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    text = str(np.dtype(value.type.to_pandas_dtype()).type(value.as_py()))
    return words.get(text, text)


def _format_decimal(value: pa.Scalar) -> str:
    return f"{value.as_py():f}"


def _format_timestamp(value: pa.Scalar) -> str:
    # All six fraction digits: a maximum truncated to milliseconds would not be a maximum.
    return str(value.cast(pa.string()).as_py()).replace(" ", "T")


def _format_plain(value: pa.Scalar) -> str:
    return str(value.cast(pa.string()).as_py())


FORMATS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Scalar], str]], ...] = (
    (pa.types.is_boolean, _format_boolean),
    (pa.types.is_integer, _format_plain),
    (pa.types.is_floating, _format_float),
    (pa.types.is_decimal, _format_decimal),
    (pa.types.is_string, _format_plain),
    (pa.types.is_date32, _format_plain),
    (pa.types.is_timestamp, _format_timestamp),
)


def _same(left: pa.Scalar, right: pa.Scalar) -> bool:
    if pa.types.is_floating(left.type):
        return bool(np.array_equal(left.as_py(), right.as_py(), equal_nan=True))
    return bool(left.equals(right))


# Order keys compare like the values in Spark. Booleans, integers, dates, timestamps and floats become 64-bit integers;
# decimals and text become bytes.

# The bits of the positive quiet NaN, which are above those of infinity, because Spark sorts NaN last.
NAN_KEY = 0x7FF8_0000_0000_0000

# UTF-8 never contains this byte, so prefix + AFTER_ALL_TEXT is above every text with that prefix.
AFTER_ALL_TEXT = b"\xff"

DECIMAL_BYTES = 16
BYTE_SIGN, LONG_MAGNITUDE = 0x80, 0x7FFF_FFFF_FFFF_FFFF


def order_keys(values: pa.Array) -> pa.Array:
    """Return the order keys of an array. Null stays null; for types without an order, every key is null."""
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return values.cast(pa.binary())
    if pa.types.is_floating(data_type):
        return _float_keys(values)
    if pa.types.is_decimal128(data_type):
        return _decimal_keys(values)
    if pa.types.is_date32(data_type):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_integer(data_type) or pa.types.is_boolean(data_type) or pa.types.is_timestamp(data_type):
        return values.cast(pa.int64())
    return pa.nulls(len(values), pa.int64())


def literal_keys(values: list[Value], data_type: pa.DataType) -> pa.Array:
    """Return the order keys of bound literals for a column of this type."""
    # Literals for float columns are doubles, and so is the comparison.
    literal_type = pa.float64() if pa.types.is_floating(data_type) else data_type
    return order_keys(pa.array(values, literal_type))


def _float_keys(values: pa.Array) -> pa.Array:
    numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    normal = numbers + 0.0  # -0.0 becomes 0.0
    bits = normal.view(np.int64)
    keys = np.where(bits < 0, bits ^ LONG_MAGNITUDE, bits)
    keys[np.isnan(normal)] = NAN_KEY
    return pa.array(keys, mask=_nulls(values))


def _decimal_keys(values: pa.Array) -> pa.Array:
    # Big-endian two's complement with the sign bit flipped compares bytewise like the numbers.
    stored = np.frombuffer(values.buffers()[1] or b"", np.uint8).reshape(-1, DECIMAL_BYTES)
    keys = stored[values.offset : values.offset + len(values), ::-1].copy()
    keys[:, 0] ^= BYTE_SIGN
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(DECIMAL_BYTES), len(values), [None, pa.py_buffer(keys.tobytes())]
    )
    present = pa.array(~_nulls(values))
    return pa.compute.if_else(present, fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


def _nulls(values: pa.Array) -> np.ndarray:
    nulls: np.ndarray = values.is_null().to_numpy(zero_copy_only=False)
    return nulls


def map_values(maps: pa.MapArray | pa.ChunkedArray, key: str) -> pa.Array:
    """Return the value under `key` for each map; null where the map is null or has no such key.

    Arrow's `map_lookup` iterates over the maps. Comparing all keys at once is an order of magnitude faster for the
    statistics of a snapshot.
    """
    column = maps.combine_chunks() if isinstance(maps, pa.ChunkedArray) else maps
    offsets = column.offsets.to_numpy()
    start, end = (offsets[0], offsets[-1]) if len(offsets) else (0, 0)
    is_key = pc.equal(column.keys.slice(start, end - start), key)
    positions = np.flatnonzero(is_key.to_numpy(zero_copy_only=False)) + start
    rows = np.searchsorted(offsets, positions, side="right") - 1
    found = np.full(len(column), -1, np.int64)
    found[rows] = positions
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return column.items.take(pa.array(found, mask=found < 0))
