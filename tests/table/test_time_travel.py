"""Time travel by version and by timestamp, and the history: by commit times, not by file times."""

import os
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables import IndexTable
from indextables.errors import InvalidOptionError, VersionNotFoundError
from indextables.log.actions import CommitInfo, new_commit_id
from indextables.log.paths import LAST_CHECKPOINT_KEY, version_key
from indextables.ops.write import commit_files
from indextables.predicates.literals import timestamp_ms
from indextables.storage import ObjectStore, open_store
from indextables.table import Snapshot, load_snapshot
from indextables.table.history import HISTORY_SCHEMA, history_table, read_commits, version_at
from support.clock import VirtualClock
from support.tables import (
    PLAIN,
    add,
    after,
    append,
    busy_table,
    checkpoint,
    context,
    copy_all,
    do,
    live,
    memory_store,
    new_table,
    options,
    overwrite,
    paths,
    remove,
    write_version,
)

START_MS = 1_750_000_000_000
MINUTE_MS = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START_MS)


@pytest.fixture
def store(clock) -> ObjectStore:
    return memory_store(clock)


def commit_every_minute(store: ObjectStore, *intents) -> Snapshot:
    """Version v is committed v minutes after the start."""
    table = new_table(store)
    for intent in intents:
        store.clock.advance(60)
        table = do(table, intent).snapshot
    return table


def at(store: ObjectStore, moment_ms: int) -> int:
    return version_at(context(store), load_snapshot(context(store)).version, moment_ms)


# --- by version ---------------------------------------------------------------------------------------


def test_every_version_shows_its_own_files(store):
    history = busy_table(store)
    for version, files in enumerate(history):
        assert live(load_snapshot(context(store), version)) == files


# --- by timestamp ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset_ms", "version"),
    [
        (0, 0),
        (1, 0),
        (MINUTE_MS - 1, 0),
        (MINUTE_MS, 1),
        (2 * MINUTE_MS, 2),
        (3 * MINUTE_MS - 1, 2),
        (10**12, 3),
    ],
)
def test_timestamp_selects_the_newest_version_committed_at_or_before_it(store, offset_ms, version):
    commit_every_minute(store, append("a"), append("b"), append("c"))
    assert at(store, START_MS + offset_ms) == version


def test_timestamp_before_the_first_commit_is_an_error_that_names_the_earliest(store):
    commit_every_minute(store, append("a"))
    with pytest.raises(
        VersionNotFoundError, match=r"earliest one left, version 0, .* 2025-06-15T15:06:40.000"
    ):
        at(store, START_MS - 1)


def test_times_are_commit_times_and_not_file_times(store, tmp_path):
    """A copy of a table has new file times, here even in reverse order."""
    commit_every_minute(store, append("a"), append("b"), append("c"))
    copy = open_store(tmp_path / "copy")
    copy_all(store, copy)
    for version in range(4):
        os.utime(tmp_path / "copy" / version_key(version), (2_000_000_000 - version,) * 2)
    for version in range(4):
        assert at(copy, START_MS + version * MINUTE_MS) == version


def test_times_survive_the_version_files(store, tmp_path):
    """A checkpoint records the commit time of its version."""
    commit_every_minute(store, append("a"), append("b"), append("c"))
    checkpoint(store, "avro", 1)
    checkpoint(store, "json", 2)
    copy = memory_store(VirtualClock(START_MS))
    copy_all(store, copy)
    copy.delete_many([version_key(version) for version in range(3)])
    assert at(copy, START_MS + MINUTE_MS) == 1
    assert at(copy, START_MS + 2 * MINUTE_MS) == 2
    with pytest.raises(VersionNotFoundError, match="earliest one left, version 1"):
        at(copy, START_MS)


def test_commit_times_stay_monotonic_when_the_clock_runs_backwards(store, clock):
    table = commit_every_minute(store, append("a"))
    clock.advance(-3600)
    table = do(table, append("b")).snapshot
    clock.advance(-3600)
    do(table, append("c"))
    times = [commit.timestamp_ms for commit in read_commits(context(store), 3)]
    assert times == sorted(times)
    versions = [at(store, START_MS + offset) for offset in range(0, 3 * MINUTE_MS, 10_000)]
    assert versions == sorted(versions)


def test_clocks_of_other_writers_may_run_backwards(store):
    new_table(store)
    for version, timestamp in [
        (1, START_MS + 50),
        (2, START_MS + 20),
        (3, START_MS + 80),
        (4, START_MS + 60),
    ]:
        info = CommitInfo(commit_id=new_commit_id(), timestamp=timestamp, operation="WRITE")
        write_version(store, version, info, add(f"p{version}"))
    assert [at(store, START_MS + offset) for offset in (0, 20, 50, 60, 79, 80)] == [0, 0, 2, 2, 2, 4]
    checkpoint(store, "avro", 2)
    store.delete_many([version_key(version) for version in range(3)])
    assert [at(store, START_MS + offset) for offset in (50, 79, 80)] == [2, 2, 4]


