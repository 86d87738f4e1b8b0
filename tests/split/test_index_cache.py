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
from support.split_samples import opened, parsed, searcher_of, write_split

# A file system allocates whole blocks.
BLOCK = 4096


def filled(size: int, log: list[str] | None = None):
    """Return a function that creates an entry of this size."""

    def fill(directory: Path) -> None:
        if log is not None:
            log.append(directory.name)
        (directory / "data").write_bytes(b"x" * size)

    return fill


def use(cache: IndexCache, key: str, size: int = BLOCK) -> None:
    with cache.lease(key, filled(size)) as directory:
        assert (directory / "data").stat().st_size == size


def present(cache: IndexCache) -> list[str]:
    return [entry.path.name.partition(".")[0] for entry in cache.entries()]


def age(cache: IndexCache, key: str, seconds: int) -> None:
    """Move the last use of an entry into the past."""
    path = cache._entry(key)
    moment = path.stat().st_mtime - seconds
    os.utime(path, (moment, moment))


def test_an_entry_is_created_once_and_found_by_another_cache(tmp_path):
    log: list[str] = []
    for _ in range(2):
        for cache in (IndexCache(tmp_path, 10**6), IndexCache(tmp_path, 10**6)):
            with cache.lease("k", filled(10, log)) as directory:
                assert (directory / "data").read_bytes() == b"x" * 10
    assert len(log) == 1
    assert IndexCache(tmp_path, 10**6).size() == BLOCK


