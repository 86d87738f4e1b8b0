"""Cleanup of the log: what it deletes, what it never deletes, and what it verifies first."""

import logging
import pickle
import re

import pytest

from indextables.errors import (
    CleanupFailedError,
    LogCorruptedError,
    TransientStorageError,
    VersionNotFoundError,
)
from indextables.log.paths import (
    LAST_CHECKPOINT_KEY,
    StateManifestFile,
    VersionFile,
    parse_log_path,
    state_manifest_key,
    version_key,
)
from indextables.log.segment import Base, BaseFormat, LogListing, list_log
from indextables.ops.after_commit import after_merge, wait_for_background
from indextables.ops.checkpoint.cleanup import MS_PER_HOUR, CleanupRules, clean_up, plan_cleanup
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.write import commit_files
from indextables.storage import ObjectMeta, ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.intent import Overwrite
from support.clock import VirtualClock
from support.purge_tables import ClockedStore, clocked_store
from support.tables import (
    FORMATS,
    AgeingStore,
    add,
    append,
    checkpoint,
    context,
    do,
    live,
    log_keys,
    memory_store,
    merge,
    new_table,
    older_table,
)

HOUR = 3600
NOW_MS = 1_000 * MS_PER_HOUR

ALL_AT_ONCE = {
    "purge.txLogRetentionHours": "0",
    "checkpoint.retention": "0",
    "state.retention.versions": "0",
    "state.retention.hours": "0",
}


# --- the plan -----------------------------------------------------------------------------------------


def listing(versions: dict[int, float], bases: dict[int, float]) -> LogListing:
    """A listing of versions and states, given as number to age in hours."""

    def meta(key: str, age: float) -> ObjectMeta:
        return ObjectMeta(key, 1, int(NOW_MS - age * MS_PER_HOUR))

    return LogListing(
        {version: meta(version_key(version), age) for version, age in versions.items()},
        {
            version: (Base(version, BaseFormat.AVRO_STATE, meta(state_manifest_key(version), age)),)
            for version, age in bases.items()
        },
    )


def plan(found: LogListing, checkpoint_version: int, **rules: float) -> tuple[list[int], list[int]]:
    """The versions and states that the plan deletes."""
    chosen = {
        "version_retention_hours": 10,
        "versions_kept": 0,
        "checkpoint_retention_hours": 10,
        "checkpoints_kept": 0,
        **rules,
    }
    planned = plan_cleanup(found, checkpoint_version, NOW_MS, CleanupRules(**chosen))
    parsed = [parse_log_path(key) for key in planned.keys]
    versions = [path.version for path in parsed if isinstance(path, VersionFile)]
    return versions, [path.version for path in parsed if isinstance(path, StateManifestFile)]


OLD = dict.fromkeys(range(11), 100.0)


def test_old_versions_before_a_checkpoint_are_deleted_including_version_0():
    assert plan(listing(OLD, {10: 0}), 10) == (list(range(10)), [])


def test_version_of_the_checkpoint_and_later_ones_stay():
    assert plan(listing(OLD | {11: 100, 12: 100}, {10: 0}), 10) == (list(range(10)), [])


def test_nothing_is_deleted_without_a_checkpoint_that_covers_it():
    assert plan(listing(OLD, {}), 10) == ([], [])


def test_young_versions_stay_and_all_after_them():
    """File times of a copied table may be in any order. The cleanup must not open a gap."""
    ages = OLD | {4: 1.0}
    assert plan(listing(ages, {3: 0, 10: 0}), 10) == ([0, 1, 2], [])
    assert plan(listing(ages, {10: 0}), 10) == ([], [])


def test_versions_are_deleted_only_up_to_a_checkpoint_that_reaches_the_retained_ones():
    """Versions 0 to 6 are old enough, but readers need 5 and 6 to reach 7."""
    ages = OLD | {7: 1.0, 8: 1.0, 9: 1.0, 10: 1.0}
    assert plan(listing(ages, {4: 100, 10: 0}), 10) == ([0, 1, 2, 3], [])


def test_newest_versions_stay_whatever_their_age():
    assert plan(listing(OLD, {4: 0, 10: 0}), 10, versions_kept=5) == ([0, 1, 2, 3], [])
    assert plan(listing(OLD, {4: 0, 10: 0}), 10, versions_kept=30) == ([], [])


def test_exactly_as_old_as_the_retention_is_old_enough():
    ages = dict.fromkeys(range(11), 10.0)
    assert plan(listing(ages, {10: 0}), 10)[0] == list(range(10))
    ages = dict.fromkeys(range(11), 9.99)
    assert plan(listing(ages, {10: 0}), 10)[0] == []


