"""Failed, interrupted and killed writes leave the table as before or as after, and lose nothing."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    TransientStorageError,
)
from indextables.log.paths import LOG_PREFIX, version_key
from indextables.ops.read import scan
from indextables.ops.write import append, overwrite, set_properties
from indextables.table import create_table, load_snapshot
from support.clock import VirtualClock
from support.faults import FaultStore, Moment
from support.racing import race
from support.row_tables import SCHEMA, ids, rows, split_files
from support.tables import InterruptingStore, UnreliableStore, context, copy_all, memory_store


def new_table(store, settings=None):
    return create_table(context(store, settings), SCHEMA, ("day",), {})


def two_days(*numbers):
    return pa.concat_tables([rows(*numbers, day="a"), rows(*numbers, day="b")])


def live_ids(store):
    return sorted(scan(load_snapshot(context(store)), None, ["id"]).read_all()["id"].to_pylist())


def splits(store):
    return {meta.key for meta in store.list("") if meta.key.endswith(".split")}


def referenced(store):
    return set(load_snapshot(context(store)).entries["path"].to_pylist())


class InterruptedStore(FaultStore):
    """A store that raises KeyboardInterrupt right after a call has taken effect."""

    def __init__(self, inner, interrupts):
        super().__init__(inner)
        self._interrupts = interrupts

    def _perform(self, operation, key, call):
        result = super()._perform(operation, key, call)
        if self._interrupts(operation, key):
            raise KeyboardInterrupt
        return result


# --- failures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("failing", [1, 2])
def test_an_upload_that_fails_leaves_no_split(failing, moment):
    inner = memory_store()
    uploads = []

    def fails(operation, key):
        if operation == "put" and key.endswith(".split"):
            uploads.append(key)
            return moment if len(uploads) == failing else None
        return None

    table = new_table(inner)
    store = UnreliableStore(inner, fails)
    with pytest.raises(TransientStorageError):
        append(load_snapshot(context(store)), two_days(1))
    assert splits(inner) == set()
    assert load_snapshot(context(inner)).version == table.version


def test_a_failed_upload_is_raised_even_if_the_cleanup_fails_too():
    inner = memory_store()
    new_table(inner)
    failing = {"put": Moment.AFTER, "delete_many": Moment.BEFORE}
    store = UnreliableStore(inner, lambda operation, key: failing.get(operation) if "split" in key else None)
    with pytest.raises(TransientStorageError, match="put"):
        append(load_snapshot(context(store)), rows(1))
    assert live_ids(inner) == []


def test_rows_that_fail_while_they_are_read_leave_no_split():
    store = memory_store()
    table = new_table(store, {"write.targetSplitSize": "1K"})

    def batches():
        yield from rows(*range(40_000)).to_batches()
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        append(table, pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    assert splits(store) == set()


def test_a_conflict_deletes_what_was_uploaded():
    inner = memory_store()
    append(new_table(inner), rows(1))
    store = InterruptingStore(inner)
    table = load_snapshot(context(store))
    store.before_commit = lambda: set_properties(load_snapshot(context(inner)), {"owner": "another writer"})
    with pytest.raises(CommitConflictError, match="metadata"):
        overwrite(table, rows(2))
    assert splits(inner) == referenced(inner)
    assert live_ids(inner) == [1]


def test_a_conflict_is_raised_even_if_the_cleanup_fails():
    inner = memory_store()
    append(new_table(inner), rows(1))
    unreliable = UnreliableStore(
        inner, lambda operation, key: Moment.BEFORE if operation == "delete_many" else None
    )
    store = InterruptingStore(unreliable)
    table = load_snapshot(context(store))
    store.before_commit = lambda: set_properties(load_snapshot(context(inner)), {"owner": "another writer"})
    with pytest.raises(CommitConflictError, match="metadata"):
        overwrite(table, rows(2))
    assert live_ids(inner) == [1]


def test_writers_that_are_faster_every_time_leave_no_split_of_the_loser():
    class AlwaysBeaten(FaultStore):
        def put_if_absent(self, key, data):
            if key.startswith(f"{LOG_PREFIX}0"):
                append(load_snapshot(context(self._inner)), rows(7))
            return super().put_if_absent(key, data)

    inner = memory_store(VirtualClock())
    new_table(inner)
    settings = {"transaction.retry.maxAttempts": "1"}
    table = load_snapshot(context(AlwaysBeaten(inner), settings))
    with pytest.raises(CommitRetriesExhaustedError):
        append(table, rows(1))
    assert set(live_ids(inner)) == {7}
    assert splits(inner) == referenced(inner)


def test_an_append_commits_after_concurrent_appends():
    inner = memory_store()
    new_table(inner)
    store = InterruptingStore(inner)
    table = load_snapshot(context(store))
    store.before_commit = lambda: append(load_snapshot(context(inner)), rows(1))
    assert append(table, rows(2)).version == 2
    assert live_ids(inner) == [1, 2]


@pytest.mark.parametrize("moment", Moment)
def test_an_unknown_outcome_deletes_nothing(moment):
    inner = memory_store()
    new_table(inner)
    first = version_key(1)
    failing = {("put_if_absent", first): moment, ("get", first): Moment.BEFORE}
    store = UnreliableStore(inner, lambda operation, key: failing.get((operation, key)))
    with pytest.raises(CommitOutcomeUnknownError):
        append(load_snapshot(context(store)), rows(1))
    has_landed = moment is Moment.AFTER
    assert live_ids(inner) == ([1] if has_landed else [])
    assert len(splits(inner)) == 1


@pytest.mark.parametrize(
    "point", ["the version file is written", "the commit is looked up", "a checkpoint is written"]
)
def test_an_interruption_after_the_commit_deletes_nothing(point):
    def interrupts(operation, key):
        match point:
            case "the version file is written":
                return (operation, key) == ("put_if_absent", version_key(1))
            case "the commit is looked up":
                return (operation, key) == ("head", version_key(1))
            case _:
                return operation == "put_if_absent" and "state-v" in key

    inner = memory_store()
    new_table(inner)
    settings = {"checkpoint.enabled": "true", "checkpoint.interval": "1"}
    table = load_snapshot(context(InterruptedStore(inner, interrupts), settings))
    with pytest.raises(KeyboardInterrupt):
        append(table, rows(1))
    assert live_ids(inner) == [1]


@pytest.mark.parametrize("write", [append, overwrite])
def test_splits_that_a_purge_deleted_during_the_write_are_not_committed(write):
    clock = VirtualClock()
    inner = memory_store()
    append(new_table(inner), rows(1))
    store = FaultStore(inner, clock=clock)
    table = load_snapshot(context(store, {"write.targetSplitSize": "1K"}))

    def batches():
        yield from rows(*range(40_000)).to_batches()
        inner.delete_many(splits(inner) - referenced(inner))
        clock.sleep(25 * 3600)
        yield from rows(2).to_batches()

    with pytest.raises(CommitConflictError, match=r"part-.*purge"):
        write(table, pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    assert live_ids(inner) == [1]
    assert splits(inner) == referenced(inner)


@pytest.mark.parametrize(("write", "after"), [(append, [1, 2, 2]), (overwrite, [2, 2])])
def test_every_call_of_a_write_may_fail_and_the_table_is_as_before_or_as_after(write, after):
    template = memory_store()
    append(new_table(template), rows(1))

    def store_with_table():
        store = memory_store()
        copy_all(template, store)
        return store

    probe = FaultStore(store_with_table())
    table = load_snapshot(context(probe))
    start = len(probe.calls)
    write(table, two_days(2))
    for call in range(start, len(probe.calls)):
        for moment in Moment:
            inner = store_with_table()
            store = FaultStore(inner, fail_call=(call, moment))
            try:
                write(load_snapshot(context(store)), two_days(2))
                allowed = [after]
            except CommitOutcomeUnknownError:
                allowed = [[1], after]
            except TransientStorageError:
                allowed = [[1]]
            assert live_ids(inner) in allowed, (call, moment)
            assert referenced(inner) <= splits(inner), (call, moment)


# --- kill -9 -------------------------------------------------------------------------------------------

NURSERY = """
import os, signal, sys
import pyarrow as pa
from indextables.config import Settings
from indextables.ops.write import append, overwrite
from indextables.storage import open_store
from indextables.table import TableContext, load_snapshot
from support.faults import FaultStore
from support.row_tables import rows
from support.faults import FaultStore

