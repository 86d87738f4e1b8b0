"""The contract of `ObjectStore`, checked on every kind of store."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from indextables.errors import ObjectNotFoundError, StorageError, UnsafePathError
from indextables.storage import KeyRange, ObjectStore, PutOutcome, require_put_if_absent

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


# HDFS allows no colon in a name; partition values are escaped anyway.
HDFS_KEYS = tuple(key for key in AWKWARD_KEYS if ":" not in key)


def awkward_keys(store: ObjectStore) -> tuple[str, ...]:
    return HDFS_KEYS if store.url.startswith("hdfs:") else AWKWARD_KEYS


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
    ranges = (lambda key: store.get_range(key, 0, 1), lambda key: store.get_ranges(key, [(0, 1), (2, 3)]))
    for read in (store.get, store.head, *ranges):
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


def test_ranges_come_in_the_order_asked_for(store):
    data = bytes(range(256)) * 4_000
    store.put("object", data)
    ranges = [(900_000, 900_010), (0, 3), (4, 4), (1, 2), (1, 2), (0, 700_000)]
    assert store.get_ranges("object", ranges) == [data[start:end] for start, end in ranges]
    assert store.get_ranges("object", [(7, 7)]) == [b""]
    assert store.get_ranges("object", []) == []


@pytest.mark.parametrize("ranges", [[(0, 2), (5, 11)], [(0, 2), (20, 30)], [(5, 4), (0, 1)]])
def test_one_range_beyond_the_object_refuses_all(store, ranges):
    store.put("object", b"0123456789")
    with pytest.raises(StorageError, match="object") as caught:
        store.get_ranges("object", ranges)
    assert type(caught.value) is StorageError


def test_put_if_absent_never_overwrites(store):
    assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
    assert store.put_if_absent("log/0", b"theirs") is PutOutcome.EXISTS
    assert store.get("log/0") == b"ours"


def test_put_if_unchanged_replaces_only_the_bytes_that_were_expected(store):
    assert store.put_if_unchanged("log/hint", b"new", b"old") is PutOutcome.CHANGED
    assert keys(store, "") == []
    store.put("log/hint", b"old")
    assert store.put_if_unchanged("log/hint", b"new", b"older") is PutOutcome.CHANGED
    assert store.get("log/hint") == b"old"
    assert store.put_if_unchanged("log/hint", b"new", b"old") is PutOutcome.WRITTEN
    assert store.put_if_unchanged("log/hint", b"newer", b"old") is PutOutcome.CHANGED
    assert store.get("log/hint") == b"new"
    assert keys(store, "") == ["log/hint"]


def test_of_racing_replacements_every_acknowledged_one_took_effect(store):
    """Each writer increments a counter; a lost update would make it too small."""
    writers, rounds = 8, 5
    store.put("counter", b"0")

    def increment(_: int) -> None:
        for _ in range(rounds):
            while True:
                found = store.get("counter")
                if store.put_if_unchanged("counter", b"%d" % (int(found) + 1), found) is PutOutcome.WRITTEN:
                    break

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(increment, range(writers)))
    assert store.get("counter") == b"%d" % (writers * rounds)


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
    for key in awkward_keys(store):
        store.put(key, key.encode())
    assert keys(store, "") == sorted(awkward_keys(store))
    for meta in store.list(""):
        assert store.get(meta.key) == meta.key.encode()
        assert meta.size == len(meta.key.encode())


@pytest.mark.parametrize("start_after", ["a", "a-b/x", "a.b", "a/", "a/x", "a/y", "a/y/z", "a0", "zz", "é"])
def test_listing_starts_after_a_key_whether_it_exists_or_not(store, start_after):
    for key in awkward_keys(store):
        store.put(key, b"")
    assert keys(store, "", start_after) == sorted(key for key in awkward_keys(store) if key > start_after)


def test_listing_of_a_folder_contains_its_folders_and_no_neighbours(store):
    for key in ("log/0", "log/state/0", "log2/0", "log-old/0", "lo", "log.json"):
        store.put(key, b"")
    assert keys(store, "log/") == ["log/0", "log/state/0"]
    assert keys(store, "log") == ["log/0", "log/state/0"]
    assert keys(store, "log/", "log/0") == ["log/state/0"]
    assert keys(store, "log/", "log/state/0") == []
    assert keys(store, "log/", "a") == ["log/0", "log/state/0"]
    assert keys(store, "log/", "z") == []


@pytest.mark.parametrize(
    ("first", "last"), [("a", "a"), ("a-b/", "a/x"), ("a/", "a/y/z"), ("a/y", "z"), ("", "~"), ("zz", "zzz")]
)
@pytest.mark.parametrize("start_after", [None, "a.b"])
def test_skipped_keys_are_not_listed(store, first, last, start_after):
    for key in awkward_keys(store):
        store.put(key, b"")
    listed = [meta.key for meta in store.list("", start_after=start_after, skip=KeyRange(first, last))]
    assert listed == sorted(
        key
        for key in awkward_keys(store)
        if (start_after is None or key > start_after) and not first <= key <= last
    )


def test_only_disks_and_hdfs_have_empty_folders_and_no_store_loses_a_full_one(store):
    for key in ("log/state-1/a", "log/state-2/a", "log/state-2/b", "log/other/a", "log/state-file"):
        store.put(key, b"x")
    store.delete_many(["log/state-1/a", "log/state-2/b", "log/other/a"])
    empty = store.remove_empty_folders("log/state-", dry_run=True)
    assert store.remove_empty_folders("log/state-") == empty
    assert empty == (("log/state-1",) if store.url.startswith(("file:", "hdfs:")) else ())
    assert store.remove_empty_folders("log/state-") == ()
    assert store.remove_empty_folders("missing/state-") == ()
    assert keys(store, "") == ["log/state-2/a", "log/state-file"]
    assert store.put_if_absent("log/state-1/a", b"again") is PutOutcome.WRITTEN


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
    [listed] = store.list("")
    head = store.head("object")
    assert (listed.key, listed.size) == (head.key, head.size)
    # A HEAD gives the time as an HTTP date, which has whole seconds.
    assert listed.last_modified_ms // 1000 == head.last_modified_ms // 1000


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
        lambda unsafe: store.put_if_unchanged(unsafe, b"", b""),
        lambda unsafe: store.delete_many([unsafe]),
        store.remove_empty_folders,
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
