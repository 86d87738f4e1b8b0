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

from indextables._caching import lazy_property
from indextables.errors import SplitCorruptedError
from indextables.metrics import INDEX_FETCHED_BYTES
from indextables.split.byte_ranges import prefetched, read_ranges
from indextables.split.needs import ByteRange
from indextables.storage import ObjectStore

CHUNK_BYTES: Final = 16 * 1024

_LEVEL: Final = 1

# Much data is fetched in batches of this size, several at a time.
_BATCH_BYTES: Final = 8 * 1024**2
_BATCHES_AHEAD: Final = 4


class ChunkTable(NamedTuple):
    """The stored size and the checksum of every chunk of the index, in the order of the file.

    A chunk whose stored size is its length is not compressed.
    """

    sizes: npt.NDArray[np.uint16]
    checksums: npt.NDArray[np.uint32]

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """Where each chunk ends, counted from the first one; with a 0 in front."""
        ends = np.zeros(len(self.sizes) + 1, np.int64)
        np.cumsum(self.sizes, out=ends[1:])
        return ends

    def encode(self) -> bytes:
        """Encode the table: all sizes, then all checksums."""
        return self.sizes.astype("<u2").tobytes() + self.checksums.astype("<u4").tobytes()

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "ChunkTable":
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


class ChunkedIndex:
    """The index inside a split: the lengths of its files, and where their chunks are."""

    def __init__(
        self, store: ObjectStore, key: str, sizes: Mapping[str, int], start: int, table: ChunkTable
    ) -> None:
        self.store = store
        self.key = key
        self.sizes = dict(sizes)
        self.table = table
        self._start = start
        counts = [-(-size // CHUNK_BYTES) for size in self.sizes.values()]
        firsts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        if int(firsts[-1]) != len(table.sizes):
            raise SplitCorruptedError(f"{store.url}: {key}: the chunks do not match the files of the index")
        self._firsts = dict(zip(self.sizes, firsts.tolist(), strict=False))
        self.lengths = np.full(len(table.sizes), CHUNK_BYTES, np.int64)
        for (name, size), count in zip(self.sizes.items(), counts, strict=True):
            if count:
                self.lengths[self._firsts[name] + count - 1] = size - (count - 1) * CHUNK_BYTES

    @property
    def stored_bytes(self) -> int:
        """The size of all chunks in the split."""
        return int(self._ends[-1])

    def chunks_of(self, part: ByteRange) -> slice:
        """Return the numbers of the chunks that hold these bytes."""
        first = self._firsts[part.name]
        end = min(part.end, self.sizes[part.name])
        return slice(first + part.start // CHUNK_BYTES, first + -(-end // CHUNK_BYTES))

    def place_of(self, chunk: int) -> tuple[str, int]:
        """Return the file of a chunk, and where the chunk starts in it."""
        file = int(np.searchsorted(self._file_starts, chunk, side="right")) - 1
        name = self._file_names[file]
        return name, (chunk - self._firsts[name]) * CHUNK_BYTES

    def fetch(self, chunks: npt.NDArray[np.int64]) -> Iterator[tuple[slice, list[bytes | memoryview]]]:
        """Yield these chunks in ascending order: some that follow each other, and their content in pieces.

        They are fetched in one round trip; many of them in batches. Raises storage errors and SplitCorruptedError.
        """
        codec = pa.Codec("zstd")
        for batch, found in prefetched(self._read, self._batches(chunks), _BATCHES_AHEAD):
            INDEX_FETCHED_BYTES.record(sum(map(len, found)), self.store.url)
            for (first, last), data in zip(batch, found, strict=True):
                yield slice(first, last), self._unpacked(codec, first, last, memoryview(data))

    @lazy_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return self.table.ends

    @lazy_property
    def _file_names(self) -> list[str]:
        return [name for name, size in self.sizes.items() if size]

    @lazy_property
    def _file_starts(self) -> npt.NDArray[np.int64]:
        return np.array([self._firsts[name] for name in self._file_names], np.int64)

    def _batches(self, chunks: npt.NDArray[np.int64]) -> list[list[tuple[int, int]]]:
        """Group chunks into runs that do not cross files, and these into batches of bounded size."""
        stored = np.cumsum(self.table.sizes[chunks], dtype=np.int64)
        batch = stored // _BATCH_BYTES
        file = np.searchsorted(self._file_starts, chunks, side="right")
        cuts = np.flatnonzero((np.diff(chunks) != 1) | (np.diff(batch) != 0) | (np.diff(file) != 0)) + 1
        firsts = np.concatenate([[0], cuts])
        lasts = np.concatenate([cuts, [len(chunks)]])
        batches: dict[int, list[tuple[int, int]]] = {}
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            batches.setdefault(int(batch[first]), []).append((int(chunks[first]), int(chunks[last - 1]) + 1))
        return list(batches.values())

    def _read(self, runs: Sequence[tuple[int, int]]) -> list[bytes]:
        ends = self._ends
        ranges = [(self._start + int(ends[first]), self._start + int(ends[last])) for first, last in runs]
        return read_ranges(self.store, self.key, ranges)

    def _unpacked(
        self, codec: pa.Codec, first: int, last: int, stored: memoryview
    ) -> list[bytes | memoryview]:
        """Verify consecutive chunks, and unpack them; those that are compressed and next to each other at once.

        Compressed chunks are frames, of which one call decompresses any number; each call would set up its own tables.
        """
        ends = (self._ends[first : last + 1] - self._ends[first]).tolist()
        lengths: list[int] = self.lengths[first:last].tolist()
        checksums: list[int] = self.table.checksums[first:last].tolist()
        found: list[bytes | memoryview] = []
        packed_start, packed_length = 0, 0
        for number, ((start, end), length) in enumerate(zip(pairwise(ends), lengths, strict=True)):
            chunk = stored[start:end]
            if zlib.crc32(chunk) != checksums[number]:
                raise SplitCorruptedError(
                    f"{self.store.url}: {self.key}: the checksum of a chunk of {self.place_of(first)[0]} is wrong; "
                    f"the file is damaged"
                )
            if end - start < length:
                packed_length += length
                continue
            if packed_length:
                found.append(self._decompressed(codec, first, stored[packed_start:start], packed_length))
            found.append(chunk)
            packed_start, packed_length = end, 0
        if packed_length:
            found.append(self._decompressed(codec, first, stored[packed_start:], packed_length))
        return found

    def _decompressed(self, codec: pa.Codec, first: int, packed: memoryview, length: int) -> bytes:
        try:
            unpacked: bytes = codec.decompress(packed, decompressed_size=length, asbytes=True)
        except (OSError, pa.ArrowException) as error:
            raise SplitCorruptedError(
                f"{self.store.url}: {self.key}: a chunk of {self.place_of(first)[0]} cannot be decompressed: {error}"
            ) from error
        return unpacked
