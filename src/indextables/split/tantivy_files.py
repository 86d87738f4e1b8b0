"""The containers in Tantivy's index files: footers, composite files, and the directory of fast columns.

All numbers are little-endian. Functions read through `IndexFiles`, and raise ValueError for a file that is damaged or
has another format version.

    file:       body | JSON {version, crc} | u32 length of the JSON | u32 1337
    composite:  sections | VInt n | n of (VInt offset delta, u32 field, VInt part) | u32 length of this table
    .fast:      columns | SSTable: name 00 type → range | u64 SSTable length | u32 documents | u32 version | magic
    .store:     blocks | skip index | u32 version | u64 skip index offset | u8 compressor | 15 zeros
"""

import mmap
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import pyarrow as pa

from indextables.split.needs import IndexFiles

INDEX_FORMAT_VERSION: Final = 7

_FOOTER_TAIL: Final = struct.Struct("<II")
_FOOTER_MAGIC: Final = 1337
_MAX_FOOTER_BYTES: Final = 4096
_MAX_TABLE_BYTES: Final = 16 * 1024**2

_FAST_TAIL: Final = struct.Struct("<QII4s")
_FAST_VERSION: Final = 2
_FAST_MAGIC: Final = b"\x02qwB"

# The end of an SSTable: start of its top index layer, number of layers, start of the index, number of keys, version.
_SSTABLE_TAIL: Final = struct.Struct("<QIQQI")
_SSTABLE_VERSION: Final = 3
_MAX_BLOCK_BYTES: Final = 16 * 1024**2
_LONG_DELTA: Final = 1

_STORE_FOOTER: Final = struct.Struct("<IQB15s")


class Section(NamedTuple):
    """A byte range of a file; `end` is exclusive."""

    start: int
    end: int


class DirectoryFiles:
    """The complete files of an index in a local directory, mapped into memory until `close`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes = {path.name: path.stat().st_size for path in directory.iterdir() if path.is_file()}
        self._maps: dict[str, mmap.mmap] = {}

    def sizes(self) -> Mapping[str, int]:
        """Return the length of every file."""
        return self._sizes

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return some bytes of a file."""
        if not self._sizes[name]:
            return b""
        if name not in self._maps:
            with (self._directory / name).open("rb") as file:
                self._maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[name][start:end]

    def close(self) -> None:
        """Unmap the files."""
        for mapped in self._maps.values():
            mapped.close()
        self._maps.clear()


def body_end(files: IndexFiles, name: str) -> int:
    """Return where the body of a file ends. Raises ValueError for another format version."""
    size = files.sizes()[name]
    length, magic = _FOOTER_TAIL.unpack(read_exactly(files, name, size - _FOOTER_TAIL.size, size))
    if magic != _FOOTER_MAGIC or length > _MAX_FOOTER_BYTES:
        raise ValueError(f"{name} does not end with a footer of Tantivy")
    start: int = size - _FOOTER_TAIL.size - length
    footer = orjson.loads(read_exactly(files, name, start, size - _FOOTER_TAIL.size))
    try:
        version = footer["version"]["index_format_version"]
    except (TypeError, KeyError) as error:
        raise ValueError(f"{name} does not say which format it has") from error
    if version != INDEX_FORMAT_VERSION:
        raise ValueError(f"{name} has the index format version {version}, not {INDEX_FORMAT_VERSION}")
    return start


class Composite(NamedTuple):
    """The sections of a composite file by field number, and the table of them, up to the end of the file."""

    sections: Mapping[int, Section]
    table: Section


def read_composite(files: IndexFiles, name: str) -> Composite:
    """Return the sections of a composite file. Raises ValueError."""
    end = body_end(files, name)
    (length,) = struct.unpack("<I", read_exactly(files, name, end - 4, end))
    start = end - 4 - length
    if start < 0 or length > _MAX_TABLE_BYTES:
        raise ValueError(f"{name} has a table of {length} bytes")
    table = read_exactly(files, name, start, end - 4)
    count, position = vint(table, 0)
    offset = 0
    starts: list[int] = []
    fields: list[int] = []
    for _ in range(count):
        delta, position = vint(table, position)
        field = int.from_bytes(table[position : position + 4], "little")
        part, position = vint(table, position + 4)
        if part:
            raise ValueError(f"{name} has several parts of one field")
        offset += delta
        starts.append(offset)
        fields.append(field)
    ends = [*starts[1:], start][: len(starts)]
    if starts and (starts[-1] > start or len(set(fields)) != len(fields)):
        raise ValueError(f"the sections of {name} are not in order")
    sections = {field: Section(*place) for field, *place in zip(fields, starts, ends, strict=True)}
    return Composite(sections, Section(start, files.sizes()[name]))