def test_older_checkpoints_are_deleted_after_their_retention():
    bases = {2: 50.0, 4: 50.0, 6: 50.0, 8: 1.0, 10: 0.0}
    assert plan(listing({10: 0, 11: 0}, bases), 10) == ([], [6, 4, 2])


def test_some_older_checkpoints_are_kept_whatever_their_age():
    bases = dict.fromkeys((2, 4, 6, 8, 10), 50.0)
    assert plan(listing({10: 0}, bases), 10, checkpoints_kept=2) == ([], [4, 2])


def test_checkpoint_that_retained_versions_start_from_stays():
    ages = {version: 100.0 if version < 6 else 1.0 for version in range(11)}
    assert plan(listing(ages, dict.fromkeys((2, 4, 10), 100.0)), 10) == ([0, 1, 2, 3], [2])


def test_checkpoints_newer_than_the_one_that_was_read_back_stay():
    assert plan(listing(OLD, dict.fromkeys((8, 10), 100.0)), 8) == (list(range(8)), [])


def test_table_of_states_alone_loses_old_states_only():
    bases = dict.fromkeys(range(1, 16), 100.0)
    assert plan(listing({}, bases), 15, checkpoints_kept=2) == ([], list(range(12, 0, -1)))


# --- the cleanup --------------------------------------------------------------------------------------


@pytest.fixture
def store() -> AgeingStore:
    """Six versions, each of which adds a file, one day later."""
    clock = VirtualClock()
    store = AgeingStore(memory_store(clock), clock)
    table = new_table(store)
    for number in range(1, 7):
        table = do(table, append(f"p{number}")).snapshot
    clock.advance(24 * HOUR)
    return store


def expected(version: int) -> dict[str, int]:
    return {f"p{number}": 10 for number in range(1, version + 1)}


def versions(store: ObjectStore) -> list[int]:
    return list(list_log(store).versions)


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store))


@pytest.fixture
def daily() -> ClockedStore:
    """One version and its state per day for six days. The last one is a day old."""
    store = clocked_store()
    table = new_table(store)
    for number in range(1, 7):
        table = do(table, append(f"p{number}")).snapshot
        checkpoint(store)
        store.clock.advance(24 * HOUR)
    return store


def states(store: ObjectStore) -> list[int]:
    return sorted(
        path.version for key in log_keys(store) if isinstance(path := parse_log_path(key), StateManifestFile)
    )


def test_states_older_than_the_retention_are_deleted(daily):
    """The states of days 1 to 3 are at least four days old."""
    deleted = clean_up(context(daily, ALL_AT_ONCE | {"state.retention.hours": "90"}), 6).checkpoints
    assert sorted(deleted) == [state_manifest_key(version) for version in (1, 2, 3)]
    assert states(daily) == [4, 5, 6]
    assert not [key for key in log_keys(daily) if "/state-v" in key and key < state_manifest_key(4)]
    assert live(newest(daily)) == expected(6)
    assert live(load_snapshot(context(daily), 4)) == expected(4)


@pytest.mark.parametrize(("hours", "left"), [("200", [1, 2, 3, 4, 5, 6]), ("60", [5, 6]), ("12", [6])])
def test_states_within_the_retention_are_kept(daily, hours, left):
    clean_up(context(daily, ALL_AT_ONCE | {"state.retention.hours": hours}), 6)
    assert states(daily) == left
    assert [live(load_snapshot(context(daily), version)) for version in left] == [expected(v) for v in left]


@pytest.mark.parametrize(("versions_kept", "left"), [("0", [6]), ("2", [4, 5, 6]), ("4", [2, 3, 4, 5, 6])])
def test_the_newest_states_are_kept_whatever_their_age(daily, versions_kept, left):
    daily.clock.advance(1000 * HOUR)
    clean_up(context(daily, ALL_AT_ONCE | {"state.retention.versions": versions_kept}), 6)
    assert states(daily) == left
    assert [live(load_snapshot(context(daily), version)) for version in left] == [expected(v) for v in left]


@pytest.mark.parametrize("form", FORMATS)
def test_cleanup_does_not_change_the_table(store, form):
    checkpoint(store, form)
    assert len(clean_up(context(store, ALL_AT_ONCE), 6).versions) == 6
    assert versions(store) == [6]
    assert live(newest(store)) == expected(6)
    assert newest(store).metadata == newest(store).metadata
    assert do(newest(store), append("p7")).version == 7
    with pytest.raises(VersionNotFoundError):
        load_snapshot(context(store), 5)


