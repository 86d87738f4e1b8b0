"""DESCRIBE STATE: the properties of a table's state."""

import json

import pytest

from indextables.log.actions import SkipAction
from indextables.log.paths import version_key
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.describe import STATE_SCHEMA, describe_state
from indextables.ops.write import set_metadata
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.load import catch_up
from support.tables import (
    add,
    after,
    append,
    checkpoint,
    context,
    do,
    memory_store,
    new_table,
    remove,
    write_version,
)


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


PROPERTIES = [
    "format",
    "version",
    "numFiles",
    "totalBytes",
    "numManifests",
    "numTombstones",
    "tombstoneRatio",
    "needs_compaction",
    "compaction_reason",
    "createdAt",
    "checkpointVersion",
    "versionsSinceCheckpoint",
    "protocolVersion",
    "openSkips",
    "gap",
]


def described(snapshot: Snapshot) -> dict[str, str | None]:
    table = describe_state(snapshot)
    assert table.schema == STATE_SCHEMA
    return dict(zip(*table.to_pydict().values(), strict=True))


def newest(store: ObjectStore) -> dict[str, str | None]:
    return described(load_snapshot(context(store)))


def test_table_without_a_checkpoint(store):
    found = described(after(new_table(store), append("a"), append("b")))
    assert found["format"] == "none"
    assert (found["version"], found["numFiles"], found["totalBytes"]) == ("2", "2", "20")
    assert (found["checkpointVersion"], found["versionsSinceCheckpoint"]) == (None, "3")
    assert found["gap"] is None


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("avro", "avro-state"),
        ("json", "json"),
        ("multi-part json", "json"),
        ("parquet", "parquet"),
        ("multi-part parquet", "parquet"),
    ],
)
def test_format_and_distance_from_the_checkpoint(store, form, name):
    after(new_table(store), append("a"))
    checkpoint(store, form)
    do(load_snapshot(context(store)), append("b"))
    found = newest(store)
    assert (found["format"], found["checkpointVersion"], found["versionsSinceCheckpoint"]) == (name, "1", "1")
    assert (found["version"], found["numFiles"]) == ("2", "2")
    assert list(found) == PROPERTIES
    of_states = set(PROPERTIES[4:10]) - {"compaction_reason"}
    assert {found[name] is None for name in of_states} == {form != "avro"}
    assert found["compaction_reason"] is None


def test_state_that_needs_compaction_says_so(store):
    table = after(new_table(store), *(append(f"p{n}") for n in range(4)))
    checkpoint(store)
    assert newest(store)["needs_compaction"] == "false"
    lenient = {"state.compaction.tombstoneThreshold": "1.0"}
    do(table, remove("p0"))
    write_checkpoint(load_snapshot(context(store, lenient)))
    found = newest(store)
    assert (found["numTombstones"], found["tombstoneRatio"]) == ("1", "33.33%")
    assert found["needs_compaction"] == "true"
    assert described(load_snapshot(context(store, lenient)))["needs_compaction"] == "false"


def test_gap_is_shown(store):
    after(new_table(store), append("a"), append("b"), append("c"))
    store.delete_many([version_key(2)])
    found = newest(store)
    assert (found["version"], found["gap"]) == ("1", "version 2 is missing or unreadable, version 3 exists")


def test_the_name_and_the_description_are_shown(store):
    table = new_table(store)
    assert list(described(table)) == PROPERTIES
    table = set_metadata(table, "events", "All events").snapshot
    assert list(described(table)) == [*PROPERTIES, "name", "description"]
    assert (described(table)["name"], described(table)["description"]) == ("events", "All events")
    checkpoint(store)
    assert newest(store)["name"] == "events"


def test_open_skips_are_counted(store):
    after(new_table(store), append("a", "b"))
    skip = SkipAction(path="a", skip_timestamp=1, reason="damaged", operation="merge")
    write_version(store, 2, skip, add("c"))
    assert newest(store)["openSkips"] == "1"
    checkpoint(store)
    assert newest(store)["openSkips"] == "1"
    do(load_snapshot(context(store)), remove("a"))
    assert newest(store)["openSkips"] == "0"


def test_open_skips_are_shown_with_path_reason_count_and_retry_time(store):
    after(new_table(store), append("a", "b", "c"))
    recorded = SkipAction(
        path="b",
        skip_timestamp=0,
        reason='a "bad" footer',
        operation="merge",
        skip_count=3,
        retry_after=86_400_123,
    )
    unrecorded = SkipAction(path="a", skip_timestamp=3_600_000, reason="missing", operation="merge")
    write_version(store, 2, recorded, unrecorded)
    expected = {
        "openSkip.a": {"reason": "missing", "skipCount": 1, "retryAfter": "1970-01-02T01:00:00.000Z"},
        "openSkip.b": {"reason": 'a "bad" footer', "skipCount": 3, "retryAfter": "1970-01-02T00:00:00.123Z"},
    }
    assert skips(newest(store)) == expected
    checkpoint(store)
    assert skips(newest(store)) == expected
    do(load_snapshot(context(store)), remove("b"))
    assert list(skips(newest(store))) == ["openSkip.a"]


def test_the_retry_time_of_a_skip_without_one_follows_the_cooldown(store):
    after(new_table(store), append("a"))
    write_version(store, 2, SkipAction(path="a", skip_timestamp=0, reason="damaged", operation="merge"))
    found = described(load_snapshot(context(store, {"skippedFiles.cooldownDuration": "1.5"})))
    assert skips(found)["openSkip.a"]["retryAfter"] == "1970-01-01T01:30:00.000Z"


def test_a_retry_time_beyond_all_calendars_is_a_number(store):
    after(new_table(store), append("a"))
    skip = SkipAction(path="a", skip_timestamp=0, reason="x", operation="merge", retry_after=2**62)
    write_version(store, 2, skip)
    assert skips(newest(store))["openSkip.a"]["retryAfter"] == f"{2**62} ms"


def skips(found: dict[str, str | None]) -> dict[str, dict[str, object]]:
    return {name: json.loads(value) for name, value in found.items() if name.startswith("openSkip.")}


def test_handle_that_was_open_before_the_checkpoint_shows_it_after_a_refresh(store):
    handle = after(new_table(store), append("a"))
    checkpoint(store)
    assert described(handle)["format"] == "none"
    assert described(catch_up(handle).snapshot)["format"] == "avro-state"
