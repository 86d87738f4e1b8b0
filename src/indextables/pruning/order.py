"""One order for every type: values become keys that compare as Spark orders the values.

Booleans, integers, dates, timestamps and floats become 64-bit integers; decimals and text become bytes.
"""

import numpy as np
import pyarrow as pa

from indextables.predicates import Value

# The bits of the positive quiet NaN, which lie above those of infinity: Spark sorts NaN highest.
NAN_KEY = 0x7FF8_0000_0000_0000

# No text in utf-8 contains this byte. So prefix + AFTER_ALL_TEXT is above everything with that prefix.
AFTER_ALL_TEXT = b"\xff"

DECIMAL_BYTES = 16
BYTE_SIGN, LONG_MAGNITUDE = 0x80, 0x7FFF_FFFF_FFFF_FFFF


def order_keys(values: pa.Array) -> pa.Array:
    """Return the keys of an array; null stays null. Types without an order are all null."""
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
    """Return the keys of bound literals for a column of this type."""
    # Literals for a column of floats are doubles, and the comparison is one of doubles.
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
    # Big-endian two's complement with the sign flipped compares byte by byte like the numbers.
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