def test_default_retention_keeps_everything_young(store):
    checkpoint(store)
    assert clean_up(context(store), 6).keys == ()
    assert versions(store) == list(range(7))


def test_default_retention_of_a_month(store):
    store.clock.advance(31 * 24 * HOUR)
    checkpoint(store)
    for number in range(7, 50):
        do(newest(store), append(f"p{number}"))
    checkpoint(store)
    assert clean_up(context(store), 49).versions == tuple(version_key(version) for version in range(6))
    assert [live(load_snapshot(context(store), version)) for version in (6, 20, 49)] == [
        expected(6),
        expected(20),
        expected(49),
    ]


def test_every_version_that_is_left_can_be_read(store):
    checkpoint(store, "avro", 3)
    checkpoint(store, "avro", 5)
    checkpoint(store)
    clean_up(context(store, ALL_AT_ONCE | {"checkpoint.retention": "2"}), 6)
    assert versions(store) == [3, 4, 5, 6]
    for version in versions(store):
        assert live(load_snapshot(context(store), version)) == expected(version)


def test_dry_run_logs_what_it_would_delete_and_deletes_nothing(store, caplog):
    caplog.set_level(logging.INFO)
    checkpoint(store)
    before = log_keys(store)
    planned = clean_up(context(store, ALL_AT_ONCE | {"cleanup.dryRun": "true"}), 6)
    assert planned.versions == tuple(version_key(version) for version in range(6))
    assert log_keys(store) == before
    for key in planned.keys:
        assert f"cleanup would delete {key}" in caplog.text
    assert clean_up(context(store, ALL_AT_ONCE), 6).keys == planned.keys


def test_switched_off(store):
    checkpoint(store)
    assert clean_up(context(store, ALL_AT_ONCE | {"cleanup.enabled": "false"}), 6) is None
    assert versions(store) == list(range(7))


class UndeletingStore(AgeingStore):
    def delete_many(self, keys):
        raise TransientStorageError("nothing is deleted today")


def test_failure_is_a_warning_by_default(store, caplog):
    checkpoint(store)
    refusing = UndeletingStore(store, store.clock)
    store.clock.advance(HOUR)
    assert clean_up(context(refusing, ALL_AT_ONCE), 6) is None
    assert "the cleanup of the log failed: nothing is deleted today" in caplog.text


def test_failure_is_an_error_by_the_policy(store):
    checkpoint(store)
    refusing = UndeletingStore(store, store.clock)
    with pytest.raises(TransientStorageError, match="nothing is deleted today"):
        clean_up(context(refusing, ALL_AT_ONCE | {"cleanup.failurePolicy": "fail"}), 6)


def test_cleanup_that_fails_after_a_commit_is_an_error_by_the_policy_and_the_commit_stands(store):
    settings = ALL_AT_ONCE | {
        "cleanup.failurePolicy": "fail",
        "checkpoint.enabled": "true",
        "checkpoint.interval": "1",
    }
    refusing = UndeletingStore(store, store.clock)
    with pytest.raises(
        CleanupFailedError, match=r"version 7 is committed and stands.*nothing is deleted today"
    ) as caught:
        commit_files(load_snapshot(context(refusing, settings)), [add("p7")], [])
    assert caught.value.version == 7
    assert live(newest(store)) == expected(7)
    assert pickle.loads(pickle.dumps(caught.value)).version == 7


def test_cleanup_that_fails_after_a_merge_is_an_error_by_the_policy_and_the_merge_stands(store):
    refusing = UndeletingStore(store, store.clock)
    settings = ALL_AT_ONCE | {"cleanup.failurePolicy": "fail", "checkpoint.enabled": "true"}
    merged = do(load_snapshot(context(refusing, settings)), merge((["p1", "p2"], ["p1+2"]))).snapshot
    with pytest.raises(CleanupFailedError, match="version 7 is committed and stands"):
        after_merge(merged)
    assert live(newest(store)) == live(merged)


def test_cleanup_that_fails_after_a_commit_is_a_warning_by_default(store, caplog):
    settings = ALL_AT_ONCE | {"checkpoint.enabled": "true", "checkpoint.interval": "1"}
    refusing = UndeletingStore(store, store.clock)
    result = commit_files(load_snapshot(context(refusing, settings)), [add("p7")], [])
    assert (result.version, live(newest(store))) == (7, expected(7))
    assert "the cleanup of the log failed: nothing is deleted today" in caplog.text


