"""Text inputs as blocks of whole lines in UTF-8.

Bytes that the encoding does not allow are refused, or make their line a bad one.
"""

import codecs
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

import msgspec

from indextables.errors import InvalidOptionError, InvalidValueError
from indextables.ingest.bad_lines import BadLines, Place
from indextables.ingest.inputs import Input, reading

BLOCK_BYTES: Final = 8 * 1024**2

_UTF8: Final = "utf-8"
_UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextBlock(msgspec.Struct, frozen=True):
    """Whole lines, and the number of the first one."""

    data: bytes
    first_line: int

    def line_at(self, offset: int) -> int:
        """The number of the line at an offset."""
        return self.first_line + self.data.count(b"\n", 0, offset)


class Encoding(msgspec.Struct, frozen=True):
    """The encoding of text inputs. Raises InvalidOptionError for an unknown one."""

    name: str = _UTF8

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.name)
        except LookupError as error:
            raise InvalidOptionError(
                f"unknown encoding {self.name!r}; use a name that Python knows, such as utf-8, latin-1, cp1252, utf-16"
            ) from error

    @property
    def is_utf8(self) -> bool:
        return codecs.lookup(self.name).name == _UTF8


def text_blocks(
    source: Input,
    encoding: Encoding,
    bad_lines: BadLines,
    watch: Callable[[BinaryIO], None] | None = None,
) -> Iterator[TextBlock]:
    """Read an input as blocks of whole lines in UTF-8, without a byte order mark.

    Raises InvalidValueError, through `bad_lines`, for lines that are not in the encoding.
    """
    line = 1
    with source.open(watch) as file:
        for data in _whole_lines(_decoded(file, source.name, encoding)):
            block = TextBlock(data, line)
            line += data.count(b"\n")
            yield _checked(block, source.name, encoding, bad_lines)


def _decoded(file: BinaryIO, name: str, encoding: Encoding) -> Iterator[bytes]:
    """The bytes of a file in UTF-8. Those of a UTF-8 file are not checked yet."""
    with reading(name):
        first = file.read(BLOCK_BYTES)
    if encoding.is_utf8:
        if first.startswith(_UTF16_MARKS):
            raise InvalidValueError(f"{name} is UTF-16, not UTF-8; pass --encoding utf-16")
        first = first.removeprefix(codecs.BOM_UTF8)
        yield first
        yield from _rest(file, name)
        return
    decoder = codecs.getincrementaldecoder(encoding.name)()
    line = 1
    chunk = first
    while True:
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            start = error.object[: error.start].decode(encoding.name, "replace")
            raise InvalidValueError(
                f"{Place(name, line + start.count(chr(10)))}: {_bytes_of(error)} is not {encoding.name} text; pass "
                f"the --encoding that the file has, or correct it"
            ) from error
        line += text.count("\n")
        yield text.encode(_UTF8)
        if not chunk:
            return
        with reading(name):
            chunk = file.read(BLOCK_BYTES)


def _rest(file: BinaryIO, name: str) -> Iterator[bytes]:
    while True:
        with reading(name):
            chunk = file.read(BLOCK_BYTES)
        if not chunk:
            return
        yield chunk


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, cut at line ends."""
    pending: list[bytes] = []
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if not end:
            pending.append(chunk)
            continue
        yield b"".join([*pending, chunk[:end]])
        pending = [chunk[end:]] if end < len(chunk) else []
    rest = b"".join(pending)
    if rest:
        yield rest


def _checked(block: TextBlock, name: str, encoding: Encoding, bad_lines: BadLines) -> TextBlock:
    """The block, without lines that are not UTF-8 text."""
    if b"\0" in block.data:
        place = Place(name, block.line_at(block.data.index(b"\0")))
        raise InvalidValueError(
            f"{place}: there is a NUL byte, which text does not have; is it a binary file, or UTF-16? pass --format, "
            f"or --encoding utf-16-le"
        )
    if not encoding.is_utf8 or _is_utf8(block.data):
        return block
    kept = []
    for number, line in enumerate(block.data.split(b"\n")):
        try:
            line.decode(_UTF8)
        except UnicodeDecodeError as error:
            bad_lines.add(
                Place(name, block.first_line + number),
                f"{_bytes_of(error)} is not UTF-8 text",
                line,
                remedy="pass the --encoding that the file has, such as latin-1 or cp1252",
            )
            line = b""
        kept.append(line)
    # An empty line in place of a bad one keeps the line numbers.
    return TextBlock(b"\n".join(kept), block.first_line)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode(_UTF8)
    except UnicodeDecodeError:
        return False
    return True


def _bytes_of(error: UnicodeDecodeError) -> str:
    return f"byte 0x{error.object[error.start]:02x}"
