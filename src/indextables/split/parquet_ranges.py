"""A Parquet file inside a split, read by ranges: what is needed is fetched in few requests, and decoded then."""

import mmap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.split.bundle import Member, read_range
from indextables.storage import ObjectStore

# Ranges that lie this close are fetched as one: a request costs more than these bytes.
MAX_GAP_BYTES: Final = 256 * 1024
# What is fetched and decoded at a time.
WINDOW_BYTES: Final = 16 * 1024**2


class Window(msgspec.Struct, frozen=True):
    """Row groups that are fetched and decoded together, and the byte ranges that hold them."""

    groups: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]


def plan_windows(metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[int]) -> list[Window]:
    """The windows for these columns (by their place among the leaves) of these row groups, in order."""
    windows: list[Window] = []
    members: list[int] = []
    ranges: list[tuple[int, int]] = []
    fetched = 0
    for group in groups:
        of_group = _chunk_ranges(metadata.row_group(group), columns)
        size = sum(end - start for start, end in of_group)
        if members and fetched + size > WINDOW_BYTES:
            windows.append(Window(tuple(members), coalesce(ranges)))
            members, ranges, fetched = [], [], 0
        members.append(group)
        ranges += of_group
        fetched += size
    if members:
        windows.append(Window(tuple(members), coalesce(ranges)))
    return windows


def coalesce(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same ranges in order, with near ones joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] <= MAX_GAP_BYTES:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


class SparseFile:
    """A member of a split, of which only some ranges are in memory.

    It is as long as the member, so that offsets mean the same. What was not fetched is zeros, and takes no memory.
    """

    def __init__(self, store: ObjectStore, key: str, member: Member) -> None:
        self._store = store
        self._key = key
        self._member = member
        # The system provides its pages when they are first written to.
        self._memory = mmap.mmap(-1, max(member.size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges of the member from the store. Safe to call from another thread."""
        offset = self._member.start
        for start, end in ranges:
            self._memory[start:end] = read_range(self._store, self._key, offset + start, offset + end)

    def forget(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Give the memory of ranges back, but for the pages that they share with others."""
        for start, end in ranges:
            first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
            length = end // mmap.PAGESIZE * mmap.PAGESIZE - first
            if length > 0:
                self._memory.madvise(mmap.MADV_DONTNEED, first, length)

    def reader(self) -> pa.BufferReader:
        """What Arrow reads the member from."""
        return pa.BufferReader(pa.py_buffer(self._memory))


def _chunk_ranges(group: pq.RowGroupMetaData, columns: Sequence[int]) -> list[tuple[int, int]]:
    ranges = []
    for column in columns:
        chunk = group.column(column)
        starts = [chunk.data_page_offset]
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            starts.append(chunk.dictionary_page_offset)
        start = min(starts)
        ranges.append((start, start + chunk.total_compressed_size))
    return ranges


# Fetches ahead: while one piece is in use, the next ones are on their way.


T = TypeVar("T")
R = TypeVar("R")


def prefetched(fetch: Callable[[T], R], items: Sequence[T], depth: int) -> Iterator[tuple[T, R]]:
    """Each item with what `fetch` returns for it, in order; up to `depth` of them are fetched ahead.

    `fetch` is called in other threads, and raises through the iteration.
    """
    if len(items) <= 1:
        yield from ((item, fetch(item)) for item in items)
        return
    with ThreadPoolExecutor(depth, thread_name_prefix="indextables-fetch") as pool:
        waiting: deque[Future[R]] = deque(pool.submit(fetch, item) for item in items[:depth])
        try:
            for number, item in enumerate(items):
                fetched = waiting.popleft().result()
                if number + depth < len(items):
                    waiting.append(pool.submit(fetch, items[number + depth]))
                yield item, fetched
        finally:
            for future in waiting:
                future.cancel()
