"""The contract of `ObjectStore`, checked on every kind of store."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from indextables.errors import ObjectNotFoundError, StorageError, UnsafePathError
from indextables.storage import ObjectStore, PutOutcome, require_put_if_absent

AWKWARD_KEYS = (
    "%2e%2e/x",
    "'q\"",
    "+plus",
    ".hidden",
    "B B/x",
    "_x",
    "a&b",
    "a-b/x",
    "a.b",
    "a/x",
    "a/y/z",
    "a0",
    "a:b",
    "a=%2F/x",
    "a=..",
    "h#sh",
    "q?m",
    "{x}",
    "~t",
    "é/ü.txt",
    "😀",
)


def keys(store: ObjectStore, prefix: str, start_after: str | None = None) -> list[str]:
    return [meta.key for meta in store.list(prefix, start_after=start_after)]


def test_object_reads_back_as_it_was_put(store):
    store.put("folder/object", b"first")
    store.put("folder/object", b"the second, longer")
    assert store.get("folder/object") == b"the second, longer"
    assert store.head("folder/object").size == len(b"the second, longer")


def test_empty_object_is_an_object(store):
    assert store.put_if_absent("empty", b"") is PutOutcome.WRITTEN
    assert store.get("empty") == b""
    assert store.head("empty").size == 0
    assert store.put_if_absent("empty", b"x") is PutOutcome.EXISTS


def test_large_object_reads_back(store):
    data = bytes(range(256)) * 40_000
    store.put("large", data)
    assert store.get("large") == data


def test_absent_object_is_not_found(store):
    for read in (store.get, store.head, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(ObjectNotFoundError, match="nothing/here"):
            read("nothing/here")


def test_folder_is_not_an_object(store):
    store.put("folder/object", b"x")
    for read in (store.get, store.head):
        with pytest.raises(ObjectNotFoundError):
            read("folder")


def test_range_gives_exactly_the_bytes_asked_for(store):
    store.put("object", b"0123456789")
    assert store.get_range("object", 0, 10) == b"0123456789"
    assert store.get_range("object", 3, 5) == b"34"
    assert store.get_range("object", 4, 4) == b""


@pytest.mark.parametrize(("start", "end"), [(5, 11), (10, 12), (20, 30), (-1, 3), (5, 4)])
def test_range_beyond_the_object_is_refused_and_not_cut(store, start, end):
    store.put("object", b"0123456789")
    with pytest.raises(StorageError, match="object") as caught:
        store.get_range("object", start, end)
    assert type(caught.value) is StorageError


def test_put_if_absent_never_overwrites(store):
    assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
    assert store.put_if_absent("log/0", b"theirs") is PutOutcome.EXISTS
    assert store.get("log/0") == b"ours"


def test_put_if_absent_writes_again_after_a_delete(store):
    store.put_if_absent("log/0", b"one")
    store.delete_many(["log/0"])
    assert store.put_if_absent("log/0", b"two") is PutOutcome.WRITTEN
    assert store.get("log/0") == b"two"


def test_sixteen_racing_writers_have_one_winner_in_every_round(store):
    writers, rounds = 16, 12
    barrier = threading.Barrier(writers)

    def race(writer: int) -> list[PutOutcome]:
        outcomes = []
        for version in range(rounds):
            barrier.wait()
            outcomes.append(store.put_if_absent(f"log/{version}", f"writer {writer}".encode()))
        return outcomes

    with ThreadPoolExecutor(writers) as pool:
        outcomes = list(pool.map(race, range(writers)))
    for version in range(rounds):
        winners = [writer for writer in range(writers) if outcomes[writer][version] is PutOutcome.WRITTEN]
        assert len(winners) == 1
        assert store.get(f"log/{version}") == f"writer {winners[0]}".encode()


def test_listing_is_in_string_order_of_whole_keys(store):
    for key in AWKWARD_KEYS:
        store.put(key, key.encode())
    assert keys(store, "") == sorted(AWKWARD_KEYS)
    for meta in store.list(""):
        assert store.get(meta.key) == meta.key.encode()
        assert meta.size == len(meta.key.encode())


@pytest.mark.parametrize("start_after", ["a", "a-b/x", "a.b", "a/", "a/x", "a/y", "a/y/z", "a0", "zz", "é"])
def test_listing_starts_after_a_key_whether_it_exists_or_not(store, start_after):
    for key in AWKWARD_KEYS:
        store.put(key, b"")
    assert keys(store, "", start_after) == sorted(key for key in AWKWARD_KEYS if key > start_after)


def test_listing_of_a_folder_contains_its_folders_and_no_neighbours(store):
    for key in ("log/0", "log/state/0", "log2/0", "log-old/0", "lo", "log.json"):
        store.put(key, b"")
    assert keys(store, "log/") == ["log/0", "log/state/0"]
    assert keys(store, "log") == ["log/0", "log/state/0"]
    assert keys(store, "log/", "log/0") == ["log/state/0"]
    assert keys(store, "log/", "log/state/0") == []
    assert keys(store, "log/", "a") == ["log/0", "log/state/0"]
    assert keys(store, "log/", "z") == []


def test_absent_folder_lists_nothing(store):
    assert keys(store, "") == []
    assert keys(store, "nothing/here/") == []


def test_listing_can_be_left_early_and_begun_again(store):
    for number in range(5):
        store.put(f"log/{number}", b"")
    listing = store.list("log/")
    assert next(listing).key == "log/0"
    listing.close()
    assert keys(store, "log/")[0] == "log/0"


def test_listing_gives_the_same_times_as_head(store):
    store.put("object", b"x")
    [meta] = store.list("")
    assert meta == store.head("object")


def test_delete_many_takes_absent_keys_for_deleted(store):
    for number in range(20):
        store.put(f"data/{number}", b"")
    store.delete_many(iter(["absent", *(f"data/{number}" for number in range(19)), "also/absent"]))
    assert keys(store, "") == ["data/19"]
    store.delete_many([])
    store.delete_many(["data/19", "data/19"])
    assert keys(store, "") == []


def test_delete_of_a_folder_leaves_what_is_in_it(store):
    store.put("folder/object", b"x")
    store.delete_many(["folder"])
    assert keys(store, "") == ["folder/object"]


@pytest.mark.parametrize(
    "key",
    ["", "/absolute", "a//b", "a/", "../x", "a/../../x", "./x", "a/.", "a\0b", "a\\..\\b", "a\nb", "\ud800"],
)
def test_unsafe_key_reaches_no_store(store, key):
    operations = (
        store.get,
        store.head,
        lambda unsafe: store.get_range(unsafe, 0, 1),
        lambda unsafe: store.put(unsafe, b""),
        lambda unsafe: store.put_if_absent(unsafe, b""),
        lambda unsafe: store.delete_many([unsafe]),
    )
    for operation in operations:
        with pytest.raises(UnsafePathError):
            operation(key)
    assert keys(store, "") == []


@pytest.mark.parametrize("prefix", ["../", "/", "a/../../", "a//"])
def test_unsafe_prefix_is_not_listed(store, prefix):
    with pytest.raises(UnsafePathError):
        list(store.list(prefix))


def test_store_clock_is_that_of_its_objects(store):
    before = store.now_ms()
    store.put("object", b"x")
    after = store.now_ms()
    # Some stores count whole seconds.
    assert before - 1000 <= store.head("object").last_modified_ms <= after + 1000
    assert abs(before - time.time() * 1000) < 60_000
    assert keys(store, "") == ["object"]


def test_put_if_absent_probe_passes_and_leaves_nothing(store):
    require_put_if_absent(store)
    assert keys(store, "") == []


def test_representation_names_the_root(store):
    assert store.url in repr(store)
