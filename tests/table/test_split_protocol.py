"""Protocol 5: the first split of ours raises a table, and a table with splits of the JVM is raised on request only."""

import pyarrow as pa
import pytest

from indextables.errors import ProtocolUpgradeError
from indextables.log.paths import LOG_PREFIX, state_manifest_key, version_key
from indextables.log.segment import read_hint
from indextables.log.version_file import decompress
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.merge.operation import MergeRequest, merge_splits
from indextables.ops.purge.operation import PurgeRequest, purge
from indextables.ops.restore import RestoreRequest, restore
from indextables.ops.runner import LocalRunner
from indextables.ops.truncate import truncate_time_travel
from indextables.ops.write import append as append_rows
from indextables.ops.write import commit_files, drop_partitions, set_properties, upgrade_protocol
from indextables.ops.write import overwrite as overwrite_rows
from indextables.state.state_manifest import decode_state_manifest
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from support.tables import (
    CONVERT,
    SCHEMA,
    InterruptingStore,
    add,
    append,
    checkpoint,
    context,
    do,
    jvm_table,
    live,
    log_keys,
    memory_store,
    merge,
    new_table,
    older_table,
    overwrite,
    paths,
    write_version,
)

KEEP = {"protocol.autoUpgrade": "false"}
ROWS = pa.table({"id": [1], "date": ["2024-01-01"], "message": ["a b"]}, schema=SCHEMA)

ADDING = {
    "append": append("x"),
    "overwrite": overwrite("x"),
    "merge": merge((["a", "b"], ["ab"])),
}


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


def opened(store: ObjectStore, settings: dict[str, str] | None = None) -> Snapshot:
    return load_snapshot(context(store, settings))


