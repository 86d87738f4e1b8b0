"""The caches of the log: bounded, expiring after the write, and never stale."""

import shutil
import uuid
from collections import Counter
from pathlib import Path

import pytest

from indextables import IndexTable
from indextables.log.paths import LAST_CHECKPOINT_KEY, state_manifest_key, version_key
from indextables.storage import ObjectStore, open_store
from indextables.table import load_snapshot
from indextables.table.context import ExpiringCache, process_cache
from support.clock import VirtualClock
from support.faults import FaultStore
from support.tables import (
    PARTITION_BY,
    PLAIN,
    SCHEMA,
    add,
    after,
    append,
    checkpoint,
    context,
    do,
    live,
    memory_store,
    new_table,
    options,
    paths,
)

CACHED = {"transaction.cache.enabled": "true"}


@pytest.fixture(autouse=True)
def empty_caches():
    process_cache().invalidate()
    yield
    process_cache().invalidate()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock) -> ObjectStore:
    return memory_store(clock)


def reads(store: FaultStore) -> Counter:
    return Counter(call.key for call in store.calls if call.operation == "get")


# --- the cache itself ---------------------------------------------------------------------------------


def test_time_to_live_counts_from_the_write_and_not_from_the_last_access(store, clock):
    cache = ExpiringCache(10)
    cache.put(store, "key", "value")
    for _ in range(9):
        clock.advance(10)
        assert cache.get(store, "key", 100) == "value"
    clock.advance(10)
    assert cache.get(store, "key", 100) is None
    assert len(cache) == 0


def test_writing_again_restarts_the_time_to_live(store, clock):
    cache = ExpiringCache(10)
    cache.put(store, "key", "old")
    clock.advance(90)
    cache.put(store, "key", "new")
    clock.advance(90)
    assert cache.get(store, "key", 100) == "new"


def test_least_recently_used_value_is_evicted_first(store):
    cache = ExpiringCache(2)
    cache.put(store, "a", 1)
    cache.put(store, "b", 2)
    cache.get(store, "a", 100)
    cache.put(store, "c", 3)
    assert [cache.get(store, key, 100) for key in "abc"] == [1, None, 3]


def test_cache_is_bounded_by_bytes(store):
    cache = ExpiringCache(100, capacity_bytes=10)
    for number in range(20):
        cache.put(store, number, number, size_bytes=3)
    assert len(cache) == 3
    cache.put(store, 19, "replaced", size_bytes=9)
    assert cache.get(store, 19, 100) == "replaced"
    assert len(cache) == 1
    cache.put(store, "too large", 0, size_bytes=11)
    assert len(cache) == 0


def test_capacity_of_zero_keeps_nothing(store):
    cache = ExpiringCache(0)
    cache.put(store, "key", "value")
    assert cache.get(store, "key", 100) is None


def test_dropping_one_table_leaves_the_others(store):
    other = memory_store()
    cache = ExpiringCache(10)
    cache.put(store, "key", 1)
    cache.put(other, "key", 2)
    assert cache.drop(store.identity) == 1
    assert (cache.get(store, "key", 100), cache.get(other, "key", 100)) == (None, 2)
    assert cache.drop() == 1


# --- tables behind caches -----------------------------------------------------------------------------


def test_second_opening_reads_nothing_but_the_hint(store):
    after(new_table(store), append("a"), append("b"))
    checkpoint(store)
    do(load_snapshot(context(store)), append("c"))
    counting = FaultStore(store)
    first = live(load_snapshot(context(counting, CACHED)))
    assert reads(counting)[state_manifest_key(2)] == 1
    counting.calls.clear()
    assert live(load_snapshot(context(counting, CACHED))) == first
    assert set(reads(counting)) == {LAST_CHECKPOINT_KEY}


def test_expired_values_are_read_again(store, clock):
    after(new_table(store), append("a"))
    counting = FaultStore(store)
    settings = CACHED | {"transaction.cache.expirationSeconds": "60"}
    live(load_snapshot(context(counting, settings)))
    clock.advance(59)
    counting.calls.clear()
    live(load_snapshot(context(counting, settings)))
    assert version_key(1) not in reads(counting)
    clock.advance(1)
    live(load_snapshot(context(counting, settings)))
    assert reads(counting)[version_key(1)] == 1


