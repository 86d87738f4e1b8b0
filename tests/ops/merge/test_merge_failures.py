"""Merges with damaged splits, concurrent writers, failing stores and crashes: no row is lost or duplicated."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
import tantivy

from indextables import AddAction, IndexTable
from indextables.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    IndexTablesError,
    SplitWriteError,
    TransientStorageError,
)
from indextables.log.paths import LOG_PREFIX, version_key
from indextables.ops.merge import MergeRequest, MergeResult, merge_splits
from indextables.ops.read import scan
from indextables.ops.runner import LocalRunner
from indextables.ops.write import append, commit_files, overwrite, run, set_properties
from indextables.predicates import parse_predicate
from indextables.split.jvm_bundle import Member
from indextables.split.writer import SplitWriter
from indextables.storage import RetryingStore
from indextables.table import Operation, create_table, load_snapshot
from indextables.table.intent import DropPartitions, RemoveFiles
from support.clock import VirtualClock
from support.faults import FaultStore, Moment
from support.jvm_bundles import encode_footer, encode_manifest
from support.row_tables import SCHEMA, ids, rows, split_files
from support.tables import (
    InterruptingStore,
    UnreliableStore,
    checkpoint,
    context,
    copy_all,
    memory_store,
)

DAYS = ("a", "b")
HOUR_SECONDS = 3600


def new_table(store, splits=6, days=DAYS):
    """A table with one-row splits, distributed over the partitions in turn."""
    snapshot = create_table(context(store), SCHEMA, ("day",), {})
    for number in range(splits):
        snapshot = append(snapshot, rows(number, day=days[number % len(days)])).snapshot
    return snapshot


def opened(store, settings=None):
    return load_snapshot(context(store, settings))


def merge(store, settings=None, **request):
    return merge_splits(opened(store, settings), MergeRequest(**request), LocalRunner(1))


def live_ids(store):
    return sorted(scan(opened(store), None, ["id"]).read_all()["id"].to_pylist())


def live_paths(store):
    return set(opened(store).entries["path"].to_pylist())


def splits(store):
    return {meta.key for meta in store.list("") if meta.key.endswith(".split")}


def path_of(store, number):
    """The path of the split that holds the row with this id."""
    entries = opened(store).entries.to_pylist(maps_as_pydicts="strict")
    (path,) = [entry["path"] for entry in entries if entry["minValues"]["id"] == str(number)]
    return path


def cut_off(data):
    return data[:-100]


def with_damaged_rows(data):
    return data[:20] + bytes(byte ^ 0xFF for byte in data[20:60]) + data[60:]


DAMAGES = {
    "cut off": cut_off,
    "damaged rows": with_damaged_rows,
    "no split at all": lambda data: b"?" * len(data),
}


# --- sources that cannot be read -----------------------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_source_is_skipped_and_the_rest_is_merged(damage):
    store = memory_store()
    new_table(store)
    bad = path_of(store, 2)
    store.put(bad, DAMAGES[damage](store.get(bad)))
    report = merge(store)
    assert [skipped.path for skipped in report.skipped] == [bad]
    assert (report.source_splits, report.new_splits) == (5, 2)
    snapshot = opened(store)
    assert bad in live_paths(store)
    assert snapshot.num_files == 3
    assert snapshot.num_rows == 6
    skip = snapshot.header.skips[bad]
    assert (skip.operation, skip.skip_count, skip.path) == ("merge", 1, bad)
    assert skip.reason == report.skipped[0].reason
    assert skip.retry_after - skip.skip_timestamp == 24 * HOUR_SECONDS * 1000
    assert splits(store) >= live_paths(store)


def test_a_missing_source_is_skipped():
    store = memory_store()
    new_table(store)
    bad = path_of(store, 2)
    store.delete_many([bad])
    report = merge(store)
    assert [skipped.path for skipped in report.skipped] == [bad]
    assert "ObjectNotFoundError" in report.skipped[0].reason
    assert bad in live_paths(store)


def test_a_source_with_more_or_fewer_rows_than_the_log_says_is_skipped():
    store = memory_store()
    new_table(store, splits=3, days=("a",))
    bad = path_of(store, 1)
    add = AddAction(
        path=bad,
        partition_values={"day": "a"},
        size=len(store.get(bad)),
        modification_time=1,
        data_change=True,
        num_records=2,
    )
    commit_files(opened(store), [add], [])
    report = merge(store)
    assert [skipped.path for skipped in report.skipped] == [bad]
    assert "holds 1 rows, but the log records 2" in report.skipped[0].reason
    assert report.source_splits == 2


def foreign_split(directory):
    """A split in the layout of the JVM, written with plain tantivy, with `body` indexed but not stored."""
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True, indexed=True, fast=True)
    builder.add_text_field("body", stored=False)
    index = tantivy.Index(builder.build(), str(directory))
    writer = index.writer(15_000_000, 1)
    writer.add_json('{"id": 7, "body": "only in the index"}')
    writer.commit()
    writer.wait_merging_threads()
    places, data = {}, b""
    for path in sorted(directory.iterdir()):
        if not path.name.startswith("."):
            places[path.name] = Member(len(data), len(data) + path.stat().st_size)
            data += path.read_bytes()
    return data + encode_footer(encode_manifest(places), b"theirs")


def test_a_source_whose_columns_could_not_be_indexed_again_is_skipped(tmp_path):
    store = memory_store()
    new_table(store, splits=2, days=("a",))
    data = foreign_split(tmp_path)
    store.put("foreign.split", data)
    add = AddAction(
        path="foreign.split",
        partition_values={"day": "a"},
        size=len(data),
        modification_time=1,
        data_change=True,
    )
    commit_files(opened(store), [add], [])
    report = merge(store)
    assert [skipped.path for skipped in report.skipped] == ["foreign.split"]
    assert "indexed but not stored (body)" in report.skipped[0].reason
    assert "foreign.split" in live_paths(store)
    assert report.source_splits == 2


def test_sources_whose_values_do_not_fit_the_merged_mapping_are_skipped():
    as_addresses = {"indexing.typemap.body": "ip"}
    store = memory_store()
    create_table(context(store), SCHEMA, ("day",), {})
    for number, text in enumerate(["10.0.0.1", "10.0.0.2", "10.0.0.3", "no address", "none either"]):
        body = pa.array([text])
        settings = as_addresses if text.startswith("10.") else None
        append(opened(store, settings), rows(number, day="a").set_column(2, SCHEMA.field("body"), body))
    unfit = {path_of(store, 3), path_of(store, 4)}
    report = merge(store, as_addresses)
    assert {skipped.path for skipped in report.skipped} == unfit
    assert all("InvalidValueError: column 'body'" in skipped.reason for skipped in report.skipped)
    assert (report.source_splits, report.rows) == (3, 3)
    assert unfit < live_paths(store)
    assert live_ids(store) == [0, 1, 2, 3, 4]


def memory_copy(store, clock=None):
    copy = memory_store(clock)
    copy_all(store, copy)
    return copy


def test_a_skipped_split_is_left_alone_until_its_cooldown_is_over():
    clock = VirtualClock()
    store = memory_store(clock)
    new_table(store, splits=4, days=("a",))
    bad = path_of(store, 2)
    whole = store.get(bad)
    store.put(bad, cut_off(whole))
    assert len(merge(store).skipped) == 1
    version = opened(store).version
    append(opened(store), rows(7, day="a"))
    clock.advance(23 * HOUR_SECONDS)
    assert merge(store).skipped == ()
    assert bad in live_paths(store)
    clock.advance(2 * HOUR_SECONDS)
    again = merge(store)
    assert [skipped.path for skipped in again.skipped] == [bad]
    assert opened(store).header.skips[bad].skip_count == 2
    store.put(bad, whole)
    nothing = merge(store)
    assert nothing == MergeResult(nothing.snapshot)
    clock.advance(25 * HOUR_SECONDS)
    assert merge(store).skipped == ()
    assert opened(store).num_files == 1
    assert opened(store).header.skips == {}
    assert live_ids(store) == [0, 1, 2, 3, 7]
    assert opened(store).version > version


def test_cooldown_is_configurable():
    clock = VirtualClock()
    store = memory_store(clock)
    new_table(store, splits=3, days=("a",))
    bad = path_of(store, 1)
    store.put(bad, cut_off(store.get(bad)))
    settings = {"skippedFiles.cooldownDuration": "1"}
    merge(store, settings)
    clock.advance(HOUR_SECONDS + 1)
    append(opened(store), rows(7, day="a"))
    assert len(merge(store, settings).skipped) == 1


def test_skips_survive_a_checkpoint():
    store = memory_store()
    new_table(store, splits=3, days=("a",))
    bad = path_of(store, 1)
    store.put(bad, cut_off(store.get(bad)))
    merge(store)
    checkpoint(store)
    store.delete_many([version_key(number) for number in range(opened(store).version + 1)])
    assert set(opened(store).header.skips) == {bad}
    nothing = merge(store)
    assert nothing == MergeResult(nothing.snapshot)


def test_nothing_is_recorded_where_tracking_is_switched_off():
    store = memory_store()
    new_table(store, splits=3, days=("a",))
    bad = path_of(store, 1)
    store.put(bad, cut_off(store.get(bad)))
    settings = {"skippedFiles.trackingEnabled": "false"}
    assert len(merge(store, settings).skipped) == 1
    assert opened(store).header.skips == {}


def test_one_good_source_is_not_rewritten_and_the_bad_one_is_recorded():
    store = memory_store()
    new_table(store, splits=2, days=("a",))
    bad = path_of(store, 1)
    store.put(bad, cut_off(store.get(bad)))
    before = live_paths(store)
    report = merge(store)
    assert (report.version, report.merged_groups, report.source_splits) == (3, 0, 0)
    assert live_paths(store) == splits(store) == before
    assert set(opened(store).header.skips) == {bad}


def test_a_group_that_cannot_be_written_leaves_the_others_alone(monkeypatch):
    store = memory_store()
    new_table(store)
    original = SplitWriter.commit

    def commit(writer):
        if next(iter(writer._builders)) == ("a",):
            raise SplitWriteError("the disk is full")
        return original(writer)

    monkeypatch.setattr(SplitWriter, "commit", commit)
    report = merge(store)
    assert (report.merged_groups, report.source_splits) == (1, 3)
    assert [(len(group.paths), group.reason) for group in report.given_up] == [(3, "the disk is full")]
    assert live_ids(store) == list(range(6))
    assert opened(store).num_files == 4


def test_an_error_of_every_group_is_raised_and_nothing_is_committed():
    inner = memory_store()
    version = new_table(inner).version
    store = UnreliableStore(inner, lambda operation, key: Moment.AFTER if operation == "put" else None)
    with pytest.raises(TransientStorageError, match="put"):
        merge(store)
    assert opened(inner).version == version
    assert splits(inner) == live_paths(inner)


# --- concurrent writers --------------------------------------------------------------------------------


def racing_merge(inner, other):
    """A merge with another operation right before its commit."""
    store = InterruptingStore(inner)
    snapshot = opened(store)
    store.before_commit = lambda: other(opened(inner))
    return merge_splits(snapshot, MergeRequest(), LocalRunner(1))


def test_a_merge_commits_after_a_concurrent_append():
    store = memory_store()
    new_table(store)
    report = racing_merge(store, lambda table: append(table, rows(9, day="a")))
    assert (report.source_splits, report.given_up) == (6, ())
    assert live_ids(store) == [0, 1, 2, 3, 4, 5, 9]
    assert opened(store).num_files == 3


def test_only_the_groups_whose_sources_are_gone_are_given_up():
    store = memory_store()
    new_table(store)
    gone = path_of(store, 0)
    report = racing_merge(store, lambda table: run(table, RemoveFiles((gone,)), Operation("DELETE")))
    assert report.merged_groups == 1
    (group,) = report.given_up
    assert gone in group.paths
    assert live_ids(store) == [1, 2, 3, 4, 5]
    assert splits(store) == all_paths(store)


def all_paths(store):
    """Every path that any version added."""
    found = set()
    for version in range(opened(store).version + 1):
        found |= set(load_snapshot(context(store), version).entries["path"].to_pylist())
    return found


def test_a_dropped_partition_stays_dropped():
    store = memory_store()
    new_table(store)
    dropping = DropPartitions(parse_predicate("day = 'a'"))
    report = racing_merge(store, lambda table: run(table, dropping, Operation("DROP PARTITIONS")))
    assert (report.merged_groups, len(report.given_up)) == (1, 1)
    assert live_ids(store) == [1, 3, 5]
    assert splits(store) == all_paths(store)


def test_a_merge_whose_sources_were_all_overwritten_commits_nothing():
    store = memory_store()
    new_table(store)
    report = racing_merge(store, lambda table: overwrite(table, rows(9, day="a")))
    assert (report.version, report.merged_groups, len(report.given_up)) == (None, 0, 2)
    assert live_ids(store) == [9]
    assert splits(store) == all_paths(store)


def test_of_two_merges_of_the_same_splits_one_wins():
    store = memory_store()
    new_table(store)
    others = []
    report = racing_merge(
        store,
        lambda table: others.append(merge_splits(table, MergeRequest(), LocalRunner(1))),
    )
    assert others[0].merged_groups == 2
    assert report.version is None
    assert live_ids(store) == list(range(6))
    assert opened(store).num_files == 2
    assert splits(store) == all_paths(store)


def test_a_bad_source_that_a_concurrent_commit_removed_is_not_recorded():
    store = memory_store()
    new_table(store)
    bad = path_of(store, 2)
    store.put(bad, cut_off(store.get(bad)))
    racing_merge(store, lambda table: run(table, RemoveFiles((bad,)), Operation("DELETE")))
    assert opened(store).header.skips == {}
    assert opened(store).num_files == 2


def test_changed_index_settings_end_a_merge_and_its_uploads_are_deleted():
    store = memory_store()
    new_table(store)
    before = live_paths(store)
    changing = {"spark.indextables.indexing.typemap.body": "text"}
    with pytest.raises(CommitConflictError, match="index settings"):
        racing_merge(store, lambda table: set_properties(table, changing))
    assert splits(store) == live_paths(store) == before


def test_a_merge_that_loses_every_race_leaves_no_split():
    class AlwaysBeaten(FaultStore):
        def put_if_absent(self, key, data):
            if key.startswith(f"{LOG_PREFIX}0"):
                append(opened(self._inner), rows(7, day="c"))
            return super().put_if_absent(key, data)

    inner = memory_store(VirtualClock())
    new_table(inner)
    with pytest.raises(CommitRetriesExhaustedError):
        merge(AlwaysBeaten(inner), {"transaction.retry.maxAttempts": "1"})
    assert splits(inner) == live_paths(inner)


# --- failing stores and interruptions ------------------------------------------------------------------


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


def test_an_interruption_while_the_tasks_run_deletes_all_uploads():
    inner = memory_store()
    version = new_table(inner).version

    def interrupt(progress):
        if progress.done:
            raise KeyboardInterrupt

    for parallelism in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            merge_splits(opened(inner), MergeRequest(), LocalRunner(parallelism, interrupt))
        assert splits(inner) == live_paths(inner)
    assert opened(inner).version == version
    assert merge(inner).merged_groups == 2


def test_an_interruption_during_the_commit_deletes_nothing():
    inner = memory_store()
    version = new_table(inner).version
    interrupted = InterruptedStore(
        inner, lambda operation, key: (operation, key) == ("put_if_absent", version_key(version + 1))
    )
    with pytest.raises(KeyboardInterrupt):
        merge(interrupted)
    assert live_ids(inner) == list(range(6))
    assert opened(inner).num_files == 2


@pytest.mark.parametrize("moment", Moment)
def test_an_unknown_outcome_deletes_nothing(moment):
    inner = memory_store()
    key = version_key(new_table(inner).version + 1)
    failing = {("put_if_absent", key): moment, ("get", key): Moment.BEFORE}
    with pytest.raises(CommitOutcomeUnknownError):
        merge(UnreliableStore(inner, lambda operation, name: failing.get((operation, name))))
    assert live_ids(inner) == list(range(6))
    assert len(splits(inner)) == 8


@pytest.fixture(scope="module")
def three_splits():
    """A table, and every possible failure of a call of its merge after the log was read."""
    start = memory_store(VirtualClock())
    new_table(start, splits=3, days=("a",))
    store = FaultStore(memory_copy(start))
    snapshot = opened(store)
    first = len(store.calls)
    merge_splits(snapshot, MergeRequest(), LocalRunner(1))
    assert {"get_range", "put", "put_if_absent"} <= {call.operation for call in store.calls[first:]}
    return start, list(itertools.product(range(first, len(store.calls)), Moment))


def test_with_any_call_failing_no_row_is_lost_and_no_upload_stays(three_splits):
    start, failures = three_splits
    version = opened(start).version
    shapes = set()
    for failure in failures:
        copy = memory_copy(start, VirtualClock())
        is_known = True
        try:
            merge(FaultStore(copy, fail_call=failure))
        except CommitOutcomeUnknownError:
            is_known = False
        except IndexTablesError:
            assert opened(copy).version == version, failure
        assert live_ids(copy) == [0, 1, 2], failure
        assert not is_known or splits(copy) <= all_paths(copy), failure
        shape = (opened(copy).version, opened(copy).num_files)
        if shape not in shapes:
            shapes.add(shape)
            append(opened(copy), rows(9, day="a"))
            merge(copy)
            assert live_ids(copy) == [0, 1, 2, 9], failure
    # Nothing was merged, everything was merged, or one split was skipped and the rest merged.
    assert {(version, 3), (version + 1, 1), (version + 1, 2)} <= shapes


def test_a_merge_succeeds_when_any_single_call_fails_and_is_repeated(three_splits):
    start, failures = three_splits
    for failure in failures:
        copy = memory_copy(start, VirtualClock())
        report = merge(RetryingStore(FaultStore(copy, fail_call=failure)))
        assert (report.merged_groups, report.skipped) == (1, ()), failure
        assert live_ids(copy) == [0, 1, 2]
        assert splits(copy) == all_paths(copy)


def test_a_state_that_cannot_be_written_does_not_fail_the_merge(caplog):
    inner = memory_store()
    new_table(inner)
    store = UnreliableStore(inner, lambda _, key: Moment.BEFORE if "manifests/" in key else None)
    report = merge(store, {"checkpoint.enabled": "true"})
    assert report.merged_groups == 2
    assert "no checkpoint at version" in caplog.text
    assert live_ids(inner) == list(range(6))


# --- kill -9 -------------------------------------------------------------------------------------------

NURSERY = """
import os, sys, threading
from indextables.config import Settings
from indextables.ops.merge import MergeRequest, merge_splits
from indextables.ops.runner import LocalRunner
from indextables.storage import open_store
from indextables.table import TableContext, load_snapshot
from support.faults import FaultStore

