"""Creating a table: version 0, exactly once, and only on a store with put-if-absent."""

import orjson
import pyarrow as pa
import pytest

from indextables.errors import (
    InvalidSchemaError,
    LogCorruptedError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedStoreError,
)
from indextables.log.paths import version_key
from indextables.log.version_file import decompress
from indextables.ops.write import create_with_rows
from indextables.storage import PROBE_PREFIX, ObjectStore
from indextables.table import Snapshot, create_table, load_snapshot
from indextables.table.create import plan_table
from support.faults import NoConditionalPutStore
from support.tables import (
    PARTITION_BY,
    SCHEMA,
    append,
    context,
    do,
    log_keys,
    memory_store,
    new_table,
    write_version,
)

TEXT = "spark.indextables.indexing.typemap.message"


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


def create(store: ObjectStore, schema=SCHEMA, partition_by=PARTITION_BY, **properties: str) -> Snapshot:
    return create_table(context(store), schema, partition_by, properties)


def actions(store: ObjectStore, version: int) -> list[dict]:
    lines = decompress(store.get(version_key(version)), "version file")
    return [orjson.loads(line) for line in lines.splitlines()]


def test_version_0_has_exactly_one_protocol_and_one_metadata_action_and_nothing_else(store):
    snapshot = create(store, owner="me")
    protocol, metadata = actions(store, 0)
    assert protocol == {"protocol": {"minReaderVersion": 5, "minWriterVersion": 5}}
    assert set(metadata) == {"metaData"}
    assert metadata["metaData"]["id"] == snapshot.metadata.id
    assert metadata["metaData"]["partitionColumns"] == ["date"]
    assert metadata["metaData"]["format"] == {"provider": "indextables", "options": {}}
    assert metadata["metaData"]["configuration"] == {"owner": "me", "maxFieldId": "3"}
    assert metadata["metaData"]["createdTime"] > 1_600_000_000_000
    assert orjson.loads(metadata["metaData"]["schemaString"])["type"] == "struct"
    assert log_keys(store) == [version_key(0)]


def test_creating_the_same_table_again_opens_it(store):
    first = create(store)
    do(first, append("a"))
    again = create(store)
    assert (again.metadata.id, again.version, again.num_files) == (first.metadata.id, 1, 1)


@pytest.mark.parametrize(
    ("schema", "partition_by", "difference"),
    [
        (SCHEMA.append(pa.field("more", pa.int64())), PARTITION_BY, "another schema"),
        (SCHEMA.remove(0), PARTITION_BY, "another schema"),
        (SCHEMA.set(0, pa.field("id", pa.int32())), PARTITION_BY, "another schema"),
        (SCHEMA, (), r"the partition columns \['date'\]"),
        (SCHEMA, ("date", "id"), r"the partition columns \['date'\]"),
    ],
)
def test_another_definition_at_the_same_path_is_rejected(store, schema, partition_by, difference):
    first = create(store)
    with pytest.raises(TableAlreadyExistsError, match=difference):
        create(store, schema, partition_by)
    assert load_snapshot(context(store)).metadata == first.metadata
    assert log_keys(store) == [version_key(0)]


def test_other_index_settings_at_the_same_path_are_rejected(store):
    create(store, **{TEXT: "text"})
    create(store, **{TEXT: "text"})
    create(store)
    with pytest.raises(TableAlreadyExistsError, match=f"another value of {TEXT}"):
        create(store, **{TEXT: "string"})


def test_other_properties_at_the_same_path_are_accepted(store):
    """Properties may have changed since the table was created."""
    create(store, owner="me")
    assert create(store, owner="you").metadata.configuration == {"owner": "me", "maxFieldId": "3"}


@pytest.mark.parametrize("partition_by", [("nowhere",), ("date", "date"), ("id", "date", "message")])
def test_invalid_partition_columns_are_rejected_before_anything_is_written(store, partition_by):
    with pytest.raises(InvalidSchemaError):
        create(store, SCHEMA, partition_by)
    assert log_keys(store) == []


def test_store_that_ignores_put_if_absent_is_rejected():
    inner = memory_store()
    with pytest.raises(UnsupportedStoreError, match="put-if-absent"):
        create(NoConditionalPutStore(inner))
    assert log_keys(inner) == []


def test_probe_leaves_nothing_behind(store):
    create(store)
    assert not [key for key in log_keys(store) if key.startswith(PROBE_PREFIX)]


def test_concurrent_create_opens_the_table_that_was_created_first(store):
    winner = new_table(store)
    assert create(store).metadata.id == winner.metadata.id


def test_table_whose_version_0_is_gone_is_not_created_again(store):
    """Its log is damaged: a new version 0 would make it another table."""
    snapshot = create(store)
    do(do(snapshot, append("a")).snapshot, append("b"))
    store.delete_many([version_key(0)])
    with pytest.raises(LogCorruptedError, match=version_key(0)):
        create(store)
    assert version_key(0) not in log_keys(store)


def test_version_0_without_metadata_is_an_error(store):
    write_version(store, 0, more='{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n')
    with pytest.raises(LogCorruptedError, match="no metaData action"):
        create(store)


# --- with the first rows in the same commit -----------------------------------------------------------


def planned(store: ObjectStore, schema=SCHEMA, **properties: str) -> Snapshot:
    return plan_table(context(store), schema, (), properties)


def rows(schema=SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([{}], schema)


def test_a_table_and_its_first_rows_are_one_version(store):
    result = create_with_rows(planned(store), rows())
    assert (result.version, result.num_rows, log_keys(store)) == (0, 1, [version_key(0)])
    assert [next(iter(action)) for action in actions(store, 0)] == [
        "commitInfo",
        "protocol",
        "metaData",
        "add",
    ]
    assert result.snapshot.header.doc_mappings


def test_a_planned_table_does_not_exist_until_its_rows_are_committed(store):
    plan = planned(store)
    assert plan.version == -1
    with pytest.raises(TableNotFoundError):
        load_snapshot(context(store))

    def broken():
        yield rows().to_batches()[0]
        raise RuntimeError("the input broke")

    with pytest.raises(RuntimeError):
        create_with_rows(plan, pa.RecordBatchReader.from_batches(SCHEMA, broken()))
    assert list(store.list("")) == []


def test_rows_are_appended_if_another_writer_creates_the_same_table_first(store):
    first, second = planned(store), planned(store)
    create_with_rows(first, rows())
    result = create_with_rows(second, rows())
    assert (result.version, result.num_rows) == (1, 2)
    assert result.snapshot.metadata.id == first.metadata.id


def test_no_split_stays_if_another_writer_creates_another_table_first(store):
    plan = planned(store)
    new_table(store)
    create(store)
    before = [meta.key for meta in store.list("")]
    with pytest.raises(TableAlreadyExistsError):
        create_with_rows(plan, rows())
    assert [meta.key for meta in store.list("")] == before


def test_a_table_without_rows_is_created_empty(store):
    result = create_with_rows(planned(store), rows().slice(0, 0))
    assert (result.version, result.num_rows, result.num_files) == (0, 0, 0)