def versions_of(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version


def protocol_lines(store: ObjectStore, version: int) -> int:
    return decompress(store.get(version_key(version)), "version file").count(b'"protocol"')


# --- the first split of ours ---------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [1, 2, 3, 4])
def test_the_first_split_raises_an_empty_table_in_the_same_commit(store, protocol):
    result = do(jvm_table(store, protocol=protocol), append("a"))
    assert (result.version, versions_of(result.snapshot)) == (1, (5, 5))
    assert (versions_of(opened(store)), protocol_lines(store, 1)) == ((5, 5), 1)
    do(result.snapshot, append("b"))
    assert protocol_lines(store, 2) == 0


def test_a_commit_without_splits_leaves_the_protocol(store):
    do(jvm_table(store, "a"), overwrite())
    assert (live(opened(store)), versions_of(opened(store))) == ({}, (4, 4))


def test_two_writers_may_both_be_the_first(store):
    racing = InterruptingStore(store)
    table = older_table(racing)
    racing.before_commit = lambda: do(opened(store), append("a"))
    result = do(table, append("b"))
    assert (result.tries, paths(result.snapshot), versions_of(result.snapshot)) == (2, {"a", "b"}, (5, 5))
    assert (protocol_lines(store, 1), protocol_lines(store, 2)) == (1, 0)


def test_the_jvm_reads_the_version_from_the_state_and_the_hint(store):
    do(new_table(store), append("a"))
    checkpoint(store)
    key = state_manifest_key(1)
    assert decode_state_manifest(store.get(key), key).protocol_version == 5
    assert read_hint(store).protocol_version == 5


def test_a_state_of_a_jvm_table_without_our_splits_stays_readable_on_the_jvm(store):
    jvm_table(store, "a", protocol=3)
    checkpoint(store)
    key = state_manifest_key(1)
    assert decode_state_manifest(store.get(key), key).protocol_version == 4


# --- tables that hold splits of the JVM ----------------------------------------------------------------


@pytest.mark.parametrize("protocol", [1, 3, 4])
@pytest.mark.parametrize("intent", ADDING)
def test_splits_go_into_a_jvm_table_on_request_only(store, intent, protocol):
    jvm_table(store, "a", "b", protocol=protocol)
    before = log_keys(store)
    with pytest.raises(
        ProtocolUpgradeError, match=r"holds splits of the JVM.*neither read nor write"
    ) as error:
        do(opened(store), ADDING[intent])
    assert "spark.indextables.protocol.convertJvmTables" in str(error.value)
    assert (log_keys(store), live(opened(store))) == (before, {"a": 10, "b": 10})

    converted = do(opened(store, CONVERT), ADDING[intent]).snapshot
    assert versions_of(converted) == (5, 5)
    # The protocol records that the caller agreed: later writers need no option.
    assert do(opened(store), append("later")).version == converted.version + 1


def test_refused_before_a_row_is_written(store):
    jvm_table(store, "a", "b")
    before = [meta.key for meta in store.list("")]

    def rows() -> pa.RecordBatchReader:
        def batches():
            raise AssertionError("the rows were read")
            yield

        return pa.RecordBatchReader.from_batches(SCHEMA, batches())

    for write in (append_rows, overwrite_rows):
        with pytest.raises(ProtocolUpgradeError, match="convertJvmTables"):
            write(opened(store), rows())
    with pytest.raises(ProtocolUpgradeError, match="convertJvmTables"):
        merge_splits(opened(store), MergeRequest(), LocalRunner())
    with pytest.raises(ProtocolUpgradeError, match="convertJvmTables"):
        commit_files(opened(store), [add("x")], ["a"])
    assert [meta.key for meta in store.list("")] == before


def test_splits_uploaded_before_the_jvm_added_its_first_are_deleted(store):
    racing = InterruptingStore(store)
    table = jvm_table(racing)
    racing.before_commit = lambda: write_version(store, 1, add("a"))
    with pytest.raises(ProtocolUpgradeError, match="holds splits of the JVM"):
        append_rows(table, ROWS)
    assert [meta.key for meta in store.list("") if not meta.key.startswith(LOG_PREFIX)] == []
    assert live(opened(store)) == {"a": 10}


def test_rows_are_appended_to_a_jvm_table_on_request(store):
    jvm_table(store, "a")
    result = append_rows(opened(store, CONVERT), ROWS)
    assert (result.version, versions_of(result.snapshot), result.num_files) == (2, (5, 5), 2)


def test_a_table_property_is_a_request_too(store):
    set_properties(jvm_table(store, "a"), {"spark.indextables.protocol.convertJvmTables": "true"})
    assert versions_of(do(opened(store), append("b")).snapshot) == (5, 5)


def test_an_explicit_upgrade_is_a_request_too(store):
    upgrade_protocol(jvm_table(store, "a"), 5, 5)
    assert do(opened(store), append("b")).version == 3


@pytest.mark.parametrize("settings", [KEEP, KEEP | CONVERT], ids=["alone", "with convertJvmTables"])
@pytest.mark.parametrize("files", [(), ("a", "b")], ids=["empty", "with splits"])
def test_no_split_goes_into_a_table_that_must_not_be_upgraded(store, settings, files):
    jvm_table(store, *files)
    before = log_keys(store)
    with pytest.raises(ProtocolUpgradeError, match=r"needs version 5, but .*protocol\.autoUpgrade is false"):
        do(opened(store, settings), append("x"))
    with pytest.raises(ProtocolUpgradeError, match="autoUpgrade"):
        append_rows(opened(store, settings), ROWS)
    assert log_keys(store) == before


def test_a_new_table_has_version_5_whatever_the_settings(store):
    assert versions_of(do(new_table(store, KEEP), append("a")).snapshot) == (5, 5)


def test_everything_that_adds_no_split_works_on_a_jvm_table(store):
    jvm_table(store, "a", "b")
    store.put("a", b"0123456789")
    store.put("b", b"0123456789")
    write_checkpoint(opened(store))
    set_properties(opened(store), {"owner": "me"})
    drop_partitions(opened(store), "date = '2024-01-01'")
    assert live(opened(store)) == {}
    restore(opened(store), RestoreRequest(2))
    assert live(opened(store)) == {"a": 10, "b": 10}
    purge(opened(store), PurgeRequest(dry_run=False), LocalRunner())
    truncate_time_travel(opened(store), LocalRunner(), dry_run=False)
    assert live(opened(store)) == {"a": 10, "b": 10}
    assert versions_of(opened(store)) == (4, 4)
    states = [meta.key for meta in store.list(LOG_PREFIX) if meta.key.endswith("/_manifest.avro")]
    assert {decode_state_manifest(store.get(key), key).protocol_version for key in states} == {4}
