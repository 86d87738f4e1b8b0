"""A damaged manifest that states share: CHECKPOINT and COMPACT repair the table, or fail and change nothing."""

import pytest

from indextables import IndexTable
from indextables.errors import CheckpointCorruptionError, LogCorruptedError, LogGapError
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, state_manifest_key, version_key
from indextables.log.segment import list_log, read_hint
from indextables.ops.checkpoint.cleanup import has_whole_checkpoint
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.fsck.operation import fsck
from indextables.ops.fsck.report import Severity
from indextables.ops.runner import LocalRunner
from indextables.ops.write import commit_files
from indextables.state.source import StateSource
from indextables.state.state_manifest import decode_state_manifest, encode_state_manifest
from indextables.storage import ObjectStore, open_store
from indextables.table import load_snapshot
from support.faults import FaultStore
from support.purge_tables import add_split, clocked_store, newest, table_of
from support.row_tables import SCHEMA, rows
from support.tables import (
    FORMATS,
    add,
    after,
    append,
    checkpoint,
    context,
    do,
    live,
    log_keys,
    memory_store,
    new_table,
    remove,
)

FILES = {"a": 10, "b": 10, "c": 10}
AUTOMATIC = {"checkpoint.enabled": "true", "checkpoint.interval": "1", "cleanup.enabled": "false"}


@pytest.fixture
def store() -> ObjectStore:
    """Versions 0 to 3 and the states of 2 and 3, which share a manifest with the splits a and b."""
    store = memory_store()
    table = after(new_table(store), append("a"), append("b"))
    checkpoint(store)
    after(table, append("c"))
    checkpoint(store)
    return store


def manifests_of(store: ObjectStore, version: int) -> set[str]:
    key = state_manifest_key(version)
    return {f"{LOG_PREFIX}{info.path}" for info in decode_state_manifest(store.get(key), key).manifests}


def shared_manifest(store: ObjectStore) -> str:
    (key,) = manifests_of(store, 2) & manifests_of(store, 3)
    return key


