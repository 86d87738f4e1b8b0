"""REPAIR recovers every remaining row of a table, for each kind of damage."""

import gzip
import pickle
import re

import msgspec
import pytest

from indextables import RepairResult, Status, errors
from indextables.log.actions import ProtocolAction, TransactionAction
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, version_key
from indextables.ops.fsck.operation import fsck
from indextables.ops.read import split_refs
from indextables.ops.repair.operation import (
    RepairMode,
    RepairRequest,
    plan_repair,
    repair,
    repair_in_place,
    repair_log_to,
    repair_to,
)
from indextables.ops.repair.splits import DescribeSplits
from indextables.ops.repair.write import CopySplit
from indextables.ops.runner import Interruption, LocalRunner, TaskStore
from indextables.ops.write import append, drop_partitions, overwrite
from indextables.storage import StoreLocation, open_store
from indextables.table import create_table
from support.faults import FaultStore
from support.purge_tables import add_split, put_split, remove_split, table_of
from support.repair_tables import (
    DAMAGE,
    DAYS,
    MERGED,
    NEWEST,
    PROPERTIES,
    all_rows,
    clean_up,
    contents,
    corrupt_hint,
    damaged_table,
    delete_log,
    lose_version,
    more_rows,
    newest,
    table_rows,
    whole_table,
)
from support.row_tables import SCHEMA, counted, rows
from support.tables import (
    InterruptingStore,
    checkpoint,
    context,
    do,
    log_keys,
    memory_store,
    new_table,
    paths,
    write_version,
)
from support.tables import (
    append as append_of,
)


def assert_sound(store) -> None:
    """The table opens, has all rows, is clean, and accepts further rows."""
    assert table_rows(store) == all_rows()
    assert newest(store).gap is None
    report = fsck(context(store), LocalRunner(), deep=True)
    assert report.is_clean, report.findings
    append(newest(store), more_rows())
    assert table_rows(store) == sorted([*all_rows(), *counted(more_rows())])
    assert fsck(context(store), LocalRunner(), deep=False).is_clean


def swap(store) -> RepairResult:
    return repair_in_place(context(store), LocalRunner())


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_table_is_repaired_in_place(name):
    store = damaged_table(name)
    before = contents(store)
    old = {key: data for key, data in before.items() if key.startswith(LOG_PREFIX)}
    report = swap(store)
    if name == "hint missing":
        # A repair would gain nothing and lose time travel.
        assert report.status is Status.NO_ACTION
        assert contents(store) == before
    elif old:
        folder = report.damaged_log.removeprefix(f"{store.url}/")
        aside = {key: data for key, data in contents(store).items() if key.startswith(f"{folder}/")}
        assert {LOG_PREFIX + key.removeprefix(f"{folder}/"): data for key, data in aside.items()} == old
        assert report.version == newest(store).version == NEWEST + 1
    assert_sound(store)


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_table_is_repaired_elsewhere_and_stays_as_it_is(name):
    store, target = damaged_table(name), memory_store()
    before = contents(store)
    report = repair_to(context(store), context(target), LocalRunner())
    assert contents(store) == before
    assert report.location == target.url
    assert_sound(target)


def test_only_the_log_is_written_elsewhere():
    store, target = damaged_table("version file missing"), memory_store()
    repair_log_to(context(store), context(target), LocalRunner())
    assert set(log_keys(target)) == set(contents(target))
    assert paths(newest(target)) == paths(newest(whole_table()))
    # An administrator can install it in place of the old log.
    delete_log(store)
    for key, data in contents(target).items():
        store.put(key, data)
    assert_sound(store)


def test_dry_run_reports_the_same_and_writes_nothing():
    class ReadOnly(FaultStore):
        def _refuse(self, *_):
            raise AssertionError("a dry run writes nothing")

        put = put_if_absent = delete_many = _refuse

    store = damaged_table("several at once")
    planned = repair(context(ReadOnly(store)), RepairRequest(None, RepairMode.PLAN), LocalRunner())
    done = swap(store)
    assert planned.status is Status.DRY_RUN
    assert (planned.num_files, planned.counts, planned.undecided) == (
        done.num_files,
        done.counts,
        done.undecided,
    )


# --- the report ---------------------------------------------------------------------------------------


def test_gap_is_bridged_and_reported():
    report = swap(damaged_table("version file missing"))
    assert (report.status, report.proven_version, report.newest_version) == (
        Status.PARTIAL,
        NEWEST - 2,
        NEWEST,
    )
    # The lost version added one split, the next version another.
    assert (report.counts.proven, report.counts.salvaged, report.counts.described_by_themselves) == (6, 1, 1)
    assert any(f"version {NEWEST - 1} cannot be read" in message for message in report.undecided)
    (row,) = report.to_arrow().to_pylist()
    assert (row["status"], row["num_files"], row["num_rows"]) == ("PARTIAL", 8, len(all_rows()))


