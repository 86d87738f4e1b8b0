"""Encodes Arrow columns as Avro records, column by column, without a loop over rows.

Each column becomes pieces, with one value per row: computed bytes (varints, union tags, lengths, map ends) and bytes
that Arrow already holds (texts). Joining the pieces row by row yields a binary array whose data buffer is the payload
of the block. Maps and lists work the same way one level down: their elements are in row order, so the elements of a row
are a slice of the joined elements.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.state.avro.container import encode_bytes, encode_long
from indextables.state.avro.types import NULL, Array, AvroType, Fixed, Map, Primitive, Record, Union

# Which rows yield bytes; None means all of them, the common case.
_Mask: TypeAlias = npt.NDArray[np.bool_] | None
_Longs: TypeAlias = npt.NDArray[np.int64]

_STRING = Primitive("string")
# Beyond this many keys, one column per key costs more than it saves.
_MAX_UNIFORM_KEYS = 64
_NOTHING = pa.scalar(b"", pa.binary())
_FLOATS = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}


class _Matrix(msgspec.Struct, frozen=True):
    """Computed bytes: the first `lengths[row]` bytes of each row; all of them if `lengths` is None."""

    matrix: npt.NDArray[np.uint8]
    lengths: _Longs | None


_Piece: TypeAlias = _Matrix | pa.Array


def encode_records(schema: Record, columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Encode one record per row. `columns` has one column for each field of `schema`.

    Each column has the Arrow type of the field (see `state.avro.arrow`), and no nulls if the field is required. Null
    elements of lists and maps that do not allow them are left out. All rows together must stay below 2 GiB.
    """
    pieces: list[_Piece] = []
    for field, column in zip(schema.fields, columns, strict=True):
        pieces += _pieces(field.type, column, None)
    return _join(pieces)


def back_to_back(records: pa.BinaryArray) -> pa.Buffer:
    """The concatenated bytes of encoded records: the payload of a block. Nothing is copied."""
    offsets = _offsets(records)
    data = records.buffers()[2]
    return pa.py_buffer(b"") if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def encode_row(schema: Mapping[str, Any], row: Mapping[str, Any]) -> bytes:
    """Encode a single record. Raises what fastavro raises if the record does not match the schema."""
    import fastavro  # lazily: see `read_rows`

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), row)
    return stream.getvalue()


def _pieces(avro_type: AvroType, column: pa.Array, present: _Mask) -> list[_Piece]:
    """The pieces of a column. Rows that are not `present` (because their parent is null) yield no bytes."""
    match avro_type:
        case Union(branches):
            return _union_pieces(branches, column, present)
        case Primitive("boolean"):
            flags = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8)
            return [_fixed_width(flags[:, np.newaxis], present)]
        case Primitive("int" | "long"):
            longs = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            return [_varints(longs, present)]
        case Primitive("float" | "double" as name):
            floats = column.fill_null(0).to_numpy(zero_copy_only=False).astype(_FLOATS[name])
            return [_fixed_width(floats.view(np.uint8).reshape(len(floats), floats.itemsize), present)]
        case Primitive("string" | "bytes"):
            lengths = np.diff(_offsets(column)).astype(np.int64)
            return [_varints(lengths, present), column.cast(pa.binary())]
        case Fixed():
            return [column.cast(pa.binary())]
        case Array(items):
            return _block_pieces(column, present, _Elements((items,), (column.values,)))
        case Map(values):
            uniform = _uniform_map_pieces(values, column, present)
            if uniform is not None:
                return uniform
            return _block_pieces(column, present, _Elements((_STRING, values), (column.keys, column.items)))
        case Record(fields):
            children = zip(fields, column.flatten(), strict=True)
            return [piece for field, child in children for piece in _pieces(field.type, child, present)]
        case _:
            raise TypeError(f"no column of a manifest is written as {avro_type}")


def _union_pieces(branches: tuple[AvroType, ...], column: pa.Array, present: _Mask) -> list[_Piece]:
    """A union of null and one other type: the index of the branch (a varint) and, if not null, the value."""
    null_index = branches.index(NULL)
    value_index = 1 - null_index
    has_value = _valid(column)
    tags = np.full((len(column), 1), 2 * value_index, np.uint8)
    if has_value is not None:
        tags[~has_value] = 2 * null_index
    value = _pieces(branches[value_index], column, _both(present, has_value))
    return [_fixed_width(tags, present), *value]


class _Elements(msgspec.Struct, frozen=True):
    """The elements of all lists (one part) or maps (keys and values) of a column, in row order."""

    types: tuple[AvroType, ...]
    parts: tuple[pa.Array, ...]

    def slice(self, start: int, end: int) -> "_Elements":
        return _Elements(self.types, tuple(part.slice(start, end - start) for part in self.parts))

    def writable(self) -> _Mask:
        """Elements that the format can represent. Only the last part (item or value) can be null."""
        return None if isinstance(self.types[-1], Union) else _valid(self.parts[-1])

    def filter(self, mask: npt.NDArray[np.bool_]) -> "_Elements":
        return _Elements(self.types, tuple(part.filter(pa.array(mask)) for part in self.parts))

    def encode(self) -> pa.Array:
        return _join(
            [
                piece
                for avro_type, part in zip(self.types, self.parts, strict=True)
                for piece in _pieces(avro_type, part, None)
            ]
        )