def cut_off(store: ObjectStore, key: str) -> None:
    data = store.get(key)
    store.put(key, data[: len(data) // 2])


def change_a_byte(store: ObjectStore, key: str) -> None:
    """Damage that the size of the file does not show."""
    data = bytearray(store.get(key))
    data[-20] ^= 0xFF
    store.put(key, bytes(data))


def delete(store: ObjectStore, key: str) -> None:
    store.delete_many([key])


DAMAGE = {"cut off": cut_off, "changed": change_a_byte, "missing": delete}


def delete_versions(store: ObjectStore, versions: range) -> None:
    store.delete_many([version_key(version) for version in versions])


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {key: store.get(key) for key in log_keys(store)}


def assert_newest_checkpoint_is_whole(store: ObjectStore, files: dict[str, int] = FILES) -> None:
    """The newest checkpoint alone, which the hint names, is enough to read the table."""
    hint = read_hint(store)
    assert hint.version == load_snapshot(context(store)).version
    assert has_whole_checkpoint(context(store), list_log(store).bases[hint.version][:1])
    delete_versions(store, range(hint.version + 1))
    assert live(load_snapshot(context(store))) == files


# --- where the log or an older state reaches ----------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("operation", [write_checkpoint, compact])
@pytest.mark.parametrize("has_new_version", [True, False])
def test_table_is_repaired_from_the_log(store, damage, operation, has_new_version):
    DAMAGE[damage](store, shared_manifest(store))
    files = dict(FILES)
    if has_new_version:
        do(load_snapshot(context(store)), append("d"))
        files["d"] = 10
    assert operation(load_snapshot(context(store))).num_files == len(files)
    assert_newest_checkpoint_is_whole(store, files)


@pytest.mark.parametrize("form", FORMATS)
def test_way_back_to_another_format_needs_no_damaged_manifest(store, form):
    cut_off(store, shared_manifest(store))
    do(load_snapshot(context(store)), remove("a"))
    assert write_checkpoint(load_snapshot(context(store, FORMATS[form]))).num_files == 2
    assert_newest_checkpoint_is_whole(store, {"b": 10, "c": 10})


@pytest.mark.parametrize("operation", [write_checkpoint, compact])
def test_table_is_repaired_from_an_older_state_and_the_versions_after_it(operation):
    store = memory_store()
    table = after(new_table(store), append("a"))
    checkpoint(store)
    after(table, append("b"))
    compact(load_snapshot(context(store)))
    after(load_snapshot(context(store)), append("c"))
    checkpoint(store)
    assert not manifests_of(store, 1) & manifests_of(store, 2)
    cut_off(store, shared_manifest(store))
    delete_versions(store, range(2))
    operation(load_snapshot(context(store)))
    assert_newest_checkpoint_is_whole(store)


def test_checkpoint_repairs_counts_that_fsck_finds_wrong(store):
    key = state_manifest_key(3)
    state = decode_state_manifest(store.get(key), key)
    store.put(key, encode_state_manifest(type(state)(**{**as_dict(state), "num_files": 77})))
    write_checkpoint(load_snapshot(context(store)))
    assert_newest_checkpoint_is_whole(store)


def as_dict(state) -> dict:
    return {name: getattr(state, name) for name in state.__struct_fields__}


@pytest.mark.parametrize("operation", [write_checkpoint, compact])
def test_damaged_states_that_were_replaced_are_gone(store, operation):
    """PURGE refuses to run while a state is damaged, so a repair removes all of them."""
    cut_off(store, shared_manifest(store))
    operation(load_snapshot(context(store)))
    for bases in list_log(store).bases.values():
        assert has_whole_checkpoint(context(store), bases)
    for version, expected in ((2, {"a": 10, "b": 10}), (3, FILES)):
        assert live(load_snapshot(context(store), version)) == expected


def test_remedy_of_fsck_helps():
    store = clocked_store()
    table_of(store, "a.split", "b.split")
    checkpoint(store)
    version = add_split(newest(store), "c.split").version
    checkpoint(store)
    (key,) = manifests_of(store, version - 1) & manifests_of(store, version)
    cut_off(store, key)
    found = fsck(context(store), LocalRunner(), deep=False)
    assert {(finding.code, finding.remedy) for finding in found.errors} == {
        ("checkpoint-unreadable", "write it again with CHECKPOINT")
    }
    checkpoint(store)
    assert fsck(context(store), LocalRunner(), deep=False).is_clean


# --- where nothing reaches ----------------------------------------------------------------------------


@pytest.fixture
def lost(store) -> ObjectStore:
    """The shared manifest is cut off, and only version files after the states are left."""
    do(load_snapshot(context(store)), append("d"))
    cut_off(store, shared_manifest(store))
    delete_versions(store, range(4))
    return store


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("operation", [write_checkpoint, compact])
def test_repair_that_is_not_possible_says_what_is_lost_and_leaves_nothing_behind(lost, operation, form):
    before, name = contents(lost), shared_manifest(lost).removeprefix(LOG_PREFIX)
    for _ in range(3):
        with pytest.raises(CheckpointCorruptionError) as caught:
            operation(load_snapshot(context(lost, FORMATS[form])))
        assert f"{name} with 2 file entries cannot be read" in str(caught.value)
        assert "no other files of the log lead to version 4" in str(caught.value)
        assert "REPAIR INDEXFILES TRANSACTION LOG" in str(caught.value)
        assert contents(lost) == before


@pytest.mark.parametrize("damage", ["cut off", "missing"])
def test_append_to_a_version_that_cannot_be_read_is_refused(store, damage):
    DAMAGE[damage](store, shared_manifest(store))
    delete_versions(store, range(3))
    before = contents(store)
    with pytest.raises(LogGapError, match=r"version 3 cannot be read, so nothing may be committed"):
        do(load_snapshot(context(store)), append("x"))
    assert contents(store) == before


def test_refused_append_leaves_no_split_behind(tmp_path):
    url = str(tmp_path / "table")
    table = IndexTable.create(url, SCHEMA)
    table.append(rows(1, 2))
    table.checkpoint()
    store = open_store(url)
    for key in log_keys(store):
        if "/manifests/" in key:
            cut_off(store, key)
    delete_versions(store, range(2))
    before = sorted(meta.key for meta in store.list(""))
    with pytest.raises(LogGapError):
        IndexTable(url).append(rows(3))
    assert sorted(meta.key for meta in store.list("")) == before


def test_append_is_accepted_if_the_log_reaches_the_newest_version(store):
    cut_off(store, shared_manifest(store))
    assert do(load_snapshot(context(store)), append("d")).version == 4
    assert live(load_snapshot(context(store))) == {**FILES, "d": 10}


def test_append_is_accepted_again_once_the_file_is_restored(store):
    key = shared_manifest(store)
    whole = store.get(key)
    cut_off(store, key)
    delete_versions(store, range(3))
    table = load_snapshot(context(store, {"transaction.cache.enabled": "true"}))
    with pytest.raises(LogGapError):
        do(table, append("x"))
    store.put(key, whole)
    assert do(table, append("x")).version == 4


def test_fsck_reports_a_table_that_cannot_be_read(lost):
    report = fsck(context(lost), LocalRunner(), deep=True)
    codes = {finding.code: finding for finding in report.errors}
    assert {"table-unreadable", "checkpoint-unreadable"} <= set(codes)
    assert codes["table-unreadable"].object == "version 4"
    assert "REPAIR INDEXFILES TRANSACTION LOG" in codes["checkpoint-unreadable"].remedy
    assert (report.version, report.splits_checked, report.is_clean) == (4, 0, False)


def test_fsck_reports_a_table_that_cannot_be_opened(store):
    cut_off(store, version_key(3))
    store.delete_many([state_manifest_key(2), state_manifest_key(3)])
    report = fsck(context(store), LocalRunner(), deep=False)
    assert {"table-unreadable", "version-unreadable"} <= {finding.code for finding in report.errors}
    assert report.version == 3


def test_fsck_names_another_remedy_for_damage_that_a_checkpoint_does_not_reach(store):
    """Only states before a whole one are damaged: readers of the newest version do not need them."""
    damaged = shared_manifest(store)
    compact(load_snapshot(context(store)))
    cut_off(store, damaged)
    for is_covered, severity in ((True, Severity.WARNING), (False, Severity.ERROR)):
        if not is_covered:
            delete_versions(store, range(2))
        findings = fsck(context(store), LocalRunner(), deep=False).findings
        found = [finding for finding in findings if finding.code == "checkpoint-unreadable"]
        assert {finding.severity for finding in found} == {severity}
        assert all("TRUNCATE INDEXTABLES TIME TRAVEL" in finding.remedy for finding in found)


# --- automatic checkpoints ----------------------------------------------------------------------------


def test_automatic_state_does_not_carry_a_damaged_manifest_on(store, caplog):
    key = shared_manifest(store)
    cut_off(store, key)
    result = commit_files(load_snapshot(context(store, AUTOMATIC)), [add("d")], [])
    assert result.version == 4
    assert key not in manifests_of(store, 4)
    assert "the checkpoint of version 3 is damaged, and nothing is built on it" in caplog.text
    assert_newest_checkpoint_is_whole(store, {**FILES, "d": 10})


def test_commit_stands_if_the_automatic_checkpoint_finds_damage_that_nothing_repairs(store, caplog):
    table = do(load_snapshot(context(store, AUTOMATIC)), append("d")).snapshot
    cut_off(store, shared_manifest(store))
    delete_versions(store, range(4))
    before = store.get(LAST_CHECKPOINT_KEY)
    assert commit_files(table, [add("e")], []).version == 5
    assert "no checkpoint at version 5" in caplog.text
    assert store.get(LAST_CHECKPOINT_KEY) == before
    assert max(list_log(store).bases) == 3


def test_commits_list_the_manifests_once_for_each_state_and_read_none(store):
    counting = FaultStore(store)
    table = load_snapshot(context(counting))
    for number in range(5):
        table = do(table, append(f"n{number}")).snapshot
    listings = [call for call in counting.calls if call.operation == "list" and "/manifests" in call.key]
    reads = [call for call in counting.calls if call.operation == "get" and "/manifests/" in call.key]
    assert (len(listings), reads) == (1, [])


def test_automatic_checkpoint_reads_no_manifest(store):
    counting = FaultStore(store)
    commit_files(load_snapshot(context(counting, AUTOMATIC)), [add("d")], [])
    assert len(manifests_of(store, 4)) > 2
    assert not [call for call in counting.calls if call.operation == "get" and "/manifests/" in call.key]


def test_files_of_a_very_full_folder_are_not_all_listed(store, monkeypatch):
    monkeypatch.setattr("indextables.state.source._MAX_LISTED_FILES", 1)
    table = load_snapshot(context(store))
    assert isinstance(table.source, StateSource)
    for key in manifests_of(store, 3):
        delete(store, key)
    store.put(f"{LOG_PREFIX}manifests/manifest-0.avro", b"left over")
    assert table.source.file_problem() is None


def test_damage_in_the_log_stops_a_compaction_before_its_commit(store):
    do(load_snapshot(context(store)), append("d"))
    cut_off(store, version_key(4))
    before = contents(store)
    with pytest.raises(LogCorruptedError):
        compact(load_snapshot(context(store)))
    assert contents(store) == before