def test_damage_without_loss_is_a_full_success():
    store = whole_table()
    corrupt_hint(store)
    store.put(version_key(3), b"scribble")
    before = newest(store)
    report = swap(store)
    assert (report.status, report.proven_version, report.undecided) == (Status.SUCCESS, NEWEST, ())
    assert {problem.path for problem in report.unreadable_log_files} == {version_key(3), LAST_CHECKPOINT_KEY}
    after = newest(store)
    assert (after.metadata, after.protocol) == (before.metadata, before.protocol)
    assert after.header.recent_commits.items() > before.header.recent_commits.items()


def test_repair_of_a_missing_log_reports_what_is_unknown():
    store = damaged_table("log deleted")
    report = swap(store)
    assert (report.proven_version, report.newest_version, report.version) == (None, None, 0)
    assert report.damaged_log is None
    assert report.counts.described_by_themselves == report.num_files == 8
    # The sources of the merge still exist.
    assert [problem.reason.partition(" in ")[0] for problem in report.left_out_splits] == ["its rows are"] * 2
    text = " ".join(report.undecided)
    assert all(word in text for word in ("overwritten", "version numbers", "last batch", "properties"))
    repaired = newest(store)
    assert repaired.schema == SCHEMA
    assert repaired.partition_columns == ("day",)
    days = {dict(values).get("day") for values in repaired.entries["partitionValues"].to_pylist()}
    assert days == set(DAYS)
    key = "spark.indextables.indexing.typemap.body"
    assert repaired.metadata.configuration[key] == PROPERTIES[key]


def test_missing_and_unreadable_splits_are_listed_and_left_out():
    store = damaged_table("version file missing")
    gone, bad = sorted(paths(newest(store)))[:2]
    store.delete_many([gone])
    store.put(bad, store.get(bad)[:-9])
    report = swap(store)
    assert report.status is Status.PARTIAL
    assert [problem.path for problem in report.missing_splits] == [gone]
    assert [problem.path for problem in report.unreadable_splits] == [bad]
    assert {gone, bad} <= {problem.path for problem in report.skipped_splits}
    assert bad in contents(store)
    assert paths(newest(store)) == paths(newest(whole_table())) - {gone, bad}
    assert fsck(context(store), LocalRunner(), deep=True).is_clean


def test_missing_split_alone_is_repaired_by_leaving_it_out():
    store = whole_table()
    gone = min(paths(newest(store)))
    store.delete_many([gone])
    report = swap(store)
    assert (report.status, report.num_files, report.undecided) == (Status.PARTIAL, 7, ())
    assert fsck(context(store), LocalRunner(), deep=True).is_clean


def test_entry_that_contradicts_its_split_is_corrected():
    store = memory_store()
    table = table_of(store, "a.split")
    wrong = msgspec.structs.replace(put_split(store, "b.split", 1), num_records=77)
    write_version(store, table.version + 1, wrong)
    corrupt_hint(store)
    assert swap(store).num_rows == 5
    assert fsck(context(store), LocalRunner(), deep=True).is_clean


# --- which splits are live ----------------------------------------------------------------------------


def test_splits_that_an_intact_log_does_not_mention_stay_out():
    store = memory_store()
    remove_split(table_of(store, "a.split", "b.split"), "b.split")
    put_split(store, "orphan.split")
    checkpoint(store)
    corrupt_hint(store)
    report = swap(store)
    assert (report.status, report.left_out_splits) == (Status.SUCCESS, ())
    assert paths(newest(store)) == {"a.split"}


def test_splits_that_were_removed_before_the_gap_stay_removed():
    store = memory_store()
    table = remove_split(table_of(store, "a.split", "b.split"), "b.split")
    table = add_split(table, "c.split")
    table = add_split(table, "d.split", number=1)
    store.delete_many([version_key(table.version - 1)])
    swap(store)
    assert paths(newest(store)) == {"a.split", "c.split", "d.split"}


def test_removes_beyond_the_gap_are_applied():
    store = memory_store()
    table = table_of(store, "a.split", "b.split", "c.split")
    table = remove_split(table, "a.split")
    store.delete_many([version_key(2)])
    report = swap(store)
    assert paths(newest(store)) == {"b.split", "c.split"}
    assert report.counts.salvaged == 1
    assert table.version == report.newest_version


