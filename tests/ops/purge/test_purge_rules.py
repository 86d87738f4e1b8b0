"""The ten rules of purging: what is deleted, what stays, and what is never risked."""

import contextlib
import os

import pytest

from indextables import IndexTable, errors
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, state_manifest_key, version_key
from indextables.log.segment import list_log
from indextables.ops.purge.report import PurgeKind
from indextables.ops.write import commit_files
from indextables.table import load_snapshot
from support.faults import FaultStore, Moment
from support.purge_tables import (
    ALL_OF_THE_LOG,
    DAY,
    HOUR,
    UNCHECKED,
    ClockedStore,
    add_split,
    another,
    clocked_store,
    copy_of,
    doomed,
    everything_goes,
    is_clean,
    live_paths,
    newest,
    put_split,
    remove_split,
    run_purge,
    splits_in,
    table_of,
)
from support.row_tables import SCHEMA, split_files
from support.tables import FORMATS, checkpoint, context, log_keys, new_table, write_version


@pytest.fixture
def store() -> ClockedStore:
    return clocked_store()


# --- rule 1: the storage is listed before the log is read ---------------------------------------------


def test_rule_1_file_that_is_committed_between_the_listing_and_the_log_is_kept(store):
    table_of(store, "a.split")
    add = put_split(store, "slow.split")
    store.clock.advance(30 * DAY)
    purging = another(store)
    committed = []

    def commit_once_listed(_, operation, key):
        if not committed and operation == "get" and "list" in [call.operation for call in purging.calls]:
            committed.append(commit_files(newest(store), [add], []))

    run_purge(store, "100 days")  # no commit yet: the table is read in the same way
    calls = [call.operation for call in purging.calls]
    assert calls == []
    purging.before_call = commit_once_listed
    run_purge(purging)
    assert committed
    assert "slow.split" in splits_in(store)
    assert is_clean(store)


def test_rule_1_file_that_is_committed_after_the_plan_is_kept(store):
    table_of(store, "a.split")
    add = put_split(store, "slow.split")
    put_split(store, "orphan.split")
    store.clock.advance(30 * DAY)
    deleting = another(store)
    listings = []

    def commit_before_the_first_delete(_, operation, key):
        listings.append(operation == "list")
        # Planning lists the root once and the log twice; the next listing comes before the splits are deleted.
        if sum(listings) == planning_listings + 1 and "slow.split" not in live_paths(store):
            commit_files(newest(store), [add], [])

    counting = another(store)
    run_purge(counting, dry_run=True)
    planning_listings = counting.count("list")
    deleting.before_call = commit_before_the_first_delete
    report = run_purge(deleting)
    assert doomed(report) == {"slow.split", "orphan.split"}
    assert splits_in(store) == {"a.split", "slow.split"}
    assert report.num_deleted == 1
    assert is_clean(store)


# --- rule 2: what is protected ------------------------------------------------------------------------


def test_rule_2_split_that_an_older_version_shows_is_kept_whatever_its_age(store):
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    store.clock.advance(100 * DAY)
    report = run_purge(store)
    assert (report.num_files, report.num_kept_for_time_travel) == (0, 1)
    assert report.bytes_kept_for_time_travel > 0
    assert splits_in(store) == {"a.split", "b.split"}


def test_rule_2_removed_split_is_aged_by_its_removal_and_not_by_its_modification(store):
    table = table_of(store, "a.split", "b.split")
    store.clock.advance(365 * DAY)
    remove_split(table, "a.split")
    checkpoint(store)
    store.clock.advance(60)
    assert "a.split" not in doomed(run_purge(store, "7 days", ALL_OF_THE_LOG))
    store.clock.advance(8 * DAY)
    assert doomed(run_purge(store, "7 days", ALL_OF_THE_LOG)) == {"a.split"}
    assert splits_in(store) == {"b.split"}


