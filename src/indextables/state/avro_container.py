"""Avro object container files: the header and the frame of each block, written and walked.

Layout: magic, metadata map, 16-byte sync marker; then blocks of count, size, payload, sync marker. Our sync
marker is a digest of the header before it, and the metadata says so: a damaged schema is then noticed. Our
metadata also says how many records there are, if the writer knew: a file cut off between blocks is noticed.
"""

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from indextables.state.avro_codec import Codec, Compression, find_compression
from indextables.state.avro_types import AvroFormatError, Record, parse_schema

# What a reader takes from one file: records, and uncompressed bytes per block and in all.
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


class Block(msgspec.Struct, frozen=True):
    """One block: how many records it claims to hold, and its payload, still compressed."""

    count: int
    payload: memoryview


class Container(msgspec.Struct, frozen=True):
    """A file whose structure is sound: every block is whole, in its place, and followed by the marker.

    What the blocks hold has not been looked at; `num_records` is what they claim together.
    """

    schema: Record
    compression: Compression
    blocks: tuple[Block, ...]
    num_records: int


def parse_container(data: bytes) -> Container:
    """Walk a file without decompressing anything. Raises AvroFormatError for every kind of damage."""
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
    """The header of a file, and the sync marker (its end) that must follow every block.

    `num_records` is None for a writer that cannot know it yet.
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
    """A block with a payload that is compressed already."""
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
    """A length, and the bytes: the encoding of Avro's bytes and strings."""
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
            # A negative count is followed by the size of the items in bytes, for readers that skip them.
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
