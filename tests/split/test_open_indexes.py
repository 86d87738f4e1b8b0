"""Indexes and row groups in memory: reused, and never stale."""

import os

import pyarrow as pa
import pytest

from indextables.errors import SplitCorruptedError
from indextables.split import index_cache as cache_module
from indextables.split.index_cache import IndexCache
from indextables.storage import open_store
from support.faults import FaultStore
from support.split_samples import opened, searcher_of, write_split

COUNT = 5000


@pytest.fixture
def store(tmp_path):
    return FaultStore(open_store(tmp_path / "table"))


@pytest.fixture
def file(store):
    return write_split(store, pa.table({"id": range(COUNT), "name": [f"n{i}" for i in range(COUNT)]}))


def test_an_index_is_opened_once(store, file, tmp_path):
    cache = IndexCache(tmp_path / "cache", 10**9)
    assert searcher_of(opened(store, file), cache) is searcher_of(opened(store, file), cache)


def test_an_evicted_index_is_put_into_the_cache_again(store, file, tmp_path):
    cache = IndexCache(tmp_path / "cache", 10**9)
    before = searcher_of(opened(store, file), cache)
    cache.flush()
    after = searcher_of(opened(store, file), cache)
    assert after is not before
    assert len(cache.entries()) == 1


def test_an_index_that_another_process_evicted_is_created_again_within_a_second(
    store, file, tmp_path, monkeypatch
):
    cache = IndexCache(tmp_path / "cache", 10**9)
    before = searcher_of(opened(store, file), cache)
    IndexCache(tmp_path / "cache", 10**9).flush()
    assert searcher_of(opened(store, file), cache) is before
    assert before.num_docs == COUNT
    monkeypatch.setattr(cache_module, "_RECHECK_SECONDS", 0)
    assert searcher_of(opened(store, file), cache) is not before


def test_a_use_of_an_open_index_counts_as_a_use_of_its_entry(store, file, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "_RECHECK_SECONDS", 0)
    cache = IndexCache(tmp_path / "cache", 10**9)
    split = opened(store, file)
    searcher_of(split, cache)
    (entry,) = cache.entries()
    os.utime(entry.path, ns=(0, 0))
    searcher_of(split, cache)
    assert cache.entries()[0].used_ns > 0


def test_an_index_larger_than_the_cache_is_not_kept_open(store, file, tmp_path):
    cache = IndexCache(tmp_path / "cache", 1)
    split = opened(store, file)
    assert searcher_of(split, cache) is not searcher_of(split, cache)


def test_rows_of_a_group_that_was_read_are_taken_from_memory(store, file):
    split = opened(store, file)
    split.take([3000, 5])
    before = len(store.calls)
    assert split.take([6, 3001, 6]).column("id").to_pylist() == [6, 3001, 6]
    assert len(store.calls) == before


def test_cached_and_uncached_groups_come_in_the_requested_order(store, file):
    split = opened(store, file)
    split.take([2000])
    wanted = [4999, 2001, 0, 2001, 1023, 1024]
    assert split.take(wanted).to_pylist() == [{"id": i, "name": f"n{i}"} for i in wanted]


def test_a_projection_is_not_served_from_the_cache_of_another_one(store, file):
    split = opened(store, file)
    split.take([7], ["id"])
    assert split.take([7], ["name"]).to_pylist() == [{"name": "n7"}]
    assert split.take([7], ["name", "id"]).to_pylist() == [{"name": "n7", "id": 7}]


def test_a_reopened_split_is_read_again(store, file):
    split = opened(store, file)
    split.take([5])
    data = bytearray(store.get(file.path))
    data[40] ^= 0xFF
    store.put(file.path, bytes(data))
    with pytest.raises(SplitCorruptedError):
        opened(store, file).take([5])
