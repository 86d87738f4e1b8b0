"""Avro object container files: the header and the frame of each block, and the compression of blocks.

Layout: magic, metadata map, 16-byte sync marker; then blocks of count, size, payload, sync marker. Our sync marker is a
digest of the header before it, and our metadata says so: a reader then detects a damaged schema. Our metadata also has
the number of records if the writer knew it: a reader then detects a file that was cut off between blocks.
"""

import sys
import zlib
from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from typing import ClassVar

import msgspec
import pyarrow as pa

from indextables.errors import InvalidOptionError
from indextables.state.avro.types import AvroFormatError, Record, parse_schema

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# The limits of a reader: records per file, and uncompressed bytes per block and per file.
MAX_RECORDS = 10_000_000
MAX_BLOCK_BYTES = 256 << 20
MAX_FILE_BYTES = 2 << 30

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MAX_VARINT_BYTES = 10
_SCHEMA_KEY = "avro.schema"
_CODEC_KEY = "avro.codec"
_SYNC_KEY = "indextables.sync"
_SYNC_IS_HEADER_DIGEST = b"header-digest"
_RECORDS_KEY = "indextables.records"


# Compression of blocks

_CRC_BYTES = 4
_RAW_DEFLATE = -15
_MAX_SNAPPY_LENGTH_BYTES = 5


class Compression(Enum):
    """The codecs that manifests may use, by their names in `avro.codec`."""

    ZSTD = "zstandard"
    SNAPPY = "snappy"
    DEFLATE = "deflate"
    NONE = "null"


class Codec(msgspec.Struct, frozen=True):
    """A codec and its compression level; None is the codec's default level."""

    compression: Compression
    level: int | None = None

    _LEVELS: ClassVar[dict[Compression, range]] = {
        Compression.ZSTD: range(1, 23),
        Compression.DEFLATE: range(10),
    }
    _OPTIONS: ClassVar[dict[str, Compression]] = {
        "zstd": Compression.ZSTD,
        "snappy": Compression.SNAPPY,
        "deflate": Compression.DEFLATE,
        "none": Compression.NONE,
    }

    def __post_init__(self) -> None:
        levels = self._LEVELS.get(self.compression)
        if self.level is not None and levels is not None and self.level not in levels:
            raise InvalidOptionError(
                f"{self.compression.value} has no compression level {self.level}; "
                f"choose one from {levels.start} to {levels.stop - 1}"
            )

    @classmethod
    def from_option(cls, name: str, level: int | None = None) -> "Codec":
        """The codec that a setting names: zstd (the only one that uses the level), snappy, deflate or none."""
        compression = cls._OPTIONS.get(name.lower())
        if compression is None:
            raise InvalidOptionError(f"unknown compression {name!r}; choose one of {', '.join(cls._OPTIONS)}")
        return cls(compression, level if compression is Compression.ZSTD else None)

    def compress(self, payload: bytes | pa.Buffer) -> bytes:
        """Compress the payload of one block. zstd blocks carry a checksum, so that readers detect damage."""
        match self.compression:
            case Compression.ZSTD:
                options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
                if self.level is not None:
                    options[zstd.CompressionParameter.compression_level] = self.level
                return zstd.compress(payload, options=options)
            case Compression.SNAPPY:
                crc = zlib.crc32(payload).to_bytes(_CRC_BYTES, "big")
                return bytes(pa.Codec("snappy").compress(payload, asbytes=True)) + crc
            case Compression.DEFLATE:
                deflate = zlib.compressobj(-1 if self.level is None else self.level, wbits=_RAW_DEFLATE)
                return deflate.compress(payload) + deflate.flush()
            case Compression.NONE:
                return bytes(payload)


DEFAULT_CODEC = Codec(Compression.ZSTD, level=3)

# Codecs whose compressed blocks can be concatenated and decompressed as one.
CONCATENABLE = frozenset({Compression.ZSTD, Compression.NONE})


