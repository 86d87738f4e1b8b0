"""DESCRIBE TRANSACTION LOG lists every action in order."""

import json

import pytest

from indextables.errors import LogCorruptedError
from indextables.log.actions import Metadata, ProtocolAction, SkipAction, TransactionAction
from indextables.log.paths import SHARED_MANIFEST_PREFIX, json_checkpoint_key, version_key
from indextables.ops.describe import LOG_SCHEMA, describe_log
from indextables.schema import to_spark_json
from indextables.table import load_snapshot
from support.tables import (
    SCHEMA,
    add,
    after,
    append,
    busy_table,
    checkpoint,
    context,
    live,
    memory_store,
    merge,
    new_table,
    remove,
    write_version,
)


@pytest.fixture
def store():
    return memory_store()


def described(store, *, include_all=False):
    table = describe_log(load_snapshot(context(store)), include_all=include_all)
    assert table.schema.equals(LOG_SCHEMA)
    return table.to_pylist(maps_as_pydicts="strict")


def files(rows):
    """The adds and removes as short tuples."""
    return [
        (row["version"], row["action"], row["path"]) for row in rows if row["action"] in ("add", "remove")
    ]


def test_actions_come_in_the_order_of_the_log(store):
    after(new_table(store), append("a", "b"), remove("b"), append("b"), merge((["a", "b"], ["ab"])))
    rows = described(store)
    assert files(rows) == [
        (1, "add", "a"),
        (1, "add", "b"),
        (2, "remove", "b"),
        (3, "add", "b"),
        (4, "remove", "a"),
        (4, "remove", "b"),
        (4, "add", "ab"),
    ]
    assert [row["action"] for row in rows if row["version"] == 0] == ["protocol", "metaData"]
    assert [row["action"] for row in rows if row["version"] == 1] == ["commitInfo", "add", "add"]
    assert all(row["log_file"] == version_key(row["version"]) and not row["is_checkpoint"] for row in rows)
    added = next(row for row in rows if row["path"] == "a")
    assert (added["size"], added["num_records"], added["data_change"]) == (10, 10, True)
    assert added["partition_values"] == {"date": "2024-01-01"}
    assert next(row for row in rows if row["path"] == "ab")["data_change"] is False


@pytest.mark.parametrize("form", ["avro", "json", "multi-part json", "parquet", "multi-part parquet"])
def test_versions_that_a_checkpoint_covers_are_shown_from_the_checkpoint(store, form):
    history = busy_table(store)
    checkpoint(store, form, version=6)
    rows = described(store)
    covered = [row for row in rows if row["is_checkpoint"]]
    assert {row["version"] for row in covered} == {6}
    assert {row["path"]: row["size"] for row in covered if row["action"] == "add"} == history[6]
    assert [row["action"] for row in covered[:2]] == ["protocol", "metaData"]
    assert min(row["version"] for row in rows if not row["is_checkpoint"]) == 7


def test_include_all_has_the_versions_that_the_checkpoint_covers_too(store):
    history = busy_table(store)
    checkpoint(store, "avro", version=6)
    some, everything = described(store), described(store, include_all=True)
    assert [row for row in everything if row in some] == some
    of_versions = [row for row in everything if not row["is_checkpoint"]]
    assert {row["version"] for row in of_versions} == set(range(len(history)))
    replayed = {}
    for row in of_versions:
        if row["action"] == "add":
            replayed[row["path"]] = row["size"]
        elif row["action"] == "remove":
            replayed.pop(row["path"], None)
    assert replayed == history[-1] == live(load_snapshot(context(store)))


def test_small_actions_are_shown_completely(store):
    new_table(store)
    skip = SkipAction(path="a", skip_timestamp=5000, reason="damaged", operation="merge", size=7)
    transaction = TransactionAction(app_id="stream", version=3, last_updated=6000)
    write_version(store, 1, add("a"), skip, transaction)
    rows = {row["action"]: row for row in described(store) if row["version"] == 1}
    assert rows["mergeskip"]["path"] == "a"
    assert rows["mergeskip"]["size"] == 7
    assert rows["mergeskip"]["timestamp"].timestamp() == 5
    assert json.loads(rows["mergeskip"]["details"])["reason"] == "damaged"
    assert json.loads(rows["txn"]["details"]) == {"appId": "stream", "version": 3, "lastUpdated": 6000}
    assert rows["txn"]["timestamp"].timestamp() == 6
    checkpoint(store)
    covered = {row["action"]: row for row in described(store) if row["is_checkpoint"]}
    assert json.loads(covered["mergeskip"]["details"])["reason"] == "damaged"
    assert json.loads(covered["txn"]["details"])["version"] == 3


@pytest.mark.filterwarnings("ignore:table property .* is ignored")
def test_credentials_in_properties_are_not_shown(store):
    metadata = Metadata(
        id="an-id",
        schema_string=to_spark_json(SCHEMA),
        configuration={
            "fs.s3a.secret.key": "canary",
            "spark.indextables.aws.secretKey": "canary",
            "owner": "me",
        },
    )
    write_version(store, 0, ProtocolAction(min_reader_version=3, min_writer_version=3), metadata)
    for form in ("avro", "json"):
        details = [
            row["details"] for row in described(store, include_all=True) if row["action"] == "metaData"
        ]
        assert all(json.loads(text)["configuration"]["owner"] == "me" for text in details)
        assert "canary" not in repr(details)
        checkpoint(store, form)


def test_a_version_that_cannot_be_read_is_named_and_the_others_are_shown(store):
    after(new_table(store), append("a"), append("b"), append("c"))
    checkpoint(store)
    store.put(version_key(2), b"not json")
    rows = described(store, include_all=True)
    (bad,) = (row for row in rows if row["action"] == "unreadable")
    assert (bad["version"], bad["log_file"]) == (2, version_key(2))
    assert "not json" in bad["details"] or "JSON" in bad["details"]
    assert files([row for row in rows if not row["is_checkpoint"]]) == [(1, "add", "a"), (3, "add", "c")]


def test_a_damaged_checkpoint_is_skipped(store):
    after(new_table(store), append("a"))
    checkpoint(store, "json")
    store.put(json_checkpoint_key(1), b"{")
    assert files(described(store)) == [(1, "add", "a")]


def test_a_damaged_manifest_raises_instead_of_shortening_the_list(store):
    after(new_table(store), append("a"))
    checkpoint(store)
    (manifest,) = (meta.key for meta in store.list(SHARED_MANIFEST_PREFIX))
    store.put(manifest, store.get(manifest)[:-30])
    with pytest.raises(LogCorruptedError):
        described(store)


def test_a_table_without_any_file_has_its_definition_only(store):
    new_table(store)
    assert [row["action"] for row in described(store)] == ["protocol", "metaData"]
