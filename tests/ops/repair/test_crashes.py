"""A repair in place with every call failing: either log is in force, and nothing is lost."""

import contextlib
import re

import pytest

from indextables.errors import IndexTablesError
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, version_key
from indextables.ops.fsck.operation import fsck
from indextables.ops.repair.operation import repair_in_place, repair_to
from indextables.ops.runner import LocalRunner
from indextables.ops.write import commit_files
from indextables.storage import ObjectStore
from support.faults import FaultStore, Moment
from support.purge_tables import add_split, put_split, remove_split, table_of
from support.repair_tables import contents, filled, newest
from support.tables import checkpoint, context, log_keys, memory_store, paths


def table_with_a_gap() -> ObjectStore:
    store = memory_store()
    table = table_of(store, "a.split", "b.split")
    checkpoint(store)
    table = remove_split(add_split(table, "c.split"), "a.split")
    add_split(table, "d.split", number=1)
    store.delete_many([version_key(3)])
    return store


def table_with_a_damaged_hint() -> ObjectStore:
    store = memory_store()
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store)
    store.put(LAST_CHECKPOINT_KEY, b"{")
    return store


def table_with_a_missing_split() -> ObjectStore:
    store = memory_store()
    table_of(store, "a.split", "b.split")
    checkpoint(store)
    store.delete_many(["a.split"])
    return store


def table_without_a_log() -> ObjectStore:
    store = memory_store()
    put_split(store, "a.split")
    put_split(store, "b.split", 1)
    return store


def table_that_cannot_be_opened() -> ObjectStore:
    store = table_with_a_gap()
    store.delete_many([key for key in log_keys(store) if "/manifests/" in key])
    store.delete_many([version_key(0)])
    return store


TABLES = [
    table_with_a_gap,
    table_with_a_damaged_hint,
    table_with_a_missing_split,
    table_without_a_log,
    table_that_cannot_be_opened,
]


def observe(store: ObjectStore):
    """The rows that a reader sees, or None if the table does not open."""
    try:
        snapshot = newest(store)
        return snapshot.version, snapshot.gap is None, paths(snapshot)
    except IndexTablesError as error:
        return type(error).__name__


def assert_nothing_lost(before: dict[str, bytes], store: ObjectStore) -> None:
    """Every byte of the old log exists in place or in the backup folder, and the splits are unchanged."""
    now = contents(store)
    aside = {(LOG_PREFIX + key.partition("/")[2], data) for key, data in now.items() if ".damaged-" in key}
    for key, data in before.items():
        assert now.get(key) == data or (key, data) in aside, key


def failures(run, store: ObjectStore) -> list[tuple[int, Moment]]:
    faulty = FaultStore(filled(contents(store)))
    run(faulty)
    is_write = [call.operation not in ("get", "get_range", "head", "list", "now_ms") for call in faulty.calls]
    # A read has no effect, so it can only fail before it.
    return [
        (index, moment)
        for index in range(len(faulty.calls))
        for moment in (Moment if any(is_write[: index + 1]) else [Moment.BEFORE])
    ]


@pytest.mark.parametrize("prepare", TABLES, ids=lambda prepare: prepare.__name__)
def test_swap_with_any_call_failing_leaves_the_old_log_or_the_new_one(prepare):
    start = prepare()
    before, old = contents(start), observe(start)
    done = filled(before)
    swap = lambda store: repair_in_place(context(store), LocalRunner())  # noqa: E731
    swap(done)
    new = observe(done)
    assert new != old
    finished = set()
    for call, moment in failures(swap, start):
        store = filled(before)
        try:
            swap(FaultStore(store, fail_call=(call, moment)))
            expected = [new]
        except IndexTablesError:
            expected = [old, new]
        seen = observe(store)
        # Between the new version and its state, readers may reach the new table through old checkpoints.
        assert seen in expected, (call, moment)
        assert_nothing_lost(before, store)
        names = (re.sub(r"damaged-[^/]+|[0-9a-f]{32}", "<id>", key) for key in contents(store))
        shape = tuple(sorted(names))
        if shape not in finished:
            finished.add(shape)
            assert_can_be_finished(store, before, new[2])


def assert_can_be_finished(store: ObjectStore, before: dict[str, bytes], files: set[str]) -> None:
    """The next repair yields the same table, which is clean and accepts commits."""
    repair_in_place(context(store), LocalRunner())
    assert_nothing_lost(before, store)
    assert paths(newest(store)) == files
    assert fsck(context(store), LocalRunner(), deep=False).is_clean
    commit_files(newest(store), [put_split(store, "next.split")], [])
    assert paths(newest(store)) == {*files, "next.split"}


def test_copy_with_any_call_at_the_target_failing_can_be_repeated():
    start = table_with_a_gap()
    before = contents(start)

    def copy(target: ObjectStore) -> None:
        repair_to(context(start), context(target), LocalRunner())

    for call, moment in failures(copy, memory_store()):
        target = memory_store()
        with contextlib.suppress(IndexTablesError):
            copy(FaultStore(target, fail_call=(call, moment)))
        assert contents(start) == before
        if log_keys(target):
            # REPAIR does not continue a partly written log: it requires a location without a log.
            target.delete_many(log_keys(target))
        copy(target)
        assert paths(newest(target)) == {"b.split", "c.split", "d.split"}
        assert fsck(context(target), LocalRunner(), deep=False).is_clean
