"""The compression of Avro blocks: what we write, and what we read with a bound on what comes out."""

import sys
import zlib
from enum import Enum
from typing import ClassVar

import msgspec
import pyarrow as pa

from indextables.errors import InvalidOptionError
from indextables.state.avro_types import AvroFormatError
from indextables.state.zstd_frames import zstd_size_bound

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

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
    """How to compress; `level` is zstd's or deflate's own, None for its default."""

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
        """The codec that a setting names: zstd (the only one to use the level), snappy, deflate or none."""
        compression = cls._OPTIONS.get(name.lower())
        if compression is None:
            raise InvalidOptionError(f"unknown compression {name!r}; choose one of {', '.join(cls._OPTIONS)}")
        return cls(compression, level if compression is Compression.ZSTD else None)

    def compress(self, payload: bytes | pa.Buffer) -> bytes:
        """One block's payload. zstd blocks carry a checksum, so that a damaged byte is noticed."""
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

# Codecs whose compressed blocks, put one after the other, are the compressed form of all their content.
CONCATENABLE = frozenset({Compression.ZSTD, Compression.NONE})


def find_compression(name: str) -> Compression:
    """The codec of a file. Raises AvroFormatError if this release cannot read it."""
    try:
        return Compression(name)
    except ValueError as error:
        readable = ", ".join(compression.value for compression in Compression)
        raise AvroFormatError(f"its codec is {name[:50]!r}; this release reads {readable}") from error


def size_bound(compression: Compression, payload: memoryview, max_bytes: int) -> int:
    """An upper bound for the content of a block of a `CONCATENABLE` codec, found without decompressing it.

    Raises AvroFormatError if it may exceed `max_bytes`, or is visibly damaged.
    """
    bound = zstd_size_bound(payload) if compression is Compression.ZSTD else len(payload)
    return _checked_size(bound, max_bytes)


def decompress(compression: Compression, payload: memoryview, max_bytes: int) -> bytes:
    """The content of a block. Raises AvroFormatError if it is damaged or holds more than `max_bytes`."""
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
    """The size that raw snappy data announces; the library refuses data that yields another size."""
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
    # Behind the data, some writers leave a part of the zlib checksum, which the format does not have.
    if not inflate.eof:
        raise AvroFormatError("a block of deflate data is cut off")
    return content
