"""PURGE, FSCK and REPAIR of tables with deleted rows; every vector here is a file."""

import msgspec
import pyarrow as pa
import pytest

from indextables.errors import CommitConflictError, DeletionVectorCorruptedError, SplitsMissingError
from indextables.log import deletion_vectors
from indextables.log.deletion_vectors import vector_files
from indextables.log.paths import version_key
from indextables.log.version_file import compress, decompress
from indextables.ops import row_changes
from indextables.ops.delete import DeleteRequest, delete
from indextables.ops.fsck.operation import fsck
from indextables.ops.purge.report import PurgeKind
from indextables.ops.read import scan
from indextables.ops.repair.operation import repair_in_place, repair_to
from indextables.ops.restore import RestoreRequest, restore
from indextables.ops.runner import LocalRunner
from indextables.ops.search import SearchRequest, count
from indextables.ops.write import append
from indextables.predicates import parse_predicate
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from support.purge_tables import DAY, ClockedStore, clocked_store, doomed, is_clean, newest, run_purge
from support.tables import SCHEMA, checkpoint, context, memory_store, new_table


@pytest.fixture(autouse=True)
def _only_files(monkeypatch):
    monkeypatch.setattr(deletion_vectors, "MAX_INLINE_BYTES", 0)


@pytest.fixture
def store() -> ClockedStore:
    """Ids 0 to 9, of which 1 is deleted in version 2, and 2 in version 3."""
    store = clocked_store()
    table = append(new_table(store), some_rows(10)).snapshot
    for number in (1, 2):
        table = without(table, f"id = {number}")
    return store


def some_rows(count: int) -> pa.Table:
    return pa.table(
        {"id": list(range(count)), "date": ["2024-01-01"] * count, "message": ["text"] * count}, schema=SCHEMA
    )


def without(table: Snapshot, where: str) -> Snapshot:
    return delete(table, DeleteRequest(parse_predicate(where))).snapshot


def ids(snapshot: Snapshot) -> list[int]:
    return sorted(scan(snapshot, None, ["id"]).read_all()["id"].to_pylist())


def files_of_vectors(store: ObjectStore) -> set[str]:
    return {meta.key for meta in store.list("") if meta.key.endswith(".bin")}


def vector_file(store: ObjectStore) -> str:
    """The file with the vector of the live split."""
    [path] = vector_files(newest(store).entries["deletionVector"]).to_pylist()
    return path


# --- purge


def test_purge_keeps_the_vectors_of_all_versions_that_can_be_read(store):
    assert len(files_of_vectors(store)) == 2
    store.clock.advance(100 * DAY)
    report = run_purge(store)
    assert doomed(report, PurgeKind.DELETION_VECTOR) == set()
    assert ids(load_snapshot(context(store), 2)) == [0, *range(2, 10)]


def test_purge_deletes_the_vectors_of_versions_that_are_gone(store):
    checkpoint(store)
    store.clock.advance(100 * DAY)
    newer = append(newest(store), some_rows(1)).snapshot
    checkpoint(store)
    store.clock.advance(DAY)
    plan = run_purge(store, log_retention="12 hours", dry_run=True)
    assert len(files_of_vectors(store)) == 2
    report = run_purge(store, log_retention="12 hours")
    assert doomed(plan, PurgeKind.DELETION_VECTOR) == doomed(report, PurgeKind.DELETION_VECTOR)
    assert files_of_vectors(store) == {vector_file(store)}
    assert ids(newest(store)) == ids(newer)
    assert is_clean(store)


def test_purge_deletes_vectors_that_were_never_committed(store):
    store.put("deletion_vector_lost.bin", b"x")
    store.put("notes.bin", b"x")
    report = run_purge(store)
    assert doomed(report) == set()
    store.clock.advance(100 * DAY)
    report = run_purge(store)
    assert doomed(report, PurgeKind.DELETION_VECTOR) == {"deletion_vector_lost.bin"}
    assert "notes.bin" in {meta.key for meta in store.list("")}


def test_a_vector_that_waited_too_long_is_not_committed(store, monkeypatch):
    """PURGE takes the vector of a stalled writer for a leftover; the writer notices and writes nothing."""
    prepare = row_changes._prepare

    def stall(*arguments):
        prepared = prepare(*arguments)
        store.clock.advance(3 * DAY)
        run_purge(store, older_than="25 hours")
        return prepared

    monkeypatch.setattr(row_changes, "_prepare", stall)
    with pytest.raises(CommitConflictError, match="waited so long"):
        without(newest(store), "id = 5")
    assert 5 in ids(newest(store))
    assert is_clean(store)


