"""Searches of indexes that are partly on local disk: never a wrong answer, whatever was not predicted."""

import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from indextables._caching import clear_process_caches
from indextables.errors import IndexCacheError, SplitCorruptedError
from indextables.split import cold_search, index_cache, residency
from indextables.split.cold_search import search_complete
from indextables.split.index_cache import IndexCache
from indextables.split.index_opener import open_index
from indextables.split.needs import NOTHING, ByteRange, term_needs
from indextables.split.sparse_index import SparseIndex
from support import PATIENCE_SECONDS
from support.chunked_indexes import KEY, MAPPING, answer, cached, load_index, search, store_index
from support.faults import FaultStore

ROWS = 40_000
QUERIES = [
    "word",
    "w7",
    "x100",
    "x999 AND w3",
    '"w7 x7"',
    "y55 OR z99",
    "n:77",
    "n:[10 TO 50]",
    "nothing",
    "w1*",
]

pytestmark = pytest.mark.skipif(
    residency.page_cache(Path("/tmp")) is None, reason="reads of holes are not visible here"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("index")
    store_index(path, ROWS)
    return path


@pytest.fixture(scope="module")
def stored(path):
    return load_index(path)


@pytest.fixture(scope="module")
def expected(stored):
    searcher = open_index(stored.directory, MAPPING, "whole")
    return {text: answer(searcher, text) for text in QUERIES}


@pytest.fixture
def cache(tmp_path):
    return IndexCache(tmp_path / "cache", 10**9)


def predict(monkeypatch, *rounds):
    """Make every query need these ranges, whatever it is."""
    monkeypatch.setattr(cold_search, "rounds", lambda files, cold, needs: iter(rounds))


def patient(monkeypatch):
    """Let a search repeat as often as it takes, and never fetch the whole index."""
    monkeypatch.setattr(cold_search, "_MAX_MISSES", 1000)
    monkeypatch.setattr(cold_search, "_MAX_SEARCHES", 1000)


def present(cache, stored):
    """The chunks that the entry of an index has."""
    with cache.lease(cached(cache).key, pytest.fail) as directory:
        return SparseIndex.find(directory, stored.index, cache.growth)._chunk_map()


def is_complete(cache, stored):
    return set(present(cache, stored)) == {15}


@pytest.mark.parametrize("view", [residency._CacheStat(), residency._Mincore()], ids=["cachestat", "mincore"])
@pytest.mark.parametrize("text", QUERIES)
def test_without_any_prediction_the_answer_is_right(
    stored, expected, cache, text, view, monkeypatch, prediction_misses
):
    predict(monkeypatch)
    patient(monkeypatch)
    monkeypatch.setattr(cold_search, "page_cache", lambda _: view)
    assert search(cache, stored.index, stored.opening, text) == expected[text]
    assert bool(prediction_misses) == (text != "n:[10 TO 50]")  # opening reads all of a small column
    assert not is_complete(cache, stored)
    prediction_misses.clear()
    assert search(cache, stored.index, stored.opening, text) == expected[text]
    assert search(IndexCache(cache.root, 10**9), stored.index, stored.opening, text) == expected[text]


def test_even_opening_need_not_be_predicted(stored, expected, cache, monkeypatch, prediction_misses):
    predict(monkeypatch)
    patient(monkeypatch)
    assert search(cache, stored.index, (), "w7") == expected["w7"]
    assert prediction_misses
    prediction_misses.clear()


def test_a_chunk_that_the_prediction_leaves_out_is_fetched_and_counted(
    stored, expected, tmp_path, monkeypatch, prediction_misses
):
    patient(monkeypatch)
    for text in ("word", "x999 AND w3", '"w7 x7"'):
        predict(monkeypatch)
        learning = IndexCache(tmp_path / f"learning {len(text)}", 10**9)
        search(learning, stored.index, stored.opening, text)
        needed = [chunk for chunk, state in enumerate(present(learning, stored)) if state == 15]
        places = [stored.index.place_of(chunk) for chunk in needed]
        ranges = [ByteRange(name, start, start + 1) for name, start in places if name != "meta.json"]
        prediction_misses.clear()
        predict(monkeypatch, ranges)
        assert (
            search(IndexCache(tmp_path / f"all {len(text)}", 10**9), stored.index, stored.opening, text)
            == expected[text]
        )
        assert prediction_misses == []
        counted = 0
        for left_out in ranges:
            predict(monkeypatch, [part for part in ranges if part != left_out])
            cache = IndexCache(tmp_path / f"{len(text)} {left_out.name} {left_out.start}", 10**9)
            assert search(cache, stored.index, stored.opening, text) == expected[text]
            counted += bool(prediction_misses)
            prediction_misses.clear()
        assert counted > 2


def test_after_some_misses_the_whole_index_is_fetched(
    stored, expected, cache, monkeypatch, prediction_misses
):
    predict(monkeypatch)
    assert search(cache, stored.index, stored.opening, '"w7 x7"') == expected['"w7 x7"']
    assert len(prediction_misses) == cold_search._MAX_MISSES + 1
    prediction_misses.clear()
    assert is_complete(cache, stored)


def test_an_index_that_was_completed_is_searched_without_the_check(stored, expected, cache, monkeypatch):
    sizes = sorted(stored.index.sizes.items(), key=lambda item: item[1])
    predict(monkeypatch, [ByteRange(name, 0, size) for name, size in sizes[-3:]])
    assert search(cache, stored.index, stored.opening, "w7") == expected["w7"]
    assert is_complete(cache, stored)
    monkeypatch.setattr(SparseIndex, "read_holes", pytest.fail)
    monkeypatch.setattr(cold_search, "rounds", pytest.fail)
    for text in QUERIES:
        assert search(cache, stored.index, stored.opening, text) == expected[text]


def test_an_index_that_another_process_completed_is_opened_again(
    stored, expected, cache, monkeypatch, prediction_misses
):
    patient(monkeypatch)
    predict(monkeypatch)
    search(cache, stored.index, stored.opening, "w7")
    prediction_misses.clear()
    with cache.lease(cached(cache).key, pytest.fail) as directory:
        SparseIndex.find(directory, stored.index, cache.growth).complete()
    for text in QUERIES:
        assert search(cache, stored.index, stored.opening, text, term_needs("body", b"")) == expected[text]
    assert isinstance(cache.kept(cached(cache).key), cold_search._CompleteIndex)


def test_a_searcher_that_read_a_hole_is_not_used_again(
    stored, expected, cache, monkeypatch, prediction_misses
):
    patient(monkeypatch)
    predict(monkeypatch)
    used = []

    def function(searcher):
        used.append(searcher)
        return answer(searcher, "x999 AND w3")

    cold = cold_search.ColdData(stored.opening, ())
    found = cold_search.search_sparse(cached(cache), stored.index, lambda: cold, NOTHING, function)
    assert found == expected["x999 AND w3"]
    assert len({id(searcher) for searcher in used}) == len(used) == len(prediction_misses) + 1
    prediction_misses.clear()


def test_a_hole_that_is_read_and_then_filled_by_another_search_spoils_the_answer(
    stored, cache, monkeypatch, prediction_misses
):
    """The page is present when the search is checked, but was not when it was read."""
    name = next(name for name in stored.index.sizes if name.endswith(".idx"))
    wanted = [ByteRange(name, 10 * 16384, 10 * 16384 + 1)]
    predict(monkeypatch)
    patient(monkeypatch)
    seen = []

    def function(searcher):
        with cache.lease(cached(cache).key, pytest.fail) as directory:
            files = SparseIndex.find(directory, stored.index, cache.growth)
        seen.append(files.read(name, wanted[0].start, wanted[0].start + 100))
        files.ensure(wanted)
        return seen[-1]

    data = (stored.directory / name).read_bytes()[wanted[0].start : wanted[0].start + 100]
    cold = cold_search.ColdData(stored.opening, ())
    found = cold_search.search_sparse(cached(cache), stored.index, lambda: cold, NOTHING, function)
    assert seen == [bytes(100), data]
    assert found == data
    assert prediction_misses == []


def test_overlapping_searches_do_not_trust_a_searcher_that_one_of_them_spoiled(
    stored, expected, cache, monkeypatch, prediction_misses
):
    """One search reads a hole, another one that overlaps begins after the hole was filled, and must not use it."""
    patient(monkeypatch)
    predict(monkeypatch)
    texts = [text for text in QUERIES for _ in range(3)]
    random.Random(5).shuffle(texts)
    start = threading.Barrier(6)

    def work(number):
        start.wait()
        mine = texts[number::6]
        return [(text, search(cache, stored.index, stored.opening, text)) for text in mine]

    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(work, range(6)):
            for text, rows in found:
                assert rows == expected[text], text
    prediction_misses.clear()


def test_an_entry_whose_pages_have_left_memory_is_searched_without_a_miss(
    stored, expected, cache, monkeypatch, prediction_misses
):
    patient(monkeypatch)
    predict(monkeypatch)
    search(cache, stored.index, stored.opening, "w7")
    prediction_misses.clear()
    for _ in range(3):
        (entry,) = cache.entries()
        cache.forget(cached(cache).key)
        clear_process_caches()
        for path in entry.path.iterdir():
            descriptor = os.open(path, os.O_RDWR)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        assert search(cache, stored.index, stored.opening, "w7") == expected["w7"]
    assert not is_complete(cache, stored)


def test_an_error_of_the_query_is_raised_and_not_repeated(stored, cache, monkeypatch):
    predict(monkeypatch)
    calls = []

    def function(searcher):
        calls.append(searcher)
        raise ValueError("no such field")

    cold = cold_search.ColdData(stored.opening, ())
    with pytest.raises(ValueError, match="no such field"):
        cold_search.search_sparse(cached(cache), stored.index, lambda: cold, NOTHING, function)
    assert len(calls) == 1


def test_an_entry_that_is_created_again_is_not_read_through_mappings_of_the_former_one(
    stored, expected, cache, monkeypatch, prediction_misses
):
    """Tantivy keeps mappings by path, so a former copy with the same names would lend its holes to the new one."""
    patient(monkeypatch)
    predict(monkeypatch)
    for text in QUERIES:
        assert search(cache, stored.index, stored.opening, text) == expected[text]
        assert cache.flush() > 0
    prediction_misses.clear()
    monkeypatch.setattr(cold_search, "_SMALL_INDEX_BYTES", 10**9)
    for text in QUERIES:
        assert search(cache, stored.index, stored.opening, text) == expected[text]
    assert is_complete(cache, stored)


def test_an_entry_that_is_removed_by_hand_is_created_again(
    stored, expected, cache, monkeypatch, prediction_misses
):
    patient(monkeypatch)
    predict(monkeypatch)
    monkeypatch.setattr(index_cache, "_RECHECK_SECONDS", 0)
    for text in QUERIES:
        assert search(cache, stored.index, stored.opening, text) == expected[text]
        shutil.rmtree(cache.root / "entries")
        (cache.root / "entries").mkdir()
    prediction_misses.clear()


def test_a_damaged_entry_is_created_again(stored, expected, cache, monkeypatch, prediction_misses):
    patient(monkeypatch)
    predict(monkeypatch)
    search(cache, stored.index, stored.opening, "w7")
    (entry,) = cache.entries()
    (entry.path / "meta.json").write_bytes(b"")
    assert search(IndexCache(cache.root, 10**9), stored.index, stored.opening, "w7") == expected["w7"]
    prediction_misses.clear()


def test_where_holes_cannot_be_watched_the_index_is_complete(stored, expected, cache, monkeypatch):
    monkeypatch.setattr(cold_search, "page_cache", lambda _: None)
    predict(monkeypatch)
    for text in QUERIES:
        assert search(cache, stored.index, stored.opening, text) == expected[text]
    assert is_complete(cache, stored)


def test_a_small_index_is_fetched_whole_in_one_round_trip(stored, expected, cache, monkeypatch):
    monkeypatch.setattr(cold_search, "_SMALL_INDEX_BYTES", stored.index.stored_bytes)
    counting = FaultStore(stored.store)
    for text in QUERIES:
        assert search(cache, stored.on(counting), stored.opening, text) == expected[text]
    assert len(counting.calls) == 1
    assert is_complete(cache, stored)


def test_a_damaged_chunk_is_an_error_that_names_the_split(stored, cache, monkeypatch, prediction_misses):
    class Damaged(FaultStore):
        def get_ranges(self, key, ranges):
            return [bytes(end - start) for start, end in ranges]

    predict(monkeypatch)
    with pytest.raises(SplitCorruptedError, match=f"{KEY}: the checksum"):
        search(cache, stored.on(Damaged(stored.store)), stored.opening, "w7")
    prediction_misses.clear()


def test_a_search_of_everything_fetched_needs_no_request(
    stored, expected, cache, monkeypatch, prediction_misses
):
    patient(monkeypatch)
    predict(monkeypatch)
    counting = FaultStore(stored.store)
    search(cache, stored.on(counting), stored.opening, "w7")
    prediction_misses.clear()
    counting.calls.clear()
    for process in (cache, IndexCache(cache.root, 10**9)):
        assert search(process, stored.on(counting), stored.opening, "w7") == expected["w7"]
    assert counting.calls == []


# --- the bound of the cache ---------------------------------------------------------------------------


def test_a_growing_entry_makes_others_leave(stored, expected, tmp_path, monkeypatch, prediction_misses):
    patient(monkeypatch)
    predict(monkeypatch)
    bound = 600_000
    cache = IndexCache(tmp_path / "cache", bound)

    def fill(directory):
        (directory / "data").write_bytes(b"x" * 100_000)

    for number in range(5):
        search_complete(
            cached(cache).__class__(cache, f"other{number}", lambda _: None, KEY), fill, lambda searcher: None
        )
    assert len(cache.entries()) == 5
    for text in QUERIES[:6]:
        assert search(cache, stored.index, stored.opening, text) == expected[text]
        assert cache.size() <= bound
    assert len(cache.entries()) < 5
    prediction_misses.clear()


def test_an_index_larger_than_the_cache_is_searched_and_not_kept(
    stored, expected, tmp_path, monkeypatch, prediction_misses
):
    predict(monkeypatch)
    for bound in (1, 100_000, 300_000):
        cache = IndexCache(tmp_path / str(bound), bound)
        for text in QUERIES[:3]:
            assert search(cache, stored.index, stored.opening, text) == expected[text]
            assert cache.size() <= bound
        assert list((cache.root / "new").iterdir()) == []
    prediction_misses.clear()


# --- processes ----------------------------------------------------------------------------------------

WORKER = """
    import json, random, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from indextables.split import cold_search, sparse_index
    from indextables.split.index_cache import IndexCache
    from indextables.split.needs import ByteRange
    from support.chunked_indexes import load_index, search

    cold_search._SMALL_INDEX_BYTES = 0
    cold_search._MAX_MISSES = cold_search._MAX_SEARCHES = 1000
    chosen = random.Random(int(sys.argv[4]))
    stored = load_index(Path(sys.argv[2]))
    expected = json.loads(Path(sys.argv[3], "expected.json").read_text())
    names = list(stored.index.sizes)

    def rounds(files, cold, needs):
        # Some of what is needed, and some that is not.
        for _ in range(2):
            name = chosen.choice(names)
            start = chosen.randrange(stored.index.sizes[name])
            yield [ByteRange(name, start, start + 1)]

    cold_search.rounds = rounds
    cache = IndexCache(Path(sys.argv[3], "cache"), int(sys.argv[5]))
    {prelude}
    for number in range(int(sys.argv[6])):
        text = chosen.choice(list(expected))
        found = search(cache, stored.index, stored.opening, text)
        assert [list(row) for row in found] == expected[text], text
        if chosen.random() < 0.1:
            cache = IndexCache(Path(sys.argv[3], "cache"), int(sys.argv[5]))
        if chosen.random() < 0.03:
            cache.flush()
"""


def worker(path, directory, seed, *, bound=10**9, searches=40, prelude=""):
    program = textwrap.dedent(WORKER).replace("{prelude}", prelude)
    support = Path(__file__).parents[1]
    arguments = [support, path, directory, seed, bound, searches]
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RUST_BACKTRACE": "0"},
    )


