"""Log content of newer writers that this release does not know survives every rewrite."""

import itertools
from typing import Any

import orjson
import pytest

from indextables.log.actions import AddAction, encode_actions
from indextables.log.decode import UnknownContent
from indextables.log.paths import version_key
from indextables.ops.checkpoint.operation import compact
from indextables.ops.write import set_properties
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from indextables.table.log_reader import read_base
from support.tables import (
    FORMATS,
    add,
    append,
    checkpoint,
    context,
    do,
    live,
    memory_store,
    new_table,
    remove,
    write_version,
)

UNKNOWN_ACTION = {"clustering": {"columns": ["a", "b"], "when": 3.5, "nested": {"deep": [1, None]}}}
UNKNOWN_FIELDS = {
    "rowTracking": {"start": 12},
    "quality": 0.5,
    "läbel": "ünïcode",
    "flag": False,
    "list": [1, "2"],
}
UNKNOWN_METADATA_FIELD = {"governance": {"owner": "somebody"}}


@pytest.fixture
def store() -> ObjectStore:
    """Version 2 is by a newer writer, versions 1 and 3 are ours."""
    store = memory_store()
    table = do(new_table(store), append("ours")).snapshot
    metadata = orjson.loads(encode_actions([table.metadata]))["metaData"]
    lines = [
        {"metaData": {**metadata, **UNKNOWN_METADATA_FIELD}},
        {"add": {**as_json(add("newer", size=20)), **UNKNOWN_FIELDS}},
        {"add": {**as_json(add("doomed")), **UNKNOWN_FIELDS}},
        UNKNOWN_ACTION,
        {
            "mergeskip": {
                "path": "ours",
                "skipTimestamp": 1,
                "reason": "r",
                "operation": "merge",
                "later": [1],
            }
        },
        {"txn": {"appId": "stream", "version": 7}},
    ]
    write_version(store, 2, more="".join(f"{orjson.dumps(line).decode()}\n" for line in lines))
    do(load_snapshot(context(store)), remove("doomed"))
    return store


def as_json(action: AddAction) -> dict[str, Any]:
    return orjson.loads(encode_actions([action]))["add"]


def assert_kept(store: ObjectStore) -> None:
    """Check the newest checkpoint alone: the version files before it are deleted."""
    snapshot = load_snapshot(context(store))
    store.delete_many([version_key(version) for version in range(snapshot.version + 1)])
    snapshot = load_snapshot(context(store))
    header, source = read_base(snapshot.context, snapshot.segment.base, UnknownContent.KEEP)
    unknown = source.load(None, None).entries.select(["path", "unknownFields"])
    by_path = dict(zip(*unknown.to_pydict().values(), strict=True))
    assert by_path["ours"] is None
    assert orjson.loads(by_path["newer"]) == UNKNOWN_FIELDS
    assert "doomed" not in by_path
    assert [orjson.loads(action) for action in header.unknown_actions] == [UNKNOWN_ACTION]
    assert header.metadata.unknown == UNKNOWN_METADATA_FIELD
    assert header.skips["ours"].unknown == {"later": [1]}
    assert header.transactions == {"stream": 7}


def test_unknown_content_does_not_disturb_readers(store):
    assert live(load_snapshot(context(store))) == {"ours": 10, "newer": 20}


@pytest.mark.parametrize("form", FORMATS)
def test_unknown_content_survives_a_checkpoint(store, form):
    checkpoint(store, form)
    assert_kept(store)


@pytest.mark.parametrize(("first", "then"), list(itertools.permutations(FORMATS, 2)))
def test_unknown_content_survives_a_later_checkpoint_in_another_format(store, first, then):
    checkpoint(store, first)
    do(load_snapshot(context(store)), append("later"))
    store.delete_many([version_key(version) for version in range(4)])
    checkpoint(store, then)
    assert_kept(store)


@pytest.mark.parametrize("form", FORMATS)
def test_unknown_content_survives_a_later_checkpoint_in_the_same_format(store, form):
    checkpoint(store, form, 2)
    store.delete_many([version_key(version) for version in range(3)])
    checkpoint(store, form)
    assert_kept(store)


def test_unknown_content_survives_compaction(store):
    checkpoint(store, "avro", 2)
    do(load_snapshot(context(store)), append("later"))
    checkpoint(store)
    compact(load_snapshot(context(store)))
    assert_kept(store)


def test_property_change_keeps_the_unknown_fields_of_the_metadata(store):
    set_properties(load_snapshot(context(store)), {"owner": "me"})
    metadata = load_snapshot(context(store)).metadata
    assert (metadata.unknown, metadata.configuration) == (
        UNKNOWN_METADATA_FIELD,
        {"owner": "me", "maxFieldId": "3"},
    )
