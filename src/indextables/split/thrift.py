"""Thrift's compact protocol, in which Parquet writes its metadata: decoded to field ids and values, and back.

A struct is a dictionary from field ids to values, so that fields which this release does not know survive a change. The
values keep their Thrift type where Python's does not tell it: `Int`, `Items` and `Double`.
"""

import struct
from typing import Any, Final, NamedTuple, TypeAlias

_TRUE: Final = 1
_FALSE: Final = 2
_BYTE: Final = 3
_DOUBLE: Final = 7
_BINARY: Final = 8
_LIST: Final = 9
_SET: Final = 10
_STRUCT: Final = 12
_INTEGERS: Final = frozenset({4, 5, 6})

# A list of this many elements or more has its length after its header.
_LONG_LIST: Final = 15
# Far deeper than Parquet nests its structs: damaged bytes must not exhaust the stack.
_MAX_DEPTH: Final = 32

I64: Final = 6


class Int(NamedTuple):
    """An integer with its Thrift type: 3 to 6 for 8 to 64 bits."""

    kind: int
    value: int


class Double(NamedTuple):
    """A number as its eight bytes."""

    data: bytes


class Items(NamedTuple):
    """A list or set, with the Thrift type of its elements."""

    kind: int
    element: int
    values: list[Any]


Struct: TypeAlias = dict[int, Any]


def i64(value: int) -> Int:
    """Return a 64-bit integer."""
    return Int(I64, value)


def structs(values: list[Struct]) -> Items:
    """Return a list of structs."""
    return Items(_LIST, _STRUCT, values)


def decode_struct(data: bytes, start: int = 0) -> tuple[Struct, int]:
    """Decode the struct at `start`; return it and the position after it. Raises ValueError for other bytes."""
    try:
        return _Decoder(data).struct(start, 0)
    except (IndexError, struct.error) as error:
        raise ValueError(f"the struct at byte {start} ends too early") from error


def encode_struct(value: Struct) -> bytes:
    """Encode a struct, with its fields in the order of their ids."""
    out = bytearray()
    _encode_struct(out, value)
    return bytes(out)


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def varint(self, position: int) -> tuple[int, int]:
        data, result, shift = self._data, 0, 0
        while True:
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result, position
            shift += 7
            if shift > 63:
                raise ValueError(f"the number at byte {position} is too long")

    def integer(self, position: int) -> tuple[int, int]:
        number, position = self.varint(position)
        return (number >> 1) ^ -(number & 1), position

    def struct(self, position: int, depth: int) -> tuple[Struct, int]:
        if depth > _MAX_DEPTH:
            raise ValueError(f"structs are nested too deeply at byte {position}")
        data, found, field = self._data, {}, 0
        while header := data[position]:
            position += 1
            if header >> 4:
                field += header >> 4
            else:
                field, position = self.integer(position)
            kind = header & 0x0F
            if kind in (_TRUE, _FALSE):
                found[field] = kind == _TRUE
            else:
                found[field], position = self.value(kind, position, depth)
        return found, position + 1

    def value(self, kind: int, position: int, depth: int) -> tuple[Any, int]:
        if kind in _INTEGERS:
            number, position = self.integer(position)
            return Int(kind, number), position
        if kind == _BINARY:
            length, position = self.varint(position)
            end = position + length
            if end > len(self._data):
                raise ValueError(f"the text at byte {position} ends too late")
            return bytes(self._data[position:end]), end
        if kind == _STRUCT:
            return self.struct(position, depth + 1)
        if kind in (_LIST, _SET):
            return self.items(kind, position, depth + 1)
        if kind == _BYTE:
            return Int(kind, self._data[position]), position + 1
        if kind == _DOUBLE:
            return Double(bytes(self._data[position : position + 8])), position + 8
        if kind in (_TRUE, _FALSE):  # an element of a list
            return self._data[position] == _TRUE, position + 1
        raise ValueError(f"the type {kind} at byte {position} is unknown")

    def items(self, kind: int, position: int, depth: int) -> tuple[Items, int]:
        if depth > _MAX_DEPTH:
            raise ValueError(f"lists are nested too deeply at byte {position}")
        header = self._data[position]
        position += 1
        element, count = header & 0x0F, header >> 4
        if count == _LONG_LIST:
            count, position = self.varint(position)
        if count > len(self._data) - position:
            raise ValueError(f"the list at byte {position} is too long")
        values = []
        for _ in range(count):
            value, position = self.value(element, position, depth)
            values.append(value)
        return Items(kind, element, values), position


def _encode_struct(out: bytearray, value: Struct) -> None:
    previous = 0
    for field in sorted(value):
        content = value[field]
        kind = _kind(content)
        delta = field - previous
        if 0 < delta < 16:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _encode_varint(out, _zigzag(field))
        previous = field
        if kind not in (_TRUE, _FALSE):
            _encode_value(out, kind, content)
    out.append(0)


def _kind(value: Any) -> int:
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, (Int, Items)):
        return value.kind
    if isinstance(value, bytes):
        return _BINARY
    return _DOUBLE if isinstance(value, Double) else _STRUCT


def _encode_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _encode_varint(out, _zigzag(value.value))
    elif kind == _BINARY:
        _encode_varint(out, len(value))
        out += value
    elif kind == _STRUCT:
        _encode_struct(out, value)
    elif kind in (_LIST, _SET):
        count = len(value.values)
        if count < _LONG_LIST:
            out.append(count << 4 | value.element)
        else:
            out.append(_LONG_LIST << 4 | value.element)
            _encode_varint(out, count)
        for each in value.values:
            _encode_value(out, value.element, each)
    elif kind == _BYTE:
        out.append(value.value)
    elif kind == _DOUBLE:
        out += value.data
    else:
        out.append(_TRUE if value else _FALSE)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else ~(number << 1)


def _encode_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