def test_remains_of_a_state_are_replayed_before_later_versions():
    store = memory_store()
    table = table_of(store, "a.split", "b.split")
    table = add_split(table, "c.split")
    checkpoint(store)
    checkpointed = set(log_keys(store))
    table = add_split(table, "d.split")
    checkpoint(store)
    (manifest,) = {key for key in log_keys(store) if "/manifests/" in key} - checkpointed
    remove_split(add_split(table, "e.split"), "a.split")
    # The state of version 4 lacks the manifest with d.split, and the versions before it have a gap.
    store.delete_many([manifest, version_key(3), version_key(4)])
    store.delete_many([key for key in checkpointed if "state-v" in key])
    swap(store)
    assert paths(newest(store)) == {"b.split", "c.split", "d.split", "e.split"}


def test_overwritten_rows_come_back_only_without_any_log():
    store = memory_store()
    table = create_table(context(store), SCHEMA, ["day"], {})
    table = append(table, rows(1)).snapshot
    table = overwrite(table, rows(2)).snapshot
    table = drop_partitions(append(table, rows(3, day="x")).snapshot, "day = 'x'").snapshot
    kept = contents(store)
    store.put(LAST_CHECKPOINT_KEY, b"{")
    assert swap(store).num_rows == 1
    store = memory_store()
    for key, data in kept.items():
        if not key.startswith(LOG_PREFIX):
            store.put(key, data)
    report = swap(store)
    assert report.num_rows == 3
    assert "overwritten, dropped or deleted" in report.undecided[0]


def test_absolute_paths_become_relative():
    store = memory_store()
    table = new_table(store)
    action = put_split(store, "a.split")
    write_version(store, 1, msgspec.structs.replace(action, path=f"{store.url}/a.split"))
    write_version(store, 2, msgspec.structs.replace(action, path="memory://elsewhere/t/b.split"))
    corrupt_hint(store)
    report = repair_in_place(table.context, LocalRunner())
    assert paths(newest(store)) == {"a.split"}
    assert [problem.path for problem in report.missing_splits] == ["memory://elsewhere/t/b.split"]


def test_version_that_a_repair_wrote_is_as_good_as_a_checkpoint():
    store = damaged_table("version file missing")
    expected = repair(context(store), RepairRequest(None, RepairMode.SWAP), LocalRunner())
    keys = [key for key in log_keys(store) if not re.search(r"/0{10}\d+\.json$", key)]
    store.delete_many(keys)
    with pytest.raises(errors.LogCorruptedError):
        newest(store)
    again = swap(store)
    assert (again.status, again.proven_version) == (Status.SUCCESS, expected.version)
    assert again.version == expected.version + 1
    assert_sound(store)


def test_merge_that_was_never_committed_is_left_out():
    store = damaged_table("merge lost")
    # Everything before the merge is intact: the sources are live, and the log does not know the merged split.
    store.delete_many([version_key(version) for version in range(MERGED + 1, NEWEST + 1)])
    store.put(version_key(MERGED), b"{")
    report = swap(store)
    reasons = [problem.reason for problem in report.left_out_splits]
    assert any("whose sources are live in the log" in reason for reason in reasons)
    assert table_rows(store) == all_rows()


# --- identity and versions ----------------------------------------------------------------------------


def test_streaming_batches_and_properties_survive():
    store = whole_table()
    table = newest(store)
    write_version(store, NEWEST + 1, TransactionAction(app_id="stream", version=41))
    store.put(version_key(2), b"scribble")
    swap(store)
    repaired = newest(store)
    assert repaired.header.transactions == {"stream": 41}
    assert repaired.metadata == table.metadata
    log = gzip.decompress(store.get(version_key(repaired.version))[2:])
    assert b'"appId":"stream"' in log


def test_version_is_higher_than_any_that_was_used():
    store = whole_table()
    clean_up(store)
    store.delete_many([key for key in log_keys(store) if "state-v" in key])
    store.delete_many([version_key(NEWEST)])
    store.put(LAST_CHECKPOINT_KEY, b'{"version": 4711}')
    assert swap(store).version == 4712
    store = whole_table()
    store.put(LAST_CHECKPOINT_KEY, b'{"version": 4611686018427387904}')
    assert swap(store).version == NEWEST + 1


def test_unreadable_metadata_is_restored_from_splits():
    store = whole_table()
    broken = msgspec.structs.replace(newest(store).metadata, schema_string='{"type":"struct"')
    write_version(store, NEWEST + 1, broken)
    store.delete_many([version_key(0)])
    clean_up(store)
    store.delete_many([key for key in log_keys(store) if "state-v" in key])
    report = swap(store)
    assert any("schema in a metaData action" in problem.reason for problem in report.unreadable_log_files)
    assert_sound(store)


