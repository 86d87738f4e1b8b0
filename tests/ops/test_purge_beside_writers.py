"""Purging while others write: rules 9 and 10 of the ten."""

import pytest

from indextables import errors
from indextables.log.hint import read_hint
from indextables.log.paths import LAST_CHECKPOINT_KEY, version_key
from indextables.ops.write import commit_files
from indextables.storage import FaultStore
from purge_tables import (
    ALL_OF_THE_LOG,
    DAY,
    HOUR,
    ClockedStore,
    add_split,
    another,
    append_some_rows,
    clocked_store,
    copy_of,
    is_clean,
    newest,
    put_split,
    remove_split,
    run_purge,
    table_of,
)
from tables import checkpoint, log_keys, new_table


@pytest.fixture
def store() -> ClockedStore:
    return clocked_store()


# --- rule 9: a writer that took very long -------------------------------------------------------------


@pytest.mark.parametrize("hours_asleep", [0, 30])
def test_rule_9_purge_at_every_step_of_an_upload_and_commit_leaves_no_dangling_add(store, hours_asleep):
    remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store)
    store.clock.advance(30 * DAY)
    undisturbed = another(copy_of(store))
    append_some_rows(newest(undisturbed))
    operations = [(call.operation, call.key) for call in undisturbed.calls]
    # A writer that sleeps for longer than a day between its look at the splits and its commit is beyond help.
    uploaded = next(i for i, (_, key) in enumerate(operations) if key.endswith(".split"))
    last = uploaded if hours_asleep else len(operations) - 1
    for step in range(last + 1):
        table = copy_of(store)
        writing = another(table)

        def interrupt(call, operation, key, step=step, table=table):
            if call == step:
                table.clock.advance(hours_asleep * HOUR)
                run_purge(table, "24 hours", ALL_OF_THE_LOG)

        writing.before_call = interrupt
        try:
            append_some_rows(newest(writing))
        except errors.IndexTablesError:
            assert hours_asleep
        else:
            writing.before_call = None
            assert newest(table).num_files == 2, step
        assert is_clean(table), step


def test_rule_9_writer_whose_split_was_purged_before_its_commit_gets_an_error(store):
    new_table(store)

    class Sleeping(FaultStore):
        def put(self, key, data):
            super().put(key, data)
            if key.endswith(".split"):
                store.clock.advance(30 * HOUR)
                assert run_purge(store, "24 hours").num_deleted == 1

    with pytest.raises(errors.CommitConflictError, match="purge"):
        append_some_rows(newest(Sleeping(store)))
    assert newest(store).num_files == 0
    assert is_clean(store)


# --- rule 10: numbers are not used again --------------------------------------------------------------


@pytest.mark.parametrize("has_hint", [True, False])
def test_rule_10_stalled_writer_does_not_take_a_number_that_was_used_and_deleted(store, has_hint):
    table_of(store, "a.split")
    stalled = another(store)
    snapshot = newest(stalled)
    late = put_split(store, "late.split")
    done = []

    def meanwhile(_, operation, key):
        if operation == "put_if_absent" and key == version_key(2) and not done:
            done.append(True)
            table = newest(store)
            for number in range(5):
                table = add_split(table, f"other-{number}.split")
            checkpoint(store)
            if not has_hint:
                store.delete_many([LAST_CHECKPOINT_KEY])
            store.clock.advance(2 * HOUR)
            run_purge(store, "24 hours", ALL_OF_THE_LOG)

    stalled.before_call = meanwhile
    result = commit_files(snapshot, [late], [])
    assert (result.version, result.snapshot.num_files) == (7, 7)
    assert version_key(2) not in log_keys(store)
    assert is_clean(store)


@pytest.mark.parametrize("hint", [None, b'{"version": 1}'])
def test_rule_10_hint_is_set_right_before_versions_go(store, hint):
    """A writer that slept recognises by it that the number of its version may have been used."""
    table_of(store, "a.split", "b.split")
    checkpoint(store)
    store.delete_many([LAST_CHECKPOINT_KEY])
    if hint is not None:
        store.put(LAST_CHECKPOINT_KEY, hint)
    store.clock.advance(2 * HOUR)
    started = len(store.calls)
    run_purge(store, "24 hours", ALL_OF_THE_LOG)
    calls = store.calls[started:]
    pointed = next(
        i for i, call in enumerate(calls) if (call.operation, call.key) == ("put", LAST_CHECKPOINT_KEY)
    )
    deleted = next(i for i, call in enumerate(calls) if call.operation == "delete_many")
    assert pointed < deleted
    assert read_hint(store).version == 2
