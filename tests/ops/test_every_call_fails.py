"""Every operation, with every one of its storage calls failing before and after its effect.

The operation succeeds or raises a typed error, the table is as before or as after, and the next operation works.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from indextables.errors import CommitOutcomeUnknownError, IndexTablesError, TableNotFoundError
from indextables.log.paths import version_key
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.checkpoint.with_cleanup import checkpoint_with_cleanup, compact_with_cleanup
from indextables.ops.columns import alter_column, change_columns
from indextables.ops.write import (
    commit_files,
    drop_partitions,
    run,
    set_metadata,
    set_properties,
    upgrade_protocol,
)
from indextables.storage import ObjectStore, RetryingStore
from indextables.table import Operation, load_snapshot
from support.clock import VirtualClock
from support.faults import Moment
from support.tables import (
    CONVERT,
    FORMATS,
    AgeingStore,
    add,
    append,
    checkpoint,
    context,
    copy_all,
    do,
    jvm_table,
    live,
    log_keys,
    memory_store,
    merge,
    new_table,
    overwrite,
    remove,
)

Observed = tuple[int, dict[str, int], dict[str, str], int] | None


@dataclass(frozen=True)
class Case:
    """An operation on a store, the table that it starts from, and its settings."""

    run: Callable[[ObjectStore, Mapping[str, str]], object]
    prepare: Callable[[ObjectStore], object]
    settings: Mapping[str, str] = field(default_factory=dict)
    is_idempotent: bool = False


def small_table(store: ObjectStore) -> None:
    do(do(new_table(store), append("a", "b")).snapshot, append("c"))


def table_of_an_older_release(store: ObjectStore) -> None:
    jvm_table(store, "a", "b", protocol=3)


def table_with_a_fragmented_state(store: ObjectStore) -> None:
    small_table(store)
    checkpoint(store)
    do(load_snapshot(context(store)), remove("a"))
    checkpoint(store)


def table_with_a_damaged_manifest(store: ObjectStore) -> None:
    """Two states share a manifest that is cut off; the version files are all there."""
    small_table(store)
    checkpoint(store)
    do(load_snapshot(context(store)), append("d"))
    (key,) = (key for key in log_keys(store) if "/manifests/" in key)
    checkpoint(store)
    store.put(key, store.get(key)[:100])


def opened(operation):
    """An operation that opens the table first."""
    return lambda store, settings: operation(load_snapshot(context(store, settings)))


def intent(planned):
    return opened(lambda snapshot: run(snapshot, planned, Operation("TEST")))


# Writes a checkpoint after the commit, and deletes everything that it covers.
AUTOMATIC = {
    "checkpoint.enabled": "true",
    "checkpoint.interval": "1",
    "purge.txLogRetentionHours": "0",
    "checkpoint.retention": "0",
    "state.retention.versions": "0",
    "state.retention.hours": "0",
}

COMMITS = {
    "create": Case(new_table, lambda store: None, is_idempotent=True),
    "append": Case(intent(append("x")), small_table),
    "append with a checkpoint and a cleanup": Case(intent(append("x")), small_table, AUTOMATIC),
    "append to a table read from a state": Case(intent(append("x")), table_with_a_fragmented_state),
    "append on top of a damaged manifest": Case(
        intent(append("x")), table_with_a_damaged_manifest, {**AUTOMATIC, "cleanup.enabled": "false"}
    ),
    "overwrite": Case(intent(overwrite("x")), small_table),
    "remove": Case(intent(remove("a", "c")), small_table),
    "merge": Case(intent(merge((["a", "b"], ["ab"]))), small_table),
    "replace": Case(opened(lambda snapshot: commit_files(snapshot, [add("a", size=7)], ["a"])), small_table),
    "set properties": Case(opened(lambda snapshot: set_properties(snapshot, {"owner": "me"})), small_table),
    "set metadata": Case(opened(lambda snapshot: set_metadata(snapshot, name="logs")), small_table),
    "upgrade the protocol": Case(
        opened(lambda snapshot: upgrade_protocol(snapshot, 4, 4)), table_of_an_older_release
    ),
    "change a column": Case(
        opened(lambda snapshot: change_columns(snapshot, [alter_column(snapshot, "id", comment="key")])),
        small_table,
    ),
    "drop partitions": Case(opened(lambda snapshot: drop_partitions(snapshot, "date < '2025'")), small_table),
}
CHECKPOINTS = {
    **{
        f"checkpoint in {form}": Case(opened(write_checkpoint), small_table, settings)
        for form, settings in FORMATS.items()
    },
    "checkpoint after another": Case(opened(write_checkpoint), table_with_a_fragmented_state),
    "compact": Case(opened(compact), table_with_a_fragmented_state),
    "compact a table without a state": Case(opened(compact), small_table),
    "checkpoint and clean up": Case(opened(checkpoint_with_cleanup), small_table, AUTOMATIC),
    "compact and clean up": Case(opened(compact_with_cleanup), table_with_a_fragmented_state, AUTOMATIC),
    "checkpoint that repairs": Case(opened(write_checkpoint), table_with_a_damaged_manifest),
    "compact that repairs": Case(opened(compact), table_with_a_damaged_manifest),
}


def observe(store: ObjectStore) -> Observed:
    """What readers see."""
    try:
        snapshot = load_snapshot(context(store))
    except TableNotFoundError:
        return None
    assert snapshot.gap is None
    configuration = dict(snapshot.metadata.configuration)
    return snapshot.version, live(snapshot), configuration, snapshot.protocol.min_writer_version


def prepared(case: Case) -> ObjectStore:
    store = memory_store(VirtualClock())
    case.prepare(store)
    return store


def copy_of(store: ObjectStore) -> ObjectStore:
    copy = memory_store(VirtualClock())
    copy_all(store, copy)
    return copy


def faulty(store: ObjectStore, fail_call: tuple[int, Moment] | None = None) -> AgeingStore:
    ageing = AgeingStore(store, VirtualClock(store.clock.now_ms()), fail_call=fail_call)
    ageing.clock.advance(3600)
    return ageing


def failures(case: Case, start: ObjectStore) -> list[tuple[int, Moment]]:
    """A failure before and after the effect of every call that the operation makes."""
    store = faulty(copy_of(start))
    case.run(store, case.settings)
    return [(call, moment) for call in range(len(store.calls)) for moment in Moment]


class Usable:
    """Checks that a table is still usable, once for each distinct state of its log."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()

    def check(self, store: ObjectStore) -> None:
        shape = tuple(sorted(re.sub(r"[0-9a-f]{32}", "<id>", key) for key in log_keys(store)))
        if shape not in self._seen:
            self._seen.add(shape)
            assert_usable(store)


