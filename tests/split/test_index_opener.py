"""Many open indexes need few threads, a bounded number of mappings, and no open files."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables._caching import clear_process_caches
from indextables.errors import IndexCacheError, SplitCorruptedError
from indextables.split import index_opener
from indextables.split.index_cache import IndexCache
from indextables.storage import open_store
from support.split_samples import opened, parsed, searcher_of, write_split

SPLITS = 40
OPEN = 8

SEARCH_AND_REPORT = f"""
    import json, os, sys
    from pathlib import Path
    from indextables import IndexTable
    from indextables.split import index_cache

    index_cache._OPEN_ENTRIES = {OPEN}
    cache = os.environ["XDG_CACHE_HOME"]
    table = IndexTable(sys.argv[1])

    def names(folder, read):
        found = []
        for path in Path(folder).iterdir():
            try:
                found.append(read(path))
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found

    def used():
        threads = names("/proc/self/task", lambda path: (path / "comm").read_text())
        return {{
            "watchers": sum("tantivy" in name for name in threads),
            "mappings": sum(cache in line for line in Path("/proc/self/maps").read_text().splitlines()),
            "files": sum(cache in target for target in names("/proc/self/fd", os.readlink)),
        }}

    found = [table.count("word"), table.search("word", limit=100).num_rows, table.count("n:7"), table.count("word")]
    print(json.dumps({{"found": found, **used()}}))
"""


def run(program, *arguments, cache):
    """Run a program in a process of its own, with its own cache and directory for temporary files."""
    temporary = cache / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def many_splits(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "table"
    schema = pa.schema([("body", pa.string()), ("n", pa.int64()), ("part", pa.int64())])
    table = IndexTable.create(path, schema, partition_by=["part"], text=["body"])
    numbers = range(SPLITS)
    table.append(pa.table({"body": [f"word w{n}" for n in numbers], "n": numbers, "part": numbers}, schema))
    assert table.num_files == SPLITS
    return path


def test_a_search_of_many_splits_needs_one_thread_and_a_bounded_number_of_mappings(many_splits, tmp_path):
    report = json.loads(run(SEARCH_AND_REPORT, many_splits, cache=tmp_path))
    assert report["found"] == [SPLITS, SPLITS, 1, SPLITS]
    assert report["watchers"] == 1
    # An index of one segment has at most ten files. One more index stays open in the opener.
    assert 0 < report["mappings"] <= 10 * (OPEN + 1)
    assert report["files"] == 2  # the lock on the opener's directory, and where its link leads to


def test_a_process_leaves_no_temporary_files(many_splits, tmp_path):
    run(SEARCH_AND_REPORT, many_splits, cache=tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "table")


def split_of(store, count, name="id"):
    return opened(store, write_split(store, pa.table({name: range(count)})))


def test_searchers_of_the_same_schema_keep_their_own_rows(store, tmp_path):
    cache = IndexCache(tmp_path / "cache", 10**9)
    splits = [split_of(store, count) for count in (3, 5, 1, 7)]
    searchers = [searcher_of(split, cache) for split in splits]
    assert [searcher.num_docs for searcher in searchers] == [3, 5, 1, 7]
    found = [
        searcher.search(parsed(split, "id:4")).count
        for split, searcher in zip(splits, searchers, strict=True)
    ]
    assert found == [0, 1, 0, 1]


def test_a_system_without_names_of_descriptors_moves_a_link(store, tmp_path, monkeypatch):
    monkeypatch.setattr(index_opener, "_DESCRIPTORS", tmp_path / "missing")
    clear_process_caches()
    cache = IndexCache(tmp_path / "cache", 10**9)
    searchers = [searcher_of(split_of(store, count), cache) for count in (3, 5, 1)]
    assert [searcher.num_docs for searcher in searchers] == [3, 5, 1]
    clear_process_caches()


def test_splits_of_different_schemas_are_open_side_by_side(store, tmp_path):
    cache = IndexCache(tmp_path / "cache", 10**9)
    splits = [split_of(store, 3, "a"), split_of(store, 5, "b"), split_of(store, 7, "a")]
    searchers = [searcher_of(split, cache) for split in splits]
    assert [searcher.num_docs for searcher in searchers] == [3, 5, 7]
    for split, name in zip(splits, "aba", strict=True):
        assert searcher_of(split, cache).search(parsed(split, f"{name}:2")).count == 1


def test_threads_that_open_different_splits_get_their_own(store, tmp_path):
    splits = [split_of(store, count) for count in range(1, 9)]
    caches = [IndexCache(tmp_path / f"cache{number}", 10**9) for number in range(4)]
    with ThreadPoolExecutor(8) as pool:
        for cache in caches:
            found = list(pool.map(lambda split, cache=cache: searcher_of(split, cache).num_docs, splits))
            assert found == list(range(1, 9))


def test_an_index_that_cannot_be_opened_is_not_mistaken_for_the_last_one(store, tmp_path):
    cache = IndexCache(tmp_path / "cache", 10**9)
    searcher_of(split_of(store, 3), cache)
    broken = split_of(store, 5)
    open_whole = broken._open

    def open_half(directory):
        for path in directory.glob("*.fast"):
            path.unlink()
        return open_whole(directory)

    broken._open = open_half
    with pytest.raises(SplitCorruptedError, match="cannot be opened"):
        searcher_of(broken, cache)
    assert searcher_of(split_of(store, 7), cache).num_docs == 7


def test_temporary_files_may_be_cleaned_up_while_a_process_runs(store, tmp_path, monkeypatch):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    clear_process_caches()
    cache = IndexCache(tmp_path / "cache", 10**9)
    first = searcher_of(split_of(store, 3), cache)
    for path in temporary.iterdir():
        shutil.rmtree(path)
    assert searcher_of(split_of(store, 5), cache).num_docs == 5
    assert first.num_docs == 3


def test_no_place_for_temporary_files_is_an_error_that_names_it(store, tmp_path, monkeypatch):
    split = split_of(store, 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    clear_process_caches()
    with pytest.raises(IndexCacheError, match="missing"):
        searcher_of(split, IndexCache(tmp_path / "cache", 10**9))


FORK = """
    import os, sys
    from indextables import IndexTable
    from indextables.split import index_cache

    index_cache._OPEN_ENTRIES = 1
    table = IndexTable(sys.argv[1])
    assert table.count("n:1") == 1
    child = os.fork()
    for number in range(5):
        for part in range(10):
            assert table.count("word", where=f"part = {part}") == 1, (child, part)
            assert table.count(f"w{part}", where=f"part = {part}") == 1, (child, part)
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert table.count("word") == 40
"""


def test_a_forked_process_opens_indexes_without_disturbing_its_parent(many_splits, tmp_path):
    run(FORK, many_splits, cache=tmp_path)
