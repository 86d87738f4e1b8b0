"""The files of one index on local disk, of which only the chunks that searches needed are present.

    <segment>.<type>   the files of the index, sparse, under segment ids of this copy
    meta.json          complete, with these segment ids
    <copy>.chunks      one byte per chunk of all files: see `_PRESENT` and `_WRITING`; then how often some were fetched

Threads and processes fill the same files at the same time, without a lock: a chunk is written whole, always with the
same bytes, and its byte in the map is set afterwards. All is written by `pwrite`, which reports a full disk, where a
store to a mapping would kill the process. Files are never truncated: a process may have them mapped.
"""

import contextlib
import os
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from indextables.errors import IndexCacheError, SplitCorruptedError
from indextables.split.index_chunks import CHUNK_BYTES, ChunkedIndex
from indextables.split.index_files import META_FILE, META_LOCK_FILE
from indextables.split.needs import ByteRange
from indextables.split.residency import PAGE_BYTES, PageCache, cached_parts

_MAP_SUFFIX: Final = ".chunks"

# The low bits of a chunk's byte say which of its pages are present: all of them, or those that opening needs.
_PAGES: Final = CHUNK_BYTES // PAGE_BYTES
_PRESENT: Final = (1 << _PAGES) - 1
# The chunk may be partly written. A killed process leaves it so.
_WRITING: Final = 0x80

# Fetching parts of an index costs about as much as so many more of its bytes.
_ROUND_TRIP_BYTES: Final = 1024**2
# The number of fetches, after the map. Processes that count at the same time may lose some.
_COUNT_BYTES: Final = 2
_MAX_COUNT: Final = 256**_COUNT_BYTES - 1

# `os.pwritev` takes at most 1,024 buffers.
_PIECES_PER_WRITE: Final = 512


Growth: TypeAlias = Callable[[int], AbstractContextManager[None]]


class LostEntryError(IndexCacheError):
    """The files were removed while they were in use."""


class Holes(NamedTuple):
    """The parts of the files that were not present when the map had this content."""

    chunk_map: bytes
    ranges: tuple[ByteRange, ...]


