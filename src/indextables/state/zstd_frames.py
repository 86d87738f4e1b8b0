"""An upper bound for the size of zstd data, from its frame and block headers, without decompressing it.

A frame may announce its content size, but nothing holds it to that until it has been decompressed. Its
blocks cannot lie: each yields at most the block maximum. Layout: RFC 8878, section 3.1.
"""

from indextables.state.avro_types import AvroFormatError

_FRAME_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0
_MAGIC_BYTES = 4
_SKIPPABLE_HEADER_BYTES = 8
_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
_MAX_BLOCK_BYTES = 128 * 1024

_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RAW, _RUN_LENGTH, _COMPRESSED = range(3)


def zstd_size_bound(data: memoryview) -> int:
    """At most this many bytes come out of `data`. Raises AvroFormatError unless it is whole zstd frames."""
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
    """The bound of one frame, whose descriptor is at `at`, and where the frame ends."""
    block_maximum, has_checksum, at = _frame_header(data, at)
    bound = 0
    is_last = False
    while not is_last:
        header = _little_endian(data, at, _BLOCK_HEADER_BYTES)
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind > _COMPRESSED or size > _MAX_BLOCK_BYTES:
            raise AvroFormatError("a block is not valid zstd data")
        bound += block_maximum if kind == _COMPRESSED else size
        at += _BLOCK_HEADER_BYTES + (1 if kind == _RUN_LENGTH else size)
    return bound, at + (_CHECKSUM_BYTES if has_checksum else 0)


def _frame_header(data: memoryview, at: int) -> tuple[int, bool, int]:
    """The most that one block of the frame yields, whether a checksum follows, and where the blocks start."""
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
    return min(window, _MAX_BLOCK_BYTES), bool(descriptor & 4), at


def _little_endian(data: memoryview, at: int, size: int) -> int:
    if at + size > len(data):
        raise AvroFormatError("a block of zstd data is cut off")
    return int.from_bytes(data[at : at + size], "little")
