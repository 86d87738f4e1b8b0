"""The difference of two states: the same as that of their entries, with few manifests opened."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from indextables.errors import CheckpointCorruptionError
from indextables.log.paths import LOG_PREFIX, state_manifest_key, version_key
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.state.state_manifest import decode_state_manifest, encode_state_manifest
from indextables.storage import ObjectStore
from indextables.table import ChangeSet, Snapshot, changes_since, load_snapshot
from indextables.table.history import read_commits, version_before_changes
from indextables.table.intent import Append, Intent
from support.clock import VirtualClock
from support.faults import FaultStore
from support.tables import add, after, append, context, memory_store, merge, new_table, overwrite, remove

# A manifest holds the files of one day. States are compacted only when a test asks for it.
A_MANIFEST_PER_DAY = {
    "state.entriesPerManifest": "10",
    "state.compaction.tombstoneThreshold": "1.0",
    "state.compaction.maxManifests": "1000",
}


@pytest.fixture
def store() -> ObjectStore:
    """States without version files, as some writers leave them: version 1 has five days, of ten files each."""
    store = memory_store()
    next_state(store, Append(tuple(file for day in range(1, 6) for file in files_of(day))))
    return store


def files_of(day: int, numbers: range = range(10)) -> list:
    return [add(f"{day}/{number}", date=f"2024-01-{day:02}") for number in numbers]


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store, A_MANIFEST_PER_DAY))


def next_state(store: ObjectStore, *intents: Intent, is_compact: bool = False) -> int:
    """Commit, write the state, and delete the version files, so that only states can be compared."""
    log = [meta.key for meta in store.list(LOG_PREFIX)]
    snapshot = after(newest(store) if log else new_table(store, A_MANIFEST_PER_DAY), *intents)
    report = (compact if is_compact else write_checkpoint)(snapshot)
    store.delete_many([version_key(version) for version in range(1, report.version + 1)])
    return report.version


def changes(store: ObjectStore, since: int) -> ChangeSet:
    return changes_since(newest(store), since)


def opened(store: ObjectStore, since: int) -> list[str]:
    """The days of the manifests that the changes since a version open."""
    counting = FaultStore(store)
    changes(counting, since)
    keys = [call.key for call in counting.calls if call.operation == "get" and "/manifests/" in call.key]
    days = {
        LOG_PREFIX + info.path: info.partition_bounds["date"].min[-2:]
        for version in range(1, 10)
        for info in state(store, version)
    }
    return sorted(days[key] for key in keys)


def state(store: ObjectStore, version: int) -> tuple:
    key = state_manifest_key(version)
    if key not in {meta.key for meta in store.list(LOG_PREFIX)}:
        return ()
    return decode_state_manifest(store.get(key), key).manifests


def test_manifests_of_versions_before_the_change_stay_closed_after_a_compaction(store):
    """The compaction rewrote every manifest. The range of versions shows which manifests have new files."""
    next_state(store, Append(tuple(files_of(3, range(10, 15)))), is_compact=True)
    assert not {info.path for info in state(store, 1)} & {info.path for info in state(store, 2)}
    found = changes(store, 1)
    assert found.adds["path"].to_pylist() == [f"3/{number}" for number in range(10, 15)]
    assert found.removes.num_rows == 0
    assert set(opened(store, 1)) == {"03"}


def test_compaction_without_changes_is_recognised_without_opening_a_manifest(store):
    next_state(store, Append(tuple(files_of(6, range(5)))))
    next_state(store, Append(tuple(files_of(6, range(5, 10)))))
    assert next_state(store, is_compact=True) == 4
    assert state(store, 4) != state(store, 3)
    found = changes(store, 3)
    assert (found.adds.num_rows, found.removes.num_rows) == (0, 0)
    assert opened(store, 3) == []


def test_removed_files_are_found_by_opening_the_manifest_with_its_tombstones_once(store):
    next_state(store, remove("2/7"))
    found = changes(store, 1)
    assert (found.adds.num_rows, found.removes["path"].to_pylist()) == (0, ["2/7"])
    assert found.removes["size"].to_pylist() == [10]
    assert opened(store, 1) == ["02"]


def test_removes_are_found_across_a_compaction(store):
    next_state(store, remove("2/7"), append("new"), is_compact=True)
    found = changes(store, 1)
    assert (found.adds["path"].to_pylist(), found.removes["path"].to_pylist()) == (["new"], ["2/7"])


def test_file_that_is_added_again_is_a_change_only_if_it_differs(store):
    next_state(store, remove("2/7", "2/8"))
    same = Append(tuple(files_of(2, range(7, 8))))
    next_state(store, same, Append((add("2/8", size=99, date="2024-01-02"),)))
    found = changes(store, 1)
    assert (found.adds["path"].to_pylist(), found.removes.num_rows) == (["2/8"], 0)


def test_changes_since_a_timestamp_where_only_states_are_left():
    clock = VirtualClock()
    store = memory_store(clock)
    for day in (1, 2, 3):
        next_state(store, Append(tuple(files_of(day))))
        clock.advance(60)
    next_state(store, Append(tuple(files_of(2, range(10, 13)))), is_compact=True)
    times = {commit.version: commit.timestamp_ms for commit in read_commits(context(store), 4)}
    for version, days in {1: [2, 3, 2], 2: [3, 2], 3: [2], 4: []}.items():
        since = version_before_changes(context(store), 4, times[version] + 59_000)
        found = changes(store, since).adds
        assert since == version
        assert {path[0] for path in found["path"].to_pylist()} == {str(day) for day in days}
        assert all(stamp > times[version] for stamp in found["addedAtTimestamp"].to_pylist())


def test_version_ranges_of_other_writers_are_not_trusted(store):
    """A manifest without our typed bounds is opened, and its entries are compared."""
    next_state(store, Append(tuple(files_of(3, range(10, 15)))), is_compact=True)
    key = state_manifest_key(2)
    found = decode_state_manifest(store.get(key), key)
    manifests = [
        replace(info, min_added_at_version=0, max_added_at_version=0, has_typed_bounds=False)
        for info in found.manifests
    ]
    store.put(key, encode_state_manifest(replace(found, manifests=tuple(manifests))))
    assert changes(store, 1).adds["path"].to_pylist() == [f"3/{number}" for number in range(10, 15)]


PATHS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True)
STEPS = st.one_of(
    st.builds(lambda paths, day: append(*paths, date=f"2024-01-0{day}"), PATHS, st.integers(1, 3)),
    st.builds(
        lambda paths, size: Append(tuple(add(p, size=size) for p in paths)), PATHS, st.integers(10, 12)
    ),
    st.builds(lambda paths: remove(*paths), PATHS),
    st.builds(lambda paths: overwrite(*paths), PATHS),
)


@given(st.lists(st.tuples(st.lists(STEPS, max_size=2), st.booleans()), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_any_two_states_differ_as_their_entries_do(steps):
    store = memory_store()
    next_state(store, append("z"))
    versions = {0, *(next_state(store, *intents, is_compact=is_compact) for intents, is_compact in steps)}
    kept = [version for version in versions if state(store, version)]
    for since, until in combinations(sorted(kept), 2):
        before, after_ = (files(load_snapshot(context(store), version)) for version in (since, until))
        found = changes_since(load_snapshot(context(store), until), since)
        assert files_in(found.adds) == after_ - before
        assert set(found.removes["path"].to_pylist()) == {p for p, *_ in before} - {p for p, *_ in after_}


def files(snapshot: Snapshot) -> set[tuple[str, int, int]]:
    return files_in(snapshot.entries)


def files_in(entries) -> set[tuple[str, int, int]]:
    rows = entries.select(["path", "size", "modificationTime"]).to_pylist()
    assert len({row["path"] for row in rows}) == len(rows)
    return {tuple(row.values()) for row in rows}


def test_merge_is_adds_and_removes_in_a_comparison(store):
    next_state(store, merge((["1/0", "1/1"], ["merged"])))
    found = changes(store, 1)
    assert found.adds["path"].to_pylist() == ["merged"]
    assert found.adds["dataChange"].to_pylist() == [False]
    assert sorted(found.removes["path"].to_pylist()) == ["1/0", "1/1"]


@pytest.mark.parametrize("is_recoverable", [True, False])
def test_missing_manifest_is_replaced_by_other_files_or_is_a_typed_error(store, is_recoverable):
    write_checkpoint(after(newest(store), append("new")))
    assert compact(load_snapshot(context(store))).version == 3
    store.delete_many([LOG_PREFIX + info.path for info in state(store, 3)])
    store.delete_many([version_key(version) for version in ((2,) if is_recoverable else (2, 3))])
    if is_recoverable:
        assert changes(store, 1).adds["path"].to_pylist() == ["new"]
    else:
        with pytest.raises(CheckpointCorruptionError, match="a file that it refers to is missing"):
            changes(store, 1)
