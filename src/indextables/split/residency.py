"""Tells which pages of a file are in the kernel's page cache: whether a hole of a sparse file was read.

A page of a hole gets there only if it is read. Linux shows this by `cachestat`, and
before 6.5 and on overlays by `mincore`.
"""

import ctypes
import errno
import mmap
import os
import resource
import sys
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from indextables._caching import shared_memo

PAGE_BYTES: Final = 4096

_CACHESTAT: Final = 451
_MAPPINGS: Final = Path("/proc/self/maps")

# The probe's file: one part of it is written, one is read, and the others must stay out of the page cache.
_PROBE_PARTS: Final = 64
_PART_BYTES: Final = 4 * PAGE_BYTES
_WRITTEN_PART: Final = 8
_READ_PART: Final = 32


class PageCache(Protocol):
    """The page cache of the kernel, as a process sees it."""

    def holds(self, descriptor: int, start: int, end: int) -> bool:
        """Return whether any page of these bytes of a file is cached, or was and has been evicted. Raises OSError."""

    def evictions_unseen(self) -> int:
        """Return a number that is the same as before if `holds` missed no page that this thread has read since."""


@shared_memo(
    "split.residency.page_caches", "whether reads of holes are visible, by directory", max_entries=16
)
def page_cache(directory: Path) -> PageCache | None:
    """Return a view of the page cache that was tried on the file system of a directory; None if none is right.

    Raises OSError if no file can be written there.
    """
    if sys.platform != "linux" or mmap.PAGESIZE != PAGE_BYTES or not _MAPPINGS.exists():
        return None
    views: tuple[PageCache, ...] = (_CacheStat(), _Mincore())
    return next((view for view in views if _is_right(view, directory)), None)


def cached_parts(
    cache: PageCache, descriptor: int, start: int, end: int, part_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield the parts of these bytes with a cached page; they start at multiples of `part_bytes`, as `start` does."""
    if not cache.holds(descriptor, start, end):
        return
    parts = -(-(end - start) // part_bytes)
    if parts == 1:
        yield start, end
        return
    middle = start + parts // 2 * part_bytes
    yield from cached_parts(cache, descriptor, start, middle, part_bytes)
    yield from cached_parts(cache, descriptor, middle, end, part_bytes)


def read_single_pages(directory: Path) -> None:
    """Make this process read single pages through its mappings of the files in a directory, without their neighbours.

    This changes which pages are cached besides those that are read, so a failure is no error.
    """
    _advise(directory, mmap.MADV_RANDOM)


def read_ahead(directory: Path) -> None:
    """Undo `read_single_pages`."""
    _advise(directory, mmap.MADV_NORMAL)


class _Bytes(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "in_writeback", "evicted", "recently_evicted")
    )


class _CacheStat:
    """`cachestat` costs little for a large hole, and sees pages that were evicted."""

    def holds(self, descriptor: int, start: int, end: int) -> bool:
        if end <= start:
            return False
        pages = _Pages()
        place = _Bytes(start, end - start)
        _check(
            _LIBC.syscall(
                ctypes.c_long(_CACHESTAT),
                ctypes.c_int(descriptor),
                ctypes.byref(place),
                ctypes.byref(pages),
                ctypes.c_uint(0),
            )
        )
        return bool(pages.cached or pages.evicted)

    def evictions_unseen(self) -> int:
        return 0


class _Mincore:
    """`mincore` does not see pages that were evicted; to read one, a thread must have waited for it."""

    def holds(self, descriptor: int, start: int, end: int) -> bool:
        end = min(end, os.fstat(descriptor).st_size)
        if end <= start:
            return False
        with mmap.mmap(descriptor, end - start, mmap.MAP_SHARED, mmap.PROT_READ, offset=start) as mapping:
            view = np.frombuffer(mapping, np.uint8)
            pages = np.zeros(-(-(end - start) // PAGE_BYTES), np.uint8)
            try:
                _check(
                    _LIBC.mincore(
                        ctypes.c_void_p(view.ctypes.data),
                        ctypes.c_size_t(end - start),
                        ctypes.c_void_p(pages.ctypes.data),
                    )
                )
            finally:
                # A mapping cannot be closed while an array uses it.
                del view
        return bool((pages & 1).any())

    def evictions_unseen(self) -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _is_right(cache: PageCache, directory: Path) -> bool:
    """Try a view of the page cache on a sparse file: it must see what was written and read, and nothing else."""
    path = directory / f".probe-{uuid.uuid4().hex}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        path.unlink()
        size = _PROBE_PARTS * _PART_BYTES
        os.ftruncate(descriptor, size)
        os.pwrite(descriptor, b"\1" * _PART_BYTES, _WRITTEN_PART * _PART_BYTES)
        with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
            mapping.madvise(mmap.MADV_RANDOM)
            allocated = os.fstat(descriptor).st_blocks
            # A file system in memory allocates a page that is read, and if it is full, the process gets a signal.
            if mapping[_READ_PART * _PART_BYTES] != 0 or os.fstat(descriptor).st_blocks != allocated:
                return False
            cached = (_WRITTEN_PART, _READ_PART)
            bounds = (0, _WRITTEN_PART, _WRITTEN_PART + 1, _READ_PART, _READ_PART + 1, _PROBE_PARTS)
            return all(
                cache.holds(descriptor, first * _PART_BYTES, last * _PART_BYTES) == (first in cached)
                for first, last in pairwise(bounds)
            )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False
    finally:
        os.close(descriptor)


def _advise(directory: Path, advice: int) -> None:
    prefix = os.fsencode(os.path.realpath(directory)) + b"/"
    try:
        mappings = _MAPPINGS.read_bytes()
    except OSError:
        return
    found = mappings.find(prefix)
    while found >= 0:
        line = mappings.rfind(b"\n", 0, found) + 1
        start, _, rest = mappings[line:found].partition(b"-")
        address, end = int(start, 16), int(rest.partition(b" ")[0], 16)
        _LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(end - address), ctypes.c_int(advice))
        found = mappings.find(prefix, found + len(prefix))
