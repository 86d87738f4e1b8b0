"""Writers that stall between plan and commit, while the log is cleaned up or the table is created again."""

import msgspec
import pytest

from indextables.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.actions import CommitInfo, new_commit_id
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, version_key
from indextables.log.replay import RECENT_COMMITS
from indextables.log.segment import LastCheckpoint, read_hint
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.load import catch_up
from support.clock import VirtualClock
from support.tables import (
    AgeingStore,
    InterruptingStore,
    add,
    after,
    append,
    checkpoint,
    context,
    do,
    log_keys,
    memory_store,
    new_table,
    overwrite,
    paths,
    remove,
    write_version,
)

# Cleanup deletes everything that a checkpoint covers, at once.
NO_RETENTION = {
    "purge.txLogRetentionHours": "0",
    "checkpoint.retention": "0",
    "state.retention.versions": "0",
    "state.retention.hours": "0",
}
KEEPING_STATES = NO_RETENTION | {"state.retention.versions": "5"}


@pytest.fixture
def inner() -> ObjectStore:
    return memory_store(VirtualClock())


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store))


def commit_and_clean_up(store: ObjectStore, settings=NO_RETENTION, versions: int = 5) -> None:
    """Other writers commit, write a checkpoint and clean up everything that it covers."""
    ageing = AgeingStore(store, store.clock)
    snapshot = after(newest(ageing), *(append(f"other-{number}") for number in range(versions)))
    checkpoint(ageing)
    store.clock.advance(3600)
    assert clean_up(context(ageing, settings), snapshot.version).versions


def stalled(store: ObjectStore, meanwhile) -> Snapshot:
    """A snapshot on a store that runs `meanwhile` just before it writes the next version file."""
    interrupting = InterruptingStore(store)
    snapshot = newest(interrupting)
    interrupting.before_commit = meanwhile
    return snapshot


def delete_hint(store: ObjectStore) -> None:
    store.delete_many([LAST_CHECKPOINT_KEY])


def turn_hint_back(store: ObjectStore) -> None:
    """As after two concurrent checkpoints, when the slower writer wrote the hint last."""
    hint = read_hint(store)
    store.put(LAST_CHECKPOINT_KEY, msgspec.json.encode(LastCheckpoint(version=1, format=hint.format)))


# --- the log was cleaned up ---------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [NO_RETENTION, KEEPING_STATES], ids=["states go", "states stay"])
@pytest.mark.parametrize("then", [lambda _: None, delete_hint, turn_hint_back])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_commit_into_a_hole_left_by_cleanup_is_retried(inner, settings, then, has_checkpoint):
    after(new_table(inner), append("a"), append("b"))
    if has_checkpoint:
        checkpoint(inner)

    def meanwhile():
        commit_and_clean_up(inner, settings)
        then(inner)

    result = do(stalled(inner, meanwhile), append("late"))
    expected = {"a", "b", "late", *(f"other-{number}" for number in range(5))}
    assert (result.version, paths(result.snapshot)) == (8, expected)
    assert paths(newest(inner)) == expected
    assert version_key(3) not in log_keys(inner)


def test_overwrite_that_stalled_during_a_cleanup_removes_the_current_files(inner):
    do(new_table(inner), append("a"))
    result = do(stalled(inner, lambda: commit_and_clean_up(inner)), overwrite("o"))
    assert (result.version, paths(newest(inner))) == (7, {"o"})


def test_remove_that_stalled_during_a_cleanup_finds_nothing_to_do(inner):
    do(new_table(inner), append("a"))

    def meanwhile():
        do(newest(inner), remove("a"))
        commit_and_clean_up(inner)

    result = do(stalled(inner, meanwhile), remove("a"))
    assert not result.is_committed
    assert version_key(2) not in log_keys(inner)


def test_two_stalled_writers_write_into_the_same_hole(inner):
    do(new_table(inner), append("a"))
    second = stalled(inner, lambda: commit_and_clean_up(inner))
    first = stalled(inner, lambda: do(second, append("second")))
    assert do(first, append("first")).version == 8
    assert paths(newest(inner)) >= {"first", "second"}


def test_commit_that_is_checkpointed_and_cleaned_up_at_once_counts_once(inner):
    """Cleanup deletes the version file before its writer verifies the commit."""
    do(new_table(inner), append("a"))

    class Slow(InterruptingStore):
        def put_if_absent(self, key, data):
            outcome = super().put_if_absent(key, data)
            if key == version_key(2):
                commit_and_clean_up(inner)
            return outcome

    store = Slow(inner)
    result = do(newest(store), append("mine"))
    assert (result.version, result.tries) == (2, 1)
    expected = {"a", "mine", *(f"other-{number}" for number in range(5))}
    assert paths(newest(inner)) == expected