def find_compression(name: str) -> Compression:
    """The codec with this name. Raises AvroFormatError if this release cannot read it."""
    try:
        return Compression(name)
    except ValueError as error:
        readable = ", ".join(compression.value for compression in Compression)
        raise AvroFormatError(f"its codec is {name[:50]!r}; this release reads {readable}") from error


def size_bound(compression: Compression, payload: memoryview, max_bytes: int) -> int:
    """An upper bound for the decompressed size of a block of a `CONCATENABLE` codec, without decompressing it.

    Raises AvroFormatError if the bound exceeds `max_bytes`, or if the block is visibly damaged.
    """
    bound = zstd_size_bound(payload) if compression is Compression.ZSTD else len(payload)
    return _checked_size(bound, max_bytes)


def decompress(compression: Compression, payload: memoryview, max_bytes: int) -> bytes:
    """Decompress a block. Raises AvroFormatError if it is damaged or holds more than `max_bytes`."""
    match compression:
        case Compression.ZSTD:
            return _decompress_zstd(payload, max_bytes)
        case Compression.SNAPPY:
            return _decompress_snappy(payload, max_bytes)
        case Compression.DEFLATE:
            return _decompress_deflate(payload, max_bytes)
        case Compression.NONE:
            _checked_size(len(payload), max_bytes)
            return bytes(payload)


def _checked_size(size: int, max_bytes: int) -> int:
    if size > max_bytes:
        raise AvroFormatError(f"a block holds up to {size} bytes, more than the {max_bytes} allowed")
    return size


def _decompress_zstd(payload: memoryview, max_bytes: int) -> bytes:
    _checked_size(zstd_size_bound(payload), max_bytes)
    try:
        return zstd.decompress(payload)
    except zstd.ZstdError as error:
        raise AvroFormatError(f"a block of zstd data is damaged ({error})") from error


