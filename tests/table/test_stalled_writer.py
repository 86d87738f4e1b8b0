"""Writers that plan, sleep and wake up in another world: the log was cleaned up, or the table created again."""

import msgspec
import pytest

from indextables.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.actions import CommitInfo, new_commit_id
from indextables.log.checkpoint import LastCheckpoint, read_hint
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, version_key
from indextables.log.replay import RECENT_COMMITS
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

# Everything that a checkpoint covers may go at once.
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


def go_on_and_clean_up(store: ObjectStore, settings=NO_RETENTION, versions: int = 5) -> None:
    """Other writers commit, write a checkpoint and clean up everything that it covers."""
    ageing = AgeingStore(store, store.clock)
    snapshot = after(newest(ageing), *(append(f"other-{number}") for number in range(versions)))
    checkpoint(ageing)
    store.clock.advance(3600)
    assert clean_up(context(ageing, settings), snapshot.version).versions


def stalled(store: ObjectStore, meanwhile) -> Snapshot:
    """A snapshot through a store that lets something happen just before the version file is written."""
    interrupting = InterruptingStore(store)
    snapshot = newest(interrupting)
    interrupting.before_commit = meanwhile
    return snapshot


def delete_hint(store: ObjectStore) -> None:
    store.delete_many([LAST_CHECKPOINT_KEY])


def turn_hint_back(store: ObjectStore) -> None:
    """Two writers advanced it at the same time, and the slower one wrote last."""
    hint = read_hint(store)
    store.put(LAST_CHECKPOINT_KEY, msgspec.json.encode(LastCheckpoint(version=1, format=hint.format)))


# --- the log was cleaned up ---------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [NO_RETENTION, KEEPING_STATES], ids=["states go", "states stay"])
@pytest.mark.parametrize("then", [lambda _: None, delete_hint, turn_hint_back])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_commit_into_a_hole_that_a_cleanup_left_is_no_commit(inner, settings, then, has_checkpoint):
    after(new_table(inner), append("a"), append("b"))
    if has_checkpoint:
        checkpoint(inner)

    def meanwhile():
        go_on_and_clean_up(inner, settings)
        then(inner)

    result = do(stalled(inner, meanwhile), append("late"))
    expected = {"a", "b", "late", *(f"other-{number}" for number in range(5))}
    assert (result.version, paths(result.snapshot)) == (8, expected)
    assert paths(newest(inner)) == expected
    assert version_key(3) not in log_keys(inner)


def test_overwrite_that_slept_through_a_cleanup_removes_what_is_there_now(inner):
    do(new_table(inner), append("a"))
    result = do(stalled(inner, lambda: go_on_and_clean_up(inner)), overwrite("o"))
    assert (result.version, paths(newest(inner))) == (7, {"o"})


def test_remove_that_slept_through_a_cleanup_finds_nothing_to_do(inner):
    do(new_table(inner), append("a"))

    def meanwhile():
        do(newest(inner), remove("a"))
        go_on_and_clean_up(inner)

    result = do(stalled(inner, meanwhile), remove("a"))
    assert not result.is_committed
    assert version_key(2) not in log_keys(inner)


def test_two_writers_that_wake_up_in_the_same_hole(inner):
    do(new_table(inner), append("a"))
    second = stalled(inner, lambda: go_on_and_clean_up(inner))
    first = stalled(inner, lambda: do(second, append("second")))
    assert do(first, append("first")).version == 8
    assert paths(newest(inner)) >= {"first", "second"}


def test_commit_that_landed_and_was_covered_by_a_checkpoint_at_once_counts_once(inner):
    """The others are so fast that the version file is gone before its writer looks."""
    do(new_table(inner), append("a"))

    class Slow(InterruptingStore):
        def put_if_absent(self, key, data):
            outcome = super().put_if_absent(key, data)
            if key == version_key(2):
                go_on_and_clean_up(inner)
            return outcome

    store = Slow(inner)
    result = do(newest(store), append("mine"))
    assert (result.version, result.tries) == (2, 1)
    expected = {"a", "mine", *(f"other-{number}" for number in range(5))}
    assert paths(newest(inner)) == expected


def test_writer_that_slept_longer_than_the_log_remembers_does_not_know(inner):
    do(new_table(inner), append("a"))

    def meanwhile():
        for version in range(2, RECENT_COMMITS + 5):
            info = CommitInfo(commit_id=new_commit_id(), timestamp=version, operation="WRITE")
            write_version(inner, version, info, add(f"other-{version}"))
        go_on_and_clean_up(inner)

    with pytest.raises(CommitOutcomeUnknownError, match="does not record whether it includes this commit"):
        do(stalled(inner, meanwhile), append("late"))
    assert "late" not in paths(newest(inner))


@pytest.mark.parametrize("settings", [NO_RETENTION, KEEPING_STATES], ids=["states go", "states stay"])
def test_snapshot_that_was_cleaned_up_behind_is_refreshed(inner, settings):
    after(new_table(inner), append("a"))
    checkpoint(inner)
    old = newest(inner)
    go_on_and_clean_up(inner, settings)
    assert catch_up(old).snapshot.version == 6
    assert do(old, append("late")).version == 7


def test_snapshot_that_is_not_fresh_any_more_is_read_again_before_it_is_written_upon(inner):
    old = do(new_table(inner), append("a")).snapshot
    go_on_and_clean_up(inner)
    inner.clock.advance(60)
    before = len(log_keys(inner))
    assert do(old, append("late")).tries == 1
    assert len(log_keys(inner)) == before + 1


# --- the table was dropped, and perhaps created again -------------------------------------------------


def drop_table(store: ObjectStore) -> None:
    store.delete_many([meta.key for meta in store.list("")])


def create_again(store: ObjectStore, versions: int) -> None:
    drop_table(store)
    after(new_table(store), *(append(f"new-{number}") for number in range(versions)))


@pytest.mark.parametrize("versions", [0, 1, 2, 3, 6], ids=lambda n: f"{n} versions")
@pytest.mark.parametrize("is_asleep", [False, True])
@pytest.mark.parametrize("intent", [append("late"), overwrite("late")], ids=["append", "overwrite"])
def test_writer_of_a_table_that_was_created_again_gets_a_conflict(inner, versions, is_asleep, intent):
    after(new_table(inner), append("a"), append("b"))
    if is_asleep:
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


@pytest.mark.parametrize("is_asleep", [False, True])
def test_writer_of_a_table_that_was_dropped_leaves_nothing_behind(inner, is_asleep):
    after(new_table(inner), append("a"))
    if is_asleep:
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


def test_stray_commit_that_others_have_gone_on_from_is_reported(inner):
    """The new table has as many versions as the old one had, and takes the late commit for one of its own."""
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


def test_number_that_was_used_again_by_a_writer_that_died_then_cannot_be_read(inner):
    snapshot = after(new_table(inner), append("a"))
    checkpoint(inner)
    go_on_and_clean_up(inner, KEEPING_STATES)
    first_gone = snapshot.version + 1
    assert version_key(first_gone) not in log_keys(inner)
    # It died before it could look whether it was too late.
    stale = CommitInfo(timestamp=1, operation="WRITE", commit_id=new_commit_id())
    write_version(inner, first_gone, stale, add("ghost"))
    for version in (first_gone, first_gone + 1):
        with pytest.raises(VersionNotFoundError):
            load_snapshot(context(inner), version)
    assert paths(load_snapshot(context(inner), snapshot.version)) == {"a"}
    assert "ghost" not in paths(newest(inner))
