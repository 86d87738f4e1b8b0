"""FSCK reports nothing on intact tables, and finds each kind of damage."""

import os
import pickle
from pathlib import Path

import fastavro
import pytest

from indextables import IndexTable, errors
from indextables.errors import VersionNotFoundError
from indextables.log.actions import encode_actions
from indextables.log.paths import LAST_CHECKPOINT_KEY, state_manifest_key, version_key
from indextables.log.version_file import decompress
from indextables.ops.fsck.operation import fsck
from indextables.ops.fsck.report import Finding, FsckResult, Severity, ordered_findings
from indextables.ops.fsck.splits import SplitCheck
from indextables.ops.purge.garbage import DeleteBatch
from indextables.ops.read import split_refs
from indextables.ops.repair.operation import repair_in_place
from indextables.ops.runner import Interruption, LocalRunner, TaskStore
from indextables.table import load_snapshot
from support.faults import FaultStore
from support.purge_tables import (
    ClockedStore,
    add_split,
    clocked_store,
    newest,
    put_split,
    remove_split,
    sample_split,
    table_of,
)
from support.row_tables import SCHEMA, rows
from support.tables import FORMATS, add, checkpoint, context, log_keys, write_version


@pytest.fixture
def store() -> ClockedStore:
    """Five versions and two checkpoints."""
    store = clocked_store()
    table = table_of(store, "a.split", "b.split", "c.split")
    checkpoint(store)
    remove_split(table, "a.split")
    add_split(newest(store), "d.split", number=1)
    checkpoint(store)
    return store


def check(store, *, deep=False) -> FsckResult:
    return fsck(context(store), LocalRunner(), deep=deep)


def codes(report: FsckResult) -> set[str]:
    return {finding.code for finding in report.findings}


