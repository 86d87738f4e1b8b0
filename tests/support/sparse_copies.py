"""Copies of index directories that hold only some pages, and tell whether Tantivy has read any other."""

import ctypes
import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import orjson
import tantivy

from indextables.split.cold_data import PAGE_BYTES, ColdData
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_files import META_FILE
from indextables.split.needs import ByteRange, Needs
from indextables.split.prediction import rounds

_LIBC = ctypes.CDLL(None, use_errno=True)


class SparseCopy:
    """A copy of an index with the pages of its cold data; `fetch` adds others. The rest are holes.

    It implements `IndexFiles`, and fails if bytes are read that are not there.
    """

    def __init__(self, source: Path, directory: Path, cold: ColdData) -> None:
        self.directory = directory
        self._source = source
        meta = orjson.loads((source / META_FILE).read_bytes())
        ids = tuple(segment["segment_id"].replace("-", "") for segment in meta["segments"])
        self._sizes = {
            path.name: path.stat().st_size
            for path in source.iterdir()
            if path.name.startswith(ids) or path.name == META_FILE
        }
        self._present = {
            name: np.zeros(-(-size // PAGE_BYTES), np.bool_) for name, size in self._sizes.items()
        }
        directory.mkdir()
        for name, size in self._sizes.items():
            with (directory / name).open("wb") as file:
                file.truncate(size)
        self.num_rounds = 0
        self.fetch(part for part, _ in cold.opening)
        assert all(self.read(*part) == data for part, data in cold.opening)

    def sizes(self) -> Mapping[str, int]:
        return self._sizes

    def read(self, name: str, start: int, end: int) -> bytes:
        pages = self._present[name][start // PAGE_BYTES : -(-end // PAGE_BYTES)]
        assert pages.all(), f"{name} {start}..{end} was read before it was fetched"
        with (self.directory / name).open("rb") as file:
            return os.pread(file.fileno(), end - start, start)

    def fetch(self, ranges: Iterable[ByteRange]) -> None:
        """Copy the pages of these ranges."""
        for name, start, end in ranges:
            assert 0 <= start < end <= self._sizes[name], f"{name} has no bytes {start}..{end}"
            first, last = start // PAGE_BYTES, -(-end // PAGE_BYTES)
            self._present[name][first:last] = True
            with (self._source / name).open("rb") as source, (self.directory / name).open("r+b") as target:
                data = os.pread(source.fileno(), (last - first) * PAGE_BYTES, first * PAGE_BYTES)
                os.pwrite(target.fileno(), data, first * PAGE_BYTES)

    def fetch_needs(self, cold: ColdData, needs: Needs) -> None:
        """Fetch what is predicted, round by round."""
        for ranges in rounds(self, cold, needs):
            self.num_rounds += 1
            self.fetch(ranges)

    @property
    def present_bytes(self) -> int:
        """How many bytes are there, in pages."""
        return sum(int(pages.sum()) for pages in self._present.values()) * PAGE_BYTES

    def open(self, mapping: DocMapping) -> tantivy.Searcher:
        """Open the index. Pages that Tantivy reads from now on are seen one by one."""
        index = tantivy.Index.open(str(self.directory))
        mapping.register_tokenizers(index)
        self._check_platform()
        _advise_random(self.directory)
        return index.searcher()

    def touched_holes(self) -> list[str]:
        """Return the pages that were read but not there, as text."""
        found = []
        for name, present in self._present.items():
            if not len(present):
                continue
            with (
                (self.directory / name).open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            ):
                view = np.frombuffer(mapped, np.uint8)
                pages = np.zeros(len(present), np.uint8)
                address = ctypes.c_void_p(view.ctypes.data)
                result = _LIBC.mincore(
                    address, ctypes.c_size_t(len(view)), pages.ctypes.data_as(ctypes.c_void_p)
                )
                del view
                assert result == 0
            found += [f"{name} page {page}" for page in np.flatnonzero((pages & 1).astype(bool) & ~present)]
        return found

    @staticmethod
    def _check_platform() -> None:
        assert mmap.PAGESIZE == PAGE_BYTES


def _advise_random(directory: Path) -> None:
    """Turn off read-ahead for this process's mappings of a directory, which would fill holes."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith((".lock", ".json")) or f"{directory.resolve()}/" not in line:
            continue
        start, end = (int(each, 16) for each in line.split()[0].split("-"))
        _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_RANDOM)
