"""CHECKPOINT and COMPACT: what they write, what they leave alone, and what they report."""

import io
import json

import fastavro
import pyarrow.parquet as pq
import pytest

from indextables.errors import LogCorruptedError
from indextables.log.paths import LAST_CHECKPOINT_KEY, state_dir, state_manifest_key, version_key
from indextables.log.segment import read_hint
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.describe import describe_state
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.history import read_commits
from support.faults import FaultStore
from support.tables import (
    FORMATS,
    after,
    append,
    checkpoint,
    context,
    do,
    live,
    log_keys,
    memory_store,
    new_table,
    overwrite,
    remove,
)


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


@pytest.fixture
def table(store) -> Snapshot:
    return after(new_table(store), append("a", "b"), remove("a"), append("c"))


def in_format(store: ObjectStore, form: str) -> Snapshot:
    return load_snapshot(context(store, FORMATS[form]))


HINT_FORMATS = {
    "avro": "avro-state",
    "json": "json",
    "multi-part json": "json-multipart",
    "parquet": "parquet",
    "multi-part parquet": "parquet",
}


@pytest.mark.parametrize("form", FORMATS)
def test_report_and_hint(store, form):
    after(new_table(store), *(append(*(f"{letter}-{n}" for n in range(4))) for letter in "ab"))
    report = write_checkpoint(in_format(store, form))
    assert (report.version, report.num_files, report.total_bytes) == (2, 8, 80)
    assert report.previous_format is None
    hint = read_hint(store)
    assert (hint.version, hint.num_files, hint.size_in_bytes, hint.format) == (2, 8, 80, HINT_FORMATS[form])
    assert hint.state_dir == (state_dir(2) if form == "avro" else None)
    is_in_parts = form.startswith("multi-part")
    assert (hint.parts or 1) > (1 if is_in_parts else 0)
    assert (hint.checkpoint_id is not None) == is_in_parts


def test_report_names_the_format_before(store, table):
    write_checkpoint(in_format(store, "json"))
    do(table, append("d"))
    report = write_checkpoint(in_format(store, "avro"))
    assert (report.previous_format, report.new_format) == ("json", "avro-state")


def test_state_is_read_by_a_reader_that_is_not_ours(store, table):
    checkpoint(store)
    (state,) = fastavro.reader(io.BytesIO(store.get(state_manifest_key(3))))
    assert (state["stateVersion"], state["numFiles"], state["totalBytes"]) == (3, 2, 20)
    assert json.loads(state["metadata"])["metaData"]["id"] == table.metadata.id
    entries = [
        entry["path"]
        for manifest in state["manifests"]
        for entry in fastavro.reader(io.BytesIO(store.get(f"_transaction_log/{manifest['path']}")))
    ]
    assert sorted(set(entries) - set(state["tombstones"])) == ["b", "c"]


def test_parquet_checkpoint_is_read_by_a_reader_that_is_not_ours(store, table):
    checkpoint(store, "parquet")
    (key,) = [key for key in log_keys(store) if key.endswith(".parquet")]
    rows = pq.read_table(io.BytesIO(store.get(key))).to_pylist()
    assert sorted(row["path"] for row in rows if row["actionType"] == "add") == ["b", "c"]


@pytest.mark.parametrize("form", FORMATS)
def test_second_checkpoint_of_a_version_writes_nothing(store, table, form):
    checkpoint(store, form)
    counting = FaultStore(store)
    before = {key: store.get(key) for key in log_keys(store) if key != LAST_CHECKPOINT_KEY}
    report = write_checkpoint(load_snapshot(context(counting, FORMATS[form])))
    assert report.version == 3
    assert {call.key for call in counting.calls if call.operation.startswith("put")} == {LAST_CHECKPOINT_KEY}
    assert {key: store.get(key) for key in log_keys(store) if key != LAST_CHECKPOINT_KEY} == before


def test_two_formats_of_one_version_stand_side_by_side(store, table):
    for form in ("json", "parquet", "avro"):
        checkpoint(store, form)
    store.delete_many([version_key(version) for version in range(4)])
    for _ in range(3):
        snapshot = load_snapshot(context(store))
        assert live(snapshot) == live(table)
        store.delete_many([snapshot.segment.base.meta.key])