def test_rule_2_removal_that_the_log_has_forgotten_still_counts(store):
    """The version with the remove was cleaned up, so the split counts as removed as late as possible."""
    table = table_of(store, "a.split", "b.split")
    store.clock.advance(365 * DAY)
    remove_split(table, "a.split")
    add_split(newest(store), "c.split")
    checkpoint(store)
    store.clock.advance(60)
    run_purge(store, "7 days", ALL_OF_THE_LOG)
    assert version_key(3) not in log_keys(store)
    store.clock.advance(6 * DAY)
    assert "a.split" not in doomed(run_purge(store, "7 days", ALL_OF_THE_LOG))
    store.clock.advance(2 * DAY)
    assert doomed(run_purge(store, "7 days", ALL_OF_THE_LOG)) == {"a.split"}


def test_rule_2_orphan_is_aged_by_its_modification(store):
    table_of(store, "a.split")
    put_split(store, "old.split")
    store.clock.advance(8 * DAY)
    put_split(store, "young.split")
    report = run_purge(store)
    assert doomed(report, PurgeKind.ORPHANED_SPLIT) == {"old.split"}
    assert splits_in(store) == {"a.split", "young.split"}


def test_rule_2_remove_without_a_time_stamp_keeps_its_split(store):
    table_of(store, "a.split")
    write_version(store, 2, more='{"remove":{"path":"a.split","dataChange":true}}\n')
    checkpoint(store)
    store.clock.advance(365 * DAY)
    assert "a.split" not in doomed(run_purge(store, "7 days", ALL_OF_THE_LOG))


def test_rule_2_split_that_was_added_again_is_live(store):
    table = remove_split(table_of(store, "a.split"), "a.split")
    add_split(table, "a.split")
    checkpoint(store)
    store.clock.advance(365 * DAY)
    assert doomed(run_purge(store, "7 days", ALL_OF_THE_LOG), PurgeKind.REMOVED_SPLIT) == set()
    assert splits_in(store) == {"a.split"}


@pytest.mark.parametrize("form", FORMATS)
def test_rule_2_checkpoints_in_every_format_protect_what_they_hold(store, form):
    table = table_of(store, *(f"{number}.split" for number in range(5)))
    checkpoint(store, form)
    remove_split(table, "1.split", "2.split")
    checkpoint(store, form)
    store.clock.advance(30 * DAY)
    settings = {
        "state.retention.versions": "5",
        "checkpoint.retention": "0",
        "purge.txLogRetentionHours": "0",
    }
    assert run_purge(store, "7 days", settings=settings).num_files > 0
    assert len(splits_in(store)) == 5
    assert set(load_snapshot(context(store), 5).entries["path"].to_pylist()) == splits_in(store)
    run_purge(store, "7 days", ALL_OF_THE_LOG)
    assert splits_in(store) == {"0.split", "3.split", "4.split"}
    assert is_clean(store)


# --- rule 3: one cutoff, one plan ---------------------------------------------------------------------


def test_rule_3_dry_run_lists_exactly_what_the_real_run_deletes(store):
    table = remove_split(table_of(store, "a.split", "b.split", "c.split"), "b.split")
    checkpoint(store)
    add_split(table, "d.split")
    checkpoint(store)
    put_split(store, "orphan.split")
    store.put("deletion_vector_orphan.bin", b"left over")
    store.clock.advance(30 * DAY)
    before = {meta.key for meta in store.list("")}
    dry = run_purge(store, "7 days", "1 day", dry_run=True)
    assert {meta.key for meta in store.list("")} == before
    assert dry.num_deleted == 0
    real = run_purge(store, "7 days", "1 day")
    shown = dry.files.drop_columns(["is_deleted", "error"])
    assert shown.equals(real.files.drop_columns(["is_deleted", "error"]))
    assert before - {meta.key for meta in store.list("")} == doomed(dry)
    assert (real.num_deleted, real.failures.num_rows) == (dry.num_files, 0)
    assert {kind for kind, number in real.counts.items() if number} == set(PurgeKind) - {PurgeKind.MANIFEST}


