"""A Parquet file inside a split, read by ranges: what is needed is fetched in few requests, and decoded then."""

import bisect
import io
from collections.abc import Sequence
from typing import Final

import msgspec
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


class Fetched(msgspec.Struct, frozen=True):
    """Bytes of a file, from `start` on."""

    start: int
    data: bytes


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


class MemberFile(io.RawIOBase):
    """A member of a split as a file to read: from what was fetched before, or else from the store."""

    def __init__(self, store: ObjectStore, key: str, member: Member) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._member = member
        self._position = 0
        self._fetched: list[Fetched] = []
        self._starts: list[int] = []

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[Fetched]:
        """Read ranges of the member from the store. Safe to call from another thread."""
        return [Fetched(start, self._read_store(start, end)) for start, end in ranges]

    def load(self, fetched: list[Fetched]) -> None:
        """Serve reads from these bytes from now on; they are in order."""
        self._fetched = fetched
        self._starts = [piece.start for piece in fetched]

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that any place of it can be read."""
        return True

    def tell(self) -> int:
        """The place of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the place of the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._member.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, fewer at the end."""
        start = self._position
        end = self._member.size if size < 0 else min(start + size, self._member.size)
        if end <= start:
            return b""
        self._position = end
        place = bisect.bisect_right(self._starts, start) - 1
        if place >= 0:
            piece = self._fetched[place]
            if end <= piece.start + len(piece.data):
                return piece.data[start - piece.start : end - piece.start]
        return self._read_store(start, end)

    def _read_store(self, start: int, end: int) -> bytes:
        offset = self._member.start
        return read_range(self._store, self._key, offset + start, offset + end)


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
