"""Garbage collection with every call failing before and after its effect: referenced files stay."""

import contextlib

from indextables.errors import IndexTablesError
from indextables.log.segment import list_log
from indextables.ops.checkpoint.operation import compact
from indextables.ops.fsck.log import reachable_versions
from indextables.ops.purge.garbage import collect_garbage
from indextables.storage import RetryingStore
from indextables.table import load_snapshot
from support.faults import Moment
from support.purge_tables import (
    DAY,
    ClockedStore,
    another,
    clocked_store,
    copy_of,
    is_clean,
    newest,
    table_of,
)
from support.tables import checkpoint, context, live, log_keys


def table_with_orphans() -> ClockedStore:
    """A table from which two states were cleaned up, but not their manifests."""
    store = clocked_store()
    table_of(store, "a.split", "b.split")
    checkpoint(store)
    compact(newest(store))
    doomed = min(list_log(store).bases.items())[1]
    checkpoint(store, "json")
    compact(newest(store))
    store.delete_many([base.meta.key for base in doomed])
    store.clock.advance(2 * DAY)
    return store


def versions(store: ClockedStore) -> dict[int, dict[str, int]]:
    kept = sorted(reachable_versions(list_log(store)))
    return {version: live(load_snapshot(context(store), version)) for version in kept}


def test_collection_with_any_call_failing_deletes_orphans_only():
    start = table_with_orphans()
    expected = versions(start)
    undisturbed = another(copy_of(start))
    orphans = set(collect_garbage(load_snapshot(context(undisturbed)), dry_run=False).paths)
    assert orphans
    for call in range(len(undisturbed.calls)):
        for moment in Moment:
            table = copy_of(start)
            before = set(log_keys(table))
            with contextlib.suppress(IndexTablesError):
                collect_garbage(
                    load_snapshot(context(another(table, fail_call=(call, moment)))), dry_run=False
                )
            assert before - set(log_keys(table)) <= orphans, (call, moment)
            assert versions(table) == expected, (call, moment)
            assert is_clean(table)


def test_collection_succeeds_when_any_single_call_fails_and_is_repeated():
    start = table_with_orphans()
    undisturbed = another(copy_of(start))
    orphans = set(collect_garbage(load_snapshot(context(undisturbed)), dry_run=False).paths)
    for call in range(len(undisturbed.calls)):
        for moment in Moment:
            table = copy_of(start)
            before = set(log_keys(table))
            faulty = RetryingStore(another(table, fail_call=(call, moment)))
            collect_garbage(load_snapshot(context(faulty)), dry_run=False)
            assert before - set(log_keys(table)) == orphans, (call, moment)