def _block_pieces(column: pa.Array, present: _Mask, elements: _Elements) -> list[_Piece]:
    """A list or map: the count and all elements as one block, if there are any, and the end marker."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    elements = elements.slice(int(offsets[0]), int(offsets[-1]))
    offsets -= offsets[0]
    writable = elements.writable()
    if writable is not None:
        elements = elements.filter(writable)
        offsets = np.concatenate(([0], np.cumsum(writable)))[offsets]
    encoded = elements.encode()
    counts = np.diff(offsets)
    count = _varints(counts, _both(present, counts > 0))
    body = _binary_array(_offsets(encoded)[offsets], encoded.buffers()[2], present)
    end = _fixed_width(np.zeros((len(column), 1), np.uint8), present)
    return [count, body, end]


def _uniform_map_pieces(values: AvroType, column: pa.Array, present: _Mask) -> list[_Piece] | None:
    """A map with the same keys in all rows, as partition values and statistics usually have; None if rows differ.

    Its keys are constants and the values of each key form a column, which is much cheaper than joining elements.
    """
    offsets = column.offsets.to_numpy()
    width = int(offsets[1] - offsets[0]) if len(column) else 0
    if not 0 < width <= _MAX_UNIFORM_KEYS or present is not None or column.null_count:
        return None
    start, end = int(offsets[0]), int(offsets[-1])
    if end - start != width * len(column) or (np.diff(offsets) != width).any():
        return None
    keys, items = column.keys.slice(start, end - start), column.items.slice(start, end - start)
    names = _repeated(keys, width)
    if names is None or (items.null_count and not isinstance(values, Union)):
        return None
    pieces: list[_Piece] = [_constant(encode_long(width), len(column))]
    for place, name in enumerate(names):
        every = pa.array(np.arange(place, len(items), width))
        pieces += [_constant(encode_bytes(name), len(column)), *_pieces(values, items.take(every), None)]
    return [*pieces, _constant(encode_long(0), len(column))]


def _repeated(keys: pa.Array, width: int) -> list[bytes] | None:
    """The first `width` keys, if all other keys repeat them in the same order."""
    offsets = _offsets(keys).astype(np.int64)
    lengths = np.diff(offsets).reshape(-1, width)
    if (lengths != lengths[0]).any():
        return None
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    rows = data.reshape(len(lengths), -1)
    if (rows != rows[0]).any():
        return None
    return [key.as_py().encode() for key in keys[:width]]


def _constant(content: bytes, rows: int) -> _Matrix:
    return _Matrix(np.broadcast_to(np.frombuffer(content, np.uint8), (rows, len(content))), None)


def _both(one: _Mask, other: _Mask) -> _Mask:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _fixed_width(matrix: npt.NDArray[np.uint8], present: _Mask) -> _Matrix:
    return _Matrix(matrix, None if present is None else present * np.int64(matrix.shape[1]))


def _varints(values: _Longs, present: _Mask) -> _Matrix:
    """Zigzag varints. The matrix is as wide as the longest one."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    if present is not None:
        zigzag[~present] = 0
    width = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
    if width == 1:
        return _fixed_width(zigzag.astype(np.uint8)[:, np.newaxis], present)
    matrix = np.empty((len(values), width), np.uint8)
    lengths = np.ones(len(values), np.int64) if present is None else present.astype(np.int64)
    for position in range(width):
        rest = zigzag >> np.uint64(7)
        has_more = rest > 0
        matrix[:, position] = (zigzag.astype(np.uint8) & 0x7F) | (has_more.view(np.uint8) << 7)
        lengths += has_more
        zigzag = rest
    return _Matrix(matrix, lengths)


def _join(pieces: Sequence[_Piece]) -> pa.Array:
    """Concatenate the bytes of all pieces row by row. A null yields no bytes."""
    arrays: list[pa.Array] = []
    adjacent: list[_Matrix] = []
    for piece in pieces:
        if isinstance(piece, _Matrix):
            adjacent.append(piece)
            continue
        if adjacent:
            arrays.append(_packed(adjacent))
            adjacent = []
        arrays.append(piece)
    if adjacent:
        arrays.append(_packed(adjacent))
    return pc.binary_join_element_wise(*arrays, _NOTHING, null_handling="replace", null_replacement=b"")


def _packed(matrices: Sequence[_Matrix]) -> pa.Array:
    """Adjacent matrices as one array: their bytes side by side, without the unused ones."""
    matrix = np.concatenate([piece.matrix for piece in matrices], axis=1)
    rows, width = matrix.shape
    if all(piece.lengths is None for piece in matrices):
        return _binary_array(np.arange(rows + 1) * width, pa.py_buffer(matrix.ravel()), None)
    used = np.empty(matrix.shape, np.bool_)
    lengths = np.zeros(rows, np.int64)
    at = 0
    for piece in matrices:
        columns = used[:, at : at + piece.matrix.shape[1]]
        if piece.lengths is None:
            columns[:] = True
            lengths += columns.shape[1]
        else:
            np.less(np.arange(columns.shape[1]), piece.lengths[:, np.newaxis], out=columns)
            lengths += piece.lengths
        at += columns.shape[1]
    return _binary_array(np.concatenate(([0], np.cumsum(lengths))), pa.py_buffer(matrix[used]), None)


def _binary_array(offsets: npt.NDArray[np.integer], data: pa.Buffer, present: _Mask) -> pa.Array:
    validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), data]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    """The start of each text in the data buffer, and the end of the last one."""
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column) + 1, np.int32)
    return np.frombuffer(buffer, np.int32)[column.offset : column.offset + len(column) + 1]


def _valid(column: pa.Array) -> _Mask:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False)) if column.null_count else None