def test_commit_older_than_the_recorded_commit_ids_has_an_unknown_outcome(inner):
    do(new_table(inner), append("a"))

    def meanwhile():
        for version in range(2, RECENT_COMMITS + 5):
            info = CommitInfo(commit_id=new_commit_id(), timestamp=version, operation="WRITE")
            write_version(inner, version, info, add(f"other-{version}"))
        commit_and_clean_up(inner)

    with pytest.raises(CommitOutcomeUnknownError, match="does not record whether it includes this commit"):
        do(stalled(inner, meanwhile), append("late"))
    assert "late" not in paths(newest(inner))


@pytest.mark.parametrize("settings", [NO_RETENTION, KEEPING_STATES], ids=["states go", "states stay"])
def test_snapshot_that_was_cleaned_up_is_refreshed(inner, settings):
    after(new_table(inner), append("a"))
    checkpoint(inner)
    old = newest(inner)
    commit_and_clean_up(inner, settings)
    assert catch_up(old).snapshot.version == 6
    assert do(old, append("late")).version == 7


def test_stale_snapshot_is_refreshed_before_the_first_try(inner):
    old = do(new_table(inner), append("a")).snapshot
    commit_and_clean_up(inner)
    inner.clock.advance(60)
    before = len(log_keys(inner))
    assert do(old, append("late")).tries == 1
    assert len(log_keys(inner)) == before + 1


# --- the table was dropped or created again -------------------------------------------------


def drop_table(store: ObjectStore) -> None:
    store.delete_many([meta.key for meta in store.list("")])


def create_again(store: ObjectStore, versions: int) -> None:
    drop_table(store)
    after(new_table(store), *(append(f"new-{number}") for number in range(versions)))


@pytest.mark.parametrize("versions", [0, 1, 2, 3, 6], ids=lambda n: f"{n} versions")
@pytest.mark.parametrize("is_stalled", [False, True])
@pytest.mark.parametrize("intent", [append("late"), overwrite("late")], ids=["append", "overwrite"])
def test_writer_of_a_table_that_was_created_again_gets_a_conflict(inner, versions, is_stalled, intent):
    after(new_table(inner), append("a"), append("b"))
    if is_stalled:
        snapshot = stalled(inner, lambda: create_again(inner, versions))
    else:
        snapshot = newest(inner)
        create_again(inner, versions)
    with pytest.raises(CommitConflictError, match="dropped and created again"):
        do(snapshot, intent)
    table = newest(inner)
    assert (table.version, table.gap) == (versions, None)
    assert paths(table) == {f"new-{number}" for number in range(versions)}
    assert [key for key in log_keys(inner) if key.startswith(f"{LOG_PREFIX}0")] == [
        version_key(version) for version in range(versions + 1)
    ]


@pytest.mark.parametrize("is_stalled", [False, True])
def test_writer_of_a_table_that_was_dropped_leaves_nothing_behind(inner, is_stalled):
    after(new_table(inner), append("a"))
    if is_stalled:
        snapshot = stalled(inner, lambda: drop_table(inner))
    else:
        snapshot = newest(inner)
        drop_table(inner)
    with pytest.raises(TableNotFoundError):
        do(snapshot, append("late"))
    assert log_keys(inner) == []


def test_reader_of_a_table_that_was_created_again_sees_the_new_one(inner):
    cached = {"transaction.cache.enabled": "true"}
    old = after(new_table(inner, cached), append("a"))
    assert paths(old) == {"a"}
    create_again(inner, 1)
    assert paths(catch_up(old).snapshot) == {"new-0"}
    assert paths(load_snapshot(context(inner, cached))) == {"new-0"}
    assert load_snapshot(context(inner, cached)).metadata.id != old.metadata.id


def test_stray_commit_that_other_writers_built_on_is_reported(inner):
    """The new table has as many versions as the old one, so the late commit becomes part of it."""
    after(new_table(inner), append("a"))
    interrupting = InterruptingStore(inner)
    snapshot = newest(interrupting)

    class Slow(InterruptingStore):
        def head(self, key):
            if key == version_key(1) and version_key(2) in log_keys(inner):
                do(newest(inner), append("built on it"))
            return super().head(key)

    slow = Slow(inner)
    snapshot = newest(slow)
    slow.before_commit = lambda: create_again(inner, 1)
    with pytest.raises(CommitOutcomeUnknownError, match="created again in the meantime"):
        do(snapshot, append("late"))


def test_version_reused_by_a_stalled_writer_that_died_is_not_readable(inner):
    snapshot = after(new_table(inner), append("a"))
    checkpoint(inner)
    commit_and_clean_up(inner, KEEPING_STATES)
    first_removed = snapshot.version + 1
    assert version_key(first_removed) not in log_keys(inner)
    # The writer died before it verified its commit.
    stale = CommitInfo(timestamp=1, operation="WRITE", commit_id=new_commit_id())
    write_version(inner, first_removed, stale, add("ghost"))
    for version in (first_removed, first_removed + 1):
        with pytest.raises(VersionNotFoundError):
            load_snapshot(context(inner), version)
    assert paths(load_snapshot(context(inner), snapshot.version)) == {"a"}
    assert "ghost" not in paths(newest(inner))