class FastColumns(NamedTuple):
    """Where the columns of a .fast file are, by field; a JSON field has one range for all its paths.

    `directory` is the SSTable of names; opening the file reads from `index_start` to the end of the file.
    """

    columns: Mapping[str, Section]
    directory: Section
    index_start: int


def read_fast_columns(files: IndexFiles, name: str) -> FastColumns:
    """Return the directory of a .fast file. Raises ValueError."""
    tail_end = body_end(files, name)
    tail_start = tail_end - _FAST_TAIL.size
    length, _, version, magic = _FAST_TAIL.unpack(read_exactly(files, name, tail_start, tail_end))
    start = tail_start - length
    if (
        magic != _FAST_MAGIC
        or version != _FAST_VERSION
        or start < 0
        or not _SSTABLE_TAIL.size <= length <= _MAX_TABLE_BYTES
    ):
        raise ValueError(f"{name} has no directory of columns")
    table = read_exactly(files, name, start, tail_start)
    _, _, index, _, sstable_version = _SSTABLE_TAIL.unpack_from(table, length - _SSTABLE_TAIL.size)
    if sstable_version != _SSTABLE_VERSION or index > length:
        raise ValueError(f"{name} has a directory of version {sstable_version}")
    columns: dict[str, Section] = {}
    for key, (first, last) in _sstable_ranges(table[:index]):
        field = key[:-2].split(b"\x01")[0].decode()
        if last > start:
            raise ValueError(f"a column of {name} lies outside of the file")
        known = columns.get(field)
        columns[field] = Section(known.start if known else first, last)
    return FastColumns(columns, Section(start, tail_start), start + index)


def store_index_start(files: IndexFiles, name: str) -> int:
    """Return where the skip index of a .store file starts. Raises ValueError."""
    end = body_end(files, name)
    _, offset, _, _ = _STORE_FOOTER.unpack(read_exactly(files, name, end - _STORE_FOOTER.size, end))
    if offset > end:
        raise ValueError(f"the skip index of {name} lies outside of the file")
    return int(offset)


def _sstable_ranges(data: bytes) -> list[tuple[bytes, tuple[int, int]]]:
    """Return the keys and values of an SSTable of ranges.

    Blocks: u32 length | u8 is compressed | values | keys. A length of 0 is the end. Values: n + 1 bounds of n ranges.
    Keys: a byte with the length of the added part and that of the kept part, 4 bits each, or 1 and both lengths.
    """
    found: list[tuple[bytes, tuple[int, int]]] = []
    position, key = 0, b""
    while position + 4 <= len(data):
        length = int.from_bytes(data[position : position + 4], "little")
        if length <= 1:
            break
        is_compressed, block = _byte(data, position + 4), data[position + 5 : position + 4 + length]
        position += 4 + length
        if is_compressed:
            block = _decompressed(block)
        bounds, at = _bounds(block)
        for place in pairwise(bounds):
            lengths = _byte(block, at)
            kept, added = lengths & 0xF, lengths >> 4
            at += 1
            if lengths == _LONG_DELTA:
                kept, at = _leb128(block, at)
                added, at = _leb128(block, at)
            key = key[:kept] + block[at : at + added]
            at += added
            found.append((key, place))
    return found


def _bounds(block: bytes) -> tuple[list[int], int]:
    count, at = _leb128(block, 0)
    bounds: list[int] = []
    total = 0
    for _ in range(count):
        delta, at = _leb128(block, at)
        total += delta
        bounds.append(total)
    return bounds, at


def _decompressed(block: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        try:
            data: bytes = stream.read(_MAX_BLOCK_BYTES)
        except OSError as error:
            raise ValueError(f"a block of the directory is damaged: {error}") from error
    return data


def read_exactly(files: IndexFiles, name: str, start: int, end: int) -> bytes:
    """Return these bytes of a file. Raises ValueError if the file is too short."""
    if not 0 <= start <= end <= files.sizes()[name]:
        raise ValueError(f"{name} is too short")
    data = files.read(name, start, end)
    if len(data) != end - start:
        raise ValueError(f"{name} is too short")
    return data


def vint(data: bytes, position: int) -> tuple[int, int]:
    """Return Tantivy's VInt at a position (its last byte has the high bit set), and the position after it."""
    return _number(data, position, last_bit=0x80)


def _leb128(data: bytes, position: int) -> tuple[int, int]:
    return _number(data, position, last_bit=0)


def _number(data: bytes, position: int, *, last_bit: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = _byte(data, position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte & 0x80 == last_bit:
            return value, position
    raise ValueError("a number has too many bytes")


def _byte(data: bytes, position: int) -> int:
    if position >= len(data):
        raise ValueError("the data is cut off")
    return data[position]