def test_the_least_recently_used_entries_are_evicted_first(tmp_path):
    cache = IndexCache(tmp_path, 3 * BLOCK + BLOCK // 2)
    for number, key in enumerate("abc"):
        use(cache, key)
        age(cache, key, 100 - number)
    use(cache, "a")
    use(cache, "d")
    assert sorted(present(cache)) == ["a", "c", "d"]
    assert cache.size() == 3 * BLOCK


def test_an_entry_in_use_is_not_evicted(tmp_path):
    cache = IndexCache(tmp_path, 2 * BLOCK + BLOCK // 2)
    use(cache, "a")
    age(cache, "a", 100)
    use(cache, "b")
    with IndexCache(tmp_path, 2 * BLOCK + BLOCK // 2).lease("a", filled(BLOCK)) as directory:
        age(cache, "a", 100)
        use(cache, "c")
        assert (directory / "data").is_file()
        assert cache.flush() == BLOCK
        assert present(cache) == ["a"]
    assert cache.flush() == BLOCK
    assert present(cache) == []


def test_an_entry_larger_than_the_cache_is_usable_and_not_kept(tmp_path):
    cache = IndexCache(tmp_path, BLOCK)
    with cache.lease("big", filled(3 * BLOCK)) as directory:
        assert (directory / "data").stat().st_size == 3 * BLOCK
    assert present(cache) == []
    assert list((tmp_path / "new").iterdir()) == []


def test_a_failure_while_filling_keeps_nothing(tmp_path):
    cache = IndexCache(tmp_path, 10**6)

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

    cache = IndexCache(Path(sys.argv[1]), 40_000)
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
    cache = IndexCache(tmp_path, 40_000)
    assert cache.size() <= 40_000
    assert list((tmp_path / "new").iterdir()) == []


KILLED = """
    import os, sys
    from pathlib import Path
    from indextables.split.index_cache import IndexCache

    def fill(directory):
        (directory / "data").write_bytes(b"half")
        os.kill(os.getpid(), 9)

    with IndexCache(Path(sys.argv[1]), 10**6).lease("k", fill):
        pass
"""


def test_the_remains_of_a_killed_process_are_swept_and_block_no_other_process(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)], check=False, timeout=PATIENCE_SECONDS
    )
    assert result.returncode == -9
    assert len(list((tmp_path / "new").iterdir())) == 1
    cache = IndexCache(tmp_path, 10**6)
    use(cache, "k")
    assert list((tmp_path / "new").iterdir()) == []
    assert present(cache) == ["k"]


def test_an_unusable_root_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(IndexCacheError, match="file"):
        use(IndexCache(tmp_path / "file", 10**6), "k")


def test_the_cache_is_private_to_its_user(tmp_path):
    root = tmp_path / "cache"
    use(IndexCache(root, 10**6), "k")
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
    searcher_of(split, cache)
    before = len(counting.calls)
    assert searcher_of(split, cache).num_docs == 100
    assert len(counting.calls) == before


def test_an_open_index_survives_the_eviction_of_its_entry(split_and_store, tmp_path):
    split, _, _ = split_and_store
    cache = IndexCache(tmp_path / "cache", 10**9)
    searcher = searcher_of(split, cache)
    assert cache.flush() > 0
    assert searcher.search(parsed(split, "id:7")).count == 1
    assert cache.size() == 0
    assert searcher_of(split, cache).num_docs == 100


def test_another_file_under_the_same_path_gets_its_own_entry(split_and_store, tmp_path):
    split, store, file = split_and_store
    cache = IndexCache(tmp_path / "cache", 10**9)
    searcher_of(split, cache)
    other = write_split(store, pa.table({"id": range(50)}))
    store.put(file.path, store.get(other.path))
    again = open_split(store, file.path)
    assert searcher_of(again, cache).num_docs == 50
    assert len(cache.entries()) == 2


def test_a_damaged_entry_is_created_again(split_and_store, tmp_path):
    split, _, _ = split_and_store
    cache = IndexCache(tmp_path / "cache", 10**9)
    searcher_of(split, cache)
    (entry,) = cache.entries()
    (entry.path / "meta.json").write_bytes(b"")
    assert searcher_of(split, cache).num_docs == 100


def test_a_damaged_index_in_the_split_is_an_error_and_not_cached(tmp_path):
    store = open_store(tmp_path / "table")
    file = write_split(store, pa.table({"name": [f"n{number}" for number in range(10_000)]}))
    split = opened(store, file)
    cache = IndexCache(tmp_path / "cache", 10**9)
    sound = store.get(file.path)
    (terms,) = (member for name, member in split._bundle.members.items() if name.endswith(".term"))
    data = bytearray(sound)
    data[terms.start + 5] ^= 1
    store.put(file.path, bytes(data))
    with pytest.raises(SplitCorruptedError, match=r"chunk of .*\.term"):
        searcher_of(opened(store, file), cache)
    store.put(file.path, sound)
    assert searcher_of(opened(store, file), cache).search(parsed(split, "name:n7")).count == 1


def test_a_new_entry_is_measured_once_and_no_other_entry_with_it(tmp_path, monkeypatch):
    measured = count_measurements(monkeypatch)
    cache = IndexCache(tmp_path, 10**6)
    for number in range(50):
        use(cache, f"k{number}")
    assert measured == []
    assert cache.size() == 50 * BLOCK


def test_a_full_cache_makes_room_for_many_entries_at_once(tmp_path, monkeypatch):
    measured = count_measurements(monkeypatch)
    cache = IndexCache(tmp_path, 100 * BLOCK)
    for number in range(300):
        use(cache, f"k{number}")
        assert len(list((tmp_path / "entries").iterdir())) <= 100
    # Each of the 20 times, 100 entries are measured and 10 of them evicted.
    assert len(measured) <= 2100


@pytest.mark.parametrize("content", [b"", b"12", b"x" * 40, b"1" * 80])
def test_a_damaged_record_of_the_total_size_is_measured_again(tmp_path, content):
    bound = 2 * BLOCK + BLOCK // 2
    use(IndexCache(tmp_path, bound), "a")
    Path(IndexCache(tmp_path, bound)._room).write_bytes(content)
    cache = IndexCache(tmp_path, bound)
    age(cache, "a", 100)
    use(cache, "b")
    use(cache, "c")
    assert sorted(present(cache)) == ["b", "c"]


def test_entries_that_were_removed_do_not_count(tmp_path):
    cache = IndexCache(tmp_path, 2 * BLOCK + BLOCK // 2)
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


# --- entries that grow --------------------------------------------------------------------------------


def sparse(directory: Path) -> None:
    with (directory / "data").open("wb") as file:
        file.truncate(100 * BLOCK)


def grow(cache: IndexCache, key: str, blocks: int) -> None:
    """Add blocks to a sparse entry."""
    with cache.lease(key, sparse) as directory, (directory / "data").open("r+b") as file:
        start = (directory / "data").stat().st_blocks * 512
        with cache.growth(blocks * BLOCK):
            file.seek(start)
            file.write(b"x" * blocks * BLOCK)


def test_holes_do_not_count(tmp_path):
    cache = IndexCache(tmp_path, 10 * BLOCK)
    grow(cache, "k", 3)
    assert cache.size() == 3 * BLOCK
    assert present(cache) == ["k"]


def test_an_entry_that_grows_makes_others_leave(tmp_path):
    cache = IndexCache(tmp_path, 10 * BLOCK)
    for number, key in enumerate("abcde"):
        use(cache, key)
        age(cache, key, 100 - number)
    grow(cache, "k", 3)
    assert len(present(cache)) == 6
    grow(cache, "k", 3)
    assert cache.size() <= 10 * BLOCK
    assert "k" in present(cache)
    assert "a" not in present(cache)


def test_an_entry_that_outgrows_the_cache_is_removed_after_its_use(tmp_path):
    cache = IndexCache(tmp_path, 10 * BLOCK)
    grow(cache, "k", 8)
    assert present(cache) == ["k"]
    grow(cache, "k", 8)
    assert cache.size() <= 10 * BLOCK


def test_the_last_process_that_uses_an_entry_removes_it_if_it_is_too_large(tmp_path):
    cache, other = IndexCache(tmp_path, 10 * BLOCK), IndexCache(tmp_path, 10 * BLOCK)
    with other.lease("k", sparse):
        grow(cache, "k", 12)
        assert present(cache) == ["k"]
    assert present(cache) == []


def test_bytes_written_while_all_entries_are_measured_are_counted(tmp_path):
    cache = IndexCache(tmp_path, 10 * BLOCK)
    with cache.lease("k", sparse) as directory, cache.growth(4 * BLOCK):
        # These make the cache measure its entries before the bytes are there.
        for key in "abcdefgh":
            use(cache, key)
        (directory / "data").write_bytes(b"x" * 4 * BLOCK)
    assert cache._reserve(0).used >= cache.size() - BLOCK
    use(cache, "z")
    assert cache.size() <= 10 * BLOCK


def test_entries_of_an_earlier_boot_are_not_used_and_leave_first(tmp_path, monkeypatch):
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(cache_module, "_BOOT_ID", boot)
    log: list[str] = []
    for number in range(2):
        boot.write_text(f"{number}e5f6a7b-0000-4000-8000-000000000000\n")
        with IndexCache(tmp_path / "cache", 2 * BLOCK + BLOCK // 2).lease("k", filled(BLOCK, log)):
            pass
    assert len(log) == 2
    cache = IndexCache(tmp_path / "cache", 2 * BLOCK + BLOCK // 2)
    assert present(cache) == ["k", "k"]
    use(cache, "other")
    assert sorted(present(cache)) == ["k", "other"]
    with cache.lease("k", pytest.fail):
        pass


def test_without_a_boot_id_entries_are_synced_to_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "_BOOT_ID", tmp_path / "missing")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    use(IndexCache(tmp_path / "cache", 10**6), "k")
    assert len(synced) == 3  # the file, the entry and the directory of all entries
    with IndexCache(tmp_path / "cache", 10**6).lease("k", pytest.fail):
        pass


def test_with_a_boot_id_nothing_is_synced_to_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", pytest.fail)
    use(IndexCache(tmp_path, 10**6), "k")


# --- work that the processes of a host share ------------------------------------------------------------


def test_each_number_is_claimed_once_and_forgotten_after_the_last_block(tmp_path):
    cache, other = IndexCache(tmp_path, 10**6), IndexCache(tmp_path, 10**6)
    with cache.claims("work") as claim:
        assert [claim(1), claim(2), claim(1)] == [True, True, False]
        with other.claims("work") as claim_again, other.claims("another") as claim_another:
            assert [claim_again(1), claim_again(3), claim_another(1)] == [False, True, True]
        other.flush()
        assert [claim(3), claim(4)] == [False, True]
    assert list((tmp_path / "new").iterdir()) == []
    with cache.claims("work") as claim:
        assert claim(1)


def test_room_is_what_entries_that_were_not_used_since_a_moment_leave(tmp_path):
    cache = IndexCache(tmp_path, 100_000)
    assert cache.has_room(100_000, 0)
    with cache.lease(cache_key(["a"]), lambda directory: (directory / "x").write_bytes(b"x" * 40_960)):
        pass
    used_ns = cache.entries()[0].used_ns
    assert cache.entry_size(cache_key(["a"])) == cache.size()
    assert cache.entry_size(cache_key(["b"])) is None
    assert cache.has_room(50_000, used_ns)
    assert not cache.has_room(80_000, used_ns)
    assert cache.has_room(80_000, used_ns + 1)
    assert not cache.has_room(95_000, used_ns + 1)


def test_caches_in_different_directories_have_different_identities(tmp_path):
    one, other = IndexCache(tmp_path / "one", 10**6), IndexCache(tmp_path / "other", 10**6)
    assert one.identity == IndexCache(tmp_path / "one", 10**6).identity != other.identity


def test_a_forked_process_does_not_remove_the_directory_of_its_parent(tmp_path):
    script = """
        import os, sys
        from pathlib import Path
        from indextables.split.index_cache import new_guarded_directory, sweep_abandoned
        parent = Path(sys.argv[1])
        guarded = new_guarded_directory(parent, "work-")
        child = os.fork()
        if not child:
            guarded.close()
            os._exit(0)
        os.waitpid(child, 0)
        sweep_abandoned(parent, "work-")
        assert guarded.path.is_dir()
        guarded.close()
        assert not guarded.path.exists()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], check=True)


def test_a_sweep_spares_a_directory_that_took_the_place_of_an_abandoned_one(tmp_path, monkeypatch):
    path = tmp_path / "work-1"
    path.mkdir()
    lock = cache_module.fcntl.flock

    def lock_after_replacement(descriptor, operation):
        path.rename(tmp_path / "other")
        path.mkdir()
        (path / "live").touch()
        lock(descriptor, operation)

    monkeypatch.setattr(cache_module.fcntl, "flock", lock_after_replacement)
    cache_module.sweep_abandoned(tmp_path, "work-")
    assert (path / "live").exists()
