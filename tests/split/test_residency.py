"""Which pages of a file the kernel holds: what is read and written is seen, and nothing else."""

import mmap
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from indextables.split import residency
from indextables.split.residency import PAGE_BYTES, cached_parts, page_cache, read_single_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows its page cache")

VIEWS = [residency._CacheStat(), residency._Mincore()]
PAGES = 1000


@pytest.fixture
def hole(tmp_path):
    """A file that is one hole."""
    descriptor = os.open(tmp_path / "hole", os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, PAGES * PAGE_BYTES - 100)
    yield descriptor
    os.close(descriptor)


def seen(view, descriptor):
    end = os.fstat(descriptor).st_size
    return {start // PAGE_BYTES for start, _ in cached_parts(view, descriptor, 0, end, PAGE_BYTES)}


@pytest.mark.parametrize("view", VIEWS, ids=["cachestat", "mincore"])
def test_exactly_the_pages_that_were_read_or_written_are_seen(view, hole):
    assert seen(view, hole) == set()
    chosen = random.Random(7)
    read, written = ({chosen.randrange(PAGES) for _ in range(20)} for _ in range(2))
    with mmap.mmap(hole, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        mapping.madvise(mmap.MADV_RANDOM)
        assert {mapping[page * PAGE_BYTES] for page in read} == {0}
        for page in written:
            os.pwrite(hole, b"x" * 100, page * PAGE_BYTES)
        assert seen(view, hole) == read | written
    assert seen(view, hole) == read | written


@pytest.mark.parametrize("view", VIEWS, ids=["cachestat", "mincore"])
def test_no_bytes_are_not_held(view, hole):
    os.pwrite(hole, b"x", 0)
    assert not view.holds(hole, 0, 0)
    assert view.holds(hole, 0, 1)


def test_mappings_of_files_in_a_directory_read_single_pages(hole, tmp_path):
    view = page_cache(tmp_path)
    assert view is not None
    with mmap.mmap(hole, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        read_single_pages(tmp_path)
        assert mapping[500 * PAGE_BYTES] == 0
        assert seen(view, hole) == {500}


def test_a_file_system_in_memory_is_not_watched():
    # It allocates the pages of a hole that is read, and if it is full, it sends a signal that ends the process.
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("there is no file system in memory")
    assert page_cache(memory) is None


def test_the_file_system_of_a_container_is_asked_by_mincore(tmp_path):
    """Files of an overlay have no pages of their own, so `cachestat` sees none."""
    parts = {name: tmp_path / name for name in ("lowerdir", "upperdir", "workdir", "merged")}
    for path in parts.values():
        path.mkdir()
    options = ",".join(f"{name}={path}" for name, path in parts.items() if name != "merged")
    command = ["mount", "-t", "overlay", "overlay", "-o", options, str(parts["merged"])]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root mounts file systems")
    try:
        assert isinstance(page_cache(parts["merged"]), residency._Mincore)
    finally:
        subprocess.run(["umount", str(parts["merged"])], check=True)


def test_a_view_that_sees_too_little_or_too_much_is_not_used(tmp_path, monkeypatch):
    class Blind:
        def holds(self, descriptor, start, end):
            return False

    class Dazzled:
        def holds(self, descriptor, start, end):
            return end > start

    assert not residency._is_right(Blind(), tmp_path)
    assert not residency._is_right(Dazzled(), tmp_path)
    monkeypatch.setattr(residency, "_CacheStat", Dazzled)
    monkeypatch.setattr(residency, "_Mincore", Blind)
    assert page_cache(tmp_path) is None


def test_an_older_kernel_is_asked_by_mincore(tmp_path, monkeypatch):
    monkeypatch.setattr(residency, "_CACHESTAT", 100_000)
    assert isinstance(page_cache(tmp_path), residency._Mincore)


def test_the_probe_leaves_nothing_behind(tmp_path):
    page_cache(tmp_path)
    assert list(tmp_path.iterdir()) == []
