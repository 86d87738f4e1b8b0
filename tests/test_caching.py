"""The most recently used values: which of them go, and that sizes are counted."""

from indextables._caching import LruCache


def test_the_least_recently_used_value_goes_first():
    recent = LruCache(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert [recent.get(key) for key in "abc"] == [1, None, 3]


def test_sizes_count_and_a_replaced_value_gives_its_size_back():
    recent = LruCache(10)
    recent.put("a", 1, size=6)
    recent.put("a", 2, size=2)
    recent.put("b", 3, size=8)
    assert (recent.get("a"), recent.get("b")) == (2, 3)
    recent.put("c", 4, size=1)
    assert [recent.get(key) for key in "abc"] == [None, 3, 4]


def test_a_value_larger_than_the_capacity_is_not_kept():
    recent = LruCache(10)
    recent.put("a", 1, size=11)
    assert recent.get("a") is None
    recent.put("b", 2, size=10)
    assert recent.get("b") == 2
