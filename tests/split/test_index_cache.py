"""The cache of indexes: bounded, shared by processes, safe against crashes, flushed on request."""

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from indextables.errors import IndexCacheError, SplitCorruptedError
from indextables.split import index_cache as cache_module
from indextables.split.index_cache import IndexCache, cache_key
from indextables.split.reader import open_split
from indextables.storage import open_store
from support import PATIENCE_SECONDS
from support.faults import FaultStore
from support.split_samples import opened, parsed, write_split


def filled(size: int, log: list[str] | None = None):
    """Return a function that creates an entry of this size."""

    def fill(directory: Path) -> None:
        if log is not None:
            log.append(directory.name)
        (directory / "data").write_bytes(b"x" * size)

    return fill


def use(cache: IndexCache, key: str, size: int = 100) -> None:
    with cache.lease(key, filled(size)) as directory:
        assert (directory / "data").stat().st_size == size


def present(cache: IndexCache) -> list[str]:
    return [entry.path.name for entry in cache.entries()]


def age(cache: IndexCache, key: str, seconds: int) -> None:
    """Move the last use of an entry into the past."""
    path = next(entry.path for entry in cache.entries() if entry.path.name == key)
    moment = path.stat().st_mtime - seconds
    os.utime(path, (moment, moment))


def test_an_entry_is_created_once_and_found_by_another_cache(tmp_path):
    log: list[str] = []
    for _ in range(2):
        for cache in (IndexCache(tmp_path, 1000), IndexCache(tmp_path, 1000)):
            with cache.lease("k", filled(10, log)) as directory:
                assert (directory / "data").read_bytes() == b"x" * 10
    assert len(log) == 1
    assert IndexCache(tmp_path, 1000).size() == 10


def test_the_least_recently_used_entries_are_evicted_first(tmp_path):
    cache = IndexCache(tmp_path, 350)
    for number, key in enumerate("abc"):
        use(cache, key)
        age(cache, key, 100 - number)
    use(cache, "a")
    use(cache, "d")
    assert sorted(present(cache)) == ["a", "c", "d"]
    assert cache.size() <= 350


def test_an_entry_in_use_is_not_evicted(tmp_path):
    cache = IndexCache(tmp_path, 250)
    use(cache, "a")
    age(cache, "a", 100)
    use(cache, "b")
    with IndexCache(tmp_path, 250).lease("a", filled(100)) as directory:
        age(cache, "a", 100)
        use(cache, "c")
        assert (directory / "data").is_file()
        assert cache.flush() == 100
        assert present(cache) == ["a"]
    assert cache.flush() == 100
    assert present(cache) == []


def test_an_entry_larger_than_the_cache_is_usable_and_not_kept(tmp_path):
    cache = IndexCache(tmp_path, 50)
    with cache.lease("big", filled(1000)) as directory:
        assert (directory / "data").stat().st_size == 1000
    assert present(cache) == []
    assert list((tmp_path / "new").iterdir()) == []


def test_a_failure_while_filling_keeps_nothing(tmp_path):
    cache = IndexCache(tmp_path, 1000)

    def fail(directory: Path) -> None:
        (directory / "part").write_bytes(b"half")
        raise SplitCorruptedError("broken")

    with pytest.raises(SplitCorruptedError), cache.lease("k", fail):
        pass
    assert present(cache) == []
    assert list((tmp_path / "new").iterdir()) == []
    use(cache, "k")


def test_threads_that_need_the_same_entry_create_it_once(tmp_path):
    log: list[str] = []
    cache = IndexCache(tmp_path, 10_000)
    start = threading.Barrier(8)

    def work(_: int) -> set[bytes]:
        start.wait()
        found = set()
        for _ in range(5):
            with cache.lease("k", filled(10, log)) as directory:
                found.add((directory / "data").read_bytes())
        return found

    with ThreadPoolExecutor(8) as pool:
        assert set.union(*pool.map(work, range(8))) == {b"x" * 10}
    assert len(log) == 1


WORKER = """
    import random, sys
    from pathlib import Path
    from indextables.split.index_cache import IndexCache

    cache = IndexCache(Path(sys.argv[1]), 1000)
    chosen = random.Random(int(sys.argv[2]))
    for _ in range(40):
        key = f"k{chosen.randrange(20)}"

        def fill(directory):
            for name in ("a", "b"):
                (directory / name).write_text(key * 10)

        with cache.lease(key, fill) as directory:
            assert {path.read_text() for path in directory.iterdir()} == {key * 10}, key
        if chosen.random() < 0.05:
            cache.flush()
"""


def test_processes_share_a_small_cache_and_always_see_whole_entries(tmp_path):
    program = textwrap.dedent(WORKER)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(seed)], stderr=subprocess.PIPE, text=True
        )
        for seed in range(3)
    ]
    for worker in workers:
        _, complaints = worker.communicate(timeout=PATIENCE_SECONDS)
        assert worker.returncode == 0, complaints
    cache = IndexCache(tmp_path, 1000)
    assert cache.size() <= 1000
    assert list((tmp_path / "new").iterdir()) == []


KILLED = """
    import os, sys
    from pathlib import Path
    from indextables.split.index_cache import IndexCache

    def fill(directory):
        (directory / "data").write_bytes(b"half")
        os.kill(os.getpid(), 9)

    with IndexCache(Path(sys.argv[1]), 1000).lease("k", fill):
        pass
"""