def test_cleanup_that_fails_in_the_background_is_logged_as_an_error_by_the_policy(store, caplog):
    settings = ALL_AT_ONCE | {
        "cleanup.failurePolicy": "fail",
        "checkpoint.enabled": "true",
        "checkpoint.interval": "1",
        "checkpoint.async.enabled": "true",
    }
    refusing = UndeletingStore(store, store.clock)
    assert commit_files(load_snapshot(context(refusing, settings)), [add("p7")], []).version == 7
    wait_for_background()
    assert [record.levelno for record in caplog.records if "nothing is deleted today" in record.message] == [
        logging.ERROR
    ]


def test_cleanup_comes_with_the_automatic_checkpoint(store):
    settings = ALL_AT_ONCE | {"checkpoint.enabled": "true", "checkpoint.interval": "4"}
    table = load_snapshot(context(store, settings))
    for number in (7, 8):
        table = commit_files(table, [add(f"p{number}")], []).snapshot
    assert versions(store) == [8]
    assert live(table) == live(newest(store)) == expected(8)


def test_identity_survives_version_0():
    clock = VirtualClock()
    store = AgeingStore(memory_store(clock), clock)
    table = do(older_table(store), append("p1")).snapshot
    clock.advance(HOUR)
    write_checkpoint(table)
    clean_up(context(store, ALL_AT_ONCE), 1)
    again = newest(store)
    assert version_key(0) not in log_keys(store)
    assert (again.metadata, again.schema) == (table.metadata, table.schema)
    assert (again.protocol.min_reader_version, again.protocol.min_writer_version) == (5, 5)


# --- verification before deleting ---------------------------------------------------------------------


def damage(store: ObjectStore, pattern: str) -> None:
    keys = [key for key in log_keys(store) if re.search(pattern, key)]
    assert keys
    for key in keys:
        data = store.get(key)
        store.put(key, data[: len(data) // 2])


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ("avro", "manifests/"),
        ("avro", "_manifest.avro"),
        ("json", "checkpoint.json"),
        ("multi-part json", r"checkpoint\..*\.00002\.json"),
        ("parquet", r"checkpoint\.parquet"),
        ("multi-part parquet", r"checkpoint\..*\.00002\.parquet"),
    ],
)
def test_checkpoint_with_unreadable_entries_stops_the_cleanup(store, caplog, form, pattern):
    checkpoint(store, form)
    damage(store, pattern)
    before = log_keys(store)
    assert clean_up(context(store, ALL_AT_ONCE), 6) is None
    assert log_keys(store) == before
    assert (
        "the checkpoint of version 6 is damaged, so none of the files that it covers were deleted"
        in caplog.text
    )
    assert live(newest(store)) == expected(6)


def test_manifest_swapped_with_that_of_another_state_stops_the_cleanup():
    """It is readable and has the right number of entries, but not the bytes that the state recorded."""
    clock = VirtualClock()
    store = AgeingStore(memory_store(clock), clock)
    do(new_table(store), append("p1"))
    checkpoint(store)
    (old,) = manifests(store)
    do(newest(store), Overwrite((add("x", size=99),)))
    checkpoint(store)
    (new,) = manifests(store) - {old}
    store.put(new, store.get(old))
    clock.advance(HOUR)
    before = log_keys(store)
    assert clean_up(context(store, ALL_AT_ONCE), 2) is None
    assert log_keys(store) == before


def manifests(store: ObjectStore) -> set[str]:
    return {key for key in log_keys(store) if "/manifests/" in key}


def test_missing_checkpoint_stops_the_cleanup(store, caplog):
    checkpoint(store, "avro", 3)
    before = log_keys(store)
    assert clean_up(context(store, ALL_AT_ONCE), 6) is None
    assert log_keys(store) == before


def test_damaged_older_checkpoint_is_not_relied_upon(store):
    checkpoint(store, "avro", 2)
    checkpoint(store, "json", 4)
    checkpoint(store)
    damage(store, r"0004\.checkpoint\.json")
    keeping_two = ALL_AT_ONCE | {"checkpoint.retention": "2", "state.retention.versions": "5"}
    clean_up(context(store, keeping_two), 6)
    assert versions(store) == [2, 3, 4, 5, 6]
    for version in versions(store):
        assert live(load_snapshot(context(store), version)) == expected(version)


def test_damage_is_an_error_by_the_policy(store):
    checkpoint(store)
    damage(store, "manifests/")
    with pytest.raises(LogCorruptedError, match="is damaged"):
        clean_up(context(store, ALL_AT_ONCE | {"cleanup.failurePolicy": "fail"}), 6)


def test_hint_is_never_deleted(store):
    checkpoint(store)
    clean_up(context(store, ALL_AT_ONCE), 6)
    assert LAST_CHECKPOINT_KEY in log_keys(store)