def test_checkpoint_of_an_older_snapshot_is_labelled_with_its_own_version(store, table):
    """It must not be labelled with the newest version: it holds only what it replayed."""
    older = load_snapshot(context(store), 1)
    assert write_checkpoint(older).version == 1
    store.delete_many([version_key(version) for version in range(2)])
    assert set(live(load_snapshot(context(store), 1))) == {"a", "b"}
    assert live(load_snapshot(context(store))) == live(table)


def test_empty_table(store):
    new_table(store)
    for form in FORMATS:
        report = write_checkpoint(in_format(store, form))
        assert (report.version, report.num_files, report.total_bytes) == (0, 0, 0)
    store.delete_many([version_key(0)])
    assert live(load_snapshot(context(store))) == {}
    assert do(load_snapshot(context(store)), append("a")).version == 1


def test_checkpoint_stops_when_a_part_of_the_table_cannot_be_read(store, table):
    checkpoint(store)
    do(load_snapshot(context(store)), remove("b"))
    store.delete_many([key for key in log_keys(store) if "/manifests/" in key])
    store.delete_many([version_key(version) for version in range(3)])
    before = log_keys(store)
    for operation in (write_checkpoint, compact):
        with pytest.raises(Exception, match="manifest-") as caught:
            operation(load_snapshot(context(store)))
        assert type(caught.value).__module__ == "indextables.errors"
    assert log_keys(store) == before


def test_checkpoint_that_cannot_be_read_back_does_not_become_the_hint(store, table):
    class Lying(FaultStore):
        """A store that reports success but writes only half of the state."""

        def put_if_absent(self, key, data):
            return super().put_if_absent(
                key, data[: len(data) // 2] if key == state_manifest_key(3) else data
            )

    with pytest.raises(LogCorruptedError, match="could not be read back"):
        write_checkpoint(load_snapshot(context(Lying(store))))
    assert read_hint(store) is None
    assert live(load_snapshot(context(store))) == live(table)


# --- compaction ---------------------------------------------------------------------------------------


def described(store: ObjectStore) -> dict[str, str | None]:
    return dict(zip(*describe_state(load_snapshot(context(store))).to_pydict().values(), strict=True))


def fragment(store: ObjectStore) -> None:
    """A state with several manifests and a tombstone."""
    table = new_table(store)
    for letter in "pqr":
        table = do(table, append(*(f"{letter}{number}" for number in range(4)))).snapshot
        write_checkpoint(table)
    do(table, remove("p0"))
    checkpoint(store)


def test_compaction_leaves_one_manifest_and_no_tombstones(store):
    fragment(store)
    before = described(store)
    assert int(before["numManifests"]) > 1
    assert int(before["numTombstones"]) == 1
    files = live(load_snapshot(context(store)))
    report = compact(load_snapshot(context(store)))
    assert report.num_files == 11
    after_compaction = described(store)
    assert (after_compaction["numManifests"], after_compaction["numTombstones"]) == ("1", "0")
    assert live(load_snapshot(context(store))) == files


def test_compaction_of_a_version_with_a_state_commits_a_new_version(store):
    fragment(store)
    before = store.get(state_manifest_key(4))
    assert compact(load_snapshot(context(store))).version == 5
    assert store.get(state_manifest_key(4)) == before
    assert read_commits(context(store), 5)[-1].info.operation == "COMPACT"
    assert live(load_snapshot(context(store), 4)) == live(load_snapshot(context(store), 5))


def test_compaction_by_a_handle_that_has_not_seen_the_state(store):
    fragment(store)
    handle = load_snapshot(context(store), 4, excluded_bases=[state_manifest_key(v) for v in range(5)])
    assert handle.segment.base is None
    compact(handle)
    assert (described(store)["numManifests"], described(store)["numTombstones"]) == ("1", "0")


def test_compact_state_is_left_as_it_is(store, table):
    checkpoint(store)
    before = log_keys(store)
    assert compact(load_snapshot(context(store))).version == 3
    assert log_keys(store) == before


def test_compaction_of_a_table_without_a_state(store, table):
    assert compact(table).version == 3
    assert described(store)["format"] == "avro-state"


def test_compaction_of_a_table_with_a_checkpoint_of_an_older_format_upgrades_it(store, table):
    checkpoint(store, "json")
    assert compact(load_snapshot(context(store))).version == 3
    assert described(store)["format"] == "avro-state"


def test_state_after_an_overwrite_drops_the_overwritten_files(store, table):
    checkpoint(store)
    do(load_snapshot(context(store)), overwrite("o"))
    checkpoint(store)
    assert (described(store)["numFiles"], described(store)["numTombstones"]) == ("1", "0")