@pytest.mark.parametrize(
    "settings",
    [{"transaction.cache.enabled": "false"}, CACHED | {"transaction.cache.expirationSeconds": "0"}],
)
def test_disabled_caches_keep_nothing(store, settings):
    after(new_table(store), append("a"))
    counting = FaultStore(store)
    for times in (1, 2, 3):
        live(load_snapshot(context(counting, settings)))
        assert reads(counting)[version_key(1)] == times


def test_disabled_caches_are_not_written(store):
    after(new_table(store), append("a"), append("b"))
    live(load_snapshot(context(store)))
    assert process_cache().invalidate() == 0


def test_commits_of_other_writers_are_seen_through_the_caches(store):
    do(new_table(store), append("a"))
    assert paths(load_snapshot(context(store, CACHED))) == {"a"}
    do(load_snapshot(context(store)), append("b"))
    assert paths(load_snapshot(context(store, CACHED))) == {"a", "b"}


def test_own_commits_are_seen_through_the_caches(store):
    table = after(new_table(store, CACHED), append("a"))
    assert paths(table) == {"a"}
    table = after(table, append("b"))
    assert paths(table) == paths(load_snapshot(context(store, CACHED))) == {"a", "b"}
    checkpoint(store)
    assert paths(load_snapshot(context(store, CACHED))) == {"a", "b"}


def test_own_commit_is_not_read_back(store):
    counting = FaultStore(store)
    table = after(new_table(counting, CACHED), append("a"), append("b"))
    assert paths(table) == {"a", "b"}
    assert version_key(2) not in reads(counting)


def test_invalidating_drops_one_table(store):
    other = memory_store()
    for each in (store, other):
        live(after(new_table(each, CACHED), append("a")))
    assert process_cache().invalidate(store) > 0
    assert process_cache().invalidate(store) == 0
    assert process_cache().invalidate(other) > 0


def test_spellings_of_one_path_share_their_values(tmp_path: Path):
    path = tmp_path / "table"
    spellings = [str(path), f"file:{path}", f"file://{path}", f"{path}/", f"{tmp_path}/x/../table"]
    opened = options({**PLAIN, **CACHED})
    IndexTable.create(str(path), SCHEMA, partition_by=PARTITION_BY)
    for number, spelling in enumerate(spellings):
        table = IndexTable(spelling, options=opened)
        assert table.num_files == number
        table.commit(adds=[add(f"{number}.split")])
        # Every spelling sees commits made through the other spellings at once.
        assert [IndexTable(other, options=opened).num_files for other in spellings] == [number + 1] * len(
            spellings
        )
    assert len({open_store(spelling).identity for spelling in spellings}) == 1
    assert process_cache().invalidate(open_store(spellings[1])) > 0
    assert process_cache().invalidate() == 0


def test_different_credentials_share_nothing(s3_server):
    """A caller without access to a table must not read it from the cache of another caller."""
    root = f"s3://{s3_server.make_bucket()}/{uuid.uuid4().hex}"
    ours = open_store(root, storage_options=s3_server.storage_options)
    theirs = open_store(root, storage_options=s3_server.storage_options | {"aws_access_key_id": "AKIAOTHER"})
    assert ours.identity != theirs.identity
    live(after(new_table(ours, CACHED), append("a")))
    counting = FaultStore(theirs)
    live(load_snapshot(context(counting, CACHED)))
    assert {version_key(0), version_key(1)} <= set(reads(counting))


def test_table_created_again_in_the_same_process_sees_no_stale_values(tmp_path: Path):
    path, opened = str(tmp_path / "table"), options({**PLAIN, **CACHED})
    ids = set()
    for _ in range(20):
        table = IndexTable.create(path, SCHEMA, partition_by=PARTITION_BY, options=opened)
        assert (table.version, table.num_files) == (0, 0)
        ids.add(table.metadata.id)
        table.commit(adds=[add("a")])
        shutil.rmtree(path)
    assert len(ids) == 20