def say(text):
    os.write(1, f"{text}\\n".encode())

def stop():
    say("reached")
    while True:
        signal.pause()

class StoppingStore(FaultStore):
    '''Stops for ever before or after one of the calls that change something.'''

    def __init__(self, inner, number, moment):
        super().__init__(inner)
        self.left, self.moment = number, moment

    def _perform(self, operation, key, call):
        if not operation.startswith("put"):
            return call()
        self.left -= 1
        if self.left == 0 and self.moment == "before":
            stop()
        result = call()
        if self.left == 0:
            stop()
        return result

def write(root, operation, number, moment):
    settings = Settings.resolve({"spark.indextables.checkpoint.interval": "1"})
    store = StoppingStore(open_store(root), int(number), moment)
    data = pa.concat_tables([rows(2, day="a"), rows(3, day="b")])
    {"append": append, "overwrite": overwrite}[operation](load_snapshot(TableContext(store, settings)), data)
    say("done")

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        say(os.getpid())
        write(*line.rstrip("\\n").split("\\t"))
        os._exit(0)
    os.waitpid(child, 0)
    say("ended")
"""


@pytest.fixture(scope="module")
def nursery(request) -> Iterator["subprocess.Popen[str]"]:
    """A process with the package loaded that forks a writer for each input line."""
    command = [sys.executable, "-W", "ignore", "-c", NURSERY]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=request.config.rootpath / "tests",
    ) as process:
        yield process
        process.stdin.close()


def killed(nursery, *what):
    """Kill a writer at the given point. False if it ended before."""
    nursery.stdin.write("\t".join(map(str, what)) + "\n")
    nursery.stdin.flush()
    pid = int(nursery.stdout.readline())
    word = nursery.stdout.readline()
    if word == "reached\n":
        os.kill(pid, signal.SIGKILL)
    assert nursery.stdout.readline() == "ended\n"
    assert word in ("reached\n", "done\n")
    return word == "reached\n"


def killed_at_every_write(nursery, folder, operation, moment):
    """For each write: its number, the rows after a kill at that write, and the table's path."""
    template = folder / "template"
    IndexTable.create(template, SCHEMA, partition_by=["day"]).append(rows(1))
    for number in itertools.count(1):
        path = folder / f"{operation}-{number}"
        shutil.copytree(template, path)
        if not killed(nursery, path, operation, number, moment):
            return
        table = IndexTable(path)
        assert set(table.files()["path"].to_pylist()) <= set(split_files(path))
        yield number, ids(table), table


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_append_killed_around_any_write_leaves_the_table_as_before_or_as_after(nursery, tmp_path, moment):
    outcomes = []
    for number, found, table in killed_at_every_write(nursery, tmp_path, "append", moment):
        assert found in ([1], [1, 2, 3])
        outcomes.append((number, found != [1]))
        before = table.version
        assert table.append(rows(9)) == before + 1
        assert ids(table) == sorted([*found, 9])
    # Two splits, then the version file (the commit), then a checkpoint.
    commit = 3 if moment == "after" else 4
    assert outcomes[:commit] == [(number, number >= commit) for number in range(1, commit + 1)]
    assert all(is_after for _, is_after in outcomes[commit:])
    assert len(outcomes) > 3


def test_an_overwrite_killed_after_any_write_leaves_the_table_as_before_or_as_after(nursery, tmp_path):
    outcomes = [found for _, found, _ in killed_at_every_write(nursery, tmp_path, "overwrite", "after")]
    assert outcomes[:3] == [[1], [1], [2, 3]]
    assert all(found == [2, 3] for found in outcomes[3:])


# --- several processes ---------------------------------------------------------------------------------

APPENDING = """
from indextables import IndexTable
from support.row_tables import rows
table = IndexTable(task["path"])
ready()
versions = [table.append(rows(task["number"] * 100 + turn)) for turn in range(task["turns"])]
done(versions)
"""


def test_processes_that_append_at_once_lose_nothing(tmp_path):
    path = tmp_path / "table"
    IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    versions = race(APPENDING, 2, path=str(path), turns=4)
    assert sorted(version for each in versions for version in each) == list(range(1, 9))
    table = IndexTable(path)
    assert ids(table) == [number * 100 + turn for number in range(2) for turn in range(4)]
    assert table.count("row") == table.num_rows == 8
    assert set(table.files()["path"].to_pylist()) == set(split_files(path))