@pytest.mark.parametrize("bound", [10**9, 700_000])
def test_processes_that_fill_one_directory_never_answer_wrongly(path, stored, expected, tmp_path, bound):
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    workers = [worker(path, tmp_path, seed, bound=bound) for seed in range(4)]
    for process in workers:
        _, complaints = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, complaints
    cache = IndexCache(tmp_path / "cache", bound)
    assert cache.size() <= bound
    assert list((tmp_path / "cache" / "new").iterdir()) == []


KILLED = {
    "in a chunk": "write(descriptor, [b''.join(buffers)[:5000]], start); os.kill(os.getpid(), 9)",
    "before the map": "write(descriptor, buffers, start); os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("moment", KILLED)
def test_a_process_that_is_killed_while_it_fills_an_entry_spoils_no_answer(
    path, stored, expected, tmp_path, moment, monkeypatch, prediction_misses
):
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    prelude = textwrap.dedent(f"""
        import os
        write, writes = sparse_index._write_all, []
        def killing(descriptor, buffers, start):
            writes.append(buffers)
            if len(writes) > 20 and len(b"".join(buffers)) >= 5000:
                {KILLED[moment]}
            write(descriptor, buffers, start)
        sparse_index._write_all = killing
    """)
    process = worker(path, tmp_path, 1, prelude=prelude)
    _, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == -9, complaints
    patient(monkeypatch)
    predict(monkeypatch)
    cache = IndexCache(tmp_path / "cache", 10**9)
    for text in QUERIES:
        assert search(cache, stored.index, stored.opening, text) == expected[text]
    prediction_misses.clear()
    assert list((tmp_path / "cache" / "new").iterdir()) == []


def test_a_disk_that_is_full_is_an_error_and_later_searches_are_right(path, stored, expected, tmp_path):
    """The limit on the size of files stands for a disk that takes only the first chunks."""
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    limit = 200_000
    prelude = textwrap.dedent(f"""
        import resource
        from indextables.errors import IndexCacheError
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
        real, failures = search, []
        def search(*arguments):
            try:
                return real(*arguments)
            except IndexCacheError:
                failures.append(arguments)
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                found = real(*arguments)
                resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
                return found
        import atexit
        atexit.register(lambda: print("failures:", len(failures), file=sys.stderr))
    """)
    process = worker(path, tmp_path, 3, prelude=prelude)
    _, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, complaints
    assert "failures: 0" not in complaints


def test_a_full_file_system_in_memory_ends_no_process(path, stored, expected, tmp_path):
    """Its holes would take memory when they are read, and there is none."""
    mount = tmp_path / "memory"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root mounts file systems")
    try:
        cache = IndexCache(mount / "cache", 10**9)
        with pytest.raises(IndexCacheError, match="No space left"):
            search(cache, stored.index, stored.opening, "w7")
        assert list((mount / "cache" / "new").iterdir()) == []
    finally:
        subprocess.run(["umount", str(mount)], check=True)