def damaged(store, key: str) -> None:
    data = store.get(key)
    store.put(key, data[: len(data) // 2])


@pytest.mark.parametrize("deep", [True, False])
def test_whole_table_is_clean(store, deep):
    report = check(store, deep=deep)
    assert (report.is_clean, report.findings) == (True, ())
    assert (report.version, report.versions_checked, report.checkpoints_checked) == (5, 6, 2)
    assert (report.splits_checked, report.is_deep) == (3, deep)
    assert report.to_dict()["findings"] == []


@pytest.mark.parametrize("form", FORMATS)
def test_checkpoints_of_every_format_are_clean(store, form):
    checkpoint(store, form, 3)
    checkpoint(store, form)
    assert check(store).findings == ()


@pytest.mark.parametrize("form", ["multi-part json", "multi-part parquet"])
def test_missing_part_of_a_checkpoint(store, form):
    before = set(log_keys(store))
    checkpoint(store, form)
    parts = [key for key in set(log_keys(store)) - before if not key.endswith(".checkpoint.json")]
    assert len(parts) > 1
    for part in parts:
        data = store.get(part)
        store.delete_many([part])
        (finding,) = [finding for finding in check(store).errors if finding.code == "checkpoint-unreadable"]
        assert part in finding.message
        store.put(part, data)
    assert check(store).findings == ()


def test_nothing_is_written(store):
    class ReadOnly(FaultStore):
        def _refuse(self, *_):
            raise AssertionError("a check writes nothing")

        put = put_if_absent = delete_many = now_ms = _refuse

    assert check(ReadOnly(store), deep=True).is_clean


def test_table_that_is_not_there():
    with pytest.raises(errors.TableNotFoundError):
        check(clocked_store())


def test_missing_split(store):
    store.delete_many(["b.split"])
    (finding,) = check(store).errors
    assert (finding.code, finding.object) == ("split-missing", "b.split")
    assert finding.remedy


def test_split_of_another_size(store):
    store.put("b.split", store.get("b.split") + b"x")
    assert codes(check(store)) == {"split-size"}


def test_missing_split_of_an_older_version(store):
    store.delete_many(["a.split"])
    report = check(store)
    assert codes(report) == {"old-split-missing"}
    assert not report.is_clean


def test_damaged_footer(store):
    data = bytearray(store.get("b.split"))
    data[-10] ^= 0xFF
    store.put("b.split", bytes(data))
    assert codes(check(store)) == {"split-unreadable"}


def test_damaged_rows_are_found_by_a_deep_check(store):
    data = bytearray(store.get("b.split"))
    data[10] ^= 0xFF
    store.put("b.split", bytes(data))
    assert check(store).is_clean
    assert codes(check(store, deep=True)) == {"split-unreadable"}


def test_wrong_number_of_rows(store):
    data, file = sample_split(0)
    store.put("x.split", data)
    write_version(
        store,
        6,
        more=f'{{"add":{{"path":"x.split","size":{file.size},"numRecords":99,"partitionValues":{{}},'
        f'"footerStartOffset":{file.footer_start_offset},"footerEndOffset":{file.size}}}}}\n',
    )
    assert codes(check(store)) == {"split-rows"}


def test_unreadable_version_that_a_checkpoint_covers(store):
    damaged(store, version_key(2))
    report = check(store)
    assert codes(report) == {"version-unreadable"}
    assert report.errors[0].object == version_key(2)


def test_unreadable_checkpoint(store):
    (manifest, *_) = (key for key in log_keys(store) if "/manifests/" in key)
    damaged(store, manifest)
    assert "checkpoint-unreadable" in codes(check(store))


def test_gap_in_the_log(store):
    add_split(add_split(newest(store), "e.split"), "f.split")
    store.delete_many([version_key(6)])
    assert "log-gap" in codes(check(store))


def test_wrong_counts(store, tmp_path):
    key = next(key for key in log_keys(store) if "state-v" in key and "5/" in key)
    rewrite_state(store, key, tmp_path, numFiles=77)
    report = check(store)
    assert codes(report) == {"counts-wrong"}
    assert "77" in report.errors[0].message


def rewrite_state(store, key: str, tmp_path: Path, **changes) -> None:
    """Change a state manifest with a third-party library."""
    file = tmp_path / "state.avro"
    file.write_bytes(store.get(key))
    with file.open("rb") as data:
        reader = fastavro.reader(data)
        schema, records = reader.writer_schema, [{**record, **changes} for record in reader]
    with file.open("wb") as data:
        fastavro.writer(data, schema, records)
    store.put(key, file.read_bytes())


def test_version_file_that_differs_from_the_commit_that_the_checkpoint_records(store):
    other = clocked_store()
    table_of(other, "a.split", "z.split")
    store.put(version_key(2), other.get(version_key(2)))
    put_split(store, "z.split")
    report = check(store)
    (finding,) = (finding for finding in report.findings if finding.severity is not Severity.INFO)
    assert (finding.code, finding.severity) == ("version-used-again", Severity.WARNING)
    assert finding.object == version_key(2)
    with pytest.raises(VersionNotFoundError, match="not part of the table"):
        load_snapshot(context(store), 2)


def test_checkpoint_that_differs_from_the_versions_it_covers(store):
    """A version file was extended after the checkpoint was written."""
    lines = decompress(store.get(version_key(2)), "version") + encode_actions([add("z.split")])
    store.put(version_key(2), lines)
    put_split(store, "z.split")
    report = check(store)
    assert codes(report) == {"replay-differs"}
    assert "z.split" in report.errors[0].message


@pytest.mark.parametrize(
    ("content", "code", "severity"),
    [
        (None, "hint-missing", Severity.INFO),
        (b"nonsense", "hint-unreadable", Severity.WARNING),
        (b'{"version": 4}', "hint-stale", Severity.WARNING),
        (b'{"version": 3}', "hint-behind", Severity.INFO),
    ],
)
def test_hint(store, content, code, severity):
    store.delete_many([LAST_CHECKPOINT_KEY])
    if content is not None:
        store.put(LAST_CHECKPOINT_KEY, content)
    report = check(store)
    assert [(finding.code, finding.severity) for finding in report.findings] == [(code, severity)]
    assert report.is_clean is (severity is Severity.INFO)


def test_version_that_only_the_hint_names_is_reported_as_lost_with_a_warning_not_to_purge(store):
    """The newest state and all version files are gone, so its splits look like orphans."""
    store.delete_many([state_manifest_key(5), *(version_key(version) for version in range(1, 6))])
    report = check(store)
    (error,) = report.errors
    assert (error.code, error.object) == ("version-lost", "version 5")
    assert "newest version that can be read is 3" in error.message
    assert "REPAIR INDEXFILES TRANSACTION LOG; do not run PURGE INDEXTABLE before that" in error.remedy
    others = {finding.code: finding.remedy for finding in report.findings if finding is not error}
    assert set(others) == {"orphaned-splits", "orphaned-manifests"}
    assert all(remedy.startswith("keep them") for remedy in others.values())
    assert not report.is_clean


def test_a_repair_recovers_a_version_that_only_the_hint_names(store):
    store.delete_many([state_manifest_key(5), *(version_key(version) for version in range(1, 6))])
    repair_in_place(context(store), LocalRunner())
    assert "d.split" in newest(store).entries["path"].to_pylist()
    assert check(store).errors == ()


def test_orphans_of_a_table_with_a_gap_must_be_kept(store):
    put_split(store, "orphan.split")
    write_version(store, 7)
    remedies = {finding.code: finding.remedy for finding in check(store).findings}
    assert remedies["orphaned-splits"].startswith("keep them")


def test_orphans_are_counted(store):
    put_split(store, "orphan.split")
    store.put("_transaction_log/manifests/manifest-00ff.avro", b"left over")
    report = check(store)
    assert codes(report) == {"orphaned-splits", "orphaned-manifests"}
    assert {finding.remedy for finding in report.findings} == {"PURGE INDEXTABLE"}
    assert report.is_clean


def test_versions_that_an_interrupted_cleanup_left_are_no_error(store):
    store.delete_many([version_key(0)])
    report = check(store)
    assert codes(report) == {"versions-unreachable"}
    assert report.is_clean


def test_file_outside_of_the_table(store):
    write_version(store, 6, more='{"add":{"path":"s3://elsewhere/x.split","size":1,"partitionValues":{}}}\n')
    assert {"version-unreadable", "split-missing"} <= codes(check(store))


def test_store_failure_raises_instead_of_a_finding(store):
    class Away(FaultStore):
        def get_range(self, key, start, end):
            raise errors.TransientStorageError("away")

    with pytest.raises(errors.TransientStorageError):
        check(Away(store))


def test_very_many_findings_of_a_kind_are_summarized():
    found = [Finding(Severity.ERROR, "split-missing", str(number), "gone") for number in range(250)]
    shown = ordered_findings([Finding(Severity.INFO, "other", "x", "y"), *found])
    assert len(shown) == 102
    assert shown[100].message == "150 more of this kind"
    assert shown[-1].code == "other"


def test_table_on_disk(tmp_path):
    path = tmp_path / "table"
    table = IndexTable.create(str(path), SCHEMA)
    table.append(rows(1, 2, 3))
    assert table.fsck(deep=True).is_clean
    (split,) = path.glob("*.split")
    os.truncate(split, 100)
    assert [finding["code"] for finding in table.fsck().to_dict()["findings"]] == ["split-size"]


def test_work_can_be_done_in_another_process(tmp_path):
    table = IndexTable.create(str(tmp_path / "table"), SCHEMA)
    table.append(rows(1, 2, 3))
    snapshot = table._snapshot
    store, refs = TaskStore.of(snapshot.context), tuple(split_refs(snapshot.entries))
    check_of_splits = SplitCheck(store, refs, snapshot.shape, is_deep=True)
    deletion = DeleteBatch(store, (refs[0].path,), retries=0)
    assert pickle.loads(pickle.dumps(check_of_splits)).run(Interruption()) == ()
    pickle.loads(pickle.dumps(deletion)).run(Interruption())
    (finding,) = check_of_splits.run(Interruption())
    assert (finding.code, finding.object) == ("split-unreadable", refs[0].path)