class SparseIndex:
    """The files of an index in a directory; they grow in blocks of `growth`, which gets the number of bytes.

    Files stay open as long as an instance lives, which threads may share. Names and offsets are those of the index in
    the split. Methods raise IndexCacheError if the directory is unusable, and LostEntryError if it is gone.
    """

    def __init__(self, directory: Path, index: ChunkedIndex, copy: str, growth: Growth) -> None:
        self._descriptors: dict[str, int] = {}
        self._directory = str(directory)
        self._index = index
        self._copy = copy
        self._growth = growth
        # A thread that uses a descriptor also uses the instance, so none is closed in use.
        weakref.finalize(self, _close, self._descriptors).atexit = False

    @classmethod
    def create(cls, directory: Path, index: ChunkedIndex, opening: Sequence[tuple[ByteRange, bytes]]) -> int:
        """Write the files of an index into an empty directory, with what Tantivy reads when it opens the index.

        Returns what `ensure` does. Raises SplitCorruptedError if that does not fit the files, and storage errors.
        """
        copy = uuid.uuid4().hex
        with (
            contextlib.closing(cls(directory, index, copy, lambda _: contextlib.nullcontext())) as files,
            files._local(),
        ):
            for name, size in index.sizes.items():
                path = f"{directory}/{files._local_name(name)}"
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                files._descriptors[name] = descriptor
                os.ftruncate(descriptor, size)
            (directory / (copy + _MAP_SUFFIX)).write_bytes(
                files._write_opening(opening) + bytes(_COUNT_BYTES)
            )
            # Tantivy creates this file when it opens an index, and would mistake a full disk for a damaged index.
            (directory / META_LOCK_FILE).touch()
            return files._rename_segments()

    @classmethod
    def find(cls, directory: Path, index: ChunkedIndex, growth: Growth) -> "SparseIndex":
        """Find the files that `create` wrote. Raises LostEntryError and IndexCacheError."""
        with _local(str(directory)), os.scandir(directory) as found:
            copies = [
                file.name.removesuffix(_MAP_SUFFIX) for file in found if file.name.endswith(_MAP_SUFFIX)
            ]
        if len(copies) != 1:
            raise LostEntryError(f"{directory} holds no index")
        return cls(directory, index, copies[0], growth)

    def close(self) -> None:
        """Close the files."""
        _close(self._descriptors)

    @property
    def copy(self) -> str:
        """The id of this copy of the index; no other one has had it."""
        return self._copy

    def sizes(self) -> Mapping[str, int]:
        """Return the length of every file."""
        return self._index.sizes

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return bytes that are present."""
        with self._local():
            if name == META_FILE:
                return self._renamed(os.pread(self._open(name), self._index.sizes[name], 0))[start:end]
            return os.pread(self._open(name), end - start, start)

    def load(self, ranges: Iterable[ByteRange]) -> None:
        """Bring these pages of the files into memory, and no others."""
        with self._local():
            for part in ranges:
                size = part.end - part.start
                os.posix_fadvise(self._open(part.name), part.start, size, os.POSIX_FADV_WILLNEED)

    def ensure(self, ranges: Sequence[ByteRange]) -> int:
        """Make these bytes present, and with them all others once fetching them has cost half as much as that would.

        Returns how many bytes of the split were fetched. Raises storage errors and SplitCorruptedError.
        """
        chunk_map = np.frombuffer(self._chunk_map(), np.uint8)
        missing = self._missing(ranges, chunk_map)
        if not len(missing):
            return 0
        self._count_fetch()
        self._fill(missing, chunk_map)
        return int(self._index.table.sizes[missing].sum(dtype=np.int64))

    def missing_bytes(self, ranges: Sequence[ByteRange]) -> int:
        """Return by how much the files would grow on disk if `ensure` made these bytes present."""
        return self._size_on_disk(self._missing(ranges, np.frombuffer(self._chunk_map(), np.uint8)))

    def complete(self) -> int:
        """Make all bytes present. Returns and raises what `ensure` does."""
        return self.ensure([ByteRange(name, 0, size) for name, size in self._index.sizes.items()])

    def is_complete(self) -> bool:
        """Return whether all bytes are present."""
        return self._chunk_map() == bytes([_PRESENT]) * len(self._index.lengths)

    def holes(self, known: Holes | None = None) -> Holes:
        """Return what is not present now; `known` saves work if nothing has changed since."""
        chunk_map = self._chunk_map()
        if known is not None and known.chunk_map == chunk_map:
            return known
        return Holes(chunk_map, self._absent(np.frombuffer(chunk_map, np.uint8)))

    def read_holes(self, holes: Holes, cache: PageCache) -> list[ByteRange]:
        """Return the parts of former holes that a process has read or filled since then."""
        with self._local():
            touched = [
                part for part in holes.ranges if cache.holds(self._open(part.name), part.start, part.end)
            ]
            return [
                ByteRange(part.name, start, end)
                for part in touched
                for start, end in cached_parts(cache, self._open(part.name), part.start, part.end, PAGE_BYTES)
            ]

    def still_absent(self, ranges: Sequence[ByteRange]) -> list[ByteRange]:
        """Return those of the ranges whose chunks no process has filled or begun to fill."""
        chunk_map = np.frombuffer(self._chunk_map(), np.uint8)
        return [part for part in ranges if (chunk_map[self._index.chunks_of(part)] < _PRESENT).all()]

    def _write_opening(self, opening: Sequence[tuple[ByteRange, bytes]]) -> bytes:
        """Write what opening needs, and return the map of the chunks."""
        chunk_map = np.zeros(len(self._index.lengths), np.uint8)
        for part, data in opening:
            size = self._index.sizes.get(part.name, -1)
            is_aligned = part.start % PAGE_BYTES == 0 and (part.end % PAGE_BYTES == 0 or part.end == size)
            if not (
                0 <= part.start <= part.end <= size and len(data) == part.end - part.start and is_aligned
            ):
                raise SplitCorruptedError(
                    f"{self._index.store.url}: {self._index.key}: the cold data does not fit the file {part.name}"
                )
            os.pwrite(self._descriptors[part.name], data, part.start)
            first = self._index.chunks_of(ByteRange(part.name, 0, 0)).start
            for page in range(part.start // PAGE_BYTES, -(-part.end // PAGE_BYTES)):
                chunk_map[first + page // _PAGES] |= 1 << page % _PAGES
        # The last chunk of a file may have fewer pages.
        pages_of_chunk = -(-self._index.lengths // PAGE_BYTES)
        chunk_map[chunk_map == (1 << pages_of_chunk) - 1] = _PRESENT
        return chunk_map.tobytes()

    def _rename_segments(self) -> int:
        """Put the segment ids of this copy into `meta.json`. Returns what `ensure` does.

        Tantivy keeps the mapping of a file by its path as long as a searcher uses it. If a copy that was removed
        had the same names as this one, a searcher of this one could read holes of the other.
        """
        size = self._index.sizes.get(META_FILE, 0)
        fetched_bytes = self.ensure([ByteRange(META_FILE, 0, size)] if size else [])
        if size:
            descriptor = self._open(META_FILE)
            os.pwrite(descriptor, self._renamed(os.pread(descriptor, size, 0)), 0)
        return fetched_bytes

    def _renamed(self, meta: bytes) -> bytes:
        """Replace the segment ids in `meta.json` by those of this copy, or the other way round."""
        for segment in {name.partition(".")[0] for name in self._index.sizes}:
            if (renamed := self._segment(segment)) != segment:
                ours, theirs = str(uuid.UUID(renamed)).encode(), str(uuid.UUID(segment)).encode()
                meta = meta.replace(ours, theirs) if ours in meta else meta.replace(theirs, ours)
        return meta

    def _local_name(self, name: str) -> str:
        segment, dot, kind = name.partition(".")
        return f"{self._segment(segment)}{dot}{kind}"

    def _segment(self, segment: str) -> str:
        """Return the id of a segment in this copy; other names stay."""
        try:
            return f"{int(segment, 16) ^ int(self._copy, 16):032x}" if len(segment) == 32 else segment
        except ValueError:
            return segment

    def _missing(
        self, ranges: Sequence[ByteRange], chunk_map: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.int64]:
        """Return the chunks to fetch for these bytes: all absent ones if the parts have cost half as much as all."""
        is_present = chunk_map == _PRESENT
        wanted = np.zeros(len(chunk_map), np.bool_)
        for part in ranges:
            wanted[self._index.chunks_of(part)] = True
        missing = wanted & ~is_present
        if missing.any():
            lengths = self._index.lengths
            spent = int(lengths[missing | is_present].sum()) + self._num_fetches() * _ROUND_TRIP_BYTES
            if 2 * spent > int(lengths.sum()):
                missing = ~is_present
        return np.flatnonzero(missing)

    def _size_on_disk(self, chunks: npt.NDArray[np.int64]) -> int:
        return int((-(-self._index.lengths[chunks] // PAGE_BYTES)).sum()) * PAGE_BYTES

    def _fill(self, chunks: npt.NDArray[np.int64], chunk_map: npt.NDArray[np.uint8]) -> None:
        """Fetch and write chunks."""
        with self._local(), self._growth(self._size_on_disk(chunks)):
            for numbers, pieces in self._index.fetch(chunks):
                name, start = self._index.place_of(numbers.start)
                self._set_map((chunk_map[numbers] | _WRITING).tobytes(), numbers.start)
                for done in range(0, len(pieces), _PIECES_PER_WRITE):
                    some = pieces[done : done + _PIECES_PER_WRITE]
                    _write_all(self._open(name), some, start)
                    start += sum(map(len, some))
                self._set_map(bytes([_PRESENT]) * (numbers.stop - numbers.start), numbers.start)

    def _absent(self, chunk_map: npt.NDArray[np.uint8]) -> tuple[ByteRange, ...]:
        """Return the runs of pages that are not present."""
        found: list[ByteRange] = []
        for name, size in self._index.sizes.items():
            states = chunk_map[self._index.chunks_of(ByteRange(name, 0, size))]
            if (states == _PRESENT).all():
                continue
            pages = (states[:, None] >> np.arange(_PAGES)) & 1
            # A whole page on both sides, so that each run has a start and an end.
            edges = np.flatnonzero(np.diff(np.concatenate([[1], pages.ravel(), [1]]))) * PAGE_BYTES
            found.extend(
                ByteRange(name, start, min(end, size))
                for start, end in edges.reshape(-1, 2).tolist()
                if start < size
            )
        return tuple(found)

    def _chunk_map(self) -> bytes:
        with self._local():
            count = len(self._index.lengths)
            chunk_map = os.pread(self._open(_MAP_SUFFIX), count, 0)
        if len(chunk_map) != count:
            raise LostEntryError(f"the map of the chunks in {self._directory} is incomplete")
        return chunk_map

    def _num_fetches(self) -> int:
        """Return how often parts were fetched."""
        with self._local():
            count = os.pread(self._open(_MAP_SUFFIX), _COUNT_BYTES, len(self._index.lengths))
        return int.from_bytes(count, "little")

    def _count_fetch(self) -> None:
        count = min(self._num_fetches() + 1, _MAX_COUNT).to_bytes(_COUNT_BYTES, "little")
        with self._local():
            _write_all(self._open(_MAP_SUFFIX), [count], len(self._index.lengths))

    def _set_map(self, states: bytes, first: int) -> None:
        _write_all(self._open(_MAP_SUFFIX), [states], first)

    def _open(self, name: str) -> int:
        found = self._descriptors.get(name)
        if found is None:
            local_name = self._copy + name if name == _MAP_SUFFIX else self._local_name(name)
            opened = os.open(f"{self._directory}/{local_name}", os.O_RDWR | os.O_CLOEXEC)
            # Reading ahead would bring pages of holes into the page cache.
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_RANDOM)
            found = self._descriptors.setdefault(name, opened)
            if found != opened:
                os.close(opened)
        return found

    def _local(self) -> "_local":
        return _local(self._directory)


class _local:  # noqa: N801  # read as a statement
    """Translate the errors of a local directory. A class instead of a generator, because every search enters it."""

    __slots__ = ("_directory",)

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, FileNotFoundError):
            raise LostEntryError(
                f"the index in {self._directory} was removed while it was in use: {error}"
            ) from error
        if isinstance(error, OSError):
            raise IndexCacheError(
                f"the index in {self._directory} cannot be used: {error}; free disk space, or set another directory"
            ) from error


def _close(descriptors: dict[str, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def _write_all(descriptor: int, buffers: Sequence[bytes | memoryview], start: int) -> None:
    """Write buffers one after another. Raises OSError."""
    written = os.pwritev(descriptor, buffers, start)
    total = sum(map(len, buffers))
    if written != total:
        # A full disk takes a part of the data, and refuses the rest.
        rest = b"".join(buffers)
        while written < total:
            written += os.pwrite(descriptor, rest[written:], start + written)