def test_rule_3_limit_on_the_number_of_files_leaves_the_rest_for_the_next_purge(store):
    table_of(store, "a.split")
    for number in range(5):
        put_split(store, f"orphan-{number}.split")
    store.clock.advance(30 * DAY)
    report = run_purge(store, settings={"purge.maxFilesToDelete": "3"})
    assert (report.num_deleted, report.num_left_over) == (3, 2)
    assert len(splits_in(store)) == 3


# --- rule 4: an unreadable file stops the purge -------------------------------------------------------


def log_files_of(store) -> list[str]:
    return [key for key in log_keys(store) if key != LAST_CHECKPOINT_KEY]


def test_rule_4_any_unreadable_file_of_the_log_stops_the_purge_with_nothing_deleted(store):
    table = remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store)
    add_split(table, "c.split")
    checkpoint(store, "json")
    remove_split(newest(store), "c.split")
    checkpoint(store, "parquet")
    put_split(store, "orphan.split")
    store.clock.advance(60 * DAY)
    assert run_purge(copy_of(store), "7 days", ALL_OF_THE_LOG).num_deleted > 3
    files = log_files_of(store)
    assert len(files) > 8
    for key in files:
        for damage in (lambda data: data[: len(data) // 2], lambda data: b"\x01\x02 nonsense"):
            damaged = copy_of(store)
            damaged._inner.put(key, damage(store.get(key)))
            before = {meta.key for meta in damaged.list("")}
            with pytest.raises(errors.IndexTablesError):
                run_purge(damaged, "7 days", ALL_OF_THE_LOG)
            assert {meta.key for meta in damaged.list("")} == before, key


def test_rule_4_damaged_hint_is_only_a_hint(store):
    table_of(store, "a.split")
    checkpoint(store)
    put_split(store, "orphan.split")
    store.put(LAST_CHECKPOINT_KEY, b"nonsense")
    store.clock.advance(30 * DAY)
    run_purge(store)
    assert splits_in(store) == {"a.split"}


def test_rule_4_gap_in_the_log_stops_the_purge(store):
    table_of(store, "a.split", "b.split", "c.split")
    put_split(store, "orphan.split")
    store.delete_many([version_key(2)])
    store.clock.advance(30 * DAY)
    with pytest.raises(errors.LogGapError, match="nothing was deleted"):
        run_purge(store)
    assert len(splits_in(store)) == 4


def test_rule_4_version_that_only_the_hint_names_stops_the_purge(store):
    table_of(store, "a.split", "b.split", "c.split")
    checkpoint(store)
    put_split(store, "orphan.split")
    store.delete_many([state_manifest_key(3), version_key(3)])
    store.clock.advance(30 * DAY)
    with pytest.raises(errors.LogGapError, match=r"checkpoint of version 3, but .* is 2"):
        run_purge(store)
    assert len(splits_in(store)) == 4


def test_rule_4_log_of_a_table_that_was_copied_stops_the_purge(store):
    """Its absolute paths point to the original table, so its own files would all look like orphans."""
    new_table(store)
    put_split(store, "a.split")
    write_version(
        store, 1, more='{"add":{"path":"s3://elsewhere/table/a.split","size":1,"partitionValues":{}}}\n'
    )
    store.clock.advance(30 * DAY)
    with pytest.raises(errors.UnsafePathError, match="nothing was deleted"):
        run_purge(store)
    assert splits_in(store) == {"a.split"}


def test_rule_4_table_that_needs_a_newer_release_is_not_purged(store):
    table_of(store, "a.split")
    put_split(store, "orphan.split")
    protocol = '{"protocol":{"minReaderVersion":4,"minWriterVersion":4,"writerFeatures":["laterFeature"]}}\n'
    write_version(store, 2, more=protocol)
    store.clock.advance(30 * DAY)
    with pytest.raises(errors.UnsupportedProtocolError):
        run_purge(store)
    assert "orphan.split" in splits_in(store)


# --- rule 5: floors -----------------------------------------------------------------------------------


def test_rule_5_retention_below_the_shortest_is_refused(store):
    table_of(store, "a.split")
    with pytest.raises(errors.InvalidOptionError, match="retentionCheckEnabled"):
        run_purge(store, "23 hours")
    assert run_purge(store, "23 hours", settings=UNCHECKED).num_files == 0


def test_rule_5_orphans_have_24_hours_even_if_the_shortest_retention_is_lowered(store):
    table_of(store, "a.split")
    put_split(store, "orphan.split")
    lowered = {"purge.minRetentionHours": "1"}
    store.clock.advance(23 * HOUR)
    assert run_purge(store, "1 hour", settings=lowered).num_files == 0
    store.clock.advance(2 * HOUR)
    assert doomed(run_purge(store, "1 hour", settings=lowered)) == {"orphan.split"}


def test_rule_5_manifests_have_an_hour(store):
    table_of(store, "a.split")
    checkpoint(store)
    store.put(f"{LOG_PREFIX}manifests/manifest-00ff.avro", b"a writer is about to refer to it")
    store.clock.advance(59 * 60)
    settings = {**UNCHECKED, "state.gc.minManifestAgeHours": "0"}
    assert run_purge(store, "0 hours", settings=settings).counts[PurgeKind.MANIFEST] == 0
    store.clock.advance(2 * 60)
    assert run_purge(store, "0 hours", settings=settings).counts[PurgeKind.MANIFEST] == 1


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("has_hint", [True, False])
def test_rule_5_with_no_retention_at_all_the_newest_version_and_state_survive(store, form, has_hint):
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store, form, 1)
    checkpoint(store, form)
    if not has_hint:
        store.delete_many([LAST_CHECKPOINT_KEY])
    store.clock.advance(2 * HOUR)
    run_purge(store, "0 hours", ALL_OF_THE_LOG, settings=UNCHECKED)
    listing = list_log(store)
    assert (list(listing.versions), list(listing.bases)) == ([3], [3])
    assert splits_in(store) == live_paths(store) == {"b.split"}
    assert is_clean(store)


def test_rule_5_state_below_the_oldest_version_that_is_kept_survives(store):
    table = table_of(store, "a.split", "b.split")
    checkpoint(store)
    store.clock.advance(10 * DAY)
    table = add_split(table, "c.split")
    table = add_split(table, "d.split")
    checkpoint(store)
    store.clock.advance(DAY)
    run_purge(store, "7 days", "2 days")
    listing = list_log(store)
    assert (list(listing.versions), list(listing.bases)) == ([2, 3, 4], [2, 4])
    for version in (2, 3, 4):
        assert load_snapshot(context(store), version).num_files == version


def test_rule_5_only_version_file_of_a_table_that_is_all_states_survives(store):
    """Some writers keep only version 0 and states."""
    table_of(store, "a.split", "b.split")
    for version in (1, 2):
        checkpoint(store, version=version)
    store.delete_many([version_key(1), version_key(2)])
    store.clock.advance(30 * DAY)
    run_purge(store, "7 days", ALL_OF_THE_LOG)
    listing = list_log(store)
    assert (list(listing.versions), list(listing.bases)) == ([0], [2])
    assert live_paths(store) == {"a.split", "b.split"}


# --- rule 6: the store's clock ------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-2, 2])
def test_rule_6_local_clock_that_is_far_off_stops_the_purge(store, hours):
    table_of(store, "a.split")
    put_split(store, "orphan.split")
    store.clock.advance(30 * DAY)

    class WrongClock(FaultStore):
        def now_ms(self):
            return super().now_ms() + hours * HOUR * 1000

    with pytest.raises(errors.ClockSkewError, match="120 minutes"):
        run_purge(WrongClock(store))
    assert "orphan.split" in splits_in(store)


def test_rule_6_ages_are_by_the_clock_of_the_store(store):
    table_of(store, "a.split")
    put_split(store, "orphan.split")
    store.clock.advance(7 * DAY - 60)

    class Ahead(FaultStore):
        def now_ms(self):
            return super().now_ms() + 120 * 1000

    assert run_purge(store).num_files == 0
    assert run_purge(Ahead(store)).num_files == 1


# --- rule 7: whole paths, below the root, with our suffix ---------------------------------------------


def test_rule_7_files_are_distinguished_by_their_full_paths(store):
    table_of(store, "date=1/a.split")
    put_split(store, "date=2/a.split")
    put_split(store, "a.split")
    store.clock.advance(30 * DAY)
    assert doomed(run_purge(store)) == {"date=2/a.split", "a.split"}
    assert splits_in(store) == {"date=1/a.split"}


def test_rule_7_only_splits_of_this_table_are_touched(store):
    table_of(store, "a.split")
    for key in ("data.parquet", "a.split.bak", ".split.crc", "_transaction_log/x.split", "inner/b.split"):
        store.put(key, b"not ours")
    store.put("inner/_transaction_log/00000000000000000000.json", b"the log of a table below")
    store.clock.advance(30 * DAY)
    before = {meta.key for meta in store.list("")}
    assert run_purge(store).num_files == 0
    assert {meta.key for meta in store.list("")} == before


def test_rule_7_absolute_paths_of_older_writers_protect_their_files(tmp_path):
    path = tmp_path / "table"
    IndexTable.create(str(path), SCHEMA)
    for name in ("slashes.split", "scheme.split", "orphan.split"):
        (path / name).write_bytes(b"x")
        os.utime(path / name, (1_600_000_000, 1_600_000_000))
    adds = [f"{path}/slashes.split", f"file:{path}/scheme.split"]
    lines = "".join(f'{{"add":{{"path":"{each}","size":1,"partitionValues":{{}}}}}}\n' for each in adds)
    (path / "_transaction_log" / "00000000000000000001.json").write_text(lines)
    report = IndexTable(str(path)).purge("7 days", dry_run=False)
    assert doomed(report) == {"orphan.split"}
    assert split_files(path) == ["scheme.split", "slashes.split"]


def test_rule_7_links_are_never_followed(tmp_path):
    path, outside = tmp_path / "table", tmp_path / "outside"
    IndexTable.create(str(path), SCHEMA)
    outside.mkdir()
    (outside / "precious.split").write_bytes(b"x")
    os.utime(outside / "precious.split", (1_600_000_000, 1_600_000_000))
    (path / "link").symlink_to(outside)
    (path / "link.split").symlink_to(outside / "precious.split")
    assert IndexTable(str(path)).purge("7 days", dry_run=False).num_files == 0
    assert (outside / "precious.split").exists()


# --- rule 8: the order of deletion --------------------------------------------------------------------


def test_rule_8_pointers_are_deleted_before_manifests_and_manifests_before_splits(store):
    everything_goes(store)
    order = [kind.value for kind in PurgeKind]
    report = run_purge(store, "7 days", ALL_OF_THE_LOG)
    kinds = report.files["kind"].to_pylist()
    assert kinds == sorted(kinds, key=order.index)
    assert set(kinds) == set(order)
    deleted = [call.key for call in store.calls if call.operation == "delete_many"][-4:]
    assert "/state-v" in deleted[0]
    assert deleted[1].startswith(f"{LOG_PREFIX}0")
    assert "/manifests/" in deleted[2]
    assert deleted[3].endswith(".split")


def test_rule_8_crash_at_any_point_leaves_orphans_but_no_dangling_reference(store):
    everything_goes(store)
    whole = copy_of(store)
    run_purge(whole, "7 days", ALL_OF_THE_LOG)
    for call in range(len(whole.calls)):
        for moment in Moment:
            crashed = copy_of(store)
            failing = another(crashed, fail_call=(call, moment))
            with contextlib.suppress(errors.IndexTablesError):
                run_purge(failing, "7 days", ALL_OF_THE_LOG, settings={"purge.deleteRetries": "0"})
            assert is_clean(crashed), (call, moment)
            run_purge(crashed, "7 days", ALL_OF_THE_LOG)
            assert splits_in(crashed) == splits_in(whole), (call, moment)