def say(text):
    os.write(1, f"{text}\\n".encode())

class StoppingStore(FaultStore):
    '''Stops for ever after one of the calls that change something.'''

    def __init__(self, inner, number):
        super().__init__(inner)
        self.left = number

    def _perform(self, operation, key, call):
        result = call()
        if operation.startswith("put"):
            self.left -= 1
            if self.left == 0:
                say("reached")
                threading.Event().wait()
        return result

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        say(os.getpid())
        root, number = line.rstrip("\\n").split("\\t")
        store = StoppingStore(open_store(root), int(number))
        merge_splits(load_snapshot(TableContext(store, Settings.resolve({}))), MergeRequest(), LocalRunner(1))
        say("done")
        os._exit(0)
    os.waitpid(child, 0)
    say("ended")
"""


@pytest.fixture(scope="module")
def nursery(request) -> Iterator["subprocess.Popen[str]"]:
    """A process with the package loaded that forks a merge process for each input line."""
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


def killed(nursery, path, number):
    """Kill a merge at its n-th write. False if it ended before."""
    nursery.stdin.write(f"{path}\t{number}\n")
    nursery.stdin.flush()
    pid = int(nursery.stdout.readline())
    word = nursery.stdout.readline()
    assert word in ("reached\n", "done\n")
    if word == "reached\n":
        os.kill(pid, signal.SIGKILL)
    assert nursery.stdout.readline() == "ended\n"
    return word == "reached\n"


def test_a_merge_killed_after_any_write_leaves_the_table_as_before_or_as_after(nursery, tmp_path):
    template = tmp_path / "template"
    table = IndexTable.create(template, SCHEMA, partition_by=["day"])
    for number in range(4):
        table.append(rows(number, day=DAYS[number % 2]))
    outcomes = []
    for number in itertools.count(1):
        path = tmp_path / str(number)
        shutil.copytree(template, path)
        if not killed(nursery, path, number):
            break
        found = IndexTable(path)
        assert set(found.files()["path"].to_pylist()) <= set(split_files(path))
        assert ids(found) == [0, 1, 2, 3]
        if found.num_files not in outcomes:
            again = IndexTable(path)
            again.append(rows(9, day="a"))
            again.merge_splits()
            assert ids(again) == [0, 1, 2, 3, 9]
            assert again.num_files == 2
        outcomes.append(found.num_files)
    # Two splits, then the version file (the commit), then the state.
    assert outcomes[:3] == [4, 4, 2]
    assert set(outcomes[3:]) == {2}
