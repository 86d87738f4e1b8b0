"""The files of an index of which only some chunks are present: what is fetched, verified and written."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from indextables.errors import IndexCacheError, SplitCorruptedError
from indextables.metrics import INDEX_FETCHED_BYTES
from indextables.split import index_chunks, sparse_index
from indextables.split.index_chunks import CHUNK_BYTES
from indextables.split.needs import ByteRange
from indextables.split.residency import page_cache
from indextables.split.sparse_index import LostEntryError, SparseIndex
from support.chunked_indexes import KEY, store_index
from support.faults import FaultStore

ROWS = 20_000


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return store_index(tmp_path_factory.mktemp("index"), ROWS)


def unlimited(_):
    return contextlib.nullcontext()


def created(directory, index, opening):
    directory.mkdir(exist_ok=True)
    SparseIndex.create(directory, index, opening)
    return SparseIndex.find(directory, index, unlimited)


@pytest.fixture
def files(stored, tmp_path):
    return created(tmp_path / "entry", stored.index, stored.opening)


def file_of(stored, kind):
    """The name and the content of a file."""
    path = next(stored.directory.glob(f"*.{kind}"))
    return path.name, path.read_bytes()


def allocated(files):
    return sum(entry.stat().st_blocks for entry in os.scandir(files._directory)) * 512


def names_in(directory):
    return {entry.name for entry in os.scandir(directory)}


def test_the_files_have_their_length_and_hardly_any_content(stored, files):
    total = sum(stored.index.sizes.values())
    assert files.sizes() == {
        path.name: path.stat().st_size for path in stored.directory.iterdir() if path.name in files.sizes()
    }
    lengths = sorted(
        entry.stat().st_size
        for entry in os.scandir(files._directory)
        if not entry.name.endswith((".chunks", ".lock"))
    )
    assert lengths == sorted(files.sizes().values())
    assert allocated(files) < total / 4


def test_ranges_are_readable_after_one_round_trip(stored, tmp_path):
    counting = FaultStore(stored.store)
    files = created(tmp_path / "entry", stored.on(counting), stored.opening)
    assert counting.calls == []
    name, data = file_of(stored, "idx")
    other, other_data = file_of(stored, "term")
    assert files.ensure([ByteRange(name, 5, 10), ByteRange(name, 70_000, 110_000), ByteRange(other, 0, 1)])
    assert len(counting.calls) == 1
    assert files.read(name, 5, 10) == data[5:10]
    assert files.read(name, 70_000, 110_000) == data[70_000:110_000]
    assert files.read(other, 0, CHUNK_BYTES) == other_data[:CHUNK_BYTES]
    assert not files.ensure([ByteRange(name, 100_000, 100_001)])
    assert len(counting.calls) == 1


def test_fetched_bytes_are_counted(stored, files, monkeypatch):
    counted = []
    monkeypatch.setattr(INDEX_FETCHED_BYTES, "_recorder", lambda value, attributes: counted.append(value))
    files.complete()
    assert 0.8 * stored.index.stored_bytes < sum(counted) <= stored.index.stored_bytes


def test_more_than_half_of_an_index_is_completed_at_once(stored, tmp_path):
    counting = FaultStore(stored.store)
    files = created(tmp_path / "entry", stored.on(counting), stored.opening)
    sizes = sorted(stored.index.sizes.items(), key=lambda item: item[1])
    assert files.ensure([ByteRange(name, 0, size) for name, size in sizes[-2:]])
    assert files.holes().ranges == ()
    assert not files.complete()
    assert len(counting.calls) == 1
    for name in stored.index.sizes:
        assert files.read(name, 0, stored.index.sizes[name]) == (stored.directory / name).read_bytes()


def test_an_index_of_which_parts_are_fetched_again_and_again_is_completed(stored, tmp_path, monkeypatch):
    """Other instances and processes count, too."""
    name, content = file_of(stored, "idx")
    total = sum(stored.index.sizes.values())
    monkeypatch.setattr(sparse_index, "_ROUND_TRIP_BYTES", total // 8)
    directory = tmp_path / "entry"
    created(directory, stored.index, stored.opening)
    completed = []
    for start in range(0, len(content), CHUNK_BYTES):
        files = SparseIndex.find(directory, stored.index, unlimited)
        files.ensure([ByteRange(name, start, start + 1)])
        completed.append(files.holes().ranges == ())
    assert completed.index(True) == 4


def test_much_data_is_fetched_in_batches(stored, files, monkeypatch):
    monkeypatch.setattr(index_chunks, "_BATCH_BYTES", 30_000)
    monkeypatch.setattr(sparse_index, "_PIECES_PER_WRITE", 3)
    assert files.complete()
    for name in stored.index.sizes:
        assert files.read(name, 0, stored.index.sizes[name]) == (stored.directory / name).read_bytes()


def test_holes_are_what_is_neither_opened_nor_fetched(stored, files):
    name, _ = file_of(stored, "idx")
    before = {part for part in files.holes().ranges if part.name == name}
    (opening,) = [part for part, _ in stored.opening if part.name == name]
    assert before == {ByteRange(name, 0, opening.start)}
    files.ensure([ByteRange(name, CHUNK_BYTES, CHUNK_BYTES + 1)])
    assert {part for part in files.holes().ranges if part.name == name} == {
        ByteRange(name, 0, CHUNK_BYTES),
        ByteRange(name, 2 * CHUNK_BYTES, opening.start),
    }
    known = files.holes()
    assert files.holes(known) is known


def test_a_hole_that_is_read_is_noticed_and_one_that_is_filled_is_told_apart(stored, files, tmp_path):
    cache = page_cache(tmp_path)
    name, _ = file_of(stored, "idx")
    holes = files.holes()
    assert files.read_holes(holes, cache) == []
    assert files.read(name, 5 * CHUNK_BYTES + 5000, 5 * CHUNK_BYTES + 5001) == b"\0"
    (read,) = files.read_holes(holes, cache)
    assert read == ByteRange(name, 5 * CHUNK_BYTES + 4096, 5 * CHUNK_BYTES + 8192)
    assert files.still_absent([read]) == [read]
    files.ensure([read])
    assert files.still_absent([read]) == []
    assert read in files.read_holes(holes, cache)
    assert files.read_holes(files.holes(), cache) == []


def test_meta_json_has_new_segment_ids_and_reads_as_in_the_split(stored, files, tmp_path):
    original = (stored.directory / "meta.json").read_bytes()
    assert files.read("meta.json", 0, len(original)) == original
    assert (tmp_path / "entry" / "meta.json").read_bytes() != original
    other = created(tmp_path / "other", stored.index, stored.opening)
    assert names_in(files._directory) & names_in(other._directory) == {"meta.json", ".tantivy-meta.lock"}


def test_meta_json_is_fetched_if_opening_does_not_cover_it(stored, tmp_path):
    original = (stored.directory / "meta.json").read_bytes()
    files = created(tmp_path / "entry", stored.index, ())
    assert files.read("meta.json", 0, len(original)) == original


def test_a_damaged_chunk_is_an_error_and_stays_absent(stored, tmp_path):
    name, _ = file_of(stored, "idx")
    data = bytearray(stored.store.get(KEY))
    chunk = stored.index.chunks_of(ByteRange(name, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 1)).start
    data[int(stored.index.table.ends[chunk]) + 7] ^= 1

    class Damaged(FaultStore):
        def get_ranges(self, key, ranges):
            return [bytes(data[start:end]) for start, end in ranges]

    files = created(tmp_path / "entry", stored.on(Damaged(stored.store)), stored.opening)
    wanted = [ByteRange(name, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 1)]
    with pytest.raises(SplitCorruptedError, match=r"checksum of a chunk of .*\.idx"):
        files.ensure(wanted)
    assert files.still_absent(wanted) == wanted


@pytest.mark.parametrize("damage", ["length", "end", "name", "alignment"])
def test_cold_data_that_does_not_fit_the_files_is_an_error(stored, tmp_path, damage):
    name, data = file_of(stored, "idx")
    part = {
        "length": (ByteRange(name, 0, 4096), b"x"),
        "end": (ByteRange(name, 0, len(data) + 1), data + b"x"),
        "name": (ByteRange("../x", 0, 1), b"x"),
        "alignment": (ByteRange(name, 1, 4096), data[1:4096]),
    }[damage]
    with pytest.raises(SplitCorruptedError, match="cold data"):
        created(tmp_path / "entry", stored.index, [part])


def test_threads_fill_the_same_files(stored, tmp_path):
    created(tmp_path / "entry", stored.index, stored.opening)
    name, data = file_of(stored, "idx")
    chosen = np.random.default_rng(3)
    starts = chosen.integers(0, len(data) // 2, 60).tolist()

    def fill(start):
        files = SparseIndex.find(tmp_path / "entry", stored.index, unlimited)
        files.ensure([ByteRange(name, start, start + 100)])
        return files.read(name, start, start + 100) == data[start : start + 100]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fill, starts))


def test_files_that_are_gone_are_an_error_of_their_own(stored, files, tmp_path):
    for path in (tmp_path / "entry").iterdir():
        path.unlink()
    with pytest.raises(LostEntryError):
        files.complete()
    with pytest.raises(LostEntryError):
        SparseIndex.find(tmp_path / "entry", stored.index, unlimited)


def test_a_write_that_fails_leaves_the_chunk_absent(stored, files, monkeypatch):
    name, data = file_of(stored, "idx")
    wanted = [ByteRange(name, 0, 1)]

    def full(descriptor, buffers, start):
        if buffers != [b"\x80"]:
            raise OSError(28, "No space left on device")
        return os.pwrite(descriptor, b"".join(buffers), start)

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(IndexCacheError, match="No space left"):
        files.ensure(wanted)
    monkeypatch.undo()
    assert any(part.name == name and part.start == 0 for part in files.holes().ranges)
    assert files.ensure(wanted)
    assert files.read(name, 0, CHUNK_BYTES) == data[:CHUNK_BYTES]


def test_a_write_of_which_the_disk_takes_only_a_part_is_continued(stored, files, monkeypatch):
    monkeypatch.setattr(
        os,
        "pwritev",
        lambda descriptor, buffers, start: os.pwrite(descriptor, b"".join(buffers)[:999], start),
    )
    files.complete()
    monkeypatch.undo()
    for name in stored.index.sizes:
        assert files.read(name, 0, stored.index.sizes[name]) == (stored.directory / name).read_bytes()


def test_files_are_closed_with_the_last_use(stored, tmp_path):
    def open_files():
        return len(list(os.scandir("/proc/self/fd")))

    before = open_files()
    files = created(tmp_path / "entry", stored.index, stored.opening)
    files.complete()
    assert open_files() > before
    del files
    assert open_files() == before