def assert_usable(store: ObjectStore) -> None:
    """The next commit works, and a checkpoint alone is enough to read the table."""
    version = observe(store)[0] if observe(store) is not None else -1
    new_table(store)
    after = do(load_snapshot(context(store, CONVERT)), append("next"))
    assert after.version == max(version, 0) + 1
    expected = live(after.snapshot)
    checkpoint(store)
    store.delete_many([version_key(number) for number in range(after.version + 1)])
    assert live(load_snapshot(context(store))) == expected


@pytest.mark.parametrize("name", COMMITS)
def test_commit_with_any_call_failing_is_before_or_after(name):
    case = COMMITS[name]
    start = prepared(case)
    before = observe(start)
    done = copy_of(start)
    case.run(faulty(done), case.settings)
    after = observe(done)
    assert after != before
    usable = Usable()
    for call, moment in failures(case, start):
        copy = copy_of(start)
        try:
            case.run(faulty(copy, (call, moment)), case.settings)
            allowed = [after]
        except CommitOutcomeUnknownError:
            allowed = [before, after]
        except IndexTablesError:
            allowed = [before, after] if case.is_idempotent else [before]
        assert observe(copy) in allowed, (call, moment)
        usable.check(copy)


@pytest.mark.parametrize("name", [*COMMITS, *CHECKPOINTS])
def test_operation_succeeds_when_any_single_call_fails_and_is_repeated(name):
    case = {**COMMITS, **CHECKPOINTS}[name]
    start = prepared(case)
    done = copy_of(start)
    case.run(faulty(done), case.settings)
    after = observe(done)
    usable = Usable()
    for call, moment in failures(case, start):
        copy = copy_of(start)
        case.run(RetryingStore(faulty(copy, (call, moment))), case.settings)
        assert observe(copy) == after, (call, moment)
        usable.check(copy)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint_with_any_call_failing_changes_nothing_for_readers(name):
    case = CHECKPOINTS[name]
    start = prepared(case)
    before = observe(start)
    usable = Usable()
    for call, moment in failures(case, start):
        copy = copy_of(start)
        with contextlib.suppress(IndexTablesError):
            case.run(faulty(copy, (call, moment)), case.settings)
        assert observe(copy)[1:] == before[1:], (call, moment)
        usable.check(copy)
