"""Maintenance that sleeps until others have gone on and cleaned up what it had just written."""

import pytest

from indextables.errors import VersionNotFoundError
from indextables.log.paths import LAST_CHECKPOINT_KEY, state_manifest_key
from indextables.ops.checkpoint import write_checkpoint
from indextables.ops.truncate import truncate_time_travel
from purge_tables import (
    DAY,
    ClockedStore,
    add_split,
    another,
    clocked_store,
    is_clean,
    newest,
    run_purge,
    table_of,
)
from tables import checkpoint, context


def going_on(store: ClockedStore) -> None:
    """Others commit, write a checkpoint, and purge all of the log before it."""
    others = another(store)
    add_split(newest(others), "later.split")
    checkpoint(others)
    others.clock.advance(30 * DAY)
    run_purge(others, "7 days", "0 hours")


def overtaken(store: ClockedStore, after: tuple[str, str]) -> ClockedStore:
    """A way to the table on which others go on right after a call that writes."""
    sleeping, seen = another(store), []

    def interrupt(_, operation, key):
        if seen and seen[-1] == after:
            sleeping.before_call = None
            going_on(store)
        seen.append((operation, key))

    sleeping.before_call = interrupt
    return sleeping


def test_truncation_whose_checkpoint_was_cleaned_up_says_so_and_deletes_nothing():
    store = clocked_store()
    table_of(store, "a.split", "b.split")
    sleeping = overtaken(store, ("put", LAST_CHECKPOINT_KEY))
    with pytest.raises(VersionNotFoundError, match="truncate again"):
        truncate_time_travel(context(sleeping), dry_run=False)
    assert not sleeping.count("delete_many")
    assert newest(store).num_files == 3
    assert is_clean(store)


def test_checkpoint_that_was_cleaned_up_as_soon_as_it_was_written_is_no_damage():
    store = clocked_store()
    table_of(store, "a.split", "b.split")
    sleeping = overtaken(store, ("put_if_absent", state_manifest_key(2)))
    with pytest.raises(VersionNotFoundError, match="open the table again"):
        write_checkpoint(newest(sleeping))
    assert newest(store).num_files == 3
    assert is_clean(store)