# --- restore


def test_a_version_whose_vector_is_gone_cannot_be_restored(store):
    [old] = files_of_vectors(store) - {vector_file(store)}
    store.delete_many([old])
    with pytest.raises(SplitsMissingError, match="deletion_vector_"):
        restore(newest(store), RestoreRequest(2))
    restore(newest(store), RestoreRequest(1))
    assert ids(newest(store)) == list(range(10))


# --- fsck


def findings(store: ObjectStore, *, deep: bool = False) -> list[tuple[str, str]]:
    result = fsck(context(store), LocalRunner(), deep=deep)
    return [(finding.code, finding.severity.value) for finding in result.findings]


def rewritten(store: ObjectStore, **changes: object) -> None:
    """Change the description of the vector in the newest version file."""
    key = version_key(newest(store).version)
    lines = decompress(store.get(key), key).splitlines()
    changed = []
    for line in lines:
        action = msgspec.json.decode(line)
        if "add" in action:
            action["add"]["deletionVector"] |= changes
        changed.append(msgspec.json.encode(action))
    store.put(key, compress(b"\n".join(changed)))


DAMAGE = {
    "missing": lambda store: store.delete_many([vector_file(store)]),
    "truncated": lambda store: store.put(vector_file(store), store.get(vector_file(store))[:-3]),
    "empty": lambda store: store.put(vector_file(store), b""),
    "overwritten": lambda store: store.put(vector_file(store), b"\x01" + bytes(100)),
    "wrong checksum": lambda store: store.put(
        vector_file(store), store.get(vector_file(store))[:-1] + b"\x00"
    ),
    "of other rows": lambda store: rewritten(store, cardinality=7),
    "of more rows than the split has": lambda store: rewritten(store, cardinality=11),
    "at another place": lambda store: rewritten(store, offset=2),
    "of another size": lambda store: rewritten(store, sizeInBytes=20),
    "outside of the table": lambda store: rewritten(store, pathOrInlineDv="../x.bin"),
    "of another storage type": lambda store: rewritten(store, storageType="u"),
    "not inline": lambda store: rewritten(store, storageType="i"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_reader_reports_a_damaged_vector_and_fsck_finds_it(store, damage):
    assert findings(store) == []
    DAMAGE[damage](store)
    assert ("deletion-vector", "error") in findings(store)
    table = newest(store)
    with pytest.raises(DeletionVectorCorruptedError):
        ids(table)
    with pytest.raises(DeletionVectorCorruptedError):
        count(table, SearchRequest.of(table, "message:text", None))
    assert ids(load_snapshot(context(store), 1)) == list(range(10))


def test_a_row_that_the_split_does_not_have_is_found(store, monkeypatch):
    everything = row_changes.all_deleted

    def beyond(snapshot, found):
        return pa.concat_arrays([pa.array(everything(snapshot, found)), pa.array([77])]).to_numpy()

    monkeypatch.setattr(row_changes, "all_deleted", beyond)
    table = without(newest(store), "id = 5")
    with pytest.raises(
        DeletionVectorCorruptedError, match="row 77 is deleted, but the split has only 10 rows"
    ):
        ids(table)
    assert findings(store) == [("deletion-vector", "error")]


def test_fsck_reports_the_lost_vector_of_an_older_version(store):
    [old] = files_of_vectors(store) - {vector_file(store)}
    store.delete_many([old])
    assert findings(store) == [("old-split-missing", "error")]


# --- repair


def test_repair_keeps_deleted_rows_deleted(store):
    checkpoint(store)
    store.put(version_key(1), b"damaged")
    report = repair_in_place(context(store), LocalRunner())
    assert report.num_rows == 8
    table = newest(store)
    assert ids(table) == [0, *range(3, 10)]
    assert table.protocol.reader_features == ("deletionVectors",)
    assert is_clean(store)


def test_repair_to_another_place_copies_vectors(store):
    target = memory_store()
    repair_to(context(store), context(target), LocalRunner())
    assert files_of_vectors(target) == {vector_file(store)}
    assert ids(load_snapshot(context(target))) == [0, *range(3, 10)]
    assert fsck(context(target), LocalRunner(), deep=True).is_clean


def test_repair_says_that_a_vector_is_lost(store):
    checkpoint(store)
    lost = vector_file(store)
    store.delete_many([lost])
    store.put(version_key(1), b"damaged")
    report = repair_in_place(context(store), LocalRunner())
    assert any(lost in text for text in report.undecided)
    with pytest.raises(DeletionVectorCorruptedError, match="does not exist"):
        ids(newest(store))
