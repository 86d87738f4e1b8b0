"""The LRU cache (which values are evicted, how sizes count), and the list of process-wide caches."""

import importlib
import pkgutil

import pytest

import indextables
from indextables._caching import (
    LruCache,
    clear_process_caches,
    process_caches,
    register_cache,
    shared_cache,
    shared_memo,
)


def test_the_least_recently_used_value_goes_first():
    cache = LruCache(max_entries=2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_sizes_count_and_a_replaced_value_gives_its_size_back():
    cache = LruCache(max_bytes=10)
    cache.put("a", 1, size_bytes=6)
    cache.put("a", 2, size_bytes=2)
    cache.put("b", 3, size_bytes=8)
    assert (cache.get("a"), cache.get("b")) == (2, 3)
    cache.put("c", 4, size_bytes=1)
    assert [cache.get(key) for key in "abc"] == [None, 3, 4]


def test_a_value_larger_than_the_bound_is_not_kept():
    cache = LruCache(max_bytes=10)
    cache.put("a", 1, size_bytes=11)
    assert cache.get("a") is None
    cache.put("b", 2, size_bytes=10)
    assert cache.get("b") == 2


def test_both_bounds_hold_at_once():
    cache = LruCache(max_entries=2, max_bytes=10)
    cache.put("a", 1, size_bytes=1)
    cache.put("b", 2, size_bytes=1)
    cache.put("c", 3, size_bytes=1)
    assert [cache.get(key) for key in "abc"] == [None, 2, 3]
    cache.put("d", 4, size_bytes=10)
    assert [cache.get(key) for key in "bcd"] == [None, None, 4]


def test_a_cache_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="needs max_entries or max_bytes"):
        LruCache()


def test_discarded_values_give_their_size_back():
    cache = LruCache(max_bytes=10)
    for key in "abc":
        cache.put(key, key, size_bytes=3)
    cache.discard("a")
    cache.discard("missing")
    assert cache.discard_where(lambda key: key == "b") == 1
    assert len(cache) == 1
    cache.put("d", "d", size_bytes=7)
    assert [cache.get(key) for key in "abcd"] == [None, None, "c", "d"]


def test_a_cleared_cache_is_empty_and_has_all_its_room():
    cache = LruCache(max_bytes=10)
    cache.put("a", 1, size_bytes=10)
    cache.clear()
    assert (len(cache), cache.get("a")) == (0, None)
    cache.put("b", 2, size_bytes=10)
    assert cache.get("b") == 2


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr("indextables._caching._CACHES", {})


@pytest.mark.usefixtures("registry")
def test_all_kinds_of_process_wide_caches_are_listed_with_their_bounds_and_cleared():
    values = shared_cache("values", "some values", max_entries=3, max_bytes=100)
    calls = []

    @shared_memo("doubled", "doubled numbers", max_entries=4)
    def doubled(number):
        calls.append(number)
        return 2 * number

    other = {"key": "value"}
    register_cache("other", "other values", "1 entry", other.clear)
    values.put("a", 1)
    assert (doubled(2), doubled(2), calls) == (4, 4, [2])

    listed = {cache.name: (cache.contents, cache.bound) for cache in process_caches()}
    assert listed == {
        "values": ("some values", "3 entries, 100 bytes"),
        "doubled": ("doubled numbers", "4 entries"),
        "other": ("other values", "1 entry"),
    }
    clear_process_caches()
    assert (values.get("a"), other) == (None, {})
    assert (doubled(2), calls) == (4, [2, 2])


def test_every_module_declares_its_caches_under_its_own_name():
    modules = [
        module.name
        for module in pkgutil.walk_packages(indextables.__path__, "indextables.")
        if not module.name.endswith("__main__")
    ]
    for module in modules:
        importlib.import_module(module)
    listed = {cache.name.rpartition(".")[0] for cache in process_caches()}
    assert {"ops.read", "ops.search", "split.rows_reader", "table.context"} <= listed
    assert {f"indextables.{name}" for name in listed} <= set(modules)
