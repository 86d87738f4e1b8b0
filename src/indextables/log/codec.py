"""The bytes of a log file: JSON lines, plain or compressed.

Layout of a compressed file: magic (01) · codec (01 = gzip) · gzip stream.
Older writers left the two bytes out, or did not compress; all three forms are read.
"""

import gzip
import io
import zlib

from indextables.errors import LogCorruptedError

COMPRESSION_MAGIC = 0x01
CODEC_GZIP = 0x01
_PREFIX = bytes([COMPRESSION_MAGIC, CODEC_GZIP])
_GZIP_MAGIC = b"\x1f\x8b"

# No honest log file comes near this; a compressed bomb is refused here, before it fills the memory.
MAX_LOG_FILE_BYTES = 2 * 1024**3
_READ_BYTES = 4 * 1024**2


def compress(lines: bytes) -> bytes:
    """JSON lines as a compressed log file. The same lines give the same bytes."""
    return _PREFIX + gzip.compress(lines, compresslevel=6, mtime=0)


def decompress(data: bytes, name: str, *, max_bytes: int = MAX_LOG_FILE_BYTES) -> bytes:
    """The JSON lines of a log file in any of the three encodings.

    Raises LogCorruptedError, with the file's name, if the stream is damaged, cut off, or gives more than
    `max_bytes`; not much more than that is ever decompressed.
    """
    if data.startswith(_PREFIX):
        return _gunzip(data[len(_PREFIX) :], name, max_bytes)
    if data.startswith(_GZIP_MAGIC):
        return _gunzip(data, name, max_bytes)
    if data.startswith(_PREFIX[:1]):
        raise LogCorruptedError(
            f"{name}: compressed with codec {data[1:2].hex() or '?'}, which this release does not know; "
            f"it reads gzip (01) and plain JSON lines"
        )
    return data


def _gunzip(stream: bytes, name: str, max_bytes: int) -> bytes:
    if not stream:
        raise LogCorruptedError(f"{name}: the gzip stream is cut off before it begins")
    try:
        lines = _inflate(stream, max_bytes)
    except EOFError as error:
        raise LogCorruptedError(f"{name}: the gzip stream is cut off ({error})") from error
    except (OSError, zlib.error) as error:
        raise LogCorruptedError(f"{name}: the gzip stream is damaged ({error})") from error
    if len(lines) > max_bytes:
        raise LogCorruptedError(f"{name}: the gzip stream is larger than {max_bytes} bytes when decompressed")
    return lines


def _inflate(stream: bytes, enough_bytes: int) -> bytes:
    """The whole content of a gzip stream, or as soon as there is more than `enough_bytes`, its beginning."""
    pieces: list[bytes] = []
    size_bytes = 0
    with gzip.GzipFile(fileobj=io.BytesIO(stream)) as file:
        while size_bytes <= enough_bytes and (piece := file.read(_READ_BYTES)):
            pieces.append(piece)
            size_bytes += len(piece)
    return b"".join(pieces)