def _snappy_size(payload: memoryview) -> int:
    """The size that raw snappy data announces. The library rejects data that yields another size."""
    size = 0
    for position, byte in enumerate(payload[:_MAX_SNAPPY_LENGTH_BYTES]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return size
    raise AvroFormatError("a block of snappy data is damaged")


def _decompress_snappy(payload: memoryview, max_bytes: int) -> bytes:
    if len(payload) <= _CRC_BYTES:
        raise AvroFormatError("a block of snappy data is cut off")
    compressed, crc = payload[:-_CRC_BYTES], bytes(payload[-_CRC_BYTES:])
    size = _checked_size(_snappy_size(compressed), max_bytes)
    try:
        content = bytes(pa.Codec("snappy").decompress(compressed, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise AvroFormatError(f"a block of snappy data is damaged ({error})") from error
    if zlib.crc32(content).to_bytes(_CRC_BYTES, "big") != crc:
        raise AvroFormatError("a block of snappy data does not match its checksum")
    return content


def _decompress_deflate(payload: memoryview, max_bytes: int) -> bytes:
    inflate = zlib.decompressobj(wbits=_RAW_DEFLATE)
    try:
        content = inflate.decompress(payload, max_bytes)
    except zlib.error as error:
        raise AvroFormatError(f"a block of deflate data is damaged ({error})") from error
    if inflate.unconsumed_tail or (not inflate.eof and len(content) == max_bytes):
        raise AvroFormatError(f"a block holds more than the {max_bytes} bytes allowed")
    # Some writers leave a part of the zlib checksum after the data, although the format has none.
    if not inflate.eof:
        raise AvroFormatError("a block of deflate data is cut off")
    return content


# An upper bound for the size of zstd data, from its frame and block headers, without decompressing it
#
# A frame may announce its content size, but a reader can verify that only by decompressing. Each block yields at most
# the block maximum, whatever the frame announces. Layout: RFC 8878, section 3.1.

_FRAME_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0
_MAGIC_BYTES = 4
_SKIPPABLE_HEADER_BYTES = 8
_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
_MAX_ZSTD_BLOCK_BYTES = 128 * 1024

_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RAW, _RUN_LENGTH, _COMPRESSED = range(3)


def zstd_size_bound(data: memoryview) -> int:
    """An upper bound for the decompressed size. Raises AvroFormatError unless `data` is whole zstd frames."""
    bound = 0
    at = 0
    while at < len(data):
        magic = _little_endian(data, at, _MAGIC_BYTES)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            at += _SKIPPABLE_HEADER_BYTES + _little_endian(data, at + _MAGIC_BYTES, 4)
        elif magic == _FRAME_MAGIC:
            frame_bound, at = _frame(data, at + _MAGIC_BYTES)
            bound += frame_bound
        else:
            raise AvroFormatError("a block is not zstd data")
    if at != len(data):
        raise AvroFormatError("a block of zstd data is cut off")
    return bound


def _frame(data: memoryview, at: int) -> tuple[int, int]:
    """The bound of the frame whose descriptor is at `at`, and the position after the frame."""
    block_maximum, has_checksum, at = _frame_header(data, at)
    bound = 0
    is_last = False
    while not is_last:
        header = _little_endian(data, at, _BLOCK_HEADER_BYTES)
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind > _COMPRESSED or size > _MAX_ZSTD_BLOCK_BYTES:
            raise AvroFormatError("a block is not valid zstd data")
        bound += block_maximum if kind == _COMPRESSED else size
        at += _BLOCK_HEADER_BYTES + (1 if kind == _RUN_LENGTH else size)
    return bound, at + (_CHECKSUM_BYTES if has_checksum else 0)


def _frame_header(data: memoryview, at: int) -> tuple[int, bool, int]:
    """The maximum size of a block, whether a checksum follows the frame, and the position of the first block."""
    descriptor = _little_endian(data, at, 1)
    is_single_segment = bool(descriptor & 0x20)
    content_size_flag = descriptor >> 6
    at += 1
    window = 0
    if not is_single_segment:
        exponent, mantissa = divmod(_little_endian(data, at, 1), 8)
        window = (1 << (10 + exponent)) * (8 + mantissa) // 8
        at += 1
    at += _DICTIONARY_ID_BYTES[descriptor & 3]
    content_size_bytes = _CONTENT_SIZE_BYTES[content_size_flag]
    if is_single_segment:
        content_size_bytes = max(content_size_bytes, 1)
        window = _little_endian(data, at, content_size_bytes) + (256 if content_size_bytes == 2 else 0)
    at += content_size_bytes
    return min(window, _MAX_ZSTD_BLOCK_BYTES), bool(descriptor & 4), at


def _little_endian(data: memoryview, at: int, size: int) -> int:
    if at + size > len(data):
        raise AvroFormatError("a block of zstd data is cut off")
    return int.from_bytes(data[at : at + size], "little")


# Files


class Block(msgspec.Struct, frozen=True):
    """One block: the number of records that it claims, and its compressed payload."""

    count: int
    payload: memoryview


class Container(msgspec.Struct, frozen=True):
    """A file whose structure is valid: every block is complete and followed by the sync marker.

    The contents of the blocks are not validated; `num_records` is what the blocks claim together.
    """

    schema: Record
    compression: Compression
    blocks: tuple[Block, ...]
    num_records: int


def parse_container(data: bytes) -> Container:
    """Parse a file without decompressing its blocks. Raises AvroFormatError for any kind of damage."""
    view = memoryview(data)
    if view[: len(_MAGIC)] != _MAGIC:
        raise AvroFormatError("it does not start like an Avro file" if data else "it is empty")
    metadata, at = _read_metadata(view, len(_MAGIC))
    sync = bytes(view[at : at + _SYNC_BYTES])
    if len(sync) < _SYNC_BYTES:
        raise AvroFormatError("it is cut off in its header")
    if metadata.get(_SYNC_KEY) == _SYNC_IS_HEADER_DIGEST and sync != _header_digest(data[:at]):
        raise AvroFormatError("its header does not match its checksum")
    schema = metadata.get(_SCHEMA_KEY)
    if schema is None:
        raise AvroFormatError("its header has no schema")
    codec = metadata.get(_CODEC_KEY, b"null").decode("utf-8", "replace")
    blocks = _read_blocks(view, at + _SYNC_BYTES, sync)
    num_records = sum(block.count for block in blocks)
    announced = metadata.get(_RECORDS_KEY)
    if announced is not None and announced != str(num_records).encode():
        announced_text = announced[:20].decode("ascii", "replace")
        raise AvroFormatError(f"it has {num_records} records, and its header announces {announced_text}")
    return Container(parse_schema(schema), find_compression(codec), blocks, num_records)


def encode_header(schema: bytes, codec: Codec, num_records: int | None) -> tuple[bytes, bytes]:
    """The header of a file, and the sync marker at its end, which must follow every block.

    `num_records` is None if the writer does not know it yet.
    """
    metadata = {
        _SCHEMA_KEY: schema,
        _CODEC_KEY: codec.compression.value.encode(),
        _SYNC_KEY: _SYNC_IS_HEADER_DIGEST,
    }
    if num_records is not None:
        metadata[_RECORDS_KEY] = str(num_records).encode()
    items = b"".join(encode_bytes(key.encode()) + encode_bytes(value) for key, value in metadata.items())
    header = _MAGIC + encode_long(len(metadata)) + items + encode_long(0)
    sync = _header_digest(header)
    return header + sync, sync


def encode_block(count: int, payload: bytes, sync: bytes) -> bytes:
    """A block from a compressed payload."""
    return b"".join((encode_long(count), encode_long(len(payload)), payload, sync))


def encode_long(value: int) -> bytes:
    """A zigzag varint."""
    rest = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encode_bytes(value: bytes) -> bytes:
    """A length and the bytes: the encoding of Avro's bytes and strings."""
    return encode_long(len(value)) + value


def _header_digest(header: bytes) -> bytes:
    return blake2b(header, digest_size=_SYNC_BYTES).digest()


def _read_metadata(view: memoryview, at: int) -> tuple[Mapping[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    while True:
        count, at = _read_long(view, at)
        if count == 0:
            return metadata, at
        if count < 0:
            # A negative count is followed by the size of the items in bytes, which lets readers skip them.
            _, at = _read_long(view, at)
        for _ in range(abs(count)):
            key, at = _read_bytes(view, at)
            metadata[key.decode("utf-8", "replace")], at = _read_bytes(view, at)


def _read_blocks(view: memoryview, at: int, sync: bytes) -> tuple[Block, ...]:
    blocks: list[Block] = []
    records = 0
    while at < len(view):
        number = len(blocks) + 1
        count, at = _read_long(view, at)
        size, at = _read_long(view, at)
        records += count
        if count < 0 or records > MAX_RECORDS:
            raise AvroFormatError(f"block {number} claims {count} records; a file may hold {MAX_RECORDS}")
        if not 0 <= size <= len(view) - at:
            raise AvroFormatError(f"block {number} claims {size} bytes, of which {len(view) - at} are there")
        blocks.append(Block(count, view[at : at + size]))
        at += size
        if view[at : at + _SYNC_BYTES] != sync:
            raise AvroFormatError(f"block {number} is cut off, or its end is damaged")
        at += _SYNC_BYTES
    return tuple(blocks)


def _read_long(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for position in range(_MAX_VARINT_BYTES):
        if at + position >= len(view):
            raise AvroFormatError("it is cut off")
        byte = view[at + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            if value > 0xFFFF_FFFF_FFFF_FFFF:
                break
            return (value >> 1) ^ -(value & 1), at + position + 1
    raise AvroFormatError("it has a number of more than 64 bits")


def _read_bytes(view: memoryview, at: int) -> tuple[bytes, int]:
    size, at = _read_long(view, at)
    if not 0 <= size <= len(view) - at:
        raise AvroFormatError("it is cut off in its header, or its header is damaged")
    return bytes(view[at : at + size]), at + size
