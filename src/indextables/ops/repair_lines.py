"""What can still be read of a damaged file of JSON lines: every line that is whole."""

import zlib
from collections.abc import Sequence
from typing import Final

from indextables.errors import LogCorruptedError
from indextables.log.decode import LogFile, UnknownContent, decode_tail
from indextables.log.version_file import CODEC_GZIP, COMPRESSION_MAGIC, MAX_LOG_FILE_BYTES

_PREFIX: Final = bytes([COMPRESSION_MAGIC, CODEC_GZIP])
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
# What one damaged byte can take along.
_FED_BYTES: Final = 1024


def whole_lines(data: bytes, name: str) -> bytes:
    """The lines of a log file that hold actions which can be read, in their order.

    A compressed file gives what comes before the damage. Never raises: of a file that is none, nothing is left.
    """
    lines = [line for line in _inflated(data).split(b"\n") if line.strip()]
    return b"".join(line + b"\n" for line in _decodable(lines, name))


def _inflated(data: bytes) -> bytes:
    """The beginning of a compressed file as far as it can be read, or a plain file as it is."""
    stream = data.removeprefix(_PREFIX)
    if not stream.startswith(_GZIP_MAGIC):
        return b"" if data.startswith(_PREFIX[:1]) else data
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    found = bytearray()
    for start in range(0, len(stream), _FED_BYTES):
        try:
            found += inflater.decompress(stream[start : start + _FED_BYTES], MAX_LOG_FILE_BYTES - len(found))
        except zlib.error:
            break
        if inflater.eof or len(found) >= MAX_LOG_FILE_BYTES:
            break
    return bytes(found)


def _decodable(lines: Sequence[bytes], name: str) -> list[bytes]:
    """Which lines it is shows when they are read in halves."""
    if not lines:
        return []
    try:
        decode_tail([LogFile(0, name, b"\n".join(lines), 0)], UnknownContent.KEEP)
    except LogCorruptedError:
        if len(lines) == 1:
            return []
        middle = len(lines) // 2
        return [*_decodable(lines[:middle], name), *_decodable(lines[middle:], name)]
    return list(lines)