def test_the_remains_of_a_killed_process_are_swept_and_block_no_other_process(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)], check=False, timeout=PATIENCE_SECONDS
    )
    assert result.returncode == -9
    assert len(list((tmp_path / "new").iterdir())) == 1
    cache = IndexCache(tmp_path, 1000)
    use(cache, "k")
    assert list((tmp_path / "new").iterdir()) == []
    assert present(cache) == ["k"]


def test_an_unusable_root_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(IndexCacheError, match="file"):
        use(IndexCache(tmp_path / "file", 1000), "k")


def test_the_cache_is_private_to_its_user(tmp_path):
    root = tmp_path / "cache"
    use(IndexCache(root, 1000), "k")
    assert root.stat().st_mode & 0o077 == 0


def test_keys_tell_their_parts_apart():
    assert cache_key(["ab", "c"]) != cache_key(["a", "bc"])
    assert cache_key([b"ab"]) == cache_key(["ab"])


@pytest.fixture
def split_and_store(tmp_path):
    store = open_store(tmp_path / "table")
    file = write_split(store, pa.table({"id": range(100)}))
    return opened(store, file), store, file


def test_a_second_opening_reads_nothing_from_the_store(split_and_store, tmp_path):
    _, store, file = split_and_store
    cache = IndexCache(tmp_path / "cache", 10**9)
    counting = FaultStore(store)
    split = opened(counting, file)
    split.searcher(cache)
    before = len(counting.calls)
    assert split.searcher(cache).num_docs == 100
    assert len(counting.calls) == before


def test_an_open_index_survives_the_eviction_of_its_entry(split_and_store, tmp_path):
    split, _, _ = split_and_store
    cache = IndexCache(tmp_path / "cache", 10**9)
    searcher = split.searcher(cache)
    assert cache.flush() > 0
    assert searcher.search(parsed(split, "id:7")).count == 1
    assert cache.size() == 0
    assert split.searcher(cache).num_docs == 100


def test_another_file_under_the_same_path_gets_its_own_entry(split_and_store, tmp_path):
    split, store, file = split_and_store
    cache = IndexCache(tmp_path / "cache", 10**9)
    split.searcher(cache)
    other = write_split(store, pa.table({"id": range(50)}))
    store.put(file.path, store.get(other.path))
    again = open_split(store, file.path)
    assert again.searcher(cache).num_docs == 50
    assert len(cache.entries()) == 2


def test_a_damaged_entry_is_created_again(split_and_store, tmp_path):
    split, _, _ = split_and_store
    cache = IndexCache(tmp_path / "cache", 10**9)
    split.searcher(cache)
    (entry,) = cache.entries()
    (entry.path / "meta.json").write_bytes(b"")
    assert split.searcher(cache).num_docs == 100


def test_a_damaged_index_in_the_split_is_an_error_and_not_cached(split_and_store, tmp_path):
    split, store, file = split_and_store
    cache = IndexCache(tmp_path / "cache", 10**9)
    data = bytearray(store.get(file.path))
    data[split._bundle.members["meta.json"].start + 5] ^= 1
    store.put(file.path, bytes(data))
    with pytest.raises(SplitCorruptedError, match=r"chunk of meta\.json"):
        opened(store, file).searcher(cache)
    assert cache.entries() == []


def test_a_new_entry_is_measured_once_and_no_other_entry_with_it(tmp_path, monkeypatch):
    measured = count_measurements(monkeypatch)
    cache = IndexCache(tmp_path, 10**6)
    for number in range(50):
        use(cache, f"k{number}")
    assert measured == []
    assert cache.size() == 50 * 100


def test_a_full_cache_makes_room_for_many_entries_at_once(tmp_path, monkeypatch):
    measured = count_measurements(monkeypatch)
    cache = IndexCache(tmp_path, 100 * 100)
    for number in range(300):
        use(cache, f"k{number}")
        assert len(list((tmp_path / "entries").iterdir())) <= 100
    # Each of the 20 times, 100 entries are measured and 10 of them evicted.
    assert len(measured) <= 2100


@pytest.mark.parametrize("content", [b"", b"12", b"x" * 20, b"1" * 40])
def test_a_damaged_record_of_the_total_size_is_measured_again(tmp_path, content):
    use(IndexCache(tmp_path, 250), "a")
    (tmp_path / "locks" / "room").write_bytes(content)
    cache = IndexCache(tmp_path, 250)
    age(cache, "a", 100)
    use(cache, "b")
    use(cache, "c")
    assert sorted(present(cache)) == ["b", "c"]


def test_entries_that_were_removed_do_not_count(tmp_path):
    cache = IndexCache(tmp_path, 250)
    use(cache, "a")
    use(cache, "b")
    cache.flush()
    use(cache, "c")
    use(cache, "d")
    assert sorted(present(cache)) == ["c", "d"]


def count_measurements(monkeypatch):
    """The entries that a cache measures from now on."""
    measured = []
    measure = cache_module._entry_of

    def counting(path):
        measured.append(path.name)
        return measure(path)

    monkeypatch.setattr(cache_module, "_entry_of", counting)
    return measured
