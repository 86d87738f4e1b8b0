"""`changes` means one thing: the version files and a comparison of two states give the same answer."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import CheckpointCorruptionError, ConcurrentMaintenanceError, ObjectNotFoundError
from indextables.log.paths import LOG_PREFIX, state_manifest_key, version_key
from indextables.ops.checkpoint.operation import compact, read_for_rewrite, write_checkpoint
from indextables.ops.runner import LocalRunner
from indextables.ops.truncate import truncate_time_travel
from indextables.storage import ObjectStore
from indextables.table import changes_since, load_snapshot
from indextables.table.intent import Append, Restore
from support.faults import FaultStore
from support.tables import (
    add,
    after,
    append,
    context,
    copy_all,
    do,
    drop,
    memory_store,
    merge,
    new_table,
    overwrite,
    remove,
)

# States with several manifests, which are compacted only when a step says so.
RULES = {
    "state.entriesPerManifest": "2",
    "state.compaction.tombstoneThreshold": "1.0",
    "state.compaction.maxManifests": "1000",
}

PATHS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True)
STEPS = st.one_of(
    st.builds(lambda paths, day: append(*paths, date=f"2024-01-0{day}"), PATHS, st.integers(1, 2)),
    # The same paths again: as other files, or as the same ones.
    st.builds(
        lambda paths, size, modified: Append(tuple(add(p, size=size, modified=modified) for p in paths)),
        PATHS,
        st.integers(10, 11),
        st.integers(1, 2),
    ),
    st.builds(lambda paths: remove(*paths), PATHS),
    st.builds(lambda paths: overwrite(*paths), PATHS),
    st.builds(lambda day: drop(f"date = '2024-01-0{day}'"), st.integers(1, 2)),
    st.just("merge"),
    st.just("compact"),
    st.integers(0, 5).map(lambda version: ("restore", version)),
)


def carry_out(store: ObjectStore, step) -> None:
    """Commit a step, and write the state of the new version."""
    table = load_snapshot(context(store, RULES))
    match step:
        case "merge":
            live = sorted(table.entries["path"].to_pylist())[:2]
            step = merge((live, [f"merged-{table.version}"])) if live else append("z")
        case "compact":
            compact(table)
            return
        case ("restore", version):
            content = read_for_rewrite(load_snapshot(context(store, RULES), min(version, table.version)))
            step = Restore(content.entries, content.header.metadata)
    write_checkpoint(do(table, step).snapshot)


def states_alone(store: ObjectStore) -> ObjectStore:
    """A copy of the table without its version files, as some writers leave it."""
    copy = memory_store()
    copy_all(store, copy)
    newest = load_snapshot(context(store, RULES)).version
    copy.delete_many([version_key(version) for version in range(1, newest + 1)])
    return copy


@given(st.lists(STEPS, min_size=1, max_size=7))
@settings(max_examples=30)
def test_version_files_and_states_give_the_same_changes(steps):
    store = memory_store()
    new_table(store, RULES)
    for step in steps:
        carry_out(store, step)
    write_checkpoint(load_snapshot(context(store, RULES), 0))
    copy = states_alone(store)
    newest = load_snapshot(context(store, RULES)).version
    for since, until in combinations(range(newest + 1), 2):
        by_versions = changes_since(load_snapshot(context(store, RULES), until), since)
        by_states = changes_since(load_snapshot(context(copy, RULES), until), since)
        assert by_versions == by_states
        before, expected = (
            dict(load_snapshot(context(store), version).entries.select(["path", "size"]).to_pandas().values)
            for version in (since, until)
        )
        for path in by_versions.removes["path"].to_pylist():
            del before[path]
        columns = by_versions.adds.select(["path", "size"]).to_pydict()
        assert before | dict(zip(*columns.values(), strict=True)) == expected


def test_changes_stay_the_same_where_time_travel_was_truncated():
    """Truncation deletes the versions before the newest one; the changes since that one are unaffected."""
    store = memory_store()
    table = after(new_table(store), append("a", "b"), remove("a"))
    truncate_time_travel(table, LocalRunner(1), dry_run=False)
    newest = load_snapshot(context(store)).version
    table = after(load_snapshot(context(store)), append("c"), remove("c"), append("d"), remove("b"))
    found = changes_since(table, newest)
    assert (found.adds["path"].to_pylist(), found.removes["path"].to_pylist()) == (["d"], ["b"])


class Vanishing(FaultStore):
    """A store on which a key is missing once `is_active`."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        super().__init__(inner)
        self.key, self.is_active = key, False

    def get(self, key: str) -> bytes:
        if self.is_active and key == self.key:
            raise ObjectNotFoundError(f"{key} does not exist")
        return super().get(key)


@pytest.fixture
def store() -> ObjectStore:
    """The states of versions 1 and 2, without version files."""
    store = memory_store()
    write_checkpoint(after(new_table(store, RULES), append("a", "b")))
    write_checkpoint(do(load_snapshot(context(store, RULES)), append("c")).snapshot)
    store.delete_many([version_key(version) for version in range(3)])
    return store


def new_manifest(store: ObjectStore) -> str:
    """The manifest that only the newer state refers to."""
    state = load_snapshot(context(store, RULES)).source.state
    (info,) = [info for info in state.manifests if info.min_added_at_version == 2]
    return LOG_PREFIX + info.path


def test_manifest_that_is_missing_in_a_state_is_damage(store):
    vanishing = Vanishing(store, new_manifest(store))
    table = load_snapshot(context(vanishing, RULES))
    vanishing.is_active = True
    with pytest.raises(CheckpointCorruptionError, match="a file that it refers to is missing"):
        changes_since(table, 1)


def test_manifest_that_cleanup_deletes_during_the_comparison_is_concurrent_maintenance(store):
    vanishing = Vanishing(store, new_manifest(store))
    table = load_snapshot(context(vanishing, RULES))
    store.delete_many([state_manifest_key(2)])
    vanishing.is_active = True
    with pytest.raises(ConcurrentMaintenanceError, match="open the table again"):
        changes_since(table, 1)


def test_comparison_falls_back_to_other_files_of_the_log(store):
    expected = changes_since(load_snapshot(context(store, RULES)), 1)
    other = memory_store()
    copy_all(store, other)
    vanishing = Vanishing(other, new_manifest(store))
    write_checkpoint(load_snapshot(context(other, {**RULES, "state.format": "json"})))
    state_hint = store.get(f"{LOG_PREFIX}_last_checkpoint")
    other.put(f"{LOG_PREFIX}_last_checkpoint", state_hint)
    table = load_snapshot(context(vanishing, RULES))
    vanishing.is_active = True
    assert changes_since(table, 1) == expected