def test_stalled_writer_of_the_old_log_commits_or_is_rejected():
    store = whole_table()
    stalled = newest(store)
    lose_version(store)
    swap(store)
    result = append(stalled, more_rows())
    assert result.version == NEWEST + 2
    assert table_rows(store) == sorted([*all_rows(), *counted(more_rows())])
    assert fsck(context(store), LocalRunner(), deep=False).is_clean


def test_writer_that_commits_during_the_repair_wins():
    inner = memory_store()
    table = table_of(inner, "a.split")
    corrupt_hint(inner)
    store = InterruptingStore(inner)
    store.before_commit = lambda: do(table, append_of("x"))
    with pytest.raises(errors.CommitConflictError, match="repair again"):
        swap(store)
    assert paths(newest(inner)) == {"a.split", "x"}


def test_table_of_a_newer_protocol_is_refused():
    store = whole_table()
    write_version(store, NEWEST + 1, ProtocolAction(min_reader_version=99, min_writer_version=99))
    corrupt_hint(store)
    before = contents(store)
    with pytest.raises(errors.UnsupportedProtocolError):
        swap(store)
    assert contents(store) == before


# --- the target location ------------------------------------------------------------------------------


def test_target_with_a_log_is_refused():
    store, target = damaged_table("log deleted"), whole_table()
    before = contents(target)
    with pytest.raises(errors.TableAlreadyExistsError):
        repair_to(context(store), context(target), LocalRunner())
    assert contents(target) == before


@pytest.mark.parametrize("place", ["", "/below", "/.."])
def test_target_within_the_table_is_refused(place, tmp_path):
    store = open_store(tmp_path / "lake" / "table")
    target = open_store(f"{tmp_path}/lake/table{place}")
    put_split(store, "a.split")
    with pytest.raises(errors.InvalidOptionError):
        repair_to(context(store), context(target), LocalRunner())


def test_old_log_is_replaced_only_by_a_swap():
    store = damaged_table("version file missing")
    before = contents(store)
    for mode in (RepairMode.COPY, RepairMode.LOG_ONLY):
        with pytest.raises(errors.InvalidOptionError, match="ask for a swap"):
            repair(context(store), RepairRequest(None, mode), LocalRunner())
    with pytest.raises(errors.InvalidOptionError, match="has no other location"):
        repair(context(store), RepairRequest("memory://elsewhere", RepairMode.SWAP), LocalRunner())
    assert contents(store) == before


def test_missing_log_is_written_in_place():
    store = damaged_table("log deleted")
    assert repair(context(store), RepairRequest(None, RepairMode.COPY), LocalRunner()).location == store.url
    assert_sound(store)


def test_folder_without_a_table():
    with pytest.raises(errors.TableNotFoundError, match="nothing to repair"):
        plan_repair(context(memory_store()), LocalRunner())


def test_table_without_any_readable_schema():
    store = memory_store()
    store.put("a.split", b"no split")
    with pytest.raises(errors.LogCorruptedError, match="tells the schema"):
        plan_repair(context(store), LocalRunner())


def test_splits_of_a_nested_table_are_not_taken():
    store = memory_store()
    put_split(store, "a.split")
    for key, data in contents(whole_table()).items():
        store.put(f"below/{key}", data)
    assert swap(store).num_files == 1


def test_store_failure_is_not_treated_as_damage():
    class Away(FaultStore):
        def get_range(self, key, start, end):
            raise errors.TransientStorageError("away")

    with pytest.raises(errors.TransientStorageError):
        plan_repair(context(Away(damaged_table("log deleted"))), LocalRunner())


def test_work_can_be_done_in_another_process(tmp_path):
    locations = [StoreLocation.of(tmp_path / name) for name in ("table", "other")]
    stores = [location.open() for location in locations]
    table = table_of(stores[0], "a.split")
    (ref,) = split_refs(table.entries)
    source, target = (TaskStore(*pair) for pair in zip(stores, locations, strict=True))
    describe = DescribeSplits(source, tuple(meta for meta in stores[0].list("") if meta.key == "a.split"))
    (found,) = pickle.loads(pickle.dumps(describe)).run(Interruption())
    assert pickle.loads(pickle.dumps(found)).add.num_records == ref.num_records
    pickle.loads(pickle.dumps(CopySplit(source, target, ref.path, ref.size))).run(Interruption())
    assert stores[1].get("a.split") == stores[0].get("a.split")
