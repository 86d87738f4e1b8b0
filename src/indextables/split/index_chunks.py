"""The files of the index inside a split: cut into chunks, each compressed and with a checksum of its own.

A checksum of a whole file could not be verified on a part of it, and a part is all that many searches need.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables.errors import SplitCorruptedError
from indextables.split.byte_ranges import prefetched, read_range
from indextables.storage import ObjectStore

CHUNK_BYTES: Final = 16 * 1024

_LEVEL: Final = 1
_PIECE_BYTES: Final = 8 * 1024**2
_PIECES_AHEAD: Final = 4


class ChunkTable(NamedTuple):
    """The stored size and the checksum of every chunk of the index, in the order of the file.

    A chunk whose stored size is its length is not compressed.
    """

    sizes: npt.NDArray[np.uint16]
    checksums: npt.NDArray[np.uint32]

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """Where each chunk ends, counted from the first one; with a 0 in front."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])

    def encode(self) -> bytes:
        """Encode the table: all sizes, then all checksums."""
        return self.sizes.astype("<u2").tobytes() + self.checksums.astype("<u4").tobytes()

    @classmethod
    def decode(cls, data: bytes) -> "ChunkTable":
        """Decode a table. Raises ValueError if its length is impossible."""
        count, rest = divmod(len(data), 6)
        if rest:
            raise ValueError(f"a chunk table cannot have {len(data)} bytes")
        sizes = np.frombuffer(data, "<u2", count)
        return cls(sizes, np.frombuffer(data, "<u4", count, offset=2 * count))


class Packed(NamedTuple):
    """The files that were packed: where each one starts and ends, its length, and the chunks of all of them."""

    places: dict[str, tuple[int, int, int]]
    chunks: ChunkTable


def pack(files: Sequence[Path], target: BinaryIO) -> Packed:
    """Append files in chunks, and remove them. Raises OSError."""
    codec = pa.Codec("zstd", compression_level=_LEVEL)
    sizes: list[int] = []
    checksums: list[int] = []
    places: dict[str, tuple[int, int, int]] = {}
    for path in files:
        start, length = target.tell(), 0
        with path.open("rb") as source:
            while chunk := source.read(CHUNK_BYTES):
                compressed = codec.compress(chunk, asbytes=True)
                stored = compressed if len(compressed) < len(chunk) else chunk
                target.write(stored)
                sizes.append(len(stored))
                checksums.append(zlib.crc32(stored))
                length += len(chunk)
        places[path.name] = (start, target.tell(), length)
        path.unlink()
    return Packed(places, ChunkTable(np.array(sizes, np.uint16), np.array(checksums, np.uint32)))


def unpack(
    store: ObjectStore, key: str, lengths: Mapping[str, int], start: int, table: ChunkTable, directory: Path
) -> None:
    """Fetch all files of the index into a directory; `start` is where their chunks begin in the split.

    Raises storage errors, SplitCorruptedError, and OSError for the local directory.
    """
    chunks = _fetched_chunks(store, key, start, table)
    codec = pa.Codec("zstd")
    for name, length in lengths.items():
        with (directory / name).open("wb") as target:
            for position in range(0, length, CHUNK_BYTES):
                stored, checksum = next(chunks)
                if zlib.crc32(stored) != checksum:
                    raise SplitCorruptedError(
                        f"{store.url}: {key}: the checksum of a chunk of {name} is wrong; the file is damaged"
                    )
                target.write(_unpacked(codec, stored, min(CHUNK_BYTES, length - position)))


def _unpacked(codec: pa.Codec, stored: bytes | memoryview, length: int) -> bytes | memoryview:
    if len(stored) == length:
        return stored
    unpacked: bytes = codec.decompress(stored, decompressed_size=length, asbytes=True)
    return unpacked


def _fetched_chunks(
    store: ObjectStore, key: str, start: int, table: ChunkTable
) -> Iterator[tuple[memoryview, int]]:
    """Yield the stored bytes and the checksum of every chunk, fetched in large pieces, several at a time."""
    ends = table.ends
    count = len(table.sizes)
    firsts = np.searchsorted(ends, np.arange(0, max(int(ends[-1]), 1), _PIECE_BYTES))
    bounds = np.unique(np.append(firsts, count)).tolist()
    pieces = [(first, last) for first, last in pairwise(bounds) if last > first]

    def fetch(piece: tuple[int, int]) -> bytes:
        return read_range(store, key, start + int(ends[piece[0]]), start + int(ends[piece[1]]))

    for (first, last), data in prefetched(fetch, pieces, depth=_PIECES_AHEAD):
        view, base = memoryview(data), int(ends[first])
        for chunk in range(first, last):
            yield view[int(ends[chunk]) - base : int(ends[chunk + 1]) - base], int(table.checksums[chunk])