def test_timestamp_never_selects_an_unreadable_version(store):
    """Version 0 is missing, so version 1 cannot be loaded although its file exists."""
    commit_every_minute(store, append("a"), append("b"), append("c"))
    checkpoint(store, "avro", 2)
    store.delete_many([version_key(0)])
    assert at(store, START_MS + 2 * MINUTE_MS) == 2
    with pytest.raises(VersionNotFoundError, match="earliest one left, version 2"):
        at(store, START_MS + MINUTE_MS)


@given(st.integers(-(10**12), 10**13))
def test_timestamp_text_is_exact_to_the_millisecond(milliseconds):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    assert timestamp_ms(moment) == milliseconds
    assert timestamp_ms(moment.isoformat()) == milliseconds
    assert timestamp_ms(moment.astimezone(timezone(timedelta(hours=-7))).isoformat()) == milliseconds


def test_timestamp_without_a_zone_is_utc():
    assert timestamp_ms("2026-01-31 12:00:00") == timestamp_ms("2026-01-31T12:00:00Z")
    assert timestamp_ms("2026-01-31") == timestamp_ms(datetime(2026, 1, 31))


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "31.01.2026"])
def test_invalid_timestamp_is_an_error(text):
    with pytest.raises(InvalidOptionError, match="is not a moment in time"):
        timestamp_ms(text)


def test_index_table_travels_by_version_and_by_timestamp(tmp_path):
    path = str(tmp_path / "table")
    store = open_store(path, clock=VirtualClock(START_MS))
    commit_every_minute(store, append("a"), append("b"))
    then = IndexTable(path, timestamp="2025-06-15T15:07:40.000Z", options=options(PLAIN))
    assert (then.version, then.files()["path"].to_pylist()) == (1, ["a"])
    assert IndexTable(path, version=1, options=options(PLAIN)).num_files == 1
    with pytest.raises(InvalidOptionError, match="not both"):
        IndexTable(path, version=1, timestamp="2026-01-01")


# --- history ------------------------------------------------------------------------------------------


def test_history_shows_operations_and_metrics(store):
    table = commit_every_minute(store)
    table = commit_files(table, [add("a", size=3), add("b", size=4)], []).snapshot
    table = commit_files(table, [], ["b", "not there"]).snapshot
    table = commit_files(table, [add("c", size=5)], ["a"]).snapshot
    rows = history_table(read_commits(table.context, table.version)).to_pylist(maps_as_pydicts="strict")
    assert [(row["version"], row["operation"], row["read_version"]) for row in rows] == [
        (3, "REPLACE", 2),
        (2, "DELETE", 1),
        (1, "WRITE", 0),
        (0, "CREATE TABLE", None),
    ]
    assert rows[2]["operation_metrics"] == {
        "numAddedFiles": 2,
        "numAddedBytes": 7,
        "numAddedRows": 7,
        "numRemovedFiles": 0,
    }
    assert rows[0]["operation_metrics"]["numRemovedFiles"] == 1
    assert len({row["commit_id"] for row in rows}) == 4
    assert all(row["engine_info"].startswith("indextables-python/") for row in rows[:3])


def test_history_of_an_empty_table(store):
    table = new_table(store)
    assert history_table(read_commits(table.context, 0)).num_rows == 1
    assert history_table([]).schema == HISTORY_SCHEMA


def test_history_ends_at_the_version_of_the_snapshot(store):
    table = commit_every_minute(store, append("a"), append("b"))
    assert [commit.version for commit in read_commits(table.context, 1)] == [0, 1]


def test_history_of_foreign_versions_takes_the_time_from_their_actions(store):
    new_table(store)
    write_version(store, 1, add("a", modified=START_MS + 5), add("b", modified=START_MS + 9))
    commit = read_commits(context(store), 1)[-1]
    assert (commit.timestamp_ms, commit.info) == (START_MS + 9, None)


def test_version_file_that_a_checkpoint_covers_may_be_unreadable(store, caplog):
    commit_every_minute(store, append("a"), append("b"), append("c"))
    checkpoint(store, "avro", 2)
    store.put(version_key(1), b"garbage")
    commits = read_commits(context(store), 3)
    assert [(commit.version, commit.info is None) for commit in commits] == [
        (0, True),
        (1, True),
        (2, False),
        (3, False),
    ]
    assert "the commit of version 1 cannot be read" in caplog.text
    assert at(store, START_MS + 2 * MINUTE_MS) == 2


# --- after a cleanup ---------------------------------------------------------------------


def test_snapshot_of_a_kept_version_after_older_ones_are_gone(store):
    table = after(new_table(store), append("a"), overwrite("b"), append("c"), remove("b"))
    checkpoint(store, "avro", 2)
    store.delete_many([version_key(version) for version in range(2)] + [LAST_CHECKPOINT_KEY])
    assert paths(load_snapshot(context(store), 2)) == {"b"}
    assert paths(load_snapshot(context(store), 3)) == {"b", "c"}
    assert paths(load_snapshot(context(store))) == paths(table)
    with pytest.raises(VersionNotFoundError, match="the oldest file of the log is of version 2"):
        load_snapshot(context(store), 1)
